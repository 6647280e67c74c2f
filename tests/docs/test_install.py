"""The Dockerfile is as pyproject.toml wants it; `make docker` builds it."""

import json
import tomllib

from paths import ROOT

INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def arguments(instruction: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def test_the_image_begins_with_a_python_that_the_project_takes() -> None:
    assert arguments("FROM") == ["python:3.11-slim"]
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.13"


def test_only_files_of_the_repository_are_copied_and_all_packages() -> None:
    copied = [name for words in arguments("COPY") for name in words.split()[:-1]]
    assert not arguments("ADD")
    assert all((ROOT / name).exists() for name in copied)
    packages = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in packages} <= set(copied)


def test_the_image_starts_the_command_of_the_project() -> None:
    (entry,) = map(json.loads, arguments("ENTRYPOINT"))
    assert entry == list(PROJECT["project"]["scripts"])

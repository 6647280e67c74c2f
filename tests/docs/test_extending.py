"""The walks of docs/extending.md work as they are written: the files, the entries, the tests, and a run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
STEP = re.compile(r"^\*\*\d\..*?`((?:model_wrappers|harness|tables|tests)/[\w/]+\.py)`", re.MULTILINE | re.DOTALL)


def pieces() -> list[tuple[str, str]]:
    """The code blocks of the page, each with the file that the numbered step before it names."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    return [(STEP.findall(text[: block.start()])[-1], block[1]) for block in BLOCK.finditer(text)]


def enter(text: str, entry: str) -> str:
    """A file's text with an entry of the page: new imports, a replaced assignment, or a line of a table."""
    for line in entry.splitlines():
        assigned = re.match(r"(\w+)(?:: .*)? = ", line)
        if line.startswith("from "):
            module = re.escape(line.split(" import ")[0])
            before = (rf"^{module} import [^(\n]*$", line), (r"^(from __future__ .*)$", rf"\1\n\n{line}")
            text = replaced(text, *(before[0] if re.search(before[0][0], text, re.MULTILINE) else before[1]))
        elif assigned:
            text = replaced(text, rf"^{assigned[1]}(?:: .*)? = .*$", line)
        elif line.startswith('    "'):
            table = "METHODS" if "Decoder(" in line else "PRESETS"
            text = replaced(text, rf"^({table}.*= \{{)$", rf"\1\n{line}")
    return text


def replaced(text: str, pattern: str, line: str) -> str:
    """A text with the first line that has a pattern replaced."""
    text, count = re.subn(pattern, line, text, count=1, flags=re.MULTILINE)
    assert count == 1, line
    return text


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every walk done."""
    folder = tmp_path_factory.mktemp("stranger")
    for name in ("model_wrappers", "harness", "tables", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, code in pieces():
        path = folder / name
        path.write_text(enter(path.read_text(), code) if path.exists() else code, encoding="utf-8")
    return folder


def done(tree: Path, *line: str) -> str:
    """What a command in the stranger's tree prints; it must succeed."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        [sys.executable, *line], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


def test_the_page_has_all_four_walks() -> None:
    new = [name for name, _ in pieces() if not (ROOT / name).exists() and not name.startswith("tests/")]
    assert sorted(Path(name).parent.as_posix() for name in new) == [
        "harness/suites",
        "model_wrappers/backbones",
        "model_wrappers/decoders",
        "tables/sheets",
    ]
    assert sum(name.startswith("tests/") for name, _ in pieces()) == 3


@pytest.mark.slow
def test_the_tests_of_the_walks_pass(tree: Path) -> None:
    tests = [name for name, _ in pieces() if name.startswith("tests/")]
    assert " passed" in done(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


@pytest.mark.slow
def test_the_new_decoder_runs_on_the_new_suite(tree: Path) -> None:
    line = ["--suite", "sums", "--methods", "llada,left-to-right", "--limit", "2", "--out", str(tree / "run")]
    assert "| Left to right" in done(tree, "harness/run.py", *line)
    assert (tree / "run" / "tables" / "lengths.md").exists()

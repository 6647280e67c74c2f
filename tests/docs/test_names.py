"""Pages name what is there: the walk of docs/architecture.md its lines, docs/api.md functions and
classes, mkdocs.yml every page. `make docs` checks links and headings."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from paths import ROOT

import harness
import model_wrappers

WALK = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
LINES = re.compile(r"\[([\w/]+\.py):[^\]]*\]\([^)]*\) `([\w.]+)`")
STEP = re.compile(r"^\d+\. \*\*.*?(?=^\d+\. |^## )", re.MULTILINE | re.DOTALL)
LINKS = list(LINES.finditer(WALK))
NAMES = re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE)
EXPORTED = {
    *(f"harness.{name}" for name in harness.__all__),
    *(f"model_wrappers.{name}" for name in model_wrappers.__all__),
}


def definition(file: Path, name: str) -> ast.stmt | None:
    """Where a module defines a function, a class or, as "Class.method", a method."""
    node: ast.Module | ast.stmt = ast.parse(file.read_text(encoding="utf-8"))
    for part in name.split("."):
        found = [child for child in getattr(node, "body", []) if _name_of(child) == part]
        if not found:
            return None
        node = found[0]
    return node if isinstance(node, ast.stmt) else None


def _name_of(node: ast.stmt) -> str:
    return str(getattr(node, "name", ""))


def test_the_walk_has_ten_steps_and_each_its_lines() -> None:
    steps = STEP.findall(WALK)
    assert len(steps) == 10 and all(LINES.search(step) for step in steps)


@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link[1]}-{link[2]}")
def test_a_link_of_the_walk_has_the_lines_of_what_it_names(link: re.Match[str]) -> None:
    file, name = link.groups()
    node = definition(ROOT / file, name)
    assert node is not None, f"{file} defines no {name}"
    first, last = node.lineno, node.end_lineno
    right = f"[{file}:{first}-{last}](../{file}#L{first}-L{last}) `{name}`"
    assert link[0] == right, f"in docs/architecture.md write {right}"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_api_is_exported_or_defined(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    file = ROOT / f"{module.replace('.', '/')}.py"
    file = file if file.exists() else file.with_suffix("") / "__init__.py"
    assert name in EXPORTED or definition(file, attribute) is not None


def test_the_api_has_all_that_is_exported() -> None:
    assert {name for name in EXPORTED if name not in API} == set()


def test_the_site_has_every_page() -> None:
    entries = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {path for entry in entries for path in entry.values()}
    known = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert pages == {page.relative_to(ROOT).as_posix() for page in known}

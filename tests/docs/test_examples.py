"""Examples of the pages that show what they print: they print that."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"```python\n([^`]*?)```\n\n```\n([^`]*?)```")
FOUND = [
    (page.name, *shown)
    for page in PAGES
    for shown in SHOWN.findall(page.read_text(encoding="utf-8"))
]
# what is saved as a file prints nothing
EXAMPLES = [(name, code, said) for name, code, said in FOUND if "print(" in code]


def test_the_first_example_shows_what_it_prints() -> None:
    assert {"README.md", "records.md", "usage.md"} <= {name for name, _, _ in EXAMPLES}


def examples() -> Iterator[Any]:
    """The examples by page; those that run several methods at night."""
    for name, code, said in EXAMPLES:
        marks = [pytest.mark.slow] if name == "usage.md" else []
        yield pytest.param(name, code, said, marks=marks, id=name)


@pytest.mark.parametrize(("page", "code", "said"), examples())
def test_an_example_prints_what_the_page_shows(
    page: str, code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = f"quiet=True, out={str(tmp_path / 'run')!r}"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code.replace("quiet=True", out), page, "exec"), {})
    assert printed.getvalue().split() == said.split()

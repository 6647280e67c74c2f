"""The README's tables of results are those that were rendered from committed records, line by line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RENDERED = {
    line for path in (ROOT / "results" / "reference").glob("*/tables/*.md") for line in path.read_text().splitlines()
}


def result_rows(text: str) -> list[str]:
    """Rows of tables that `tables/render.py` makes: their header begins with Method."""
    blocks = re.split(r"\n\s*\n", text)
    return [line for block in blocks if re.match(r"\| Method +\|", block) for line in block.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_of_results_are_rendered_ones(page: Path) -> None:
    strange = [row for row in result_rows(page.read_text()) if row not in RENDERED]
    assert not strange, f"not in results/reference/*/tables: {strange[0]}"


def test_the_readme_has_results() -> None:
    assert len(result_rows((ROOT / "README.md").read_text())) > 10

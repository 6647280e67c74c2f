"""Tables of results in the README and the docs are those that were rendered from committed records,
line by line."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from paths import ROOT

from harness.measures.table import measure
from harness.records.store import read_run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A comment right before a table names the file that its rows come from: whole rows, or some of its
# columns.
SOURCE = re.compile(r"<!-- (from|means of|columns of|items of) (\S+) -->")
COSTS = {"calls": "forwards", "tokens through the model": "token_forwards"}


def table_rows(text: str) -> list[str]:
    """The rows of the first Markdown table of a text, header and ruler included."""
    rows = re.search(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    return rows[0].splitlines() if rows else []


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def quoted(page: Path) -> Iterator[tuple[str, str, list[str]]]:
    """How a page quotes its sources, which they are, and the rows."""
    text = page.read_text(encoding="utf-8")
    for found in SOURCE.finditer(text):
        yield found[1], found[2], table_rows(text[found.end() :])


QUOTES = [(page, *quote) for page in PAGES for quote in quoted(page) if quote[0] != "items of"]
COUNTED = [(page, *quote[1:]) for page in PAGES for quote in quoted(page) if quote[0] == "items of"]


@pytest.mark.parametrize(
    ("page", "kind", "source", "rows"), QUOTES, ids=lambda each: getattr(each, "name", None)
)
def test_quoted_rows_are_rendered_ones(page: Path, kind: str, source: str, rows: list[str]) -> None:
    rendered = table_rows((ROOT / source).read_text(encoding="utf-8"))
    assert len(rows) > 2, f"no table behind the comment on {source}"
    if kind == "from":
        strange = [row for row in rows if row not in rendered]
    else:
        header = cells_of(rendered[0])
        kept = [header.index(name) for name in cells_of(rows[0])]
        means = [[cells_of(row)[number] for number in kept] for row in (rendered[0], *rendered[2:])]
        strange = [row for row in (rows[0], *rows[2:]) if cells_of(row) not in means]
    assert not strange, f"{page.name}: not in {source}: {strange[0]}"


@pytest.mark.parametrize(
    ("page", "source", "rows"), COUNTED, ids=lambda each: getattr(each, "name", None)
)
def test_counted_numbers_are_the_records(page: Path, source: str, rows: list[str]) -> None:
    """Means over the suites of the method in backticks: of COSTS, and of Speed as tables have
    it."""
    run = read_run(ROOT / source)
    costs = (
        run.items.groupby(["method", "suite"])[list(COSTS.values())].mean().groupby("method").mean()
    )
    speeds = measure(run).groupby("method", observed=True)["speedup"].mean()
    header = cells_of(rows[0])
    for row in rows[2:]:
        cells = dict(zip(header, cells_of(row), strict=True))
        method = cells[header[0]].split("`")[1]
        for name, column in COSTS.items():
            decimals = len(cells[name].partition(".")[2])
            assert cells[name] == f"{costs.loc[method, column]:,.{decimals}f}", row
        assert cells["Speed"] == f"{speeds[method]:.2f}", row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_of_methods_names_its_source(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tables = len(re.findall(r"^\| [Mm]ethod +\|.*(?:Acc|Speed|Tokens)", text, re.MULTILINE))
    assert tables == len(SOURCE.findall(text))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    targets += re.findall(r'<img src="([^"]+)"', page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def shown(number: float, like: str) -> str:
    """A number with as many decimals as another has."""
    return f"{number:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "results.md"], ids=lambda page: page.name
)
def test_every_interval_of_a_page_is_a_claims(page: Path) -> None:
    """Its ends as claims.csv has them, of a loss with the other sign."""
    claims = pd.read_csv(ROOT / "results" / "reference" / "claims.csv")
    known = [
        *zip(claims["low"], claims["high"], strict=True),
        *zip(-claims["high"], -claims["low"], strict=True),
    ]
    found = re.findall(r"\((-?[\d.]+) to\s(-?[\d.]+)", page.read_text(encoding="utf-8"))
    there = [
        any((shown(low, a), shown(high, b)) == (a, b) for low, high in known) for a, b in found
    ]
    assert (
        len(found) >= 3
        and [pair for pair, known in zip(found, there, strict=True) if not known] == []
    )

"""The table of every method beside one of them, on request."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from harness.measures.against import ALL, MARGIN, NOT_SHOWN, against
from harness.measures.table import method_labels, suite_titles, timed
from harness.records.store import Run
from tables.sheets.captions import setting, timing
from tables.sheets.layout import Cell, Request, Sheet, Table, lettered, number_text
from tables.sheets.suites import INTERVAL, with_checkpoints

SAME = "Same tokens"
HEADINGS = ("Points", "Speed", SAME)
AFTER_HOLM = "after Holm"
POINTS_MEANING = (
    "Points: percentage points of accuracy more than {0}'s, over the problems judged for both, with Tango's 95% "
    "interval. A method whose interval begins above -m is not inferior by m points (one-sided, 97.5%). After Holm over "
    "the {1} comparisons of the table: ahead or behind, an interval without 0; level, one within {2:g} points of 0; "
    "otherwise not shown, in brackets the problems that a difference of this size would need."
)
SPEED_MEANING = "Speed: {0}'s total seconds over the method's, with a bootstrap interval over the paired items."
SAME_MEANING = "Same tokens: responses with {0}'s tokens, of those that both have."
ALL_MEANING = "All: points over the problems of all suites{}."


def against_table(compared: pd.DataFrame, measured: pd.DataFrame, run: Run, reference: str) -> Table:
    """The frame of `measures.against.against` as a table: a row per method, its intervals below."""
    labels, titles = method_labels(run), suite_titles(run)
    groups = {suite: title for suite, title in titles.items() if suite in set(compared["suite"])}
    if ALL in set(compared["suite"]):
        groups[ALL] = "All"
    shown = HEADINGS if timed(run) else tuple(heading for heading in HEADINGS if heading != "Speed")
    wide = [(suite, heading) for suite in groups for heading in shown if heading != SAME or suite == list(groups)[-1]]
    methods = list(compared["method"].unique())
    most = compared.groupby("suite")["judged"].transform("max")
    notes = [
        f"over {own} of {of} problems" if own < of else "" for own, of in zip(compared["judged"], most, strict=True)
    ]
    letters = lettered(filter(None, notes))
    rows = {(row["method"], row["suite"]): row for row in compared.assign(note=notes).to_dict("records")}
    body: list[Any] = []
    index = []
    for method in methods:
        body += zip(*(_cells(rows.get((method, suite)), heading, letters) for suite, heading in wide), strict=True)
        index += [labels[method], INTERVAL, AFTER_HOLM]
    minor = frozenset(number for number in range(len(body)) if number % 3)
    columns = pd.MultiIndex.from_tuples([(groups[suite], heading) for suite, heading in wide])
    cells = pd.DataFrame(body, index=index, columns=columns, dtype=object)
    name = labels[reference]
    missing = [labels[method] for method in measured["method"].unique() if method not in {*methods, reference}]
    mean = ", speed the plain mean over the suites" if timed(run) else ""
    sentences = [
        f"Every method beside {name}.",
        POINTS_MEANING.format(name, int(compared["word"].ne("").sum()), MARGIN),
        *([SPEED_MEANING.format(name)] if timed(run) else []),
        SAME_MEANING.format(name),
        *([ALL_MEANING.format(mean)] if ALL in groups else []),
        *([f"Without {', '.join(missing)}, which share no problem with it here."] if missing else []),
    ]
    caption = " ".join([*sentences, *setting(measured, run), *timing(run)])
    marked = tuple((letter, text) for text, letter in letters.items())
    return Table("against", caption, with_checkpoints(cells, methods, minor, run), marked, minor)


def _cells(row: dict[Any, Any] | None, heading: str, letters: dict[str, str]) -> tuple[Cell, Cell, Cell]:
    """What a method has in a column: the value, below it the interval, and the word of points."""
    none = Cell("")
    if row is None:
        return Cell("-"), none, none
    if heading == SAME:
        return Cell(f"{row['same']} of {row['items']}"), none, none
    name, decimals = ("points", 1) if heading == "Points" else ("speed", 2)
    ends = [number_text(row[f"{name}_{end}"], decimals) for end in ("low", "high")]
    interval = none if pd.isna(row[f"{name}_low"]) else Cell(" to ".join(ends))
    if heading == "Speed":
        return Cell(number_text(row["speed"], 2, unit="x")), interval, none
    of = f" ({row['needed']:,.0f})" if row["word"] == NOT_SHOWN and math.isfinite(row["needed"]) else ""
    return Cell(number_text(row["points"], 1, "+"), mark=letters.get(row["note"], "")), interval, Cell(row["word"] + of)


def against_sheets(request: Request) -> Iterator[Sheet]:
    """Every method beside the one that was asked for, if any was."""
    if request.against:
        compared = against(request.run, request.against)
        table = against_table(compared, request.measured, request.run, request.against)
        yield Sheet(table, compared)

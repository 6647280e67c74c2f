"""Tidy frames become tables as they will be printed: cells, emphasis, notes, captions. A new table
is one file here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any, NamedTuple

import pandas as pd

from harness.measures.intervals import Pairs
from harness.measures.notes import OTHER_TOKENIZER, joined, lettered
from harness.measures.table import BY_SEED, method_labels, suite_titles, suites_with, timed
from harness.records.store import Run

MEAN = "mean"
MEAN_TITLE = "Mean"
NO_NUMBER = ("-", "n/s")  # a cell of what was not measured, or not scored


@dataclass(frozen=True)
class Cell:
    """One cell: its text, its emphasis ("", "bold" or "underline"), and the letters of its
    notes."""

    text: str
    emphasis: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table to be printed: rows are labels, columns (group, heading), values `Cell`; notes are
    (letter, text).

    sentences: of the caption, the most important first; what it has no room for is printed below
    the table. minor: numbers of the rows that belong to the row above, and are printed smaller.
    """

    name: str
    sentences: Sequence[str]
    cells: pd.DataFrame
    notes: tuple[tuple[str, str], ...] = ()
    minor: frozenset[int] = frozenset()


def of_group(table: Table, group: str) -> Table:
    """A table with the columns of one group (a suite, Mean) alone, and the notes that they have.

    A mean takes over the marks of the numbers that it is made of.
    """
    columns: list[Any] = table.cells.columns.to_flat_index().to_list()
    kept = [column for column in columns if column[0] in ("", group)]
    cells = table.cells[kept].copy()
    for column in kept:
        if column[0] == MEAN_TITLE:
            parts = [table.cells[other] for other in columns if other[1] == column[1]]
            means: list[Any] = [_with_marks_of(row) for row in zip(*parts, strict=True)]
            cells[column] = means
    # A row below another one may have had nothing but what is gone now.
    empty = {number for number in table.minor if all(not cell.text for cell in cells.iloc[number])}
    left = [number for number in range(len(cells)) if number not in empty]
    cells = cells.iloc[left]
    minor = frozenset(at for at, number in enumerate(left) if number in table.minor)
    noted = {mark for cell in cells.to_numpy().ravel() for mark in cell.mark.split(", ")}
    return replace(
        table,
        cells=cells,
        minor=minor,
        notes=tuple(note for note in table.notes if note[0] in noted),
    )


def _with_marks_of(row: Sequence[Cell]) -> Cell:
    """The mean of a row, its last cell, with its marks and those of the numbers before it."""
    *parts, mean = row
    marks = {cell.mark for cell in parts if cell.text not in NO_NUMBER}
    return replace(mean, mark=", ".join(sorted((marks | {mean.mark}) - {""})))


@dataclass(frozen=True)
class Sheet:
    """A table with its tidy, unformatted numbers."""

    table: Table
    numbers: pd.DataFrame


@dataclass(frozen=True)
class TableRequest:
    """What tables are made of: a run, its rows of `table.measure`, and `intervals.paired` if
    intervals are wanted.

    paper, measures, published: whether the paper's numbers, the field's measures and published
    accuracies are wanted. against: the method to compare with, or "".
    """

    run: Run
    measured: pd.DataFrame
    pairs: Pairs | None = None
    paper: bool = False
    against: str = ""
    measures: bool = False
    published: bool = False


@dataclass(frozen=True)
class Metric:
    """A column under every suite: the frame's columns for values, notes and whether a row competes
    for `emphasis`."""

    value: str
    heading: str
    unit: str
    emphasis: str
    note: str
    competes: str


class Heading(NamedTuple):
    """A column of a table with a row per method and suite: its group and heading, and how its
    numbers are printed."""

    group: str
    text: str
    decimals: int
    unit: str = ""


Headings = Mapping[str, Heading]  # by column of the frame

ACCURACY = Metric("accuracy", "Acc.", "", "bold", "accuracy_note", "accuracy_full")
SPEED = Metric("speedup", "Speed", "x", "underline", "speed_note", "speed_full")
FORWARDS = Metric("forward_speedup", "Fwd.", "x", "", "forward_note", "speed_full")
ACCEPTANCE = Metric("acceptance_percent", "Acceptance", "", "", "forward_note", "speed_full")
METRICS = (ACCURACY, SPEED, FORWARDS)


def shown_metrics(metrics: Sequence[Metric], run: Run) -> list[Metric]:
    """The metrics, without Speed where the run was not timed."""
    return [metric for metric in metrics if metric is not SPEED or timed(run)]


def mean_rows(frame: pd.DataFrame, suites: Sequence[str]) -> pd.DataFrame:
    """One row per method for the suite "mean": plain averages over `suites_with` the number, else
    NaN and a note."""
    rows = []
    over = {
        metric.value: suites_with(frame, suites, metric.value) for metric in (*METRICS, ACCEPTANCE)
    }
    for method, own in frame.groupby("method", sort=False):
        own = own.set_index("suite").reindex(list(suites))
        means = {value: own.loc[there, value].mean(skipna=False) for value, there in over.items()}
        by_seed = zip(*own[BY_SEED].dropna(), strict=False) if pd.notna(means["accuracy"]) else ()
        other = any(OTHER_TOKENIZER in str(note) for note in own["forward_note"])
        tokenizer = OTHER_TOKENIZER if other else ""
        notes = {
            metric.value: _mean_note(
                means[metric.value], len(over[metric.value]), len(suites), metric
            )
            for metric in METRICS
        }
        rows.append(
            {
                "method": method,
                "suite": MEAN,
                **means,
                BY_SEED: tuple(sum(seed) / len(seed) for seed in by_seed),
                "accuracy_note": notes["accuracy"],
                "speed_note": joined(notes["speedup"], tokenizer),
                "forward_note": joined(notes["forward_speedup"], tokenizer),
                "accuracy_full": bool(own["accuracy_full"].eq(True).all()),
                "speed_full": bool(own["speed_full"].eq(True).all()),
            }
        )
    return pd.DataFrame(rows)


def _mean_note(mean: float, count: int, suites: int, metric: Metric) -> str:
    """What to say of a mean over `count` of the suites."""
    lacking = "not scored" if metric is ACCURACY else "without a number"
    if pd.isna(mean):
        return f"no mean: a suite is missing or {lacking}"
    if count < suites:
        return f"mean over {count} of {suites} suites, the others are {lacking}"
    return ""


def grid(
    frame: pd.DataFrame, metrics: Sequence[Metric], labels: dict[str, str], groups: dict[str, str]
) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """Cells and notes: a row per method of `labels` in `frame`, a column per suite of `groups` and
    metric.

    The best value of a column, as printed, gets the metric's emphasis, among the competing rows (of
    the same `source`, if any), unless all have it.
    """
    rows = {(str(row["method"]), str(row["suite"])): row for row in frame.to_dict("records")}
    methods = [method for method in labels if method in set(frame["method"])]
    texts = [row[metric.note] for row in rows.values() for metric in metrics if row[metric.note]]
    letters = lettered(texts)
    columns = {}
    for suite, title in groups.items():
        own = {method: rows[method, suite] for method in methods if (method, suite) in rows}
        for metric in metrics:
            bests = _bests(list(own.values()), metric)
            columns[title, metric.heading] = [
                _cell(own.get(method), metric, bests, letters) for method in methods
            ]
    cells = pd.DataFrame(columns, index=[labels[method] for method in methods])
    return cells, tuple((letter, text) for text, letter in letters.items())


def listed(frame: pd.DataFrame, headings: Headings, run: Run) -> pd.DataFrame:
    """Cells with a row for each of a frame, its suite first; the rows are called by their series,
    or their method."""
    titles = suite_titles(run)
    rows = [
        [
            Cell(titles[row["suite"]]),
            *(
                Cell(number_text(row[name], decimals, unit=unit))
                for name, (_, _, decimals, unit) in headings.items()
            ),
        ]
        for row in frame.to_dict("records")
    ]
    names = frame["series"] if "series" in frame else frame["method"].map(method_labels(run))
    columns = [("", "Suite"), *((heading.group, heading.text) for heading in headings.values())]
    return pd.DataFrame(
        rows, index=names.to_list(), columns=pd.MultiIndex.from_tuples(columns), dtype=object
    )


def _bests(rows: list[dict[Any, Any]], metric: Metric) -> set[tuple[str, str]]:
    """(source, value as printed) of the best competing row of every source; of several that are
    equal none is best."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        if row[metric.competes] and pd.notna(row[metric.value]):
            texts.setdefault(row.get("source", ""), []).append(number_text(row[metric.value], 2))
    return {
        (source, max(own, key=float))
        for source, own in texts.items()
        if len(own) == 1 or len({*own}) > 1
    }


def _cell(
    row: dict[Any, Any] | None, metric: Metric, bests: set[tuple[str, str]], letters: dict[str, str]
) -> Cell:
    if row is None:
        return Cell("-")
    mark = letters.get(row[metric.note], "")
    if pd.isna(row[metric.value]):
        return Cell("n/s" if metric.value == "accuracy" and row["scored"] == 0 else "-", mark=mark)
    text = number_text(row[metric.value], 2)
    is_best = row[metric.competes] and (row.get("source", ""), text) in bests
    by_seed = row.get(BY_SEED, ()) if metric is ACCURACY else ()
    spread = f" ± {number_text(stdev(by_seed), 2)}" if len(by_seed) > 1 else ""
    return Cell(text + metric.unit + spread, metric.emphasis if is_best else "", mark)


def number_text(value: float, decimals: int, sign: str = "", unit: str = "") -> str:
    """A number with these decimals and a unit, 0 without a sign, positive ones with `sign`; a dash
    for NaN."""
    if pd.isna(value):
        return "-"
    text = f"{value:{sign}.{decimals}f}"
    return (text.lstrip("+-") if float(text) == 0 else text) + unit

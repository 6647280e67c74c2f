"""The main table of a report: accuracy, speed and forwards of every series on every suite, with intervals."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.measures.intervals import mean_intervals, paired, with_intervals
from harness.measures.table import REFERENCE, checkpoint_names, measure, timed
from harness.records.store import Run
from tables.pages.book import Book

METRICS = {"accuracy": "Acc.", "speedup": "Speed", "forward_speedup": "Fwd."}
UNITS = {"accuracy": "", "speedup": "x", "forward_speedup": "x"}


@dataclass(frozen=True)
class Cell:
    """A number of the table: its text, its interval's, what it is sorted by, and the items behind it, as a link."""

    text: str
    interval: str
    value: float | None
    link: str


@dataclass(frozen=True)
class Row:
    """A series, its checkpoint, and its cells, by group (a suite's number, or "mean") and metric."""

    name: str
    checkpoint: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Overview:
    """The table. groups: titles of its groups of columns. frames: of each run all numbers, and those of the means."""

    groups: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    frames: tuple[pd.DataFrame, ...]
    means: tuple[pd.DataFrame, ...]


def overview(book: Book) -> Overview:
    """The table of a book. Raises UserError if its records are damaged."""
    frames, means = zip(*map(_measured, book.runs), strict=True)
    any_timed = any(timed(run) for run in book.runs)
    metrics = [name for name in METRICS if name != "speedup" or any_timed]
    rows = []
    for number, series in enumerate(book.series):
        own = frames[series.run].set_index(["method", "suite"])
        cells = []
        for suite, each in enumerate(book.suites):
            key = (series.method, each.key)
            there = book.suite_numbers[series.run].get(each.key) == suite and key in own.index
            values = own.loc[key].to_dict() if there else {}
            cells += [_cell(values, metric, f"#/items?suite={suite}&series={number}") for metric in metrics]
        mean = means[series.run].set_index("method")
        values = mean.loc[series.method].to_dict() if series.method in mean.index else {}
        cells += [_cell(values, metric, f"#/items?series={number}") for metric in metrics]
        checkpoint = checkpoint_names(book.runs[series.run], series.method)
        rows.append(Row(series.name, checkpoint, tuple(cells)))
    titles = (*(suite.title for suite in book.suites), "Mean")
    return Overview(titles, tuple(METRICS[metric] for metric in metrics), tuple(rows), frames, means)


def _measured(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The numbers of a run with intervals, and the means over its suites of the methods that have all of them."""
    measured, pairs = measure(run), paired(run)
    frame = with_intervals(measured, pairs)
    suites = list(dict.fromkeys(measured["suite"]))
    complete = measured.groupby("method", sort=False).filter(lambda own: set(own["suite"]) == set(suites))
    if complete.empty:
        return frame, pd.DataFrame(columns=["method", *METRICS])
    known = complete.groupby("method", sort=False)[list(METRICS)]
    values = known.mean().where(known.count().eq(len(suites)))
    ends = mean_intervals(complete, pairs, suites) if REFERENCE in set(measured["method"]) else None
    means = values.reset_index()
    return frame, means if ends is None else means.merge(ends, on="method")


def _cell(values: dict[Any, Any], metric: str, link: str) -> Cell:
    value, low, high = (values.get(name) for name in (metric, f"{metric}_low", f"{metric}_high"))
    if value is None or pd.isna(value):
        return Cell("-", "", None, link)
    digits, unit = (1 if metric == "accuracy" else 2), UNITS[metric]
    known = low is not None and high is not None and not pd.isna(low) and not pd.isna(high)
    interval = f"{low:.{digits}f} to {high:.{digits}f}{unit}" if known else ""
    return Cell(f"{value:.{digits}f}{unit}", interval, round(float(value), 6), link)

"""A report's main table: the means first, then each suite, with intervals, notes and links to the
items."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.elements import format_label
from harness.measures.intervals import means as means_over
from harness.measures.intervals import paired, with_intervals
from harness.measures.notes import against_reference, joined, lettered, with_notes
from harness.measures.table import checked_items, checkpoint_names, measure, timed
from harness.records.schema import Method
from harness.records.store import Run
from harness.stats import speedup_intervals
from tables.pages.data import Book
from tables.sheets import ACCURACY, MEAN_TITLE, METRICS, SPEED, Metric, mean_rows


@dataclass(frozen=True)
class LinkedCell:
    """A number of the table: its text, its interval's, what it is sorted by, a link to its items,
    its note's letter."""

    text: str
    interval: str
    value: float | None
    link: str
    mark: str


@dataclass(frozen=True)
class Row:
    """A series, its checkpoint and settings, and its cells, by group (the means first, then each
    suite) and metric."""

    name: str
    about: str
    cells: tuple[LinkedCell, ...]


@dataclass(frozen=True)
class Overview:
    """The table. groups: titles of its groups of columns. frames: of each run all numbers, and
    those of the means.

    notes: (letter, text) of the cells' marks.
    """

    groups: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    frames: tuple[pd.DataFrame, ...]
    means: tuple[pd.DataFrame, ...]
    notes: tuple[tuple[str, str], ...]


def overview(book: Book) -> Overview:
    """The table of a book. Raises UserError if its records are damaged."""
    frames: list[pd.DataFrame] = []
    means: list[pd.DataFrame] = []
    settings: list[dict[tuple[str, str], str]] = []
    for run, numbers in zip(book.runs, book.suite_numbers, strict=True):
        measured = measure(run)
        pairs = paired(run)
        settings.append(_settings(run))
        # A setting that holds on all suites is said of the row, any other of its cells.
        own = {
            (method, on): text
            for (method, on), text in settings[-1].items()
            if not _of_row(settings[-1], method)
        }
        noted = with_notes(with_intervals(measured, pairs), run, own)
        frames.append(noted)
        suites = [
            *dict.fromkeys(measured["suite"]),
            *(["of another run"] if len(numbers) < len(book.suites) else []),
        ]
        marks = mean_rows(noted, suites)[["method", *(metric.note for metric in METRICS)]]
        means.append(means_over(measured, suites, pairs).merge(marks, on="method"))
    metrics = [
        metric for metric in METRICS if metric is not SPEED or any(timed(run) for run in book.runs)
    ]
    found: list[list[tuple[dict[Any, Any], str]]] = []
    for number, series in enumerate(book.series):
        by_pair: Any = frames[series.run].set_index(["method", "suite"])
        mean = means[series.run].set_index("method").loc[series.method].to_dict()
        groups = [(mean, f"#/items?series={number}")]
        for suite, each in enumerate(book.suites):
            key = (series.method, each.key)
            there = book.suite_numbers[series.run].get(each.key) == suite and key in by_pair.index
            values = by_pair.loc[key].to_dict() if there else {}
            groups.append((values, f"#/items?suite={suite}&series={number}"))
        found.append(groups)
    letters = lettered(
        note
        for groups in found
        for values, _ in groups
        for metric in metrics
        if (note := values.get(metric.note))
    )
    rows = []
    for series, groups in zip(book.series, found, strict=True):
        checkpoint = checkpoint_names(book.runs[series.run], series.method)
        about = joined(
            "" if checkpoint == "-" else checkpoint, _of_row(settings[series.run], series.method)
        )
        cells = tuple(
            _cell(values, metric, link, letters) for values, link in groups for metric in metrics
        )
        rows.append(Row(series.name, about, cells))
    titles = (MEAN_TITLE, *(suite.title for suite in book.suites))
    notes = tuple((letter, text) for text, letter in letters.items())
    heads = tuple(metric.heading for metric in metrics)
    return Overview(titles, heads, tuple(rows), tuple(frames), tuple(means), notes)


def _settings(run: Run) -> dict[tuple[str, str], str]:
    """By method and suite in what its settings differ from LLaDA's, and the numbers that it has
    set, such as tau."""
    return {
        (method, suite): joined(text, _numbers(run.config.methods[method], suite))
        for (method, suite), text in against_reference(run).items()
    }


def _numbers(method: Method, suite: str) -> str:
    """The options that are numbers, without those that the label has, and steps, which it has where
    they count."""
    options = method.suites[suite].options
    numbers = {
        name: value
        for name, value in options.items()
        if type(value) in (int, float) and name != "steps"
    }
    return ", ".join(
        text
        for name in numbers
        if (text := format_label({name: numbers[name]})) not in method.label
    )


def _of_row(settings: Mapping[tuple[str, str], str], method: str) -> str:
    """What is said of all suites of a method alike, or ""."""
    texts = {text for (of, _), text in settings.items() if of == method}
    return texts.pop() if len(texts) == 1 else ""


def _cell(
    values: dict[Any, Any], metric: Metric, link: str, letters: Mapping[str, str]
) -> LinkedCell:
    value, low, high = (values.get(f"{metric.value}{end}") for end in ("", "_low", "_high"))
    mark = letters.get(values.get(metric.note, ""), "")
    if pd.isna(value):
        return LinkedCell("-", "", None, link, mark)
    digits = 1 if metric is ACCURACY else 2
    interval = "" if pd.isna(low) or pd.isna(high) else f"{low:.{digits}f}-{high:.{digits}f}"
    return LinkedCell(
        f"{value:.{digits}f}{metric.unit}", interval, round(float(value), 6), link, mark
    )


def speeds(book: Book) -> dict[str, list[list[list[float | None]]]]:
    """95% intervals of a series' seconds / another's, by both; by the number of a suite, and "" of
    the mean of all."""
    runs = [(number, run) for number, run in enumerate(book.runs) if timed(run)]
    named = {"method": str, "suite": str}
    items = [book.numbered(number, checked_items(run).astype(named)) for number, run in runs]
    if not items:
        return {}
    # The seconds of a problem are those of all its seeds.
    totals = (
        pd.concat(items)
        .groupby(["suite", "problem", "series"])["seconds"]
        .sum(min_count=1)
        .unstack("series")
    )
    # Of a run that has its seconds from another only the problems of that one count.
    known = totals.reindex(columns=range(len(book.series))).dropna(how="all")
    seconds = [own.to_numpy(float) for _, own in known.groupby(level="suite")]
    parts = {
        str(number): [own] for number, own in zip(known.index.unique("suite"), seconds, strict=True)
    }
    if len(seconds) == len(book.suites):
        parts[""] = seconds
    return {name: _json_numbers(speedup_intervals(own)) for name, own in parts.items()}


def _json_numbers(ends: Any) -> list[list[list[float | None]]]:
    found = np.round(np.moveaxis(ends, 0, -1), 4).astype(object)
    found[pd.isna(found)] = None
    numbers: list[list[list[float | None]]] = found.tolist()
    return numbers

"""Tidy frames become tables as they will stand: formatted cells, what stands out, notes, caption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from string import ascii_lowercase
from typing import Any

import pandas as pd

from harness.records import Run
from tables.captions import setting
from tables.measures import REFERENCE, WINDOW_MEASURES, method_labels, suite_titles

MEAN = "mean"
WHAT = "Accuracy (Acc., %) and speedups over LLaDA on the same items: wall-clock (Speed) and forward passes (Fwd.)."
EMPHASIS = "Best accuracy is in bold, fastest wall-clock speed underlined, among the rows with the most items."
ACCEPTANCE_MEANING = "Acceptance is accepted / proposed draft tokens, in percent."
MEAN_MEANING = "Mean is the plain average over the suites."


@dataclass(frozen=True)
class Cell:
    """One cell: its text, how it stands out ("", "bold" or "underline"), and the letters of its notes."""

    text: str
    emphasis: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table as it will stand: rows are labels, columns (group, heading), values `Cell`; notes are (letter, text)."""

    name: str
    caption: str
    cells: pd.DataFrame
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Metric:
    """A column under every suite: the frame's columns for values, notes and whether a row competes for `emphasis`."""

    value: str
    heading: str
    unit: str
    emphasis: str
    note: str
    competes: str


ACCURACY = Metric("accuracy", "Acc.", "", "bold", "accuracy_note", "accuracy_full")
SPEED = Metric("speedup", "Speed", "x", "underline", "speed_note", "speed_full")
FORWARDS = Metric("forward_speedup", "Fwd.", "x", "", "speed_note", "speed_full")
ACCEPTANCE = Metric("acceptance_percent", "Acceptance", "", "", "speed_note", "speed_full")
METRICS = (ACCURACY, SPEED, FORWARDS)


def suites_table(name: str, title: str, measured: pd.DataFrame, run: Run, metrics: Sequence[Metric] = METRICS) -> Table:
    """A row per method in the order of `measured`, a group of columns per suite and their mean.

    measured: rows of `measures.measure`.
    """
    labels = method_labels(run)
    order = {method: labels[method] for method in measured["method"].unique()}
    suites = suite_titles(run)
    groups = {suite: title for suite, title in suites.items() if suite in set(measured["suite"])}
    frame = with_notes(measured, run)
    sentences = [*([title] if title else []), WHAT, EMPHASIS]
    if ACCEPTANCE in metrics:
        sentences.append(ACCEPTANCE_MEANING)
    if len(suites) > 1:
        frame = pd.concat([frame, mean_rows(frame, list(suites))], ignore_index=True)
        groups[MEAN] = "Mean"
        sentences.append(MEAN_MEANING)
    cells, notes = grid(frame, metrics, order, groups)
    return Table(name, " ".join([*sentences, *setting(measured, run)]), cells, notes)


def windows_table(windows: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """Speculative windows, one row per method and suite, from `measures.measure_windows`."""
    titles = suite_titles(run)
    rows = [
        [
            Cell(titles[row["suite"]]),
            *(Cell(_number(row[name], 3)) for name in WINDOW_MEASURES[2:4]),
            Cell(_number(row["committed_per_window"], 2)),
            Cell(str(row["windows"])),
        ]
        for row in windows.to_dict("records")
    ]
    headings = ["Suite", "Acceptance", "Alpha", "Committed", "Windows"]
    cells = pd.DataFrame(
        rows,
        index=windows["method"].map(method_labels(run)).to_list(),
        columns=pd.MultiIndex.from_tuples([("", heading) for heading in headings]),
        dtype=object,
    )
    caption = (
        "Speculative windows. Acceptance is accepted / proposed drafts, alpha accepted / (accepted + rejected), "
        "Committed the mean number of positions a window resolves."
    )
    if not rows:
        caption += " No method of this run decodes in windows."
    return Table("windows", " ".join([caption, *setting(measured, run)]), cells)


def with_notes(measured: pd.DataFrame, run: Run) -> pd.DataFrame:
    """`measured` with accuracy_note, speed_note (texts or "") and accuracy_full, speed_full (no row has more items)."""
    by_suite = measured.groupby("suite")
    most = by_suite["items"].transform("max")
    reasons = {suite: f"not scored: {reason}" for suite, reason in (run.meta.get("scoring") or {}).items() if reason}

    def accuracy_note(row: Any) -> str:
        if row.scored == 0:
            return str(reasons.get(row.suite, "not scored"))
        return f"accuracy over {row.scored} of {row.most} items" if row.scored < row.most else ""

    def speed_note(row: Any) -> str:
        if row.shared_items == 0:
            return "no speedup: LLaDA has no record of these items"
        short = row.shared_items < row.most and row.method != REFERENCE
        return f"speedups over the {row.shared_items} items shared with LLaDA" if short else ""

    rows = list(measured.assign(most=most).itertuples())
    return measured.assign(
        accuracy_note=[accuracy_note(row) for row in rows],
        speed_note=[speed_note(row) for row in rows],
        accuracy_full=(measured["scored"] == by_suite["scored"].transform("max")),
        speed_full=(measured["shared_items"] == by_suite["shared_items"].transform("max")),
        acceptance_percent=100 * measured["acceptance"],
    )


def mean_rows(frame: pd.DataFrame, suites: Sequence[str]) -> pd.DataFrame:
    """One row per method for the suite "mean": plain averages of what all `suites` have, else NaN and a note."""
    rows = []
    for method, own in frame.groupby("method", sort=False):
        own = own.set_index("suite").reindex(list(suites))
        means = {metric.value: own[metric.value].mean(skipna=False) for metric in (*METRICS, ACCEPTANCE)}
        rows.append(
            {
                "method": method,
                "suite": MEAN,
                **means,
                "accuracy_note": "no mean: a suite is missing or not scored" if pd.isna(means["accuracy"]) else "",
                "speed_note": "no mean: a suite is missing or has no speedup" if pd.isna(means["speedup"]) else "",
                "accuracy_full": bool(own["accuracy_full"].eq(True).all()),
                "speed_full": bool(own["speed_full"].eq(True).all()),
            }
        )
    return pd.DataFrame(rows)


def grid(
    frame: pd.DataFrame, metrics: Sequence[Metric], labels: dict[str, str], groups: dict[str, str]
) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """Cells and notes: a row per method of `labels` in `frame`, a column per suite of `groups` and metric.

    The best value of a column, as printed, gets the metric's emphasis, among the rows that compete; rows compete with
    those of the same `source`, where the frame has that column.
    """
    rows = {(str(row["method"]), str(row["suite"])): row for row in frame.to_dict("records")}
    methods = [method for method in labels if method in set(frame["method"])]
    texts = [row[metric.note] for row in rows.values() for metric in metrics if row[metric.note]]
    letters = dict(zip(dict.fromkeys(texts), _letters(), strict=False))
    columns = {}
    for suite, title in groups.items():
        own = {method: rows[method, suite] for method in methods if (method, suite) in rows}
        for metric in metrics:
            bests = _bests(list(own.values()), metric)
            columns[title, metric.heading] = [_cell(own.get(method), metric, bests, letters) for method in methods]
    cells = pd.DataFrame(columns, index=[labels[method] for method in methods])
    return cells, tuple((letter, text) for text, letter in letters.items())


def _bests(rows: list[dict[Any, Any]], metric: Metric) -> set[tuple[str, str]]:
    """(source, value as printed) of the best competing row of every source."""
    best: dict[str, str] = {}
    for row in rows:
        if row[metric.competes] and pd.notna(row[metric.value]):
            source = row.get("source", "")
            best[source] = max(best.get(source, "-1"), _number(row[metric.value], 2), key=float)
    return set(best.items())


def _cell(row: dict[Any, Any] | None, metric: Metric, bests: set[tuple[str, str]], letters: dict[str, str]) -> Cell:
    if row is None:
        return Cell("-")
    mark = letters.get(row[metric.note], "")
    if pd.isna(row[metric.value]):
        return Cell("n/s" if metric.value == "accuracy" and row["scored"] == 0 else "-", mark=mark)
    text = _number(row[metric.value], 2)
    stands_out = row[metric.competes] and (row.get("source", ""), text) in bests
    return Cell(text + metric.unit, metric.emphasis if stands_out else "", mark)


def _number(value: float, decimals: int) -> str:
    return "-" if pd.isna(value) else f"{value:.{decimals}f}"


def _letters() -> Iterator[str]:
    """a, b, ... z, aa, bb, ..."""
    return (letter * times for times in count(1) for letter in ascii_lowercase)

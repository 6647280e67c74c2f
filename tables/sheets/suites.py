"""The table of methods by suites: a row per method, a group of columns per suite, intervals below a row on request."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.measures.intervals import Pairs, mean_intervals
from harness.measures.table import REFERENCE, checkpoint_names, method_labels, suite_titles, timed
from harness.records.store import Run
from tables.sheets.captions import setting, timing
from tables.sheets.layout import (
    ACCEPTANCE,
    ACCEPTANCE_MEANING,
    ACCURACY,
    MEAN,
    METRICS,
    SPEED,
    Cell,
    Metric,
    Table,
    grid,
    mean_rows,
    shown_metrics,
    with_notes,
)

WHAT = "Accuracy (Acc., %) and speedups over LLaDA on the same items: wall-clock (Speed) and forward passes (Fwd.)."
EMPHASIS = "Best accuracy is in bold, fastest wall-clock speed underlined, among the rows with the most items."
WHAT_UNTIMED = "Accuracy (Acc., %) and LLaDA's forward passes over the method's on the same items (Fwd.)."
EMPHASIS_UNTIMED = "Best accuracy is in bold, among the rows with the most items."
MEAN_MEANING = "Mean is the plain average over the suites."
INTERVAL, P_VALUE = "95% interval", "p vs LLaDA (Holm)"
SMALLEST = 0.001  # p-values below are not printed
DECIMALS = {ACCURACY.value: 1, SPEED.value: 2}  # of the ends of intervals


def suites_table(
    name: str,
    title: str,
    measured: pd.DataFrame,
    run: Run,
    metrics: Sequence[Metric] = METRICS,
    pairs: Pairs | None = None,
) -> Table:
    """A row per method in the order of `measured`, a group of columns per suite and their mean.

    measured: rows of `table.measure`. pairs: with these, of `intervals.paired`, rows have intervals and p-values
    below; `measured` is then of `intervals.with_intervals`.
    """
    labels = method_labels(run)
    order = {method: labels[method] for method in measured["method"].unique()}
    suites = suite_titles(run)
    groups = {suite: title for suite, title in suites.items() if suite in set(measured["suite"])}
    frame = with_notes(measured, run)
    metrics = shown_metrics(metrics, run)
    sentences = [*([title] if title else []), *((WHAT, EMPHASIS) if timed(run) else (WHAT_UNTIMED, EMPHASIS_UNTIMED))]
    if ACCEPTANCE in metrics:
        sentences.append(ACCEPTANCE_MEANING)
    if len(suites) > 1:
        means = mean_rows(frame, list(suites))
        if pairs is not None:
            means = means.merge(mean_intervals(measured, pairs, list(suites)), on="method")
        frame = pd.concat([frame, means], ignore_index=True)
        groups[MEAN] = "Mean"
        sentences.append(MEAN_MEANING)
    cells, notes = grid(frame, metrics, order, groups)
    minor: frozenset[int] = frozenset()
    if pairs is not None:
        sentences.append(_what_subrows_say(measured, run))
        cells, minor = with_subrows(cells, frame, metrics, list(order), groups)
    caption = " ".join([*sentences, *setting(measured, run), *timing(run)])
    return Table(name, caption, with_checkpoints(cells, list(order), minor, run), notes, minor)


def with_checkpoints(cells: pd.DataFrame, methods: list[str], minor: frozenset[int], run: Run) -> pd.DataFrame:
    """The cells, and before them whose weights decode in each row, where the rows have different ones.

    methods: of the rows that are not `minor`, in their order.
    """
    named = [checkpoint_names(run, method) for method in methods]
    if len({*named}) < 2:
        return cells
    names = iter(named)
    column = [Cell("") if number in minor else Cell(next(names)) for number in range(len(cells))]
    frame = pd.DataFrame({("", "Checkpoint"): column}, index=cells.index)
    return pd.concat([frame, cells], axis=1)


def with_subrows(
    cells: pd.DataFrame, frame: pd.DataFrame, metrics: Sequence[Metric], methods: list[str], groups: dict[str, str]
) -> tuple[pd.DataFrame, frozenset[int]]:
    """The rows of `grid`, one per method, each with its intervals and p-values below; and which rows these are."""
    rows = {(str(row["method"]), str(row["suite"])): row for row in frame.to_dict("records")}
    body, labels, minor = [], [], set()
    for number, method in enumerate(methods):
        columns = [(rows.get((method, suite), {}), metric) for suite in groups for metric in metrics]
        subrows = {INTERVAL: [Cell(_interval(row, metric)) for row, metric in columns]}
        if method != REFERENCE:
            subrows[P_VALUE] = [Cell(_p_value(row, metric)) for row, metric in columns]
        body += [cells.iloc[number].to_list(), *subrows.values()]
        labels += [cells.index[number], *subrows]
        minor |= set(range(len(labels) - len(subrows), len(labels)))
    return pd.DataFrame(body, index=labels, columns=cells.columns, dtype=object), frozenset(minor)


def _what_subrows_say(measured: pd.DataFrame, run: Run) -> str:
    comparisons = int(measured["p_value"].notna().sum())
    bootstrap = ", for Speed bootstrap over the paired items" if timed(run) else ""
    return (
        f"Below each row 95% intervals, for accuracy Wilson's{bootstrap}, and p-values of its accuracy against LLaDA's "
        f"on the same items, exact McNemar, by Holm adjusted for {comparisons} comparison{'s' * (comparisons != 1)}."
    )


def _interval(row: dict[Any, Any], metric: Metric) -> str:
    decimals = DECIMALS.get(metric.value)
    if decimals is None or pd.isna(row.get(f"{metric.value}_low")):
        return ""
    return f"{row[f'{metric.value}_low']:.{decimals}f}-{row[f'{metric.value}_high']:.{decimals}f}"


def _p_value(row: dict[Any, Any], metric: Metric) -> str:
    p_value = row.get("p_holm")
    if metric is not ACCURACY or pd.isna(p_value):
        return ""
    return f"<{SMALLEST}" if p_value < SMALLEST else f"{p_value:.3f}"

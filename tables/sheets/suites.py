"""The table of methods by suites, and which methods are the rows of the main table and of the
paper's ablations."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.measures.captions import setting, timing
from harness.measures.intervals import ENDS, UNCERTAINTY, Pairs, with_intervals
from harness.measures.intervals import means as means_over
from harness.measures.notes import with_notes
from harness.measures.table import (
    MEASURES,
    REFERENCE,
    checkpoint_names,
    method_labels,
    suite_titles,
    timed,
)
from harness.methods.presets import GROUPS
from harness.records.schema import Method, Setting
from harness.records.store import Run
from harness.suites.published import published_accuracy
from tables.sheets import (
    ACCEPTANCE,
    ACCURACY,
    FORWARDS,
    MEAN,
    MEAN_TITLE,
    METRICS,
    SPEED,
    Cell,
    Metric,
    Sheet,
    Table,
    TableRequest,
    grid,
    mean_rows,
    shown_metrics,
)

WHAT = "Accuracy (%) and speedups over LLaDA."
WHAT_UNTIMED = "Accuracy (%), and forward passes beside LLaDA's."
SUBROWS_MEANING = "Below each row 95% intervals, and p-values by Holm adjusted for {}."
PUBLISHED = Metric("published", "Published", "", "", "published_note", "accuracy_full")
INTERVAL = "95% interval"
P_VALUE = "p vs LLaDA (Holm)"
SMALLEST = 0.001  # p-values below are not printed
DECIMALS = {ACCURACY.value: 1, SPEED.value: 2}  # of the ends of intervals


def suites_table(
    name: str,
    titles: Sequence[str],
    measured: pd.DataFrame,
    run: Run,
    metrics: Sequence[Metric] = METRICS,
    pairs: Pairs | None = None,
    published: bool = False,
) -> Table:
    """A row per method in the order of `measured`, a group of columns per suite and their mean.

    titles: the table's own sentences, the first one before all others. measured: rows of
    `table.measure`. pairs: of `intervals.paired`; rows then have intervals and p-values below, and
    `measured` is of `intervals.with_intervals`. published: whether a column has the accuracies that
    methods were published with, where any is known.
    """
    labels = method_labels(run)
    order = {method: labels[method] for method in measured["method"].unique()}
    suites = suite_titles(run)
    groups = {suite: title for suite, title in suites.items() if suite in set(measured["suite"])}
    frame = with_notes(measured, run)
    metrics = shown_metrics(metrics, run)
    if published:
        frame = with_published(frame, run)
        metrics = [ACCURACY, PUBLISHED, *metrics[1:]]
    sentences = [titles[0] or (WHAT if timed(run) else WHAT_UNTIMED)]
    if len(suites) > 1:
        means = mean_rows(frame, list(suites))
        if pairs is not None:
            means = means.merge(
                means_over(measured, list(suites), pairs)[["method", *ENDS]], on="method"
            )
        if published:
            means = means.assign(published=math.nan, published_note="")
        frame = pd.concat([frame, means], ignore_index=True)
        groups[MEAN] = MEAN_TITLE
    cells, notes = grid(frame, metrics, order, groups)
    if published:
        known = set(frame.loc[frame[PUBLISHED.value].notna(), "suite"].map(groups))
        cells = cells.drop(
            columns=[(title, PUBLISHED.heading) for title in groups.values() if title not in known]
        )
    minor: frozenset[int] = frozenset()
    if pairs is not None:
        comparisons = int(measured["p_value"].notna().sum())
        counted = "1 comparison" if comparisons == 1 else f"{comparisons} comparisons"
        sentences.append(SUBROWS_MEANING.format(counted))
        cells, minor = with_subrows(cells, frame, metrics, list(order), groups)
    sentences += [*setting(measured, run, timing(run)), *titles[1:]]
    return Table(name, sentences, with_checkpoints(cells, list(order), minor, run), notes, minor)


def with_published(frame: pd.DataFrame, run: Run) -> pd.DataFrame:
    """The frame with the accuracy that each row's method was published with, and a note on its
    source.

    Args:
        frame: rows of `with_notes`, a method and a suite each.
    """
    numbers: list[float] = []
    sources: list[str] = []
    for method, suite in zip(frame["method"], frame["suite"], strict=True):
        row = run.config.methods[method]
        model = run.config.models.get(row.role, {}).get(suite, "")
        recorded = row.suites.get(suite, Setting())
        lengths = {"gen_length": recorded.gen_length, "block_length": recorded.block_length}
        setting = lengths | recorded.options
        number, source = published_accuracy(model, row.method, suite, setting) or (math.nan, "")
        numbers.append(number)
        sources.append(source)
    return frame.assign(published=numbers, published_note=sources)


def with_checkpoints(
    cells: pd.DataFrame, methods: list[str], minor: frozenset[int], run: Run
) -> pd.DataFrame:
    """The cells after a column of checkpoints, where these differ. methods: of the rows that are
    not `minor`."""
    named = [checkpoint_names(run, method) for method in methods]
    if len({*named}) < 2:
        return cells
    names = iter(named)
    column = [Cell("") if number in minor else Cell(next(names)) for number in range(len(cells))]
    frame = pd.DataFrame({("", "Checkpoint"): column}, index=cells.index)
    return pd.concat([frame, cells], axis=1)


def with_subrows(
    cells: pd.DataFrame,
    frame: pd.DataFrame,
    metrics: Sequence[Metric],
    methods: list[str],
    groups: dict[str, str],
) -> tuple[pd.DataFrame, frozenset[int]]:
    """The rows of `grid`, one per method, each with its intervals and p-values below; and which
    rows these are."""
    rows = {(str(row["method"]), str(row["suite"])): row for row in frame.to_dict("records")}
    body = []
    labels = []
    minor = set()
    for number, method in enumerate(methods):
        columns = [
            (rows.get((method, suite), {}), metric) for suite in groups for metric in metrics
        ]
        subrows = {INTERVAL: [Cell(_interval(row, metric)) for row, metric in columns]}
        if method != REFERENCE:
            subrows[P_VALUE] = [Cell(_p_value(row, metric)) for row, metric in columns]
        body += [cells.iloc[number].to_list(), *subrows.values()]
        labels += [cells.index[number], *subrows]
        minor |= set(range(len(labels) - len(subrows), len(labels)))
    return pd.DataFrame(body, index=labels, columns=cells.columns, dtype=object), frozenset(minor)


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


@dataclass(frozen=True)
class Ablation:
    """A table of the paper's ablations; its rows are the presets of the group of its name.

    lossless: its rows must decode the same tokens, and the caption says whether they do.
    """

    title: str
    metrics: Sequence[Metric] = METRICS
    lossless: bool = False


SHOWN = 5  # responses that are named
MAIN = Ablation("")
ABLATIONS = {
    "training": Ablation(
        "Training effects: position-conditioned training against plain training on the same data."
    ),
    "speculation": Ablation(
        "Speculation: the same decoder with and without (w/o SD).", lossless=True
    ),
    "draft": Ablation(
        "Draft model: the target's own weights, or those before training.",
        (ACCURACY, SPEED, ACCEPTANCE),
        True,
    ),
    "window-size": Ablation(
        "Window size; FeF-DLLM (step=4) has a window of 16.",
        (ACCURACY, SPEED, FORWARDS, ACCEPTANCE),
        True,
    ),
}
ONLY_ABLATION = {
    method
    for name in ABLATIONS
    for method in GROUPS[name]
    if method not in {*GROUPS["main"], *GROUPS["decoders"]}
}


def tables_of(
    measured: pd.DataFrame, run: Run, pairs: Pairs | None = None, published: bool = False
) -> list[tuple[Table, pd.DataFrame]]:
    """The tables of a run, each with its rows of `measured` in its order; every method that ran is
    in one of them.

    An ablation is there if at least two of its methods ran, not counting LLaDA, and one of them is
    in no other table. The main table has all other methods; it is there if the ablations do not
    show all of them. pairs: of `intervals.paired`; with these, tables have intervals and p-values,
    adjusted within each table. published: as of `suites_table`.
    """
    ran = list(dict.fromkeys(measured["method"]))
    shown: dict[str, list[str]] = {}
    for name in ABLATIONS:
        rows = [method for method in GROUPS[name] if method in ran]
        compared = [method for method in rows if method != REFERENCE]
        if len(compared) > 1 and any(method in ONLY_ABLATION for method in compared):
            shown[name] = rows if name == "training" else compared
    in_ablations = {method for methods in shown.values() for method in methods}
    main = [method for method in ran if method not in ONLY_ABLATION & in_ablations]
    if not in_ablations.issuperset(main):
        shown = {"main": main, **shown}
    by_method = measured.set_index("method")
    columns = MEASURES if pairs is None else [*MEASURES, *UNCERTAINTY]
    tables = []
    for name, methods in shown.items():
        own = by_method.loc[methods].reset_index()
        ablation = ABLATIONS.get(name, MAIN)
        if pairs is not None:
            own = with_intervals(own, pairs)
        same = same_tokens(run, methods) if ablation.lossless else ""
        titles = [ablation.title, same] if same else [ablation.title]
        table = suites_table(name, titles, own, run, ablation.metrics, pairs, published)
        tables.append((table, own[columns]))
    return tables


def same_tokens(run: Run, methods: Sequence[str]) -> str:
    """A sentence on the responses shared by methods with the same number of steps; "" without any,
    or without hashes.

    Greedy, in fp32, all of them must be the same, but for ties that rounding decides; these are
    named.
    """
    known = run.config.methods
    steps = {method: _steps(known[method]) for method in methods}
    items = run.items[run.items["method"].isin(methods)]
    if "tokens_hash" not in items or len({*steps.values()}) == len(steps) or None in steps.values():
        return ""
    keys = [
        items["method"].astype(str).map(steps).rename("steps"),
        items["suite"].astype(str),
        items["item"],
    ]
    hashes = items["tokens_hash"].groupby(keys).agg(["size", "nunique"])
    shared = hashes[hashes["size"] > 1]
    if shared.empty:
        return ""
    other = shared[shared["nunique"] > 1]
    sentence = (
        f"Rows of as many steps have the same tokens on {len(shared) - len(other)} of {len(shared)}"
        " responses"
    )
    titles = suite_titles(run)
    named = [f"{titles[suite]} {item} (step={step})" for step, suite, item in other.index[:SHOWN]]
    more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
    return f"{sentence}, not on {', '.join(named)}{more}." if named else f"{sentence}."


def _steps(method: Method) -> int | None:
    """The diffusion steps of a method as run.json has it; None if it does not say."""
    found = next(iter(method.suites.values()), Setting()).options.get("steps")
    return found if isinstance(found, int) else None


def ablations(request: TableRequest) -> Iterator[Sheet]:
    """The main table and the paper's ablations, those that the run has rows for."""
    for table, rows in tables_of(request.measured, request.run, request.pairs, request.published):
        yield Sheet(table, rows)

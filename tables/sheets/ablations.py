"""The main table and the ablations of a run: which methods are the rows of which table.

A run may hold the methods of several tables; each table that has its rows is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.measures.intervals import UNCERTAINTY, Pairs, with_intervals
from harness.measures.table import MEASURES, REFERENCE, suite_titles
from harness.measures.together import shown_items
from harness.methods.presets import GROUPS
from harness.records.schema import Method, Setting
from harness.records.store import Run
from tables.sheets.layout import (
    ACCEPTANCE,
    ACCURACY,
    FORWARDS,
    METRICS,
    SPEED,
    Metric,
    Request,
    Sheet,
    Table,
)
from tables.sheets.suites import suites_table


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
    "training": Ablation("Training effects: position-conditioned training against plain training on the same data."),
    "speculation": Ablation("Speculation: the same decoder with and without (w/o SD).", lossless=True),
    "draft": Ablation(
        "Draft model: the target's own weights, or those before training.", (ACCURACY, SPEED, ACCEPTANCE), True
    ),
    "window-size": Ablation(
        "Window size; FeF-DLLM (step=4) has a window of 16.", (ACCURACY, SPEED, FORWARDS, ACCEPTANCE), True
    ),
}
ONLY_ABLATION = {
    method for name in ABLATIONS for method in GROUPS[name] if method not in {*GROUPS["main"], *GROUPS["decoders"]}
}


def tables_of(measured: pd.DataFrame, run: Run, pairs: Pairs | None = None) -> list[tuple[Table, pd.DataFrame]]:
    """The tables of a run, each with its rows of `measured` in its order; every method that ran is in one of them.

    An ablation is there if the run has at least two of its methods beside LLaDA, and one of them is its own. The main
    table has the methods that no ablation has for its own; it is there if the ablations do not show all of them.
    pairs: of `intervals.paired`; with these, tables have intervals and p-values, adjusted within each table.
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
        own, ablation = by_method.loc[methods].reset_index(), ABLATIONS.get(name, MAIN)
        if pairs is not None:
            own = with_intervals(own, pairs)
        title = " ".join(filter(None, [ablation.title, same_tokens(run, methods) if ablation.lossless else ""]))
        tables.append((suites_table(name, title, own, run, ablation.metrics, pairs), own[columns]))
    return tables


def same_tokens(run: Run, methods: Sequence[str]) -> str:
    """A sentence on the responses shared by methods with the same number of steps; "" without any, or without hashes.

    Greedy, in fp32, all of them must be the same (the paper's tables: accuracy equal to the last digit); where rounding
    decides a tie between batch shapes otherwise, the responses are named.
    """
    known = run.config.methods
    steps = {method: _steps(known[method]) for method in methods}
    items = shown_items(run)
    items = items[items["method"].isin(methods)]
    if "tokens_hash" not in items or len({*steps.values()}) == len(steps) or None in steps.values():
        return ""
    keys = [items["method"].astype(str).map(steps).rename("steps"), items["suite"].astype(str), items["item"]]
    hashes = items["tokens_hash"].groupby(keys).agg(["size", "nunique"])
    shared = hashes[hashes["size"] > 1]
    if shared.empty:
        return ""
    other = shared[shared["nunique"] > 1]
    sentence = f"Rows of as many steps have the same tokens on {len(shared) - len(other)} of {len(shared)} responses"
    titles = suite_titles(run)
    named = [f"{titles[suite]} {item} (step={step})" for step, suite, item in other.index[:SHOWN]]
    more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
    return f"{sentence}, not on {', '.join(named)}{more}." if named else f"{sentence}."


def _steps(method: Method) -> int | None:
    """The diffusion steps of a method as run.json has it; None if it does not say."""
    found = next(iter(method.suites.values()), Setting()).options.get("steps")
    return found if isinstance(found, int) else None


def ablations(request: Request) -> Iterator[Sheet]:
    """The main table and the paper's ablations, those that the run has rows for."""
    for table, rows in tables_of(request.measured, request.run, request.pairs):
        yield Sheet(table, rows)

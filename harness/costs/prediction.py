"""Speedups over LLaDA, predicted from a run's counted calls and measured costs, beside the measured ones.

LLaDA's seconds are its forwards, each at the cost of a plain forward. For a FeF method, a draft forward costs a draft
pass, a literal verification costs by its rows, and a two-stream one by its tokens; its context passes follow from the
windows. Those that `refresh_below` adds do not: they count as passes that add their tokens after cached ones. Every
pass has the cost of the one measured length, and the decoder's own work is left out.
"""

import math
from typing import Any

import pandas as pd

from harness.costs.costs import Costs, cost_at
from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.methods.presets import prefix_conditioned
from harness.records.schema import Setting
from harness.records.store import KEY, Run

POSITIVE = ["seconds", "forwards", "rows", "token_forwards"]
COUNTS = [*POSITIVE, "draft_forwards", "draft_rows", "draft_token_forwards"]
WINDOW = ["round", "proposed", "committed"]


def fef_items(run: Run) -> pd.DataFrame:
    """Items of FeF methods that LLaDA has too: KEY, COUNTS, and LLaDA's as <name>_llada.

    Besides, length: tokens of the sequence; windows: the item's, as objects in the order they came; options: the
    method's on the suite. Raises UserError if the record is damaged, or lacks LLaDA, FeF methods or counts.
    """
    items, methods = _items(run), run.config.methods
    windows = run.windows.reindex(columns=[*KEY, *WINDOW])
    if windows.isna().any(axis=None):
        raise UserError(f"{run.folder}/windows.jsonl: a window lacks {', '.join([*KEY, *WINDOW])}; it is damaged")
    by_item = {key: group.to_dict("records") for key, group in windows.groupby(list(KEY), sort=False)}
    fef = items[items["method"].isin(prefix_conditioned(run.config))]
    shared = fef.merge(items[items["method"] == REFERENCE], on=["suite", "item"], suffixes=("", "_llada"))
    if shared.empty:
        raise UserError(f"{run.folder} holds no item of both LLaDA and a FeF method; run harness/run.py with both")
    pairs = zip(shared["method"], shared["suite"], strict=True)
    settings = [methods[method].suites.get(suite, Setting()) for method, suite in pairs]
    return shared.assign(
        length=shared["token_forwards_llada"] / shared["rows_llada"],
        windows=pd.Series([by_item.get(key, []) for key in shared[list(KEY)].itertuples(index=False, name=None)]),
        options=pd.Series([setting.options for setting in settings]),
    )


def predicted_speedups(items: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """A row per method and suite of `fef_items`: mean counts, and speedups over LLaDA.

    tokens a row: length of the items, to be compared with that of the costs. predicted: NaN where a method verifies in
    two streams without windows: its context passes are then unknown. measured: in the record.
    """
    seconds = [item_seconds(item, costs) for item in items.to_dict("records")]
    groups = items.assign(predicted=seconds).groupby(["method", "suite"], sort=False)
    counts = ["length", "forwards", "rows", "token_forwards"]
    table = groups[counts].mean().set_axis(["tokens a row", "forwards", "rows", "token-forwards"], axis="columns")
    table.insert(0, "items", groups.size())
    llada, own = groups[["forwards_llada", "seconds_llada"]].sum(), groups[["predicted", "seconds"]].sum(skipna=False)
    table["predicted speedup"] = costs.plain * llada["forwards_llada"] / own["predicted"]
    table["measured speedup"] = llada["seconds_llada"] / own["seconds"]
    return table.reset_index()


def assumptions(run: Run, costs: Costs) -> str:
    """What a prediction assumes, and where the record's own seconds come from."""
    made = run.meta.environment
    where = ", ".join(f"{name} {made.get(name)}" for name in ("device", "cpu", "gpu", "threads", "dtype"))
    return (
        f"Predicted: every pass at its cost for {costs.length} tokens (compare `tokens a row`), a draft model at the "
        "target's cost, what refresh_below adds at the cost of as many tokens after cached ones, the decoders' own "
        f"work left out. Measured: in the record ({where})."
    )


def item_seconds(item: dict[Any, Any], costs: Costs) -> float:
    """Seconds that the passes of an item of `fef_items` would take; NaN where its context passes are unknown."""
    windows, options = item["windows"], item["options"]
    drafts, passes = item["draft_forwards"], item["forwards"] - item["draft_forwards"]
    if options.get("verify") != "two-stream":
        sizes, rows = [window["proposed"] for window in windows], item["rows"] - item["draft_rows"]
        if (len(sizes), sum(sizes)) != (passes, rows):
            # Without speculation there are no windows; savings leave out rows or add some. Use the mean rows per pass.
            sizes = [rows / passes] * int(passes)
        return drafts * costs.draft + math.fsum(cost_at(costs.literal, size) for size in sizes)
    if not windows:
        return math.nan
    contexts = context_passes(windows, options.get("anchor"))
    tokens = item["token_forwards"] - item["draft_token_forwards"] - contexts * item["length"]
    seconds = contexts * costs.context + _cached_seconds(passes - contexts, tokens, costs)
    if item["draft_token_forwards"] >= drafts * item["length"]:  # whole sequences, through a draft model of its own
        return seconds + drafts * costs.draft
    return seconds + _cached_seconds(drafts, item["draft_token_forwards"], costs)


def context_passes(windows: list[dict[Any, Any]], anchor: int | None) -> int:
    """Context passes of a response by its windows in order: one for every `anchor` positions of a step (None: for all).

    The rounds of a step, and of a block, begin at 0.
    """
    committed: list[int] = []
    for window in windows:
        if window["round"] == 0:
            committed.append(0)
        committed[-1] += window["committed"]
    return sum(1 if anchor is None else math.ceil(positions / anchor) for positions in committed)


def _cached_seconds(passes: float, tokens: float, costs: Costs) -> float:
    """Seconds of passes that add `tokens` after cached ones in total; each is assumed to add the same number."""
    return passes * cost_at(costs.two_stream, tokens / passes) if passes else 0.0


def _items(run: Run) -> pd.DataFrame:
    """method, suite, item and COUNTS as numbers."""
    if run.items.empty:
        raise UserError(f"{run.folder} holds no items yet: items.jsonl is empty or missing; run harness/run.py first")
    counts = run.items.reindex(columns=COUNTS).apply(pd.to_numeric, errors="coerce").astype(float)
    if counts.isna().any(axis=None) or (counts[POSITIVE] <= 0).any(axis=None):
        raise UserError(f"{run.folder}/items.jsonl: an item has no valid {', '.join(COUNTS)}; run harness/run.py again")
    return run.items[list(KEY)].join(counts)

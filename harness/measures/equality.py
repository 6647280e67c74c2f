"""Whether methods that must decode the same tokens did: speculation, drafts and windows change cost, not tokens."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measures.table import suite_titles
from harness.measures.together import shown_items
from harness.records.schema import Method, Setting
from harness.records.store import Run

SHOWN = 5  # responses that are named


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

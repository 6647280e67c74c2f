"""The gate's comparison of a run's records with golden ones.

Prompts, tokens, texts, costs and verdicts must be equal; a difference is a change of the code. On
another platform rounding may decide how many drafts are accepted, so there costs are left to the
comparison with a revision (harness/regression/speed.py), which decodes on the machine at hand.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from msgspec import UNSET, structs, to_builtins

from harness.errors import UserError
from harness.records.consistency import differences
from harness.records.schema import RunRecord
from harness.records.store import KEY, Run

COSTS = (
    *("proposed", "accepted", "rejected", "committed", "forwards", "rows", "token_forwards"),
    *("draft_forwards", "draft_rows", "draft_token_forwards"),
)
RESPONSE = ("tokens_hash", "text", "content_tokens", "eos_tokens", "post_stop_tokens", "correct")
EXACT = ("seed", "prompt_hash", "prompt_tokens", "gold", *RESPONSE)
SHOWN = 5  # items named in a row


def judge_records(run: Run, golden: Run) -> bool:
    """Print what differs from the golden records.

    Returns:
        Whether the run passes.

    Raises:
        UserError: the runs have different settings.
    """
    if other := differences(_settings(golden.meta), _settings(run.meta)):
        raise UserError(f"{run.folder} and {golden.folder} differ in settings: {'; '.join(other)}")
    print(f"records: {len(golden.items)} golden items")
    changed = compare(golden, run, [*EXACT, *COSTS])
    print("no difference" if changed.empty else changed.to_string(index=False))
    platforms = differences(_platform(golden.meta), _platform(run.meta))
    if platforms and not changed.empty:
        print(f"another platform, where costs may differ: {'; '.join(platforms)}")
        changed = changed[~changed["measure"].isin(COSTS)]
    passed = changed.empty and not golden.items.empty
    print(
        "records: passed"
        if passed
        else "records: CHANGED; if this is meant, make new golden records"
    )
    return passed


def compare(golden: Run, run: Run, measures: Sequence[str]) -> pd.DataFrame:
    """A row for each method, suite and measure that differs: the first item's values there and
    here, and the items."""
    # A measure that one side lacks altogether must still differ from the other's.
    there, here = (each.items.reindex(columns=[*KEY, *measures]) for each in (golden, run))
    both = there.merge(
        here, on=list(KEY), how="outer", suffixes=("_golden", "_run"), indicator="side"
    )
    rows: list[dict[str, Any]] = []

    def add(measure: str, differ: pd.DataFrame, before: str, after: str) -> None:
        for (method, suite), part in differ.groupby(["method", "suite"], sort=False):
            values = {
                "golden": str(part[before].iloc[0])[:24],
                "run": str(part[after].iloc[0])[:24],
            }
            rows.append(
                {
                    "method": method,
                    "suite": suite,
                    "measure": measure,
                    **values,
                    "items": _named(part["item"]),
                }
            )

    alone = both[both["side"] != "both"].assign(there=lambda frame: frame["side"] == "left_only")
    add("item is there", alone.assign(here=~alone["there"]), "there", "here")
    shared = both[both["side"] == "both"]
    for measure in measures:
        before = shared[f"{measure}_golden"]
        after = shared[f"{measure}_run"]
        known = before.notna() | after.notna()
        add(measure, shared[before.ne(after) & known], f"{measure}_golden", f"{measure}_run")
    return pd.DataFrame(rows)


def first_items(golden: Run, first: int) -> Run:
    """The record as if its run had had that limit. Raises UserError for a run of several seeds."""
    if len(golden.config.draws) > 1:
        raise UserError(
            "--first is for records of one seed: items of several are numbered seed after seed"
        )
    limit = min(first, golden.config.limit or first)
    meta = structs.replace(golden.meta, config=structs.replace(golden.config, limit=limit))
    return replace(golden, meta=meta, items=golden.items[golden.items["item"] < limit])


def _settings(meta: RunRecord) -> dict[str, Any]:
    """What two runs must have in common to be compared; labels and order may differ."""
    config = meta.config
    files = meta.data.get("files") or {}
    names = (
        "limit",
        "temperature",
        "seed",
        "seeds",
        "device",
        "dtype",
        "graphs",
        "prompt",
        "chat_template_args",
    )
    methods = {name: to_builtins(method) for name, method in config.methods.items()}
    for method in methods.values():
        method.pop("label", None)
    return {
        **{name: getattr(config, name) for name in (*names, "reads_at", "models")},
        "methods": methods,
        "suites": sorted(config.suites),
        "data": {suite: (files.get(suite) or {}).get("sha256") for suite in config.suites},
        "weights": {name: weights.get("sha256") for name, weights in meta.weights.items()},
    }


def _platform(meta: RunRecord) -> dict[str, Any]:
    """What decides how floating-point numbers round: platform, processor and its vector
    instructions, torch, batch."""
    environment = meta.environment
    packages = environment.get("packages") or {}
    cpu = str(environment.get("cpu")).split(" ", 1)[0]
    return {
        "platform": environment.get("platform"),
        "processor": environment.get("gpu") or f"{cpu} {environment.get('cpu_capability')}",
        "threads": environment.get("threads"),
        "torch": packages.get("torch"),
        "transformers": packages.get("transformers"),
        "responses at once": 1 if meta.config.batch is UNSET else meta.config.batch,
    }


def _named(items: pd.Series) -> str:
    named = ", ".join(str(item) for item in items.head(SHOWN))
    more = len(items) - SHOWN
    return f"{named} and {more} more" if more > 0 else named

"""The gate's comparison of a run's records with golden ones.

Prompts, tokens, texts, costs and verdicts must be equal; a difference is a change of the code. On
another platform rounding may decide how many drafts are accepted, so there costs are left to the
comparison with a revision (harness/regression/speed.py), which decodes on the machine at hand.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from msgspec import UNSET, structs

from harness.errors import UserError
from harness.records.consistency import differences
from harness.records.schema import RunRecord
from harness.records.store import KEY, Run
from harness.runs.alike import Table, settings, table_differences
from model_wrappers.options import first_few

COSTS = (
    "proposed",
    "accepted",
    "rejected",
    "committed",
    "forwards",
    "rows",
    "token_forwards",
    "draft_forwards",
    "draft_rows",
    "draft_token_forwards",
)
RESPONSE = ("tokens_hash", "text", "content_tokens", "eos_tokens", "post_stop_tokens", "correct")
EXACT = ("seed", "prompt_hash", "prompt_tokens", "gold", *RESPONSE)


def judge_records(run: Run, golden: Run) -> bool:
    """Print what differs from the golden records.

    Returns:
        Whether the run passes.

    Raises:
        UserError: the runs have different settings.
    """
    changes = table_differences(_settings(golden.meta), _settings(run.meta))
    if changes:
        raise UserError(
            f"{run.folder} and {golden.folder} differ in settings: {'; '.join(changes)}"
        )
    print(f"records: {len(golden.items)} golden items")
    changed = compare(golden, run, [*EXACT, *COSTS])
    print("no difference" if changed.empty else changed.to_string(index=False))
    platforms = differences(_platform(golden.meta), _platform(run.meta))
    if platforms and not changed.empty:
        print(f"another platform, where costs may differ: {'; '.join(platforms)}")
        changed = changed[~changed["measure"].isin(COSTS)]
    passed = changed.empty and not golden.items.empty
    verdict = "passed" if passed else "CHANGED; if this is meant, make new golden records"
    print(f"records: {verdict}")
    return passed


def compare(golden: Run, run: Run, measures: Sequence[str]) -> pd.DataFrame:
    """A row for each method, suite and measure that differs: the first item's values there and
    here, and the items."""
    # A measure that one side lacks altogether must still differ from the other's.
    columns = [*KEY, *measures]
    both = golden.items.reindex(columns=columns).merge(
        run.items.reindex(columns=columns),
        on=list(KEY),
        how="outer",
        suffixes=("_golden", "_run"),
        indicator="side",
    )
    both["item is there_golden"] = both["side"] != "right_only"
    both["item is there_run"] = both["side"] != "left_only"
    present = both["side"] == "both"
    rows: list[dict[str, Any]] = []
    for measure in ("item is there", *measures):
        before = both[f"{measure}_golden"]
        after = both[f"{measure}_run"]
        differ = before.ne(after) & (before.notna() | after.notna())
        if measure in measures:
            differ &= present
        for (method, suite), part in both[differ].groupby(["method", "suite"], sort=False):
            rows.append(
                {
                    "method": method,
                    "suite": suite,
                    "measure": measure,
                    "golden": str(part[before.name].iloc[0])[:24],
                    "run": str(part[after.name].iloc[0])[:24],
                    "items": first_few(part["item"]),
                }
            )
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


def _settings(meta: RunRecord) -> Table:
    """What two runs must have in common to be compared; labels and order may differ."""
    config = meta.config
    table = settings(config, seconds=False)
    del table["timed"]
    table["limit"] = config.limit
    table["suites"] = sorted(config.suites)
    table["methods"] = sorted(config.methods)
    for suite in config.suites:
        table[f"data.{suite}"] = (meta.files.get(suite) or {}).get("sha256")
    for name, weights in meta.weights.items():
        table[f"weights.{name}"] = weights.get("sha256")
    return table


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

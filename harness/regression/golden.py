"""Records against golden ones: exact where decoding is deterministic, non-inferiority of accuracy where it is not.

On one class of platform the same configuration gives the same tokens, forwards and verdicts at temperature 0, so that
any difference is a change of the code. Elsewhere rounding may decide a tie differently: there, accuracy is compared,
item by item.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pandas as pd

from harness.errors import UserError
from harness.records.schema import Method, RunConfig, RunRecord
from harness.records.store import KEY, Run
from harness.runs.config import differences
from harness.stats import paired_lower_limit

COSTS = ("forwards", "rows", "token_forwards", "draft_forwards", "draft_rows", "draft_token_forwards")
EXACT = ("prompt_hash", "tokens_hash", "proposed", "accepted", "rejected", "committed", *COSTS, "correct")
COLUMNS = ["verdict", "method", "suite", "measure", "golden", "run", "items"]
SHOWN = 5  # items named in a row
PASSES = ("better",)


def platform_class(meta: RunRecord) -> dict[str, Any]:
    """What decides how floating-point numbers round: platform, processor and its vector instructions, torch."""
    environment = meta.environment
    packages = environment.get("packages") or {}
    cpu = str(environment.get("cpu")).split(" ", 1)[0]
    return {
        "platform": environment.get("platform"),
        "processor": environment.get("gpu") or f"{cpu} {environment.get('cpu_capability')}",
        "threads": environment.get("threads"),
        "dtype": environment.get("dtype"),
        "torch": packages.get("torch"),
        "transformers": packages.get("transformers"),
    }


def check_settings(golden: Run, run: Run) -> None:
    """Raise UserError, listing the differences, if the run was not made with the golden record's settings.

    The run may hold more methods, suites and items; labels and the order of work may differ.
    """
    found = differences(_settings(golden.meta, golden), _settings(run.meta, golden))
    if found:
        raise UserError(f"{run.folder} and {golden.folder} differ in settings: {'; '.join(found)}")


def _settings(meta: RunRecord, golden: Run) -> dict[str, Any]:
    config, wanted = meta.config, golden.config
    files = meta.data.get("files") or {}
    return {
        **{name: getattr(config, name) for name in ("temperature", "seed", "device", "dtype", "compile")},
        "methods": {name: _of_method(config.methods.get(name), wanted) for name in wanted.methods},
        "models": {role: config.models.get(role) for role in wanted.models},
        "data": {suite: (files.get(suite) or {}).get("sha256") for suite in wanted.suites},
    }


def _of_method(method: Method | None, wanted: RunConfig) -> dict[str, Any] | None:
    if method is None:
        return None
    settings = {suite: method.suites.get(suite) for suite in wanted.suites}
    return {
        **{name: getattr(method, name) for name in ("method", "role", "draft_role")},
        "suites": {suite: own and msgspec.to_builtins(own) for suite, own in settings.items()},
    }


def compare_exactly(golden: Run, run: Run) -> pd.DataFrame:
    """One row per method, suite and measure that differs, COLUMNS; empty if nothing does.

    verdict: "missing" (items that the run lacks), "regressed" (a verdict lost, a cost that rose), "changed" (tokens,
    acceptance, weights), "better" (costs that only fell). golden, run: totals over the compared items; items: which.
    Verdicts of suites that the run could not score (run.json's `scoring`) are not compared.
    """
    rows = _weights(golden.meta, run.meta)
    unscored = run.meta.scoring.get("not_scored") or {}
    # A measure that one side lacks altogether must still differ from the other's.
    sides = [each.items.reindex(columns=[*KEY, *EXACT]) for each in (golden, run)]
    both = sides[0].merge(sides[1], on=list(KEY), how="left", suffixes=("_golden", "_run"), indicator=True)
    lost = both[both["_merge"] == "left_only"]
    for (method, suite), own in lost.groupby(["method", "suite"], sort=False):
        rows.append(["missing", method, suite, "items", len(own), 0, _named(own["item"])])
    both = both[both["_merge"] == "both"]
    for measure in EXACT:
        pair = both[[f"{measure}_golden", f"{measure}_run"]].set_axis(["golden", "run"], axis=1)
        differ = pair["golden"].ne(pair["run"]) & pair.notna().any(axis=1)
        if measure == "correct":
            differ &= ~both["suite"].isin(list(unscored))
        for (method, suite), own in both[differ].groupby(["method", "suite"], sort=False):
            values = pair.loc[own.index]
            rows.append([_verdict(measure, values), method, suite, measure, *_totals(values), _named(own["item"])])
    return pd.DataFrame(rows, columns=COLUMNS)


def _weights(golden: RunRecord, run: RunRecord) -> list[list[Any]]:
    rows = []
    for name, weights in golden.weights.items():
        now = run.weights.get(name) or {}
        if weights.get("sha256") != now.get("sha256"):
            rows.append(["changed", "-", "-", f"weights of {name}", "-", "-", "all"])
    return rows


def _verdict(measure: str, values: pd.DataFrame) -> str:
    if measure in COSTS:
        no_worse = values["run"] <= values["golden"]  # a cost that is not there is not known to be
        return "better" if no_worse.all() else "regressed"
    if measure == "correct":
        return "regressed" if (values["golden"].eq(True) & values["run"].ne(True)).any() else "changed"
    return "changed"


def _totals(values: pd.DataFrame) -> list[Any]:
    """Sums of numbers and verdicts; of hashes the first one."""
    if all(isinstance(value, str) or pd.isna(value) for value in values.to_numpy().ravel()):
        return [values[side].iloc[0] for side in ("golden", "run")]
    return [int(values[side].fillna(0).astype(int).sum()) for side in ("golden", "run")]


def _named(items: pd.Series) -> str:
    first = ", ".join(str(item) for item in items.head(SHOWN))
    return first + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")


def compare_accuracy(golden: Run, run: Run, margin: float) -> pd.DataFrame:
    """One row per method: accuracy there and here over the shared scored items of all suites, and whether it holds.

    margin: points. verdict: "ok" if the one-sided 95% lower limit of the paired difference lies above -margin, else
    "regressed" if more items were lost than gained, else "undecided" (too few items to exclude a loss of that size).
    """
    both = golden.items.merge(run.items, on=list(KEY), suffixes=("_golden", "_run"))
    both = both[both["correct_golden"].notna() & both["correct_run"].notna()]
    rows = []
    for method, own in both.groupby("method", sort=False):
        before, now = own["correct_golden"].astype(bool), own["correct_run"].astype(bool)
        lost, gained = int((before & ~now).sum()), int((~before & now).sum())
        lower = 100 * paired_lower_limit(lost, gained, len(own))
        verdict = "ok" if lower > -margin else "regressed" if lost > gained else "undecided"
        rows.append([verdict, method, len(own), 100 * before.mean(), 100 * now.mean(), lost, gained, lower])
    return pd.DataFrame(rows, columns=["verdict", "method", "items", "golden", "run", "lost", "gained", "lower limit"])

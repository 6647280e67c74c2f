"""A finished run as pandas frames, for those who call it from Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.records.store import Run
from harness.stats import speedup_interval, wilson

REFERENCE = "llada"  # the method whose seconds are 1.00x
SUMMARY = [
    *("method", "label", "suite", "items", "scored", "accuracy", "accuracy_low", "accuracy_high"),
    *("seconds", "speedup", "speedup_low", "speedup_high", "forwards"),
]
TIMES = ["seconds", "speedup", "speedup_low", "speedup_high"]


@dataclass(frozen=True)
class Evaluation:
    """What a run measured. folder: its records and tables. items: a row per response. windows: one per speculative
    window. summary: a row per method and suite (`summarise`).
    """

    folder: Path
    items: pd.DataFrame
    windows: pd.DataFrame
    summary: pd.DataFrame


def summarise(run: Run) -> pd.DataFrame:
    """A row per method and suite in the configuration's order, columns SUMMARY.

    accuracy: percent of the scored items, with Wilson's 95% interval. seconds, forwards: means of a response. speedup:
    LLaDA's total seconds / the method's over the items that both have, with a 95% bootstrap interval. NaN where there
    is nothing to measure: an unscored suite, a run without LLaDA, or one that was not timed.
    """
    if run.items.empty:
        return pd.DataFrame(columns=SUMMARY)
    groups = {(str(method), str(suite)): own for (method, suite), own in run.items.groupby(["method", "suite"])}
    rows = []
    for name, method in run.config.methods.items():
        for suite in run.config.suites:
            if (name, suite) in groups:
                own = _row(groups[name, suite], groups.get((REFERENCE, suite)), name == REFERENCE)
                rows.append({"method": name, "label": method.label, "suite": suite, **own})
    frame = pd.DataFrame(rows, columns=SUMMARY)
    if not run.config.timed:
        frame[TIMES] = math.nan
    return frame


def _row(own: pd.DataFrame, reference: pd.DataFrame | None, is_reference: bool) -> dict[str, Any]:
    """One row's numbers; reference: LLaDA's items of the suite, if there are any."""
    verdicts = own["correct"].dropna().astype(bool)
    low, high = wilson(verdicts.mean(), len(verdicts)) if len(verdicts) else (math.nan, math.nan)
    speedup, ends = math.nan, (math.nan, math.nan)
    if reference is not None:
        both = reference.merge(own, on="item", suffixes=("_reference", ""))[["seconds_reference", "seconds"]]
        if len(both):
            speedup = float(both["seconds_reference"].sum() / both["seconds"].sum())
            ends = ends if is_reference else speedup_interval([both.to_numpy(float)])
    return {
        "items": len(own),
        "scored": len(verdicts),
        "accuracy": 100 * verdicts.mean() if len(verdicts) else math.nan,
        "accuracy_low": 100 * low,
        "accuracy_high": 100 * high,
        "seconds": own["seconds"].mean(),
        "speedup": speedup,
        "speedup_low": ends[0],
        "speedup_high": ends[1],
        "forwards": own["forwards"].mean(),
    }

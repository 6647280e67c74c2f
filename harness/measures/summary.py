"""A finished run as pandas frames, for those who call it from Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.measures.intervals import paired, with_intervals
from harness.measures.table import PAIR, checkpoint_names, measure, method_labels
from harness.records.schema import WindowRecord
from harness.records.store import Run

SUMMARY = [
    *("method", "label", "checkpoint", "suite", "items", "scored", "accuracy", "accuracy_low", "accuracy_high"),
    *("seconds", "speedup", "speedup_low", "speedup_high", "forwards", "forward_speedup"),
]
WINDOWS = list(WindowRecord.__struct_fields__)


@dataclass(frozen=True)
class Evaluation:
    """What a run measured. folder: its records and tables. items: a row per response. windows: one per speculative
    window, with at least the columns WINDOWS. summary: a row per method and suite (`summarise`).
    """

    folder: Path
    items: pd.DataFrame
    windows: pd.DataFrame
    summary: pd.DataFrame


def evaluated(run: Run) -> Evaluation:
    """A finished run as frames. Raises UserError as `summarise` does."""
    windows = run.windows if len(run.windows) else pd.DataFrame(columns=WINDOWS)
    return Evaluation(run.folder, run.items, windows, summarise(run))


def summarise(run: Run) -> pd.DataFrame:
    """A row per method and suite in the configuration's order, columns SUMMARY, with the numbers of the run's tables.

    checkpoint: by name. accuracy: percent of the scored items, with Wilson's 95% interval. seconds, forwards: means of
    a response. speedup, forward_speedup: LLaDA's total seconds (forwards) / the method's over the items that both have,
    the first with a 95% bootstrap interval. NaN where there is nothing to measure: an unscored suite, a run without
    LLaDA, or one that was not timed. Raises UserError if the records are damaged.
    """
    if run.items.empty:
        return pd.DataFrame(columns=SUMMARY)
    rows = with_intervals(measure(run), paired(run)).rename(columns={"seconds_per_item": "seconds"})
    rows["label"] = rows["method"].map(method_labels(run))
    rows["checkpoint"] = [checkpoint_names(run, str(method)) for method in rows["method"]]
    forwards = run.items.groupby(PAIR)["forwards"].mean().reset_index()
    return rows.astype(dict.fromkeys(PAIR, str)).merge(forwards, on=PAIR)[SUMMARY]

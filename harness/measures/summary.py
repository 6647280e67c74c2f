"""A finished run as pandas frames, for those who call it from Python."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.measures.intervals import paired, with_intervals
from harness.measures.table import PAIR, checkpoint_names, measure, method_labels
from harness.methods.presets import LENGTHS
from harness.records.schema import Setting, WindowRecord
from harness.records.store import Run
from harness.records.traces import TraceRecord, each_frame

SUMMARY = [
    *("method", "label", "checkpoint", "suite", "items", "scored", "accuracy", "accuracy_low", "accuracy_high"),
    *("seconds", "speedup", "speedup_low", "speedup_high", "forwards", "forward_speedup", *LENGTHS),
]
MEANS = ["accuracy", "seconds", "speedup", "forwards", "forward_speedup"]
WINDOWS = list(WindowRecord.__struct_fields__)


@dataclass(frozen=True)
class Evaluation:
    """What a run measured. folder: its records and tables. items: a row per response. windows: one per speculative
    window, with at least the columns WINDOWS. summary: a row per method and suite (`summarise`). means: a row per
    method, the plain means of its numbers over the suites, of methods that have all of the run's.
    """

    folder: Path
    items: pd.DataFrame
    windows: pd.DataFrame
    summary: pd.DataFrame
    means: pd.DataFrame

    def traces(self) -> Iterator[TraceRecord]:
        """What every response of a traced run did, one after the other; none of a run without --trace."""
        return (record for _, record in each_frame(self.folder))


def evaluated(run: Run) -> Evaluation:
    """A finished run as frames. Raises UserError as `summarise` does."""
    windows = run.windows if len(run.windows) else pd.DataFrame(columns=WINDOWS)
    summary = summarise(run)
    whole = summary.groupby("method", sort=False)["suite"].transform("nunique") == summary["suite"].nunique()
    means = summary[whole].groupby(["method", "label"], sort=False)[MEANS].mean().reset_index()
    return Evaluation(run.folder, run.items, windows, summary, means)


def summarise(run: Run) -> pd.DataFrame:
    """A row per method and suite in the configuration's order, columns SUMMARY, with the numbers of the run's tables.

    Behind these a column for each option that the configuration sets, NaN where a method has none such. checkpoint: by
    name. gen_length, block_length: tokens. accuracy: percent of the scored items, with Wilson's 95% interval. seconds,
    forwards: means of a response. speedup, forward_speedup: LLaDA's total seconds (forwards) / the method's over the
    items that both have, the first with a 95% bootstrap interval. NaN where there is nothing to measure: an unscored
    suite, a run without LLaDA, or one that was not timed. Raises UserError if the records are damaged.
    """
    if run.items.empty:
        return pd.DataFrame(columns=SUMMARY)
    rows = with_intervals(measure(run), paired(run)).rename(columns={"seconds_per_item": "seconds"})
    rows["label"] = rows["method"].map(method_labels(run))
    rows["checkpoint"] = [checkpoint_names(run, str(method)) for method in rows["method"]]
    forwards = run.items.groupby(PAIR)["forwards"].mean().reset_index()
    rows = rows.astype(dict.fromkeys(PAIR, str)).merge(forwards, on=PAIR)
    methods = run.config.methods
    settings = [methods[of].suites.get(on, Setting()) for of, on in zip(rows["method"], rows["suite"], strict=True)]
    for name in LENGTHS:
        rows[name] = [getattr(setting, name) for setting in settings]
    own = pd.DataFrame([setting.options for setting in settings], index=rows.index)
    own = own.drop(columns=SUMMARY, errors="ignore")
    return pd.concat([rows[SUMMARY], own], axis=1)

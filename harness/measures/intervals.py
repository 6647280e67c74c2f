"""The uncertainty of a table's numbers, accuracy against speedup, and a finished run as frames for
Python.

The statistics are those of harness/stats.py, applied here to methods and suites.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.measures.table import (
    BOTH_SECONDS,
    PAIR,
    REFERENCE,
    checked_items,
    checkpoint_names,
    measure,
    method_labels,
    shared_with_reference,
    suite_titles,
    suites_with,
    timed,
)
from harness.records.files import TraceRecord, each_frame
from harness.records.schema import Setting, WindowRecord
from harness.records.store import Run
from harness.stats import effective_trials, holm, mcnemar, speedup_interval, wilson
from harness.suites.published import LENGTHS

ENDS = ["accuracy_low", "accuracy_high", "speedup_low", "speedup_high"]
MEANS = ["accuracy", "speedup", "forward_speedup"]
UNCERTAINTY = [*ENDS, "p_value", "p_holm"]
TRADEOFF = [
    "method",
    *("accuracy", "accuracy_low", "accuracy_high"),
    *("speedup", "speedup_low", "speedup_high"),
]


@dataclass(frozen=True)
class Paired:
    """A method beside a reference, LLaDA unless it is said, on the items of a suite that both have:
    `items`.

    seconds: (items, 2), the reference's and the method's; fewer where the run has its seconds from
    another, NaN where it was not timed. judged: items scored for both; lost, gained: those that
    only the reference, or only the method, has right. same: items with the same tokens. problems:
    of the judged items. worth: independent verdicts for each judged one; where problems have
    several seeds it is below 1, and seconds are a problem's over all.
    """

    items: int
    seconds: npt.NDArray[np.float64]
    judged: int
    lost: int
    gained: int
    same: int
    problems: int
    worth: float = 1.0


Pairs = Mapping[tuple[str, str], Paired]


def paired(run: Run, reference: str = REFERENCE) -> dict[tuple[str, str], Paired]:
    """Every method beside the reference, by (method, suite), where they share items. Raises as
    `measure` does."""
    found = {}
    compared = 1.0 if timed(run) else math.nan
    for (method, suite), own in shared_with_reference(checked_items(run), reference).groupby(
        PAIR, observed=True
    ):
        right = own["verdict_reference"]
        verdict = own["verdict"]
        seconds = own[BOTH_SECONDS] if run.speed is None else own[BOTH_SECONDS].dropna()
        worth = 1.0
        difference = (verdict - right).dropna()
        if len(run.config.draws) > 1:
            seconds = seconds.groupby(own["problem"]).sum()
            if len(difference):
                worth = effective_trials(
                    difference.to_numpy(), own["problem"][difference.index].to_numpy()
                ) / len(difference)
        found[str(method), str(suite)] = Paired(
            items=len(own),
            seconds=compared * seconds.to_numpy(),
            judged=int((right.notna() & verdict.notna()).sum()),
            lost=int(((right == 1) & (verdict == 0)).sum()),
            gained=int(((right == 0) & (verdict == 1)).sum()),
            same=int((own["tokens"] == own["tokens_reference"]).sum()),
            problems=own["problem"][right.notna() & verdict.notna()].nunique(),
            worth=worth,
        )
    return found


def with_intervals(measured: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    """`measured`, the rows of one table, with UNCERTAINTY.

    Accuracy has Wilson's interval, in percent, and speedup a bootstrap's over the paired items.
    p_value: exact McNemar of accuracy against LLaDA on the shared items; p_holm: adjusted over all
    rows of `measured`. NaN without a pair.
    """
    rows = []
    for row in measured.to_dict("records"):
        pair = None if row["method"] == REFERENCE else pairs.get((row["method"], row["suite"]))
        accuracy = (math.nan, math.nan)
        speeds = (math.nan, math.nan)
        p_value = math.nan
        if row["scored"] > 0:
            accuracy = wilson(row["accuracy"] / 100, row["trials"])
        if pair is not None and pd.notna(row["speedup"]):
            speeds = speedup_interval([pair.seconds])
        if pair is not None and pair.judged:
            p_value = mcnemar(round(pair.worth * pair.lost), round(pair.worth * pair.gained))
        rows.append([100 * accuracy[0], 100 * accuracy[1], *speeds, p_value])
    found = pd.DataFrame(rows, columns=UNCERTAINTY[:-1], index=measured.index)
    return pd.concat([measured, found.assign(p_holm=holm(found["p_value"].to_list()))], axis=1)


def means(measured: pd.DataFrame, suites: Sequence[str], pairs: Pairs) -> pd.DataFrame:
    """A row per method: plain means of accuracy, speedup and forward_speedup over `suites`, with
    ENDS.

    measured: rows of `measure`. Each number's mean is over `suites_with` it; NaN where one of these
    is missing. Accuracy's interval is Wilson's over as many items as give the mean its variance:
    suites^2 / sum(1 / items), which is all of them where suites are equal in size.
    """
    rows = []
    over = {name: suites_with(measured, suites, name) for name in MEANS}
    for method, own in measured.groupby("method", sort=False):
        own = own.set_index("suite").reindex(list(suites))
        accuracy, *speeds = (own.loc[over[name], name].mean(skipna=False) for name in MEANS)
        accuracies = (math.nan, math.nan)
        intervals = (math.nan, math.nan)
        if pd.notna(accuracy):
            scored = own.loc[over["accuracy"], "trials"]
            accuracies = wilson(accuracy / 100, len(scored) ** 2 / (1 / scored).sum())
        if method != REFERENCE and pd.notna(speeds[0]):
            intervals = speedup_interval(
                [pairs[str(method), suite].seconds for suite in over["speedup"]]
            )
        rows.append([method, accuracy, *speeds, *(100 * end for end in accuracies), *intervals])
    return pd.DataFrame(rows, columns=["method", *MEANS, *ENDS])


def tradeoff(run: Run) -> tuple[pd.DataFrame, list[str]]:
    """A row per method in the run's order, columns TRADEOFF, and sentences on what had to be left
    out.

    `means` over the suites that LLaDA is scored on. A method that lacks a suite is left out, and
    all are where the run was not timed. Raises UserError if the records are damaged.
    """
    measured = measure(run)
    if not timed(run):
        return pd.DataFrame(columns=TRADEOFF), [
            "the run's seconds were not measured for comparison"
        ]
    reference = measured[(measured["method"] == REFERENCE) & (measured["scored"] > 0)]
    suites = [suite for suite in suite_titles(run) if suite in set(reference["suite"])]
    if not suites:
        return pd.DataFrame(columns=TRADEOFF), [
            "the run has no scored items of LLaDA to compare with"
        ]
    titles = suite_titles(run)
    labels = method_labels(run)
    pairs = paired(run)
    unscored = [titles[suite] for suite in titles if suite not in suites]
    left_out = [f"without {', '.join(unscored)}: LLaDA is not scored there"] if unscored else []
    found = means(measured, suites, pairs)[TRADEOFF]
    lacking = found[["accuracy", "speedup"]].isna().any(axis=1)
    left_out += [
        f"without {labels[str(method)]}: a suite is missing, not scored or without LLaDA's items"
        for method in found.loc[lacking, "method"]
    ]
    found.loc[found["method"] == REFERENCE, ["speedup_low", "speedup_high"]] = 1.0
    return found[~lacking].reset_index(drop=True), left_out


SUMMARY = [
    *(
        "method",
        "label",
        "checkpoint",
        "suite",
        "items",
        "scored",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
    ),
    *("seconds", "speedup", "speedup_low", "speedup_high", "forwards", "forward_speedup", *LENGTHS),
]
OVER_SUITES = ["accuracy", "seconds", "speedup", "forwards", "forward_speedup"]
WINDOWS = list(WindowRecord.__struct_fields__)


@dataclass(frozen=True)
class Evaluation:
    """What a run measured. folder: its records and tables. items: a row per response. windows: one
    per speculative window, with at least the columns WINDOWS. summary: a row per method and suite
    (`summarise`). means: a row per method, the plain means of its numbers over the suites, of
    methods that have all of the run's.
    """

    folder: Path
    items: pd.DataFrame
    windows: pd.DataFrame
    summary: pd.DataFrame
    means: pd.DataFrame

    def __repr__(self) -> str:
        rows = self.summary.groupby("suite", sort=False)["items"].max()
        suites = ", ".join(f"{suite} ({items} items)" for suite, items in rows.items())
        return (
            f"Evaluation in {self.folder}: {suites}\nmethods:"
            f" {', '.join(self.summary['method'].unique())}"
        )

    def traces(self) -> Iterator[TraceRecord]:
        """What every response of a traced run did, one after the other; none of a run without
        --trace."""
        return (record for _, record in each_frame(self.folder))


def evaluated(run: Run) -> Evaluation:
    """A finished run as frames. Raises UserError as `summarise` does."""
    windows = run.windows if len(run.windows) else pd.DataFrame(columns=WINDOWS)
    summary = summarise(run)
    whole = (
        summary.groupby("method", sort=False)["suite"].transform("nunique")
        == summary["suite"].nunique()
    )
    means = (
        summary[whole].groupby(["method", "label"], sort=False)[OVER_SUITES].mean().reset_index()
    )
    return Evaluation(run.folder, run.items, windows, summary, means)


def summarise(run: Run) -> pd.DataFrame:
    """A row per method and suite in the configuration's order, columns SUMMARY, with the numbers of
    the run's tables.

    After these a column for each option that the configuration sets. seconds, forwards: means of a
    response; accuracy and speedup are those of `measure`, with their 95% intervals. NaN where there
    is nothing to measure: an unscored suite, a run without LLaDA, or one that was not timed. Raises
    UserError if the records are damaged.
    """
    if run.items.empty:
        return pd.DataFrame(columns=SUMMARY)
    rows = with_intervals(measure(run), paired(run)).rename(columns={"seconds_per_item": "seconds"})
    rows["label"] = rows["method"].map(method_labels(run))
    rows["checkpoint"] = [checkpoint_names(run, str(method)) for method in rows["method"]]
    forwards = run.items.groupby(PAIR)["forwards"].mean().reset_index()
    rows = rows.astype(dict.fromkeys(PAIR, str)).merge(forwards, on=PAIR)
    methods = run.config.methods
    settings = [
        methods[of].suites.get(on, Setting())
        for of, on in zip(rows["method"], rows["suite"], strict=True)
    ]
    for name in LENGTHS:
        rows[name] = [getattr(setting, name) for setting in settings]
    own = pd.DataFrame([setting.options for setting in settings], index=rows.index)
    own = own.drop(columns=SUMMARY, errors="ignore")
    return pd.concat([rows[SUMMARY], own], axis=1)

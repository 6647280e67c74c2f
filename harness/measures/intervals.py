"""The uncertainty of a table's numbers, means over suites, and a finished run as frames for Python.

harness/stats.py has the statistics, which are applied to methods and suites here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import gmean

from harness.measures.marks import setting_of, union, with_marks
from harness.measures.table import (
    BOTH_SECONDS,
    BY_SEED,
    ENDS_OF_TEXT,
    MEAN,
    PAIR,
    REFERENCE,
    TRIALS,
    by_pair,
    checked_items,
    checkpoint_names,
    measure,
    method_labels,
    over_suites,
    shared_with_reference,
    suite_titles,
    suites_with,
    timed,
)
from harness.records.files import TraceRecord, each_frame
from harness.records.schema import WindowRecord
from harness.records.store import Run
from harness.stats import LEVEL, Floats, effective_trials, holm, mcnemar, speedup_interval, wilson
from harness.suites.published import LENGTHS

ENDS = ["accuracy_low", "accuracy_high", "speedup_low", "speedup_high"]
UNCERTAINTY = [*ENDS, "p_value", "p_holm"]
# The column of marks of each number that has marks, and a mean over suites.
MARKS_OF = {
    "accuracy": "accuracy_marks",
    "speedup": "speed_marks",
    "forward_speedup": "forward_marks",
}
AVERAGED = [*MARKS_OF, "acceptance_percent", "seconds_per_item", *ENDS_OF_TEXT]
NO_INTERVAL = (math.nan, math.nan)
UNTIMED = "the run's seconds were not measured for comparison"


@dataclass(frozen=True)
class Paired:
    """A method and a reference on the items of a suite that both have.

    Attributes:
        items: the number of these items.
        seconds: (items, 2), the reference's and the method's. With several seeds a row is a
            problem, over all seeds. Fewer rows if the run has its seconds from another one; NaN if
            it was not timed.
        judged: items scored for both.
        lost: judged items that only the reference has right.
        gained: judged items that only the method has right.
        same: items with the same tokens.
        problems: problems of the judged items.
        worth: independent verdicts per judged item; below 1 if problems have several seeds.
    """

    items: int
    seconds: Floats
    judged: int
    lost: int
    gained: int
    same: int
    problems: int
    worth: float = 1.0


Pairs = Mapping[tuple[str, str], Paired]


def paired(run: Run, reference: str = REFERENCE) -> dict[tuple[str, str], Paired]:
    """Every method compared with the reference, by (method, suite), if they share items.

    Args:
        run: as read.
        reference: the method's key.

    Raises:
        UserError: as `measure`.
    """
    pairs = {}
    # Multiplied with the seconds, which are NaN then in a run that was not timed.
    compared = 1.0 if timed(run) else math.nan
    shared = shared_with_reference(checked_items(run), reference)
    for (method, suite), items in by_pair(shared):
        difference = (items["verdict"] - items["verdict_reference"]).dropna()
        problems = items["problem"][difference.index]
        # Without items that the timed run does not have.
        seconds = items[BOTH_SECONDS] if run.speed is None else items[BOTH_SECONDS].dropna()
        worth = 1.0
        # The responses to one problem are not independent: problems are what is resampled.
        if len(run.config.draws) > 1:
            seconds = seconds.groupby(items["problem"]).sum()
            if len(difference):
                trials = effective_trials(difference.to_numpy(), problems.to_numpy())
                worth = trials / len(difference)
        pairs[str(method), str(suite)] = Paired(
            items=len(items),
            seconds=compared * seconds.to_numpy(),
            judged=len(difference),
            lost=int((difference == -1).sum()),
            gained=int((difference == 1).sum()),
            same=int((items["tokens"] == items["tokens_reference"]).sum()),
            problems=problems.nunique(),
            worth=worth,
        )
    return pairs


def speed_of(pairs: Sequence[Paired], level: float = LEVEL) -> tuple[float, float, float]:
    """The reference's seconds / the method's, and its bootstrap interval.

    Over several suites it is the geometric mean of their ratios: exchanging method and reference
    inverts it, where arithmetic means of both directions may exceed 1.

    Args:
        pairs: one per suite.
        level: of the interval.

    Returns:
        The ratio and the ends of its interval; NaN if any suite has no seconds.
    """
    totals = np.array([pair.seconds.sum(0) for pair in pairs])
    if not all(len(pair.seconds) for pair in pairs) or np.isnan(totals).any():
        return math.nan, *NO_INTERVAL
    low, high = speedup_interval([pair.seconds for pair in pairs], level, gmean)
    return float(gmean(totals[:, 0] / totals[:, 1])), low, high


def with_intervals(frame: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    """The rows of one table with the columns UNCERTAINTY.

    Accuracy has Wilson's interval, in percent, and speedup a bootstrap interval over the shared
    items. p_value is of the exact McNemar test of accuracy against LLaDA on the shared items;
    p_holm is adjusted over all rows, so they must be those of one table.

    Args:
        frame: rows of `measure`.
        pairs: of `paired`.

    Returns:
        The rows with UNCERTAINTY; NaN without a pair.
    """
    rows = []
    for row in frame.to_dict("records"):
        pair = None if row["method"] == REFERENCE else pairs.get((row["method"], row["suite"]))
        accuracy = NO_INTERVAL
        speeds = NO_INTERVAL
        p_value = math.nan
        if row["scored"] > 0:
            accuracy = wilson(row["accuracy"] / 100, row[TRIALS])
        if pair is not None and pd.notna(row["speedup"]):
            speeds = speedup_interval([pair.seconds])
        if pair is not None and pair.judged:
            # The test takes whole numbers of independent flips.
            p_value = mcnemar(round(pair.worth * pair.lost), round(pair.worth * pair.gained))
        rows.append([100 * accuracy[0], 100 * accuracy[1], *speeds, p_value])
    ends = pd.DataFrame(rows, columns=UNCERTAINTY[:-1], index=frame.index)
    return pd.concat([frame, ends.assign(p_holm=holm(ends["p_value"].to_list()))], axis=1)


def means(frame: pd.DataFrame, suites: Sequence[str], pairs: Pairs | None = None) -> pd.DataFrame:
    """Plain means over suites: a row of the suite MEAN per method, with the marks of all its
    numbers.

    The mean of a number is over `suites_with` it, and NaN if the method lacks one of these.

    Args:
        frame: rows of `with_marks`.
        suites: the suites that the means are over.
        pairs: of `paired`; with these the rows have ENDS.
    """
    over = {name: suites_with(frame, suites, name) for name in MARKS_OF}
    numbers = over_suites(frame, suites, AVERAGED).to_dict("index")
    rows = []
    for method, rows_of in frame.groupby("method", sort=False):
        row = {"method": method, "suite": MEAN, **numbers[method]}
        by_suite = rows_of.set_index("suite")
        for name, marks in MARKS_OF.items():
            row[marks] = union(*by_suite[marks].reindex(over[name]).dropna())
        for name in ("accuracy_full", "speed_full"):
            row[name] = bool(by_suite[name].reindex(list(suites)).eq(True).all())
        whole = pd.notna(row["accuracy"])
        by_seed = by_suite.loc[over["accuracy"], BY_SEED] if whole else ()
        row[BY_SEED] = tuple(sum(seed) / len(seed) for seed in zip(*by_seed, strict=False))
        if pairs is not None:
            accuracy = NO_INTERVAL
            speeds = NO_INTERVAL
            if whole:
                # Wilson's interval for the n items that give the mean its variance: n = suites^2 /
                # sum(1 / items), which is all items if suites are equal in size.
                trials = by_suite.loc[over["accuracy"], TRIALS]
                accuracy = wilson(row["accuracy"] / 100, len(trials) ** 2 / (1 / trials).sum())
            if method != REFERENCE and pd.notna(row["speedup"]):
                speeds = speedup_interval(
                    [pairs[str(method), suite].seconds for suite in over["speedup"]]
                )
            row |= dict(zip(ENDS, (100 * accuracy[0], 100 * accuracy[1], *speeds), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def tradeoff(run: Run) -> tuple[pd.DataFrame, list[str]]:
    """Accuracy against speed: `means` over the suites that LLaDA is scored on.

    Args:
        run: as read.

    Returns:
        A row per method that has all these suites, and lines that say what is left out. No rows if
        LLaDA has no scores, or the run was not timed.

    Raises:
        UserError: the records are damaged.
    """
    frame = with_marks(measure(run), run)
    if not timed(run):
        return frame.head(0), [UNTIMED]
    scored = frame.loc[(frame["method"] == REFERENCE) & (frame["scored"] > 0), "suite"]
    titles = suite_titles(run)
    suites = [suite for suite in titles if suite in set(scored)]
    if not suites:
        return frame.head(0), ["the run has no scored items of LLaDA to compare with"]
    rows = means(frame, suites, paired(run))
    incomplete = rows[["accuracy", "speedup"]].isna().any(axis=1)
    labels = method_labels(run)
    left_out = [
        f"without {titles[suite]}: LLaDA is not scored there"
        for suite in titles
        if suite not in suites
    ]
    left_out += [
        f"without {labels[method]}: a suite is missing, not scored, without LLaDA's items, or its"
        " seconds were disturbed (mark d)"
        for method in rows.loc[incomplete, "method"]
    ]
    # LLaDA's speed over its own is 1 without uncertainty.
    rows.loc[rows["method"] == REFERENCE, ["speedup_low", "speedup_high"]] = 1.0
    return rows[~incomplete].reset_index(drop=True), left_out


SUMMARY = [
    "method",
    "label",
    "checkpoint",
    "suite",
    "items",
    "scored",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    *ENDS_OF_TEXT,
    "seconds",
    "speedup",
    "speedup_low",
    "speedup_high",
    "forwards",
    "forward_speedup",
    *LENGTHS,
]
OVER_SUITES = ["accuracy", "seconds", "speedup", "forwards", "forward_speedup"]
WINDOWS = list(WindowRecord.__struct_fields__)


@dataclass(frozen=True)
class Evaluation:
    """The measurements of a run.

    Attributes:
        folder: of its records and tables.
        items: a row per response.
        windows: a row per speculative window, with at least the columns WINDOWS.
        summary: a row per method and suite, see `summarise`.
        means: plain means over the suites, a row for each method that has all suites.
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
        """The events of every response, one after the other; none of a run without --trace."""
        return (record for _, record in each_frame(self.folder))


def evaluated(run: Run) -> Evaluation:
    """A finished run as frames.

    Raises:
        UserError: as `summarise`.
    """
    windows = run.windows if len(run.windows) else pd.DataFrame(columns=WINDOWS)
    summary = summarise(run)
    suites = list(summary["suite"].unique())
    by_method = summary.groupby("method", sort=False)
    # A method that lacks a suite would have a mean that does not compare.
    whole = summary[by_method["suite"].transform("nunique") == len(suites)]
    means_of = over_suites(whole, suites, OVER_SUITES).reset_index()
    means_of.insert(1, "label", means_of["method"].map(method_labels(run)))
    return Evaluation(run.folder, run.items, windows, summary, means_of)


def summarise(run: Run) -> pd.DataFrame:
    """The numbers of the run's tables, for Python.

    Args:
        run: as read.

    Returns:
        A row per method and suite in the configuration's order. Columns are SUMMARY and one for
        each option that the configuration sets. seconds and forwards are means of a response;
        accuracy and speedup are those of `measure`, with their 95% intervals. NaN if there is
        nothing to measure: an unscored suite, a run without LLaDA, or one that was not timed.

    Raises:
        UserError: the records are damaged.
    """
    if run.items.empty:
        return pd.DataFrame(columns=SUMMARY)
    rows = with_intervals(measure(run), paired(run)).rename(columns={"seconds_per_item": "seconds"})
    rows["label"] = rows["method"].map(method_labels(run))
    rows["checkpoint"] = [checkpoint_names(run, method) for method in rows["method"]]
    forwards = run.items.groupby(PAIR)["forwards"].mean().reset_index()
    rows = rows.merge(forwards.astype(dict.fromkeys(PAIR, str)), on=PAIR)
    settings = [setting_of(run, *pair) for pair in zip(rows["method"], rows["suite"], strict=True)]
    for name in LENGTHS:
        rows[name] = [getattr(setting, name) for setting in settings]
    options = pd.DataFrame([setting.options for setting in settings], index=rows.index)
    return pd.concat([rows[SUMMARY], options.drop(columns=SUMMARY, errors="ignore")], axis=1)

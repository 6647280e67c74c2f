"""Accuracy against speedup, a mean over the suites with intervals, for every method of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from harness.records import Run
from tables.measures import REFERENCE, measure, method_labels, suite_titles

LEVEL = 0.95
RESAMPLES = 4000
SEED = 0
TRADEOFF = ["method", *("accuracy", "accuracy_low", "accuracy_high"), *("speedup", "speedup_low", "speedup_high")]


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Wilson's 95% interval of a share in [0, 1] seen in `trials` trials, which need not be a whole number."""
    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2) / (1 + z**2 / trials)
    return max(0.0, centre - half), min(1.0, centre + half)


def speedup_interval(pairs: Sequence[npt.NDArray[np.float64]]) -> tuple[float, float]:
    """Bootstrap 95% interval of the mean over suites of total LLaDA seconds / total method seconds.

    pairs: per suite an array (items, 2) of LLaDA's seconds and the method's. Items are drawn anew within their suite,
    both seconds together; percentiles of RESAMPLES draws at a fixed seed. NaN if no suite has two items.
    """
    if max(len(pair) for pair in pairs) < 2:
        return math.nan, math.nan

    def mean_ratio(*drawn: npt.NDArray[np.int64], axis: int = -1) -> npt.NDArray[np.float64]:
        sums = [pair[indices].sum(axis=-2) for pair, indices in zip(pairs, drawn, strict=True)]
        ratios: npt.NDArray[np.float64] = np.mean([total[..., 0] / total[..., 1] for total in sums], axis=0)
        return ratios

    # A suite of one item has nothing to draw; named twice it is the same ratio, and scipy takes two.
    places = [np.arange(len(pair)) if len(pair) > 1 else np.zeros(2, dtype=np.int64) for pair in pairs]
    found = stats.bootstrap(
        places,
        mean_ratio,
        n_resamples=RESAMPLES,
        batch=200,
        vectorized=True,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def tradeoff(run: Run) -> tuple[pd.DataFrame, list[str]]:
    """A row per method in the run's order, columns TRADEOFF, and sentences on what had to be left out.

    accuracy: percent, the plain mean over the suites that LLaDA is scored on. Its interval is Wilson's over the pooled
    items; where suites differ in size, over as many items as give the mean the same variance: suites^2 / sum(1 /
    items), which is all of them where suites are equal. speedup: mean over the same suites of LLaDA's total seconds /
    the method's over the items they share, with `speedup_interval`. A method that lacks a suite is left out. Raises
    UserError if the records are damaged.
    """
    measured = measure(run)
    reference = measured[(measured["method"] == REFERENCE) & (measured["scored"] > 0)]
    suites = [suite for suite in suite_titles(run) if suite in set(reference["suite"])]
    if not suites:
        return pd.DataFrame(columns=TRADEOFF), ["the run has no scored items of LLaDA to compare with"]
    titles, labels = suite_titles(run), method_labels(run)
    unscored = [titles[suite] for suite in titles if suite not in suites]
    left_out = [f"without {', '.join(unscored)}: LLaDA is not scored there"] if unscored else []
    rows = []
    for method, own in measured.groupby("method", sort=False):
        own = own.set_index("suite").reindex(suites)
        if own[["accuracy", "speedup"]].isna().any(axis=None):
            left_out.append(f"without {labels[str(method)]}: a suite is missing, not scored or without LLaDA's items")
            continue
        accuracy = own["accuracy"].mean()
        low, high = wilson(accuracy / 100, len(suites) ** 2 / (1 / own["scored"]).sum())
        speeds = (1.0, 1.0)
        if method != REFERENCE:
            speeds = speedup_interval([_seconds(run, str(method), suite) for suite in suites])
        rows.append([method, accuracy, 100 * low, 100 * high, own["speedup"].mean(), *speeds])
    return pd.DataFrame(rows, columns=TRADEOFF), left_out


def _seconds(run: Run, method: str, suite: str) -> npt.NDArray[np.float64]:
    """Seconds of LLaDA and of the method, (items, 2), on the items of a suite that both have, by item."""
    items = run.items[run.items["suite"] == suite]
    both = [items[items["method"] == name].set_index("item")["seconds"].astype(float) for name in (REFERENCE, method)]
    return pd.concat(both, axis=1, join="inner").sort_index().to_numpy()

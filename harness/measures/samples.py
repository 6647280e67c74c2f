"""How many problems several samples solve, and how often their answers differ."""

import math
from collections.abc import Mapping

import pandas as pd
from scipy import special

from harness.measures.table import PAIR, by_name, by_pair, checked_items
from harness.records.store import Run
from harness.stats import chance_of_all, mean_interval

ANSWER = "read "  # what begins `why` where an evaluator read an answer


def sampled(run: Run, counts: Mapping[str, int]) -> pd.DataFrame:
    """A row per method and suite: of every k the mean over problems of pass@k and pass^k, in
    percent, and flips.

    pass_at_<name>: whether one of k samples is right; pass_all_<name>: whether all are; with
    bootstrap intervals over problems, of those that have k scored samples. flips: how often two
    samples of a problem have other answers, as the evaluator read them, a share. NaN where nothing
    was sampled so often, or no answer was read.

    Args:
        run: as read.
        counts: the numbers k by name.
    """
    rows = {}
    for pair, items in by_pair(checked_items(run)):
        answered = items[items["why"].str.startswith(ANSWER, na=False)]
        same = special.comb(answered.value_counts(["problem", "why"]), 2).sum()
        pairs = special.comb(answered.value_counts("problem"), 2).sum()
        row = {"flips": 1 - same / (pairs or math.nan)}
        problems = items.groupby("problem")["verdict"].agg(["count", "sum"])
        for name, k in counts.items():
            samples, right = problems[problems["count"] >= k].to_numpy(float).T
            if not len(samples):
                continue
            passed = {
                f"pass_at_{name}": 1 - chance_of_all(samples - right, samples, k),
                f"pass_all_{name}": chance_of_all(right, samples, k),
            }
            for column, values in passed.items():
                row[column] = 100 * values.mean()
                row[f"{column}_low"], row[f"{column}_high"] = mean_interval(100 * values)
        rows[pair] = row
    return by_name(pd.DataFrame.from_dict(rows, orient="index").rename_axis(PAIR))

"""pass@k and pass^k of several samples per problem, and how often their answers differ."""

import math
from collections.abc import Mapping

import pandas as pd
from scipy import special

from harness.measures.table import PAIR, by_name, by_pair, checked_items
from harness.records.store import Run
from harness.stats import chance_of_all, mean_interval

# The beginning of `why` if an evaluator read an answer.
ANSWER = "read "


def sampled(run: Run, counts: Mapping[str, int]) -> pd.DataFrame:
    """Measure several samples per problem.

    Args:
        run: as read.
        counts: the numbers k by name.

    Returns:
        A row per method and suite. pass_at_<name>: the chance that one of k samples is right;
        pass_all_<name>: that all are. Both are means over the problems that have k scored samples,
        in percent, with bootstrap intervals over problems. flips: the share of pairs of samples of
        a problem whose answers differ, as the evaluator read them. NaN if no problem has k samples,
        or no answer was read.
    """
    rows = {}
    for pair, items in by_pair(checked_items(run)):
        answered = items[items["why"].str.startswith(ANSWER, na=False)]
        same = special.comb(answered.value_counts(["problem", "why"]), 2).sum()
        pairs = special.comb(answered.value_counts("problem"), 2).sum()
        # NaN rather than 0 without a pair.
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

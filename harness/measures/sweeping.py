"""How far a comparison of methods depends on one option of the run: levels of a sweep beside its base."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import pandas as pd
from scipy.stats import kendalltau

from harness.measures.intervals import paired
from harness.measures.table import measure, method_labels
from harness.records.store import Run
from harness.stats import LEVEL, holm, paired_interval, paired_p_value

SWEEP = [
    *("factor", "level", "methods", "kendall", "pairs", "swapped", "swapped_shown"),
    *("change", "change_of", "change_low", "change_high"),
]
PROBLEM = ["suite", "item", "gold"]
Pair = tuple[str, str]


def swept(base: Run, levels: Mapping[tuple[str, str], Run]) -> pd.DataFrame:
    """A row for each level, (option, value) -> its run; columns are SWEEP.

    kendall: Kendall's tau-b between the methods' mean accuracies over the suites, there and in the base; NaN where one
    has no order. pairs: of methods whose order the base shows (the score test of paired differences over all problems,
    Holm over the pairs of a run); swapped: of all pairs, how many stand the other way round; swapped_shown: how many of
    them both runs show. change: the largest change of a method's accuracy in points over the problems of both, NaN
    without any, change_of which one, and its 95% interval (Tango's), which is for this method alone and not for the
    largest of several. Raises UserError as `measure` does.
    """
    before, shown_before = _means(base), _leads(base)
    rows = []
    for (factor, level), run in levels.items():
        now, shown = _means(run), _leads(run)
        both = [method for method in before.index if method in now.index]
        pairs = list(combinations(both, 2))
        swapped = [pair for pair in pairs if _order(before, pair) * _order(now, pair) < 0]
        agreed = [pair for pair in swapped if shown_before.get(pair, 0) * shown.get(pair, 0) < 0]
        tau = float(kendalltau(before[both], now[both]).statistic) if len(both) > 1 else math.nan
        changes = {method: _change(base, run, method) for method in both}
        most = max(changes, key=lambda method: abs(changes[method][0]), default="")
        of_most = changes.get(most, (math.nan,) * 3)
        counts = (len([pair for pair in pairs if shown_before.get(pair)]), len(swapped), len(agreed))
        largest = (of_most[0], method_labels(base).get(most, ""), *of_most[1:])
        rows.append([factor, level, len(both), tau, *counts, *largest])
    return pd.DataFrame(rows, columns=SWEEP)


def by_factor(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `swept` by factor, the one that moves accuracy most first."""
    largest = rows.assign(change=rows["change"].abs()).groupby("factor")["change"].max()
    order = largest.sort_values(ascending=False).index
    return rows.set_index("factor").loc[list(order)].reset_index()


def _means(run: Run) -> pd.Series[float]:
    """Mean accuracy over the suites, by method in the run's order; those that lack a suite are left out."""
    measured = measure(run)
    measured["method"] = measured["method"].astype(str)
    wide = measured.pivot(index="method", columns="suite", values="accuracy")
    means: pd.Series[float] = wide.dropna().mean(axis=1)
    return means[[method for method in method_labels(run) if method in means.index]]


def _order(means: pd.Series[float], pair: Pair) -> float:
    return float(means[pair[0]] - means[pair[1]])


def _leads(run: Run) -> dict[Pair, int]:
    """1 or -1 for each pair of methods whose first is shown to be more, or less, accurate than the second."""
    found: dict[Pair, tuple[int, float]] = {}
    methods = list(method_labels(run))
    for number, second in enumerate(methods):
        beside = paired(run, second)
        for first in methods[:number]:
            own = [each for (method, _), each in beside.items() if method == first]
            lost, gained = (sum(getattr(each, name) for each in own) for name in ("lost", "gained"))
            found[first, second] = (gained - lost, paired_p_value(lost, gained))
    adjusted = holm([p for _, p in found.values()])
    return {
        pair: (1 if lead > 0 else -1)
        for (pair, (lead, _)), p in zip(found.items(), adjusted, strict=True)
        if lead and p < 1 - LEVEL
    }


def _change(base: Run, run: Run, method: str) -> tuple[float, float, float]:
    """Points of accuracy that a method gains by a level, on the problems of both, and its interval."""
    # Another configuration of a suite has its problems under another name, in the same order and with the same answers.
    new = [suite for suite in run.config.suites if suite not in base.config.suites]
    gone = [suite for suite in base.config.suites if suite not in run.config.suites]
    names = {suite: suite for suite in base.config.suites} | dict(zip(new, gone, strict=False))
    sides = []
    for each in (base, run):
        own = each.items[each.items["method"].astype(str) == method].dropna(subset="correct")
        own = own.reindex(columns=[*PROBLEM, "correct"]).astype({"correct": bool})
        sides.append(own.assign(suite=own["suite"].astype(str).map(names)))
    both = sides[0].merge(sides[1], on=PROBLEM)
    if both.empty:
        return math.nan, math.nan, math.nan
    lost, gained = ((both["correct_x"] > both["correct_y"]).sum(), (both["correct_x"] < both["correct_y"]).sum())
    low, high = paired_interval(int(lost), int(gained), len(both))
    return 100 * (gained - lost) / len(both), 100 * low, 100 * high

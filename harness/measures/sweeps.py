"""How a run with an option changed differs from its base: the order of the methods, and their accuracies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import pandas as pd
from msgspec import UNSET
from scipy.stats import kendalltau

from harness.measures.against import flips_of
from harness.measures.intervals import paired
from harness.measures.table import draws_of, measure, method_labels
from harness.records.store import Run
from harness.stats import (
    LEVEL,
    effective_trials,
    holm,
    mean_difference,
    mean_difference_interval,
    mean_difference_p_value,
)

Level = tuple[str, str]  # options and values as text
SWEEP = [
    *("factor", "level", "methods", "kendall", "pairs", "swapped", "swapped_shown"),
    *("change", "change_of", "change_low", "change_high", "change_problems"),
]
DRAW = ["suite", "problem", "draw"]
Pair = tuple[str, str]


def swept(base: Run, levels: Mapping[Level, Run]) -> pd.DataFrame:
    """A row for each level, (option, value) -> its run; columns are SWEEP.

    kendall: Kendall's tau-b between the methods' mean accuracies over the suites, there and in the base; NaN where one
    has no order. pairs: of methods whose order the base shows (the exact test of the mean over suites, Holm over the
    pairs of a run); swapped: of all pairs, how many stand the other way round; swapped_shown: how many of them both
    runs show. change: the largest change of a method's accuracy in points, a mean over suites of the problems of both,
    NaN without any, change_of which one, its 95% interval, which is for this method alone and not for the largest of
    several, and change_problems how many problems it is over. Raises UserError as `measure` does.
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
        changes = {method: change for method in both if (change := _change(base, run, method))}
        most = max(changes, key=lambda method: abs(changes[method][0]), default="")
        of_most = changes.get(most, (math.nan, math.nan, math.nan, 0))
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
    found: dict[Pair, tuple[float, float]] = {}
    methods = list(method_labels(run))
    for number, second in enumerate(methods):
        beside = paired(run, second)
        for first in methods[:number]:
            flips = flips_of([each for (method, _), each in beside.items() if method == first])
            if flips:
                found[first, second] = mean_difference(flips), mean_difference_p_value(flips)
    adjusted = holm([p for _, p in found.values()])
    return {
        pair: (1 if lead > 0 else -1)
        for (pair, (lead, _)), p in zip(found.items(), adjusted, strict=True)
        if lead and p < 1 - LEVEL
    }


def _change(base: Run, run: Run, method: str) -> tuple[float, float, float, int] | None:
    """Points of accuracy that a method gains by a level on the problems of both, its interval, and their number."""
    # Another configuration of a suite has its problems under another name, in the same order and with the same answers.
    new = [suite for suite in run.config.suites if suite not in base.config.suites]
    gone = [suite for suite in base.config.suites if suite not in run.config.suites]
    kept = [suite for suite in base.config.suites if suite not in gone]
    pairs = [*zip(kept, kept, strict=True), *zip(new, gone, strict=False)]
    alike = {(there, here): _same_questions(run, there, base, here) for there, here in pairs}
    names = {there: here for (there, here), same in alike.items() if same is not False}
    sides = []
    for each, named in ((base, {here: here for here in names.values()}), (run, names)):
        own = each.items.assign(**draws_of(each, each.items["item"].to_numpy(dtype=float)))
        own = own[own["method"].astype(str) == method].dropna(subset="correct")
        own = own.reindex(columns=[*DRAW, "gold", "correct"])
        own["suite"] = own["suite"].astype(str).map(named)
        sides.append(own.dropna(subset="suite").astype({"correct": bool}).astype({"correct": float}))
    # With other numbers of seeds each is beside each, so that the change is that of the means over them.
    seeds_alike = len(base.config.draws) == len(run.config.draws)
    both = sides[0].merge(sides[1], on=DRAW if seeds_alike else DRAW[:2])
    # Where answers alone can tell whether the questions are the same, one that differs says that they are not.
    sure = {here for (_, here), same in alike.items() if same}
    other = both["gold_x"].astype(object).fillna("") != both["gold_y"].astype(object).fillna("")
    both = both[~both["suite"].isin({*both.loc[other, "suite"]} - sure)]
    if both.empty:
        return None
    flips = []
    for _, own in both.assign(change=both["correct_y"] - both["correct_x"]).groupby("suite"):
        change = own["change"].to_numpy()
        worth = effective_trials(change, own["problem"].to_numpy()) / len(own)
        flips.append((worth * (change < 0).sum(), worth * (change > 0).sum(), worth * len(own)))
    low, high = mean_difference_interval(flips)
    problems = len(both[["suite", "problem"]].drop_duplicates())
    return 100 * mean_difference(flips), 100 * low, 100 * high, problems


def _same_questions(run: Run, suite: str, base: Run, other: str) -> bool | None:
    """Whether two suites have the same questions: of one file, or generated alike; None if answers alone can tell."""
    files = [
        each.sha256
        for each in (run.config.suites[suite].questions, base.config.suites[other].questions)
        if each is not UNSET
    ]
    if files:
        return len(files) == 2 and files[0] == files[1]
    if not (run.config.generated and base.config.generated):
        return None
    return run.config.data == base.config.data and (suite == other or None)

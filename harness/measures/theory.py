"""The paper's Theorem 2 and its corollary against what a run measured: committed length, costs,
speedups of FeF rows.

Predictions use the acceptance rate and the costs of single passes that the run measured
(passes.jsonl), not the seconds of FeF's items. Theorem 2 assumes that the drafts of a window are
accepted independently, each with probability alpha. The corollary is relative to "a
prefix-conditioned sequential target baseline that commits one position per target pass", and takes
that pass to cost what the verification of a whole window costs.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from harness.measures.marks import setting_of
from harness.measures.table import (
    PAIR,
    REFERENCE,
    by_pair,
    categoricals,
    checked_items,
    measure,
    measure_windows,
    timed,
)
from harness.methods.presets import prefix_conditioned
from harness.records.store import KEY, Run
from harness.stats import ratio_of_totals

WINDOW = 16  # the decoder's default, where a run's configuration names none
SEQUENTIAL = "-nosd"  # suffix of the preset without speculation
COUNTS = ["proposed", "accepted", "committed"]
# column of the frame -> of passes.jsonl
COSTS = {
    "c": "plain",
    "c_rho": "draft",
    "c_pi": "verification",
}
# what is predicted -> how it is measured
PREDICTED = {
    "predicted_over_sequential": "over_sequential",
    "predicted_forward_speedup": "forward_speedup",
    "predicted_speedup": "speedup",
}
THEORY = [
    *PAIR,
    "window",
    "alpha",
    "acceptance",
    "windows",
    "committed_per_window",
    "expected_committed",
    "expected_committed_windows",
    "passes",
    *COSTS,
    "predicted_over_sequential",
    "over_sequential",
    "over_sequential_ratio",
    "predicted_forward_speedup",
    "forward_speedup",
    "forward_speedup_ratio",
    "predicted_speedup",
    "speedup",
    "speedup_ratio",
]
OF_FORWARDS = ("predicted_forward_speedup", "forward_speedup", "forward_speedup_ratio")
OF_SECONDS = [name for name in THEORY[THEORY.index("c") :] if name not in OF_FORWARDS]


def expected_committed(alpha: float, k: int) -> float:
    """E[C_k] = (1 - alpha^k) / (1 - alpha), k at alpha = 1: positions that a window of k drafts
    commits.

    alpha: probability that a tested draft is accepted; after a rejection the corrected token is
    committed too. Source: Theorem 2, as the sum over l < k of alpha^l, exact near 1 too.
    """
    return math.fsum(alpha**position for position in range(k))


def acceleration_ratio(committed: float, c_rho: float, c_pi: float) -> float:
    """S = E[C_k] c_pi / (c_rho + c_pi): speedup over decoding one position per target pass (the
    rows w/o SD).

    committed: E[C_k], positions that a window commits. c_rho, c_pi: seconds of a draft pass, and of
    a verification, which the corollary takes for the baseline's too; where that costs c instead,
    its speedup is S c / c_pi. Source: Corollary "Idealized acceleration ratio".
    """
    return committed * c_pi / (c_rho + c_pi)


def fef_windows(run: Run, others: bool = False) -> pd.DataFrame:
    """The speculative windows of FeF methods: KEY and COUNTS, numbers as floats, names
    categoricals.

    others: and those of all other methods that proposed something. In the order of their lines.
    """
    windows = run.windows.reindex(columns=[*KEY, *COUNTS])
    fef = windows["method"].isin(prefix_conditioned(run.config))
    windows = windows[fef | (others & windows["proposed"].ne(0))]
    numbers = windows[["item", *COUNTS]].apply(pd.to_numeric, errors="coerce").astype(float)
    return pd.DataFrame(categoricals(windows, run)).join(numbers.reset_index(drop=True))


def acceptance_by_position(windows: pd.DataFrame) -> pd.DataFrame:
    """How often the draft at a position is accepted, by position m = 1, 2, ...; windows need
    `proposed` and `accepted`.

    given_tested: accepted / tested, where a draft is tested if all before it were accepted.
    unconditional: accepted / proposed. independent: alpha^m, what that is if acceptance is
    independent, alpha being accepted / tested in all.
    """
    longest = windows["proposed"].max() if len(windows) else 0
    position = np.arange(1, int(longest) + 1)
    proposed = windows["proposed"].to_numpy(float)[:, None] >= position
    accepted = windows["accepted"].to_numpy(float)[:, None]
    positions = pd.DataFrame(
        {
            "position": position,
            "proposed": proposed.sum(axis=0),
            "tested": (proposed & (accepted >= position - 1)).sum(axis=0),
            "accepted": (accepted >= position).sum(axis=0),
        }
    )
    tested = positions["tested"].replace(0, np.nan)
    alpha = positions["accepted"].sum() / tested.sum() if len(positions) else math.nan
    return positions.assign(
        given_tested=positions["accepted"] / tested,
        unconditional=positions["accepted"] / positions["proposed"],
        independent=alpha ** positions["position"].astype(float),
    )


def theory(run: Run) -> pd.DataFrame:
    """One row per FeF method and suite that has windows, in the configuration's order; columns are
    THEORY.

    window: k of the configuration. expected_committed: E[C_k] at the measured alpha;
    expected_committed_windows: the mean over the windows of E[C_proposed]. passes: positions
    committed / LLaDA's forwards over the shared items. c, c_rho, c_pi: median seconds of a plain
    forward, a draft pass and a verification. Predictions are S of the corollary, E[C_k] / 2 /
    passes and E[C_k] c / (c_rho + c_pi) / passes; then the measured value, and measured /
    predicted. NaN for what was not measured, OF_SECONDS where the run was not timed. Raises
    UserError if the records are damaged.
    """
    speeds = measure(run)[[*PAIR, "forward_speedup", "speedup"]]
    rates = measure_windows(run).merge(speeds, on=PAIR).set_index(PAIR).to_dict("index")
    medians = pd.DataFrame(columns=list(COSTS))
    if not run.passes.empty:
        timed_passes = run.passes.astype(dict.fromkeys(PAIR, str)).groupby(PAIR)
        medians = timed_passes[list(COSTS.values())].median().set_axis(list(COSTS), axis=1)
    costs: dict[Any, dict[Any, float]] = medians.to_dict("index")
    items: Items = {
        pair: rows.set_index("item")[["seconds", "forwards"]]
        for pair, rows in by_pair(checked_items(run))
    }
    rows = []
    for (method, suite), windows in by_pair(fef_windows(run)):
        pair = (str(method), str(suite))
        known = {**dict.fromkeys(COSTS, math.nan), **costs.get(pair, {}), **rates[pair]}
        k = int(setting_of(run, *pair).options.get("window", WINDOW))
        passes = _passes(items, pair, windows)
        sequential = _ratio(items, (pair[0] + SEQUENTIAL, pair[1]), pair)
        predictions = _predictions(known, k, passes, windows["proposed"])
        measured = {"over_sequential": sequential, "passes": passes, "window": k}
        rows.append(dict(zip(PAIR, pair, strict=True)) | known | predictions | measured)
    frame = pd.DataFrame(rows, columns=THEORY)
    for predicted, measured_name in PREDICTED.items():
        numbers = frame[[measured_name, predicted]].astype(float)
        frame[f"{measured_name}_ratio"] = numbers[measured_name] / numbers[predicted]
    return frame if timed(run) else frame.assign(**dict.fromkeys(OF_SECONDS, math.nan))


Items = dict[Any, pd.DataFrame]


def _predictions(
    known: dict[str, Any], k: int, passes: float, proposed: pd.Series
) -> dict[str, float]:
    """The predictions of the theorem and the corollary for one method and suite.

    known: alpha and COSTS. proposed: drafts of each window.
    """
    alpha = float(known["alpha"])
    expected = expected_committed(alpha, k)
    lengths, counts = np.unique(proposed.to_numpy(dtype=int), return_counts=True)
    pairs = zip(lengths.tolist(), counts.tolist(), strict=True)
    total = math.fsum(count * expected_committed(alpha, length) for length, count in pairs)
    c, c_rho, c_pi = (known[name] for name in COSTS)
    predictions = {
        "expected_committed": expected,
        "expected_committed_windows": total / len(proposed),
        "predicted_forward_speedup": acceleration_ratio(expected, 1.0, 1.0) / passes,
        "predicted_over_sequential": math.nan,
        "predicted_speedup": math.nan,
    }
    if min(c, c_rho, c_pi) > 0:
        predictions["predicted_over_sequential"] = acceleration_ratio(expected, c_rho, c_pi)
        predictions["predicted_speedup"] = expected * c / (c_rho + c_pi) / passes
    return predictions


def _passes(items: Items, pair: tuple[str, str], windows: pd.DataFrame) -> float:
    """Positions committed per forward of LLaDA's, over the items that both have; NaN where there
    are none."""
    both = _shared(items, (REFERENCE, pair[1]), pair)
    committed = windows.loc[windows["item"].isin(both.index), "committed"]
    return ratio_of_totals(committed, both["forwards"]) if committed.any() else math.nan


def _ratio(items: Items, above: tuple[str, str], below: tuple[str, str]) -> float:
    """Total seconds of one method over those of another on the items they share; NaN if there are
    none."""
    both = _shared(items, above, below)
    return ratio_of_totals(both["seconds"], both["seconds_other"]) if len(both) else math.nan


def _shared(items: Items, pair: tuple[str, str], other: tuple[str, str]) -> pd.DataFrame:
    """The items of a method on a suite that another one has too, whose numbers are <name>_other."""
    if pair not in items or other not in items:
        return pd.DataFrame()
    return items[pair].join(items[other], how="inner", rsuffix="_other")

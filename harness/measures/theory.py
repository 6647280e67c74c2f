"""The paper's Theorem 2 and its corollary compared with a run: committed length, costs, and
speedups of FeF rows.

Predictions use the measured acceptance rate and costs of single passes (passes.jsonl), not the
seconds of FeF's items. Theorem 2 assumes that the drafts of a window are accepted independently,
each with probability alpha. The corollary's baseline is "a prefix-conditioned sequential target
baseline that commits one position per target pass", and it assumes that such a pass costs as much
as the verification of a whole window.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from harness.measures.marks import setting_of
from harness.measures.table import (
    BOTH_SECONDS,
    PAIR,
    REFERENCE,
    by_pair,
    categoricals,
    checked_items,
    measure,
    measure_windows,
    shared_with_reference,
    timed,
)
from harness.methods.presets import prefix_conditioned
from harness.records.store import KEY, Run

# The decoder's default, which a configuration does not name.
WINDOW = 16
# The suffix of the preset without speculation.
SEQUENTIAL = "-nosd"
COUNTS = ["proposed", "accepted", "committed"]
# Column of the frame, in the paper's notation -> field of passes.jsonl.
COSTS = {"c": "plain", "c_rho": "draft", "c_pi": "verification"}
# Column of the prediction -> column of the measured value.
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
    """E[C_k] = (1 - alpha^k) / (1 - alpha): positions that a window of k drafts commits on average.

    Source: Theorem 2. After a rejection the corrected token is committed too.

    Args:
        alpha: the probability that a tested draft is accepted.
        k: drafts of the window.
    """
    # As the sum of alpha^l over l < k, which is exact near alpha = 1 too, and k there.
    return math.fsum(alpha**position for position in range(k))


def acceleration_ratio(committed: float, c_rho: float, c_pi: float) -> float:
    """S = E[C_k] c_pi / (c_rho + c_pi): the speedup over one position per target pass (rows w/o
    SD).

    Source: Corollary "Idealized acceleration ratio". It assumes that a pass of the baseline costs
    c_pi too; if it costs c, the speedup is S c / c_pi.

    Args:
        committed: E[C_k], positions that a window commits.
        c_rho: seconds of a draft pass.
        c_pi: seconds of a verification.
    """
    return committed * c_pi / (c_rho + c_pi)


def fef_windows(run: Run, others: bool = False) -> pd.DataFrame:
    """The speculative windows of FeF methods, in the order of their lines.

    Args:
        run: as read.
        others: include windows of other methods, if they proposed drafts.

    Returns:
        Columns KEY and COUNTS, numbers as floats, names as categoricals.
    """
    windows = run.windows.reindex(columns=[*KEY, *COUNTS])
    fef = windows["method"].isin(prefix_conditioned(run.config))
    windows = windows[fef | (others & windows["proposed"].ne(0))]
    numbers = windows[["item", *COUNTS]].apply(pd.to_numeric, errors="coerce").astype(float)
    return pd.DataFrame(categoricals(windows, run)).join(numbers.reset_index(drop=True))


def acceptance_by_position(windows: pd.DataFrame) -> pd.DataFrame:
    """How often drafts are accepted, by their position m = 1, 2, ... in the window.

    Args:
        windows: with the columns `proposed` and `accepted`.

    Returns:
        A row per position. given_tested: accepted / tested; a draft is tested if all drafts before
        it were accepted. unconditional: accepted / proposed.
    """
    longest = windows["proposed"].max() if len(windows) else 0
    position = np.arange(1, int(longest) + 1)
    # (windows, positions): whether the window has a draft there.
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
    return positions.assign(
        given_tested=positions["accepted"] / positions["tested"].replace(0, np.nan),
        unconditional=positions["accepted"] / positions["proposed"],
    )


def theory(run: Run) -> pd.DataFrame:
    """Predictions of Theorem 2 and its corollary, and the measured values.

    Args:
        run: as read.

    Returns:
        A row per FeF method and suite that has windows, in the configuration's order; columns are
        THEORY.

        window: k of the configuration. expected_committed: E[C_k] at the measured alpha.
        expected_committed_windows: the mean of E[C_proposed] over the windows. passes: committed
        positions / LLaDA's forwards, over the shared items. c, c_rho, c_pi: median seconds of a
        plain forward, a draft pass and a verification. predicted_over_sequential: S of the
        corollary. predicted_forward_speedup: E[C_k] / 2 / passes. predicted_speedup: E[C_k] c /
        (c_rho + c_pi) / passes. Each is followed by the measured value, and measured / predicted.
        NaN for what was not measured; OF_SECONDS are NaN if the run was not timed.

    Raises:
        UserError: the records are damaged.
    """
    speeds = measure(run)[[*PAIR, "forward_speedup", "speedup"]]
    rates = measure_windows(run).merge(speeds, on=PAIR).set_index(PAIR).to_dict("index")
    medians = pd.DataFrame(columns=list(COSTS))
    if not run.passes.empty:
        timed_passes = run.passes.astype(dict.fromkeys(PAIR, str)).groupby(PAIR)
        medians = timed_passes[list(COSTS.values())].median().set_axis(list(COSTS), axis=1)
    costs: dict[Any, dict[Any, float]] = medians.to_dict("index")
    items = checked_items(run)
    rows = []
    for (method, suite), windows in by_pair(fef_windows(run)):
        pair = (str(method), str(suite))
        known = {**dict.fromkeys(COSTS, math.nan), **costs.get(pair, {}), **rates[pair]}
        k = int(setting_of(run, *pair).options.get("window", WINDOW))
        both = _shared(items, pair, REFERENCE)
        committed = windows.loc[windows["item"].isin(both["item"]), "committed"].sum()
        passes = committed / both["forwards_reference"].sum() if committed else math.nan
        both = _shared(items, pair, pair[0] + SEQUENTIAL)
        seconds = both[BOTH_SECONDS].sum()
        sequential = seconds["seconds_reference"] / seconds["seconds"] if len(both) else math.nan
        predictions = _predictions(known, k, passes, windows["proposed"])
        measured = {"over_sequential": sequential, "passes": passes, "window": k}
        rows.append(dict(zip(PAIR, pair, strict=True)) | known | predictions | measured)
    frame = pd.DataFrame(rows, columns=THEORY)
    for predicted, measured_name in PREDICTED.items():
        numbers = frame[[measured_name, predicted]].astype(float)
        frame[f"{measured_name}_ratio"] = numbers[measured_name] / numbers[predicted]
    return frame if timed(run) else frame.assign(**dict.fromkeys(OF_SECONDS, math.nan))


def _shared(items: pd.DataFrame, pair: tuple[str, str], reference: str) -> pd.DataFrame:
    """The items of a method and suite that another method has too, with its numbers as
    <name>_reference."""
    method, suite = pair
    rows = items[items["method"].isin([method, reference]) & (items["suite"] == suite)]
    shared = shared_with_reference(rows, reference)
    return shared[shared["method"] == method]


def _predictions(
    known: dict[str, Any], k: int, passes: float, proposed: pd.Series
) -> dict[str, float]:
    """The predictions for one method and suite. known: alpha and COSTS. proposed: drafts of each
    window."""
    alpha = float(known["alpha"])
    expected = expected_committed(alpha, k)
    # Windows at a block's end are shorter. Few lengths occur, so E[C] is computed once for each.
    lengths, counts = np.unique(proposed.to_numpy(dtype=int), return_counts=True)
    pairs = zip(lengths.tolist(), counts.tolist(), strict=True)
    total = math.fsum(count * expected_committed(alpha, length) for length, count in pairs)
    c, c_rho, c_pi = (known[name] for name in COSTS)
    predictions = {
        "expected_committed": expected,
        "expected_committed_windows": total / len(proposed),
        # Forwards instead of seconds: a draft pass and a verification cost one each.
        "predicted_forward_speedup": acceleration_ratio(expected, 1.0, 1.0) / passes,
        "predicted_over_sequential": math.nan,
        "predicted_speedup": math.nan,
    }
    if min(c, c_rho, c_pi) > 0:
        predictions["predicted_over_sequential"] = acceleration_ratio(expected, c_rho, c_pi)
        predictions["predicted_speedup"] = expected * c / (c_rho + c_pi) / passes
    return predictions

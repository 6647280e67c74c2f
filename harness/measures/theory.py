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

from harness.measures.table import (
    PAIR,
    REFERENCE,
    categoricals,
    checked_items,
    measure,
    measure_windows,
    timed,
)
from harness.methods.presets import prefix_conditioned
from harness.records.schema import Setting
from harness.records.store import KEY, Run
from harness.stats import ratio_of_totals

WINDOW = 16  # the decoder's default, where a run's configuration names none
SEQUENTIAL = "-nosd"  # suffix of the preset without speculation
COUNTS = ["proposed", "accepted", "committed"]
SPENT = ["seconds", "forwards"]
# column of the frame -> of passes.jsonl
COSTS = {
    "c": "plain",
    "c_rho": "draft",
    "c_pi": "verification",
}
PREDICTED = {  # what is predicted -> how it is measured
    "predicted_over_sequential": "over_sequential",
    "predicted_forward_speedup": "forward_speedup",
    "predicted_speedup": "speedup",
}
RATIOS = {measured: f"{measured}_ratio" for measured in PREDICTED.values()}
THEORY = [
    *("method", "suite", "window", "alpha", "acceptance", "windows", "committed_per_window"),
    *("expected_committed", "expected_committed_windows", "passes", *COSTS),
    *(name for pair in PREDICTED.items() for name in (*pair, RATIOS[pair[1]])),
]
OF_SECONDS = [
    *COSTS,
    *(
        name
        for pair in PREDICTED.items()
        if "forward" not in pair[0]
        for name in (*pair, RATIOS[pair[1]])
    ),
]


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
    proposed, accepted = (windows[name].to_numpy(dtype=float) for name in ("proposed", "accepted"))
    rows = []
    for position in range(1, int(proposed.max(initial=0)) + 1):
        has_position = proposed >= position
        rows.append(
            {
                "position": position,
                "proposed": int(has_position.sum()),
                "tested": int((has_position & (accepted >= position - 1)).sum()),
                "accepted": int((accepted >= position).sum()),
            }
        )
    positions = pd.DataFrame(rows, columns=["position", "proposed", "tested", "accepted"])
    alpha = positions["accepted"].sum() / positions["tested"].sum() if len(positions) else math.nan
    return positions.assign(
        given_tested=positions["accepted"] / positions["tested"].replace(0, np.nan),
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
    rates = _by_pair(measure_windows(run))
    speeds = _by_pair(measure(run)[[*PAIR, "forward_speedup", "speedup"]])
    costs = {}
    if not run.passes.empty:
        medians = (
            run.passes.groupby(PAIR)[list(COSTS.values())].median().set_axis(list(COSTS), axis=1)
        )
        costs = _by_pair(medians.reset_index())
    items = {
        pair: own.set_index("item")[SPENT]
        for pair, own in checked_items(run).groupby(PAIR, observed=True, sort=False)
    }
    found = []
    for (method, suite), own in fef_windows(run).groupby(PAIR, observed=True):
        pair = (str(method), str(suite))
        found.append(
            rates[pair]
            | _predictions(run, rates[pair], own, items, costs.get(pair, {}))
            | speeds[pair]
        )
    frame = pd.DataFrame(found, columns=THEORY)
    numbers = frame[[*PREDICTED, *PREDICTED.values()]].astype(float)
    for predicted, measured in PREDICTED.items():
        frame[RATIOS[measured]] = numbers[measured] / numbers[predicted]
    return frame if timed(run) else frame.assign(**dict.fromkeys(OF_SECONDS, math.nan))


def _by_pair(frame: pd.DataFrame) -> dict[tuple[str, str], dict[Any, Any]]:
    """The rows of a frame with method and suite, by these."""
    return {(str(row["method"]), str(row["suite"])): row for row in frame.to_dict("records")}


def _predictions(
    run: Run,
    row: dict[Any, Any],
    windows: pd.DataFrame,
    items: dict[Any, pd.DataFrame],
    costs: dict[str, float],
) -> dict[str, float]:
    """The predictions of the theorem and the corollary for one method and suite, and their
    inputs."""
    method = row["method"]
    suite = row["suite"]
    alpha = float(row["alpha"])
    setting = run.config.methods[method].suites.get(suite, Setting())
    k = int(setting.options.get("window", WINDOW))
    expected = expected_committed(alpha, k)
    lengths, counts = np.unique(windows["proposed"].to_numpy(dtype=int), return_counts=True)
    pairs = zip(lengths.tolist(), counts.tolist(), strict=True)
    total = math.fsum(count * expected_committed(alpha, length) for length, count in pairs)
    c, c_rho, c_pi = (costs.get(name, math.nan) for name in COSTS)
    known = min(c, c_rho, c_pi) > 0
    passes = _passes(method, suite, windows, items)
    return {
        "window": k,
        "expected_committed": expected,
        "expected_committed_windows": total / len(windows),
        "passes": passes,
        **dict(zip(COSTS, (c, c_rho, c_pi), strict=True)),
        "predicted_over_sequential": (
            acceleration_ratio(expected, c_rho, c_pi) if known else math.nan
        ),
        "over_sequential": _seconds_ratio(items, method + SEQUENTIAL, method, suite),
        "predicted_forward_speedup": acceleration_ratio(expected, 1.0, 1.0) / passes,
        "predicted_speedup": expected * c / (c_rho + c_pi) / passes if known else math.nan,
    }


def _passes(
    method: str, suite: str, windows: pd.DataFrame, items: dict[Any, pd.DataFrame]
) -> float:
    """Positions committed per forward of LLaDA's, over the items that both have; NaN where there
    are none."""
    reference, own = (_items(items, name, suite) for name in (REFERENCE, method))
    both = own.index.intersection(reference.index)
    committed = windows.loc[windows["item"].isin(both), "committed"]
    return (
        ratio_of_totals(committed, reference.loc[both, "forwards"]) if committed.any() else math.nan
    )


def _seconds_ratio(items: dict[Any, pd.DataFrame], above: str, below: str, suite: str) -> float:
    """Total seconds of one method over those of another on the items they share; NaN if there are
    none."""
    first, second = (_items(items, name, suite)["seconds"] for name in (above, below))
    both = first.index.intersection(second.index)
    return ratio_of_totals(first[both], second[both]) if len(both) else math.nan


def _items(items: dict[Any, pd.DataFrame], method: str, suite: str) -> pd.DataFrame:
    """SPENT of a method's items in a suite, by item in ascending order; empty if there are none."""
    return items.get(
        (method, suite), pd.DataFrame(columns=SPENT, index=pd.Index([], dtype=float), dtype=float)
    )

"""The paper's Theorem 2 and its corollary beside what a run measured: committed length, costs and speedups of FeF rows.

A run measures the costs of single passes beside its items (passes.jsonl): a plain forward, a draft pass and the
verification of a full window, on the same prompts. Predictions use these and the rate of acceptance alone, so they can
be wrong: the seconds of FeF's items are no part of them.

Theorem 2 assumes that the drafts of a window are accepted independently, each with probability alpha. The corollary is
relative to "a prefix-conditioned sequential target baseline that commits one position per target pass", and takes that
pass to cost what the verification of a whole window costs.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from harness.errors import UserError
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

WINDOW = 16  # the decoder's default, where a run's configuration names none
SEQUENTIAL = "-nosd"  # suffix of the preset without speculation
COUNTS = ["proposed", "accepted", "committed"]
SPENT = ["seconds", "forwards"]
COSTS = {"c": "plain", "c_rho": "draft", "c_pi": "verification"}  # column of the frame -> of passes.jsonl
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
    *(name for pair in PREDICTED.items() if "forward" not in pair[0] for name in (*pair, RATIOS[pair[1]])),
]


def expected_committed(alpha: float, k: int) -> float:
    """E[C_k] = (1 - alpha^k) / (1 - alpha), k at alpha = 1: positions that a window of k drafts commits.

    C_k counts the accepted drafts and, after a rejection, the corrected token; a window accepted whole commits its k
    drafts and nothing more. alpha: probability that a draft which is tested is accepted. Source: Theorem 2, computed
    as its sum over l < k of alpha^l, which is exact near alpha = 1 too. Raises ValueError if alpha is not in [0, 1] or
    k < 1.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha={alpha} must lie in [0, 1]: the share of tested drafts that is accepted")
    if k < 1:
        raise ValueError(f"k={k} must be at least 1: the drafts of a window")
    return math.fsum(alpha**position for position in range(k))


def acceleration_ratio(committed: float, c_rho: float, c_pi: float) -> float:
    """S = E[C_k] c_pi / (c_rho + c_pi): speedup over decoding one position per target pass (the rows w/o SD).

    committed: E[C_k], positions a window commits. c_rho: seconds of one draft pass. c_pi: seconds of one verification
    pass (k inputs), and also, as the corollary has it, of one pass of the baseline (one input). Where a pass of the
    baseline costs c instead, its speedup is S c / c_pi. Relative to LLaDA, divide by the number of passes over the
    response: 1, 1.5 and 2.5 for 1, 2 and 4 diffusion steps that re-mask half. Source: Corollary "Idealized
    acceleration ratio". Raises ValueError if committed < 1 or a cost is not positive and finite.
    """
    if not 1 <= committed < math.inf:
        raise ValueError(f"committed={committed} must be at least 1: every window commits a position")
    for name, cost in (("c_rho", c_rho), ("c_pi", c_pi)):
        if not 0 < cost < math.inf:
            raise ValueError(f"{name}={cost} must be positive: the seconds of one pass")
    return committed * c_pi / (c_rho + c_pi)


def fef_windows(run: Run, others: bool = False) -> pd.DataFrame:
    """The speculative windows of FeF methods: KEY and COUNTS, numbers as floats, names categoricals.

    others: and those of all other methods that proposed something. In the order of their lines. Raises UserError if a
    window, or the run, is damaged.
    """
    windows = run.windows.reindex(columns=[*KEY, *COUNTS])
    fef = windows["method"].isin(prefix_conditioned(run.config))
    windows = windows[fef | (others & windows["proposed"].ne(0))]
    numbers = windows[["item", *COUNTS]].apply(pd.to_numeric, errors="coerce").astype(float)
    whole = (numbers["accepted"] <= numbers["proposed"]) & (numbers["proposed"] >= 1) & (numbers["accepted"] >= 0)
    if windows["suite"].isna().any() or numbers.isna().any(axis=None) or not whole.all():
        raise UserError(f"{run.folder}/windows.jsonl: a window has no valid {', '.join(COUNTS)}; the record is damaged")
    return pd.DataFrame(categoricals(windows, run)).join(numbers.reset_index(drop=True))


def acceptance_by_position(windows: pd.DataFrame) -> pd.DataFrame:
    """How often the draft at a position is accepted, by position m = 1, 2, ...; windows need `proposed` and `accepted`.

    given_tested: accepted / tested, where a draft is tested if all before it were accepted. unconditional: accepted /
    proposed. independent: alpha^m, what `unconditional` is if acceptance is independent over positions, as the theorem
    assumes, alpha being accepted / tested over all positions. proposed, tested, accepted: counts.
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
    """One row per FeF method and suite that has windows, in the configuration's order; columns are THEORY.

    window: k of the configuration. expected_committed: E[C_k] at the measured alpha; expected_committed_windows: the
    mean over the windows of E[C_proposed]. passes: positions committed / LLaDA's forwards, which commit one each, over
    the items shared with LLaDA. c, c_rho, c_pi: median seconds of a plain forward, a draft pass and a verification of k
    drafts, measured beside the items. predicted_over_sequential: the corollary's S = E[C_k] c_pi / (c_rho + c_pi).
    predicted_forward_speedup: E[C_k] / 2 / passes. predicted_speedup: E[C_k] c / (c_rho + c_pi) / passes. Beside each
    the measured value, and measured / predicted. NaN where the run lacks LLaDA, the rows w/o SD or measured passes, and
    OF_SECONDS where it was not timed. Raises UserError if the records are damaged.
    """
    rates, speeds = _by_pair(measure_windows(run)), _by_pair(measure(run)[[*PAIR, "forward_speedup", "speedup"]])
    items = {
        pair: own.set_index("item")[SPENT] for pair, own in checked_items(run).groupby(PAIR, observed=True, sort=False)
    }
    costs = _measured_costs(run)
    found = []
    for (method, suite), own in fef_windows(run).groupby(PAIR, observed=True):
        pair = (str(method), str(suite))
        found.append(rates[pair] | _predictions(run, rates[pair], own, items, costs.get(pair, {})) | speeds[pair])
    frame = pd.DataFrame(found, columns=THEORY)
    numbers = frame[[*PREDICTED, *PREDICTED.values()]].astype(float)
    for predicted, measured in PREDICTED.items():
        frame[RATIOS[measured]] = numbers[measured] / numbers[predicted]
    return frame if timed(run) else frame.assign(**dict.fromkeys(OF_SECONDS, math.nan))


def _measured_costs(run: Run) -> dict[tuple[str, str], dict[str, float]]:
    """COSTS of every method and suite, medians over the run; none where it measured none."""
    if run.passes.empty:
        return {}
    medians = run.passes.groupby(PAIR)[list(COSTS.values())].median()
    renamed = medians.rename(columns={there: here for here, there in COSTS.items()})
    return _by_pair(renamed.reset_index())


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
    """The predictions of the theorem and the corollary for one method and suite, and their inputs."""
    method, suite, alpha = row["method"], row["suite"], float(row["alpha"])
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
        "predicted_over_sequential": acceleration_ratio(expected, c_rho, c_pi) if known else math.nan,
        "over_sequential": _seconds_ratio(items, method + SEQUENTIAL, method, suite),
        "predicted_forward_speedup": acceleration_ratio(expected, 1.0, 1.0) / passes,
        "predicted_speedup": expected * c / (c_rho + c_pi) / passes if known else math.nan,
    }


def _passes(method: str, suite: str, windows: pd.DataFrame, items: dict[Any, pd.DataFrame]) -> float:
    """Positions committed per forward of LLaDA's, over the items that both have; NaN where there are none."""
    reference, own = (_items(items, name, suite) for name in (REFERENCE, method))
    both = own.index.intersection(reference.index)
    committed = windows.loc[windows["item"].isin(both), "committed"].sum()
    return float(committed / reference.loc[both, "forwards"].sum()) if committed else math.nan


def _seconds_ratio(items: dict[Any, pd.DataFrame], above: str, below: str, suite: str) -> float:
    """Total seconds of one method over those of another on the items they share; NaN if there are none."""
    first, second = (_items(items, name, suite)["seconds"] for name in (above, below))
    both = first.index.intersection(second.index)
    return float(first[both].sum() / second[both].sum()) if len(both) else math.nan


def _items(items: dict[Any, pd.DataFrame], method: str, suite: str) -> pd.DataFrame:
    """SPENT of a method's items in a suite, by item in ascending order; empty if there are none."""
    return items.get((method, suite), pd.DataFrame(columns=SPENT, index=pd.Index([], dtype=float), dtype=float))

"""The paper's Theorem 2 and its corollary beside what a run measured: committed length, costs and speedups of FeF rows.

Seconds are recorded per item, not per forward, so costs are derived. c_rho is LLaDA's time per forward (one row) on the
same items. c_pi is the rest of FeF's time after its draft forwards at c_rho, per verification pass. c_pi is biased
where c_rho is: LLaDA's time includes its own token choice, and a draft model of another size has another cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.methods.presets import prefix_conditioned
from harness.records.schema import Setting
from harness.records.store import KEY, Run
from harness.theory import acceleration_ratio, expected_committed
from tables.frames.measures import (
    PAIR,
    REFERENCE,
    are_recorded,
    checked_items,
    measure,
    measure_windows,
    method_labels,
    pairs_of,
    suite_titles,
    timed,
)
from tables.frames.together import of_all
from tables.sheets.captions import setting, timing
from tables.sheets.layout import Cell, Request, Sheet, Table

WINDOW = 16  # the decoder's default, where a run's configuration names none
SEQUENTIAL = "-nosd"  # suffix of the preset without speculation
COUNTS = ["proposed", "accepted", "committed"]
SPENT = ["seconds", "forwards", "draft_forwards"]
CAPTION = (
    "Theory beside measurement. Alpha is accepted / (accepted + rejected) drafts, Acceptance accepted / proposed.",
    "E[C_k] is what Theorem 2 expects a window of k drafts to commit at that alpha, the corrected position counted; "
    "E[C_b] is its mean over the lengths that the windows had; Committed is measured.",
    "Passes: positions committed per position that LLaDA decodes.",
)
CAPTION_TIMED = (
    "c_rho: LLaDA's milliseconds a forward; c_pi: those of a verification, what FeF's time leaves beside its draft "
    "forwards at c_rho.",
    "S is the corollary's speedup over decoding w/o SD, whose pass it prices at c_pi, beside the measured one; "
    "S / passes is that over LLaDA at the same price.",
    "Over LLaDA as measured: Fwd. (forward passes) beside E[C_k] / 2 / passes, Speed (wall-clock) beside S / passes "
    "with LLaDA's pass at c_rho.",
)
CAPTION_UNTIMED = ("Over LLaDA as measured: Fwd. (forward passes) beside E[C_k] / 2 / passes.",)
CAPTION_END = (
    "Prediction and measurement differ because acceptance is not independent over the positions of a window, and "
    "because windows at the end of a response are shorter than k."
)
THEORY = [
    *("method", "suite", "window", "alpha", "acceptance", "windows", "committed_per_window"),
    *("expected_committed", "expected_committed_windows", "passes", "c_rho", "c_pi"),
    *("predicted_over_sequential", "over_sequential", "predicted_over_llada_at_c_pi"),
    *("predicted_forward_speedup", "forward_speedup", "predicted_speedup", "speedup"),
]
HEADINGS = {  # column of the frame -> heading, decimals, unit
    "window": ("k", 0, ""),
    "alpha": ("Alpha", 3, ""),
    "acceptance": ("Acceptance", 3, ""),
    "committed_per_window": ("Committed", 2, ""),
    "expected_committed": ("E[C_k]", 2, ""),
    "expected_committed_windows": ("E[C_b]", 2, ""),
    "passes": ("Passes", 2, ""),
    "c_rho": ("c_rho", 2, ""),
    "c_pi": ("c_pi", 2, ""),
    "predicted_over_sequential": ("S", 2, "x"),
    "over_sequential": ("over w/o SD", 2, "x"),
    "predicted_over_llada_at_c_pi": ("S / passes", 2, "x"),
    "predicted_forward_speedup": ("Fwd. predicted", 2, "x"),
    "forward_speedup": ("Fwd.", 2, "x"),
    "predicted_speedup": ("Speed predicted", 2, "x"),
    "speedup": ("Speed", 2, "x"),
}
OF_SECONDS = [
    *("c_rho", "c_pi", "predicted_over_sequential", "over_sequential", "predicted_over_llada_at_c_pi"),
    *("predicted_speedup", "speedup"),
]


def fef_windows(run: Run) -> pd.DataFrame:
    """The speculative windows of recorded items of FeF methods: KEY and COUNTS, numbers as floats, names categoricals.

    In the order of their lines. Raises UserError if a window, or the run, is damaged.
    """
    fef = prefix_conditioned(run.config)
    windows = run.windows.reindex(columns=[*KEY, *COUNTS])
    windows = windows[windows["method"].isin(fef)]
    numbers = windows[["item", *COUNTS]].apply(pd.to_numeric, errors="coerce").astype(float)
    whole = (numbers["accepted"] <= numbers["proposed"]) & (numbers["proposed"] >= 1) & (numbers["accepted"] >= 0)
    if windows["suite"].isna().any() or numbers.isna().any(axis=None) or not whole.all():
        raise UserError(f"{run.folder}/windows.jsonl: a window has no valid {', '.join(COUNTS)}; the record is damaged")
    pair, suites = pairs_of(windows, run), list(suite_titles(run))
    known = are_recorded(pair, numbers["item"].to_numpy(), checked_items(run))
    pair, numbers = pair[known], numbers[known].reset_index(drop=True)
    names = {
        "method": pd.Categorical.from_codes(pair // len(suites), pd.Index(list(method_labels(run)))),
        "suite": pd.Categorical.from_codes(pair % len(suites), pd.Index(suites)),
    }
    return pd.concat([pd.DataFrame(names), numbers], axis=1)


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
    mean over the windows of E[C_proposed]. passes: positions committed / LLaDA's forwards, which commit one each.
    c_rho, c_pi: seconds, see above. predicted_*: by the corollary with E[C_k]: over w/o SD; over LLaDA with its pass
    at c_pi; in forwards (c_rho = c_pi); in wall-clock, LLaDA's pass at c_rho. over_sequential, forward_speedup,
    speedup: measured. Costs and what needs them are over the items shared with LLaDA; NaN where the run lacks LLaDA,
    the rows w/o SD or counts of draft forwards, and OF_SECONDS where it was not timed. Raises UserError if the records
    are damaged.
    """
    rates, speeds = _by_pair(measure_windows(run)), _by_pair(measure(run)[[*PAIR, "forward_speedup", "speedup"]])
    items = {
        pair: own.set_index("item")[SPENT] for pair, own in checked_items(run).groupby(PAIR, observed=True, sort=False)
    }
    found = []
    for (method, suite), own in fef_windows(run).groupby(PAIR, observed=True):
        pair = (str(method), str(suite))
        found.append(rates[pair] | _predictions(run, rates[pair], own, items) | speeds[pair])
    frame = pd.DataFrame(found, columns=THEORY)
    return frame if timed(run) else frame.assign(**dict.fromkeys(OF_SECONDS, math.nan))


def theory_table(frame: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """The frame of `theory` as a table, without OF_SECONDS if not timed; `measured` of `measures.measure`."""
    titles = suite_titles(run)
    shown = {name: how for name, how in HEADINGS.items() if timed(run) or name not in OF_SECONDS}
    in_milliseconds = frame.assign(c_rho=1e3 * frame["c_rho"], c_pi=1e3 * frame["c_pi"])
    cells = [
        [Cell(titles[row["suite"]]), *(Cell(_text(row[name], *how[1:])) for name, how in shown.items())]
        for row in in_milliseconds.to_dict("records")
    ]
    headings = ["Suite", *(heading for heading, _, _ in shown.values())]
    table = pd.DataFrame(
        cells,
        index=frame["method"].map(method_labels(run)).to_list(),
        columns=pd.MultiIndex.from_tuples([("", heading) for heading in headings]),
        dtype=object,
    )
    sentences = [*CAPTION, *(CAPTION_TIMED if timed(run) else CAPTION_UNTIMED), CAPTION_END]
    return Table("theory", " ".join([*sentences, *setting(measured, run), *timing(run)]), table)


def _by_pair(frame: pd.DataFrame) -> dict[tuple[str, str], dict[Any, Any]]:
    """The rows of a frame with method and suite, by these."""
    return {(str(row["method"]), str(row["suite"])): row for row in frame.to_dict("records")}


def _predictions(
    run: Run, row: dict[Any, Any], windows: pd.DataFrame, items: dict[Any, pd.DataFrame]
) -> dict[str, float]:
    """The predictions of the theorem and the corollary for one method and suite, and their inputs."""
    method, suite, alpha = row["method"], row["suite"], float(row["alpha"])
    k = _window_size(run, method, suite)
    expected = expected_committed(alpha, k)
    lengths, counts = np.unique(windows["proposed"].to_numpy(dtype=int), return_counts=True)
    pairs = zip(lengths.tolist(), counts.tolist(), strict=True)
    total = math.fsum(count * expected_committed(alpha, length) for length, count in pairs)
    costs = _costs(method, suite, windows, items)
    passes, c_rho, c_pi = costs["passes"], costs["c_rho"], costs["c_pi"]
    ratio = acceleration_ratio(expected, c_rho, c_pi) if c_rho > 0 and c_pi > 0 else math.nan
    return {
        "window": k,
        "expected_committed": expected,
        "expected_committed_windows": total / len(windows),
        **costs,
        "predicted_over_sequential": ratio,
        "over_sequential": _seconds_ratio(items, method + SEQUENTIAL, method, suite),
        "predicted_over_llada_at_c_pi": ratio / passes,
        "predicted_forward_speedup": acceleration_ratio(expected, 1.0, 1.0) / passes,
        "predicted_speedup": ratio * c_rho / c_pi / passes,
    }


def _window_size(run: Run, method: str, suite: str) -> int:
    setting = run.config.methods[method].suites.get(suite, Setting())
    return int(setting.options.get("window", WINDOW))


def _costs(method: str, suite: str, windows: pd.DataFrame, items: dict[Any, pd.DataFrame]) -> dict[str, float]:
    """passes, c_rho and c_pi over the items shared with LLaDA; NaN where the records do not give them."""
    reference, own = (_items(items, name, suite) for name in (REFERENCE, method))
    both = own.index.intersection(reference.index)
    if both.empty:
        return dict.fromkeys(("passes", "c_rho", "c_pi"), math.nan)
    steps, spent = (frame.loc[both].sum(skipna=False) for frame in (reference, own))
    c_rho = steps["seconds"] / steps["forwards"]
    verifications = spent["forwards"] - spent["draft_forwards"]
    rest = spent["seconds"] - spent["draft_forwards"] * c_rho
    committed = windows.loc[windows["item"].isin(both), "committed"].sum()
    return {
        "passes": committed / steps["forwards"] if committed else math.nan,
        "c_rho": c_rho,
        "c_pi": rest / verifications if verifications > 0 and rest > 0 else math.nan,
    }


def _seconds_ratio(items: dict[Any, pd.DataFrame], above: str, below: str, suite: str) -> float:
    """Total seconds of one method over those of another on the items they share; NaN if there are none."""
    first, second = (_items(items, name, suite)["seconds"] for name in (above, below))
    both = first.index.intersection(second.index)
    return float(first[both].sum() / second[both].sum()) if len(both) else math.nan


def _items(items: dict[Any, pd.DataFrame], method: str, suite: str) -> pd.DataFrame:
    """SPENT of a method's items in a suite, by item in ascending order; empty if there are none."""
    return items.get((method, suite), pd.DataFrame(columns=SPENT, index=pd.Index([], dtype=float), dtype=float))


def _text(value: float, decimals: int, unit: str) -> str:
    return "-" if pd.isna(value) else f"{value:.{decimals}f}{unit}"


def theory_sheets(request: Request) -> Iterator[Sheet]:
    """The paper's theorem beside the measured windows, if FeF methods have any."""
    expected = of_all(theory, request.run)
    if len(expected):
        yield Sheet(theory_table(expected, request.measured, request.run), expected)

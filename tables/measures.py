"""Records become tidy frames: one row per method and suite, unformatted numbers.

Everything here is a pure function of a run as `harness.records.read_run` gives it, and does not depend on the order of
its lines.
"""

from __future__ import annotations

import math

import pandas as pd

from harness.errors import UserError
from harness.records import KEY, Run

REFERENCE = "llada"  # the method whose seconds and forwards are 1.00x
PAIR = ["method", "suite"]
POSITIVE = ["seconds", "forwards"]
COUNTED = ["proposed", "accepted", "rejected"]
MEASURES = [
    *PAIR,
    "accuracy",
    "scored",
    "items",
    "speedup",
    "forward_speedup",
    "acceptance",
    "committed_per_window",
    "seconds_per_item",
    "shared_items",
]
WINDOW_MEASURES = [*PAIR, "acceptance", "alpha", "committed_per_window", "windows"]


def method_labels(run: Run) -> dict[str, str]:
    """The run's methods in its order: key -> label, from run.json. Raises UserError if it names none."""
    return _named(run, "methods", "label")


def suite_titles(run: Run) -> dict[str, str]:
    """The run's suites in its order: key -> title, from run.json. Raises UserError if it names none."""
    return _named(run, "suites", "title")


def measure(run: Run) -> pd.DataFrame:
    """One row per method and suite that has items, in the configuration's order; columns are MEASURES.

    accuracy: percent of the scored items. scored, items, shared_items: counts, the last of items that LLaDA has too.
    speedup, forward_speedup: LLaDA's total / the method's, of seconds and of forward passes, over the shared items.
    acceptance: accepted / proposed drafts. committed_per_window: positions resolved, mean over speculative windows.
    seconds_per_item: mean decoding time. NaN where there is nothing to measure. Source: items.jsonl, windows.jsonl.
    Raises UserError if there are no items or they are damaged.
    """
    items = _checked_items(run)
    totals = items.groupby(PAIR).agg(
        items=("item", "size"),
        scored=("verdict", "count"),
        right=("verdict", "sum"),
        seconds_per_item=("seconds", "mean"),
        proposed=("proposed", "sum"),
        accepted=("accepted", "sum"),
    )
    totals["accuracy"] = 100 * totals["right"] / totals["scored"]
    totals["acceptance"] = totals["accepted"] / totals["proposed"]
    totals = totals.join(_speedups(items)).join(_windows(run, items)["committed_per_window"])
    totals["shared_items"] = totals["shared_items"].fillna(0).astype(int)
    return _in_order(totals, run)[MEASURES]


def measure_windows(run: Run) -> pd.DataFrame:
    """One row per method and suite that has speculative windows, in the configuration's order; WINDOW_MEASURES.

    acceptance: accepted / proposed drafts, every proposal counted. alpha: accepted / (accepted + rejected), the rate
    among judged drafts. committed_per_window: mean positions resolved. windows: how many. Windows whose item is not
    recorded are left out. Source: items.jsonl, windows.jsonl. Raises UserError as `measure` does.
    """
    items = _checked_items(run)
    sums = items.groupby(PAIR)[COUNTED].sum()
    rates = pd.DataFrame(
        {
            "acceptance": sums["accepted"] / sums["proposed"],
            "alpha": sums["accepted"] / (sums["accepted"] + sums["rejected"]),
        }
    )
    return _in_order(rates.join(_windows(run, items), how="inner"), run)[WINDOW_MEASURES]


def _speedups(items: pd.DataFrame) -> pd.DataFrame:
    """shared_items, speedup and forward_speedup by (method, suite); pairs that share nothing with LLaDA are absent."""
    reference = items.loc[items["method"] == REFERENCE, ["suite", "item", *POSITIVE]]
    shared = items.merge(reference, on=["suite", "item"], suffixes=("", "_reference"))
    sums = shared.groupby(PAIR)[[*POSITIVE, *(f"{name}_reference" for name in POSITIVE)]].sum()
    return pd.DataFrame(
        {
            "shared_items": shared.groupby(PAIR).size(),
            "speedup": sums["seconds_reference"] / sums["seconds"],
            "forward_speedup": sums["forwards_reference"] / sums["forwards"],
        }
    )


def _windows(run: Run, items: pd.DataFrame) -> pd.DataFrame:
    """committed_per_window and windows by (method, suite), over the windows of recorded items."""
    windows = run.windows.reindex(columns=[*KEY, "committed"])
    numbers = windows[["item", "committed"]].apply(pd.to_numeric, errors="coerce").astype(float)
    if windows.isna().any(axis=None) or numbers.isna().any(axis=None):
        raise UserError(
            f"{run.folder}/windows.jsonl: a window lacks {', '.join(KEY)} or committed; the record is damaged"
        )
    windows = windows.astype({"method": str, "suite": str}).assign(item=numbers["item"], committed=numbers["committed"])
    windows = windows.merge(items[list(KEY)], on=list(KEY)).sort_values([*KEY, "committed"])
    groups = windows.groupby(PAIR)["committed"]
    return pd.DataFrame({"committed_per_window": groups.mean(), "windows": groups.size()})


def _checked_items(run: Run) -> pd.DataFrame:
    """The items in a fixed order, numbers as floats, with `verdict`: 1, 0 or NaN (not scored)."""
    if run.items.empty:
        raise UserError(f"{run.folder} holds no items yet: items.jsonl is empty or missing; run harness/run.py first")
    items = run.items.copy()
    for name in ("item", *POSITIVE, *COUNTED):
        values = pd.to_numeric(items[name], errors="coerce") if name in items else pd.Series(math.nan, items.index)
        least = 0.0 if name not in POSITIVE else math.ulp(0.0)
        wrong = items[~values.between(least, math.inf, inclusive="left")]
        if len(wrong):
            where = " ".join(str(run.items.loc[wrong.index[0], key]) for key in KEY)
            raise UserError(
                f"{run.folder}/items.jsonl: {where} has no valid {name}; the record is damaged, remove that line"
            )
        items[name] = values.astype(float)
    for name, known in (("method", method_labels(run)), ("suite", suite_titles(run))):
        strange = sorted({str(value) for value in items[name]} - set(known))
        if strange:
            raise UserError(f"{run.folder}/items.jsonl: run.json does not name the {name} {', '.join(strange)}")
    verdicts = items["correct"].astype(object) if "correct" in items else pd.Series(None, items.index, dtype=object)
    if any(not isinstance(verdict, bool) and not pd.isna(verdict) for verdict in verdicts):
        raise UserError(f"{run.folder}/items.jsonl: `correct` must be true, false or null; score the run again")
    items["verdict"] = pd.to_numeric(verdicts.map({True: 1.0, False: 0.0}))
    return items.sort_values(list(KEY))


def _in_order(frame: pd.DataFrame, run: Run) -> pd.DataFrame:
    """Rows indexed by (method, suite) in the configuration's order, the index as columns."""
    pairs = [(method, suite) for method in method_labels(run) for suite in suite_titles(run)]
    present = [pair for pair in pairs if pair in frame.index]
    return frame.reindex(pd.MultiIndex.from_tuples(present, names=PAIR)).reset_index()


def _named(run: Run, part: str, name: str) -> dict[str, str]:
    try:
        named = {str(key): str(value.get(name, key)) for key, value in run.meta["config"][part].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{run.folder}/run.json is damaged: config.{part} must map names to objects") from error
    if not named:
        raise UserError(f"{run.folder}/run.json is damaged: config.{part} names none")
    return named

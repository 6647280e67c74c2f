"""The gate's comparison of two runs of any repository: accuracy, forwards, and speed over LLaDA.

Seconds of two runs may be of other machines and days. So speedups over LLaDA are compared, each
inside its run.
"""

from typing import Any

import pandas as pd
from msgspec import to_builtins

from harness.errors import UserError
from harness.measures.table import PAIR, PROBLEM, REFERENCE, checked_items, timed
from harness.records.consistency import differences
from harness.records.store import KEY, Run
from harness.stats import total_ratio_interval

TOKENS = ("temperature", "seed", "seeds", "device", "dtype")
SECONDS = ("graphs", "threads", "batch")


def judge_runs(
    new: Run, old: Run, accuracy: float | None, speed: float | None, forwards: float = 0.0
) -> bool:
    """Print a line for each number of `new` that is worse than that of `old`.

    Args:
        accuracy: points that a method may lose on a suite (None: not judged).
        speed: share of its speed over LLaDA that a method may lose (None: not judged).
        forwards: share of forwards that a method may take more.

    Returns:
        Whether no number is worse.

    Raises:
        UserError: the runs have other problems or settings, or no speeds over LLaDA.
    """
    _check_settings(new, old, speed is not None)
    both = _items_of_both(new, old)
    shared = both[both["side"] == "both"]
    lines = [*_missing(both), *_more_forwards(shared, forwards)]
    judged = ["forwards"]
    if accuracy is not None:
        lines += _lost_accuracy(shared, accuracy)
        judged.append(f"accuracy within {accuracy:g} points")
    if speed is not None:
        lines += _lost_speed(shared, speed)
        judged.append(f"speed over LLaDA within {100 * speed:g}%")
    for line in lines:
        print(line)
    verdict = "FAILED" if lines else "passed"
    print(f"gate: {verdict}; {', '.join(judged)}, over {len(shared)} responses of {old.folder}")
    return not lines


def _check_settings(new: Run, old: Run, speed: bool) -> None:
    """Raise UserError where a comparison would be of settings, not of decoders."""
    names = [*TOKENS, *SECONDS] if speed else TOKENS
    configs = [to_builtins(run.config) for run in (old, new)]
    before, after = ({name: config.get(name) for name in names} for config in configs)
    changed = differences(before, after)
    if changed:
        settings = "; ".join(changed)
        raise UserError(f"{old.folder} and {new.folder} differ: {settings}; run both alike")
    if not speed:
        return
    for run in (old, new):
        if REFERENCE not in run.config.methods:
            raise UserError(f"--speed is over LLaDA, which {run.folder} lacks; add llada")
        if not timed(run):
            raise UserError(f"--speed needs timed runs; run {run.folder} without --untimed")


def _items_of_both(new: Run, old: Run) -> pd.DataFrame:
    """The items of `old`, with <name>_old and <name>_new; side: whether both runs have it."""
    before, after = (_items(run) for run in (old, new))
    both = before.merge(after, "left", list(KEY), suffixes=("_old", "_new"), indicator="side")
    other = both[(both["side"] == "both") & both["prompt_hash_old"].ne(both["prompt_hash_new"])]
    if len(other):
        method, suite, item = other[list(KEY)].iloc[0]
        raise UserError(
            f"other prompts in {new.folder} ({method}, {suite} {item}); run both on the same --data"
        )
    return both


def _items(run: Run) -> pd.DataFrame:
    items = checked_items(run).astype(dict.fromkeys(PAIR, str))
    prompts = run.items.reindex(columns=[*KEY, "prompt_hash"]).fillna({"prompt_hash": ""})
    return items.merge(prompts.astype(dict.fromkeys(PAIR, str)), on=list(KEY))


def _missing(both: pd.DataFrame) -> list[str]:
    """Responses that are missing or not scored now."""
    absent = both["side"] != "both"
    unscored = ~absent & both["verdict_old"].notna() & both["verdict_new"].isna()
    lines = []
    for what, rows in (("missing", absent), ("not scored", unscored)):
        for (method, suite), items in both.groupby(PAIR, sort=False):
            count = rows[items.index].sum()
            if count:
                lines.append(f"{method} on {suite}: {count} of {len(items)} responses are {what}")
    return lines


def _more_forwards(shared: pd.DataFrame, allowed: float) -> list[str]:
    lines = []
    for (method, suite), items in shared.groupby(PAIR, sort=False):
        before = items["forwards_old"].mean()
        after = items["forwards_new"].mean()
        if after > before * (1 + allowed):
            lines.append(
                f"{method} on {suite}: {after:.2f} forwards a response, before {before:.2f}"
            )
    return lines


def _lost_accuracy(shared: pd.DataFrame, allowed: float) -> list[str]:
    scored = shared.dropna(subset=["verdict_old", "verdict_new"])
    lines = []
    for (method, suite), items in scored.groupby(PAIR, sort=False):
        before = items["verdict_old"].sum()
        after = items["verdict_new"].sum()
        if 100 * (before - after) / len(items) > allowed:
            lines.append(
                f"{method} on {suite}: accuracy {100 * after / len(items):.1f}, "
                f"before {100 * before / len(items):.1f} ({len(items)} responses)"
            )
    return lines


def _lost_speed(shared: pd.DataFrame, allowed: float) -> list[str]:
    """Methods whose speed over LLaDA is lower, with its whole bootstrap interval, or unknown."""
    reference = shared.loc[shared["method"] == REFERENCE, [*PROBLEM, "seconds_old", "seconds_new"]]
    others = shared[shared["method"] != REFERENCE]
    pairs = others.merge(reference, on=PROBLEM, suffixes=("", "_llada"))
    names = ["seconds_new_llada", "seconds_new", "seconds_old_llada", "seconds_old"]
    lines = []
    for (method, suite), items in pairs.groupby(PAIR, sort=False):
        if items[names].dropna().empty:
            lines.append(
                f"{method} on {suite}: no Speed, see the table; time it again with --resume"
            )
    pairs = pairs.dropna(subset=names)
    for name, items in pairs.groupby("method", sort=False):
        # The samples of a problem are alike: only problems are drawn anew.
        of_problems = items.groupby(["suite", "problem_old"], sort=False, observed=True)
        seconds: Any = of_problems[names].sum().to_numpy().T
        ratio, low, high = total_ratio_interval([*seconds])
        if high < 1 - allowed:
            now = seconds[0].sum() / seconds[1].sum()
            lines.append(
                f"{name}: {now:.2f} times LLaDA's speed, before {now / ratio:.2f}: "
                f"{100 * (1 - ratio):.0f}% lower ({100 * (1 - high):.0f} to {100 * (1 - low):.0f}%)"
            )
    return lines

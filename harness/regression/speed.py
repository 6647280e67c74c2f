"""The gate's judgement of speed: this tree and another revision decode the same prompts on this
machine, in turn.

Seconds of another machine or day mean nothing. Two processes, one on a checkout of the revision,
strictly alternate, each idle while the other decodes: one that decodes twice in a row is up to 10%
slower the second time. Two rounds must agree, and responses must not differ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from msgspec.structs import replace

from harness.elements import elements_of
from harness.errors import UserError
from harness.measures.against import outside_methods
from harness.measures.table import REFERENCE
from harness.records.schema import RunConfig
from harness.records.store import Run
from harness.regression.revision import ROOT, Side, checkout, request_of
from harness.runs.loading import load, recorded
from harness.stats import total_ratio_interval

if TYPE_CHECKING:
    from harness.runs.problems import SuiteJob

# On a busy machine one round in ten has a false alarm. The second has other processes, and so
# other noise; it has more items, so that it does not miss what the first one saw.
ROUNDS = 2
# Takes methods and the number of the round; returns rows of `measure_both`.
Measure = Callable[[Collection[str], int], pd.DataFrame]


def judge_speed(run: Run, rev: str, methods: str | None, items: int, tolerance: float) -> bool:
    """Measure this tree and a revision in turn and print both.

    Args:
        run: whose methods, models and problems are measured.
        rev: the revision of this repository.
        methods: separated by commas (None: all of the run).
        items: of each suite in the first round.
        tolerance: share of speed that may be lost.

    Returns:
        Whether no method is slower, has other tokens, or makes more forwards.

    Raises:
        UserError: the revision knows none of the methods, or they are from outside.
    """
    config = replace(run.config, limit=ROUNDS * items)
    if methods is not None:
        wanted = elements_of(methods)
        unknown = [name for name in wanted if name not in config.methods]
        if unknown:
            named = f"--methods {', '.join(unknown)}: not in {run.folder}"
            raise UserError(f"{named}, which has {', '.join(config.methods)}")
        config = replace(config, methods={name: config.methods[name] for name in wanted})
    outside = [name for name in config.methods if name in outside_methods(run)]
    if outside:
        raise UserError(
            f"--against-rev measures revisions of {ROOT}, which has no {', '.join(outside)}; "
            "compare two runs instead: --against OLD --accuracy 5 --speed 0.05"
        )
    rounds: list[pd.DataFrame] = []
    with checkout(rev) as tree, tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        jobs, _ = load(recorded(config, run.meta.data), Path(scratch))

        def measure(names: Collection[str], number: int) -> pd.DataFrame:
            measured, notes = measure_both(tree, config, jobs, number * items, names)
            for note in notes:
                print(note)
            if measured.empty:
                raise UserError(
                    f"{rev} can run none of the methods; choose --methods that it knows"
                )
            rounds.append(measured)
            return measured

        print(f"speed of {ROOT}: now against {rev}, {items} items a suite, in turn")
        print("seconds and speedup over LLaDA, now / before")
        slower = slower_methods(measure, list(config.methods), tolerance)
    lost = f"REGRESSED by more than {100 * tolerance:g}% in {ROUNDS} rounds: {', '.join(slower)}"
    print(f"speed: {lost if slower else 'passed'}")
    return same_responses(rounds[0]) and not slower


def slower_methods(measure: Measure, methods: Collection[str], tolerance: float) -> list[str]:
    """The methods that are slower in every round; prints the rounds. Those that were in one are
    measured again."""
    suspects = list(methods)
    for number in range(1, ROUNDS + 1):
        # LLaDA's seconds, too: speedups are over them.
        compared = compare_seconds(measure({*suspects, REFERENCE}, number), tolerance)
        print(f"round {number}\n{compared.to_string(index=False, float_format='%.3f')}")
        slow = set(compared.loc[compared["verdict"] == "regressed", "method"])
        suspects = [name for name in suspects if name in slow]
        if not suspects:
            break
        if number < ROUNDS:
            print(f"slower, and measured again on more items: {', '.join(suspects)}")
    return suspects


def same_responses(measured: pd.DataFrame) -> bool:
    """Whether every response has its tokens and no more forwards than before; prints which
    differ."""
    other = ~measured["same_tokens"]
    more = measured["new_forwards"] > measured["old_forwards"]
    fewer = measured["new_forwards"] < measured["old_forwards"]
    for what, rows in (
        ("tokens differ", other),
        ("more forwards", more),
        ("fewer forwards", fewer),
    ):
        for method, part in measured[rows].groupby("method", sort=False):
            names = ", ".join(f"{row['suite']} {row['item']}" for _, row in part.iterrows())
            print(f"{what}: {method} ({names})")
    passed = not (other | more).any()
    print(f"responses: {'passed' if passed else 'CHANGED'}")
    return passed


def measure_both(
    tree: Path,
    config: RunConfig,
    jobs: list[SuiteJob],
    items: int,
    methods: Collection[str],
) -> tuple[pd.DataFrame, list[str]]:
    """Seconds of items with the code of another tree and with this one's.

    Args:
        tree: the other revision's files.
        config: of the run.
        jobs: its suites.
        items: the first ones of every suite.
        methods: those that are measured.

    Returns:
        A row per (method, suite, item), old and new being the faster of two, for what else a
        machine does only adds; and sentences on methods that the other revision cannot run.

    Raises:
        UserError: this tree alone cannot run a method.
    """
    # A process may be up to a tenth slower than another of the same code, for as long as it lives.
    # With a pair of processes for each item that is noise, which the intervals show. On a GPU,
    # where starting may take minutes, all items share a pair.
    light = config.device == "cpu"
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    with ExitStack() as stack:
        sides: list[Side] = []
        for job in jobs:
            for item in range(min(items, len(job.prompts))):
                if light or not sides:
                    stack.close()
                    sides = _pair(stack, tree, config.threads or 1)
                for method, model in job.models.items():
                    if method not in methods:
                        continue
                    prompt = job.prompt(method, item).tolist()
                    request = request_of(config, model, prompt)
                    who = f"{method} on {job.suite}"
                    # warms both up, too
                    old, new = (side.decode(request).get("error") for side in sides)
                    if old is not None:
                        notes.append(f"{who} is left out: {old}")
                        continue
                    if new is not None:
                        raise UserError(
                            f"{who} is decoded by the other revision, not by this: {new}"
                        )
                    key = {"method": method, "suite": job.suite, "item": item}
                    rows.append(key | _in_turn(sides, request))
    return pd.DataFrame(rows), list(dict.fromkeys(notes))


def _pair(stack: ExitStack, tree: Path, threads: int) -> list[Side]:
    """A process on each revision's code, which the stack ends."""
    return [stack.enter_context(Side(code, threads)) for code in (tree, ROOT)]


def _in_turn(sides: list[Side], request: dict[str, Any]) -> dict[str, Any]:
    """What a response takes on both sides, which decode it twice."""
    before, now, before_again, now_again = (side.decode(request) for side in sides * 2)
    return {
        "old": min(before["seconds"], before_again["seconds"]),
        "new": min(now["seconds"], now_again["seconds"]),
        "old_forwards": before["forwards"],
        "new_forwards": now["forwards"],
        "same_tokens": before["tokens"] == now["tokens"],
    }


def compare_seconds(measured: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """What every method takes now, over what it took before, with paired bootstrap intervals.

    Args:
        measured: rows of `measure_both`.
        tolerance: share of speed that may be lost.

    Returns:
        A row per method. seconds: new total / old total. speed: the speedup over LLaDA, now /
        before. verdict: "regressed" where the whole interval of seconds lies above 1 + tolerance,
        or that of speed below 1 / (1 + tolerance) while that of seconds does not lie below 1; else
        "ok".
    """
    sides = measured.pivot_table(index=["suite", "item"], columns="method", values=["old", "new"])
    rows = []
    for method in measured["method"].unique():
        part = sides[[("new", method), ("old", method)]].dropna()
        ratios = {"seconds": total_ratio_interval([*part.to_numpy().T])}
        slower = ratios["seconds"][1] > 1 + tolerance
        if method != REFERENCE and ("old", REFERENCE) in sides:
            both = sides[
                [(side, name) for side in ("new", "old") for name in (REFERENCE, method)]
            ].dropna()
            ratios["speed"] = total_ratio_interval([*both.to_numpy().T])
            faster = ratios["seconds"][2] < 1  # less than what LLaDA gained is no loss
            slower |= ratios["speed"][2] < 1 / (1 + tolerance) and not faster
        row: dict[str, Any] = {"verdict": "regressed" if slower else "ok", "method": method}
        for name, numbers in ratios.items():
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), numbers, strict=True))
        rows.append(row)
    return pd.DataFrame(rows)

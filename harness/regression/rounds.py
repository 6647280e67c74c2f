"""The gate's judgement of speed: rounds of measuring, of which two must agree, and responses that must not differ."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd
from msgspec.structs import replace

from harness.elements import elements_of
from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.records.schema import RunConfig
from harness.records.store import Run
from harness.regression.revision import checkout
from harness.regression.speed import compare_seconds, measure_both
from harness.runs.loading import load
from harness.runs.resolve import recorded

# On a busy machine one round in ten has a false alarm. Another round has other processes, and with them other noise; it
# has more items, so that it does not miss what the first one saw.
ROUNDS = 2
Measure = Callable[[Collection[str], int], pd.DataFrame]  # rows of `measure_both` for these methods, in this round


def judge_speed(
    run: Run, rev: str, methods: str | None, items: int, tolerance: float, allow_changed_responses: bool = False
) -> bool:
    """Measure this tree and a revision in turn and print both; whether this tree passes.

    allow_changed_responses: they may have other tokens than the revision's, or take more forwards.
    """
    config = _config(run, methods, items)
    rounds: list[pd.DataFrame] = []
    with checkout(rev) as tree, tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        jobs, _ = load(recorded(config, run.meta.data), Path(scratch))

        def measure(names: Collection[str], number: int) -> pd.DataFrame:
            measured, notes = measure_both(tree, config, jobs, number * items, names)
            for note in notes:
                print(note)
            if measured.empty:
                raise UserError(f"{rev} can run none of the methods; choose --methods that it knows")
            rounds.append(measured)
            return measured

        print(f"speed: now against {rev}, {items} items a suite, in turn; seconds and speedup over LLaDA, now / before")
        slower = slower_methods(measure, list(config.methods), tolerance)
    if slower:
        print(f"speed: REGRESSED by more than {100 * tolerance:g}% in {ROUNDS} rounds: {', '.join(slower)}")
    else:
        print("speed: passed")
    return same_responses(rounds[0], allow_changed_responses) and not slower


def _config(run: Run, methods: str | None, items: int) -> RunConfig:
    """What is measured: the run's configuration with these methods, all by default, and the last round's items."""
    config = replace(run.config, limit=ROUNDS * items)
    if methods is None:
        return config
    wanted = elements_of(methods)
    unknown = [name for name in wanted if name not in config.methods]
    if unknown:
        raise UserError(f"--methods {', '.join(unknown)}: not in {run.folder}, which has {', '.join(config.methods)}")
    return replace(config, methods={name: config.methods[name] for name in wanted})


def slower_methods(measure: Measure, methods: Collection[str], tolerance: float) -> list[str]:
    """The methods that are slower in every round; prints the rounds. Those that were in one are measured again."""
    suspects = list(methods)
    for number in range(1, ROUNDS + 1):
        found = compare_seconds(measure({*suspects, REFERENCE}, number), tolerance)  # speedups are over LLaDA
        print(f"round {number}\n{found.to_string(index=False, float_format='%.3f')}")
        slow = set(found.loc[found["verdict"] == "regressed", "method"])
        suspects = [name for name in suspects if name in slow]
        if not suspects:
            break
        if number < ROUNDS:
            print(f"slower, and measured again on more items: {', '.join(suspects)}")
    return suspects


def same_responses(measured: pd.DataFrame, allow_changed_responses: bool) -> bool:
    """Whether every response has its tokens and no more forwards than before, or may differ; prints which differ."""
    other = ~measured["same_tokens"]
    more = measured["new_forwards"] > measured["old_forwards"]
    fewer = measured["new_forwards"] < measured["old_forwards"]
    for what, rows in (("tokens differ", other), ("more forwards", more), ("fewer forwards", fewer)):
        for method, own in measured[rows].groupby("method", sort=False):
            names = ", ".join(f"{row['suite']} {row['item']}" for _, row in own.iterrows())
            print(f"{what}: {method} ({names})")
    passed = allow_changed_responses or not (other | more).any()
    print("responses: passed" if passed else "responses: CHANGED; if this is meant, --allow-changed-responses")
    return passed

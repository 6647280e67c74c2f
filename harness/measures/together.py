"""Several runs as one set of tables: rows of all, each measured within its own run.

Seconds of different runs are never compared: a speedup is over the LLaDA of the row's own run.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import msgspec
import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.measures.comparability import CHANGES_TOKENS, Difference, check_comparable, weights
from harness.measures.table import method_labels, suite_titles, timed
from harness.records.schema import RunRecord
from harness.records.store import Run

Pair = tuple[str, str]  # a method and a suite
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Together(Run):
    """Runs put together. meta: theirs merged; items, windows: empty, for `of_all` measures each run by itself.

    names: what captions call the runs. origin: which run, by number, a method's row on a suite comes from. notes: the
    notes on that row's accuracy and speed.
    """

    runs: tuple[Run, ...]
    names: tuple[str, ...]
    origin: dict[Pair, int]
    notes: dict[Pair, tuple[str, str]]


def put_together(runs: Sequence[Run], allowed: Collection[str] = ()) -> Together:
    """Two runs or more as one. Of what several hold, a method on a suite, the first one's is shown.

    allowed: names of checks (comparability.py) that may fail; their differences become notes. Raises UserError
    if there are fewer than two runs, if anything else differs, or if a run is damaged.
    """
    if len(runs) < 2:
        raise UserError(f"--together takes two runs or more, {len(runs)} was given; name the folders of all of them")
    found = check_comparable(runs, allowed)
    merged = msgspec.to_builtins(runs[0].meta)
    for run in runs[1:]:
        merged = _merged(merged, msgspec.to_builtins(run.meta))
    merged["config"]["timed"] = any(timed(run) for run in runs)
    origin: dict[Pair, int] = {}
    for number, run in enumerate(runs):
        if len(run.items):
            held = run.items[["method", "suite"]].drop_duplicates().itertuples(index=False, name=None)
            origin |= {(str(method), str(suite)): number for method, suite in held if (method, suite) not in origin}
    names = _names(runs)
    return Together(
        folder=runs[0].folder,
        meta=msgspec.convert(merged, RunRecord),
        items=pd.DataFrame(),
        windows=pd.DataFrame(),
        runs=tuple(runs),
        names=names,
        origin=origin,
        notes=_notes(runs, names, origin, found),
    )


def runs_of(run: Run) -> tuple[Run, ...]:
    """The runs that a run is put together from; itself if it is one."""
    return run.runs if isinstance(run, Together) else (run,)


def names_of(run: Run) -> tuple[str, ...]:
    """What captions call the runs that a run is put together from; () if it is one."""
    return run.names if isinstance(run, Together) else ()


def notes_of(run: Run) -> dict[Pair, tuple[str, str]]:
    """The notes on accuracy and speed of a row that are due to the run it comes from."""
    return run.notes if isinstance(run, Together) else {}


def of_all(measurement: Callable[[Run], pd.DataFrame], run: Run) -> pd.DataFrame:
    """A measurement with columns method and suite; of runs together, the rows that are shown, in the common order."""
    if not isinstance(run, Together):
        return measurement(run)
    frames = []
    for number, each in enumerate(run.runs):
        frame = measurement(each)
        pairs = zip(frame["method"], frame["suite"], strict=True)
        frames.append(frame[np.array([run.origin[pair] == number for pair in pairs], dtype=bool)])
    frame = pd.concat([frame for frame in frames if len(frame)] or frames[:1])
    ranks = {pair: rank for rank, pair in enumerate(product(method_labels(run), suite_titles(run)))}
    order = sorted(range(len(frame)), key=lambda row: ranks[frame["method"].iloc[row], frame["suite"].iloc[row]])
    return frame.iloc[order].reset_index(drop=True)


def by_pair_of_all(measurement: Callable[[Run], dict[Pair, T]], run: Run) -> dict[Pair, T]:
    """A measurement by method and suite; of runs together, that of the rows that are shown."""
    if not isinstance(run, Together):
        return measurement(run)
    found = [measurement(each) for each in run.runs]
    return {pair: found[number][pair] for pair, number in run.origin.items() if pair in found[number]}


def shown_items(run: Run) -> pd.DataFrame:
    """The items of a run; of runs together, those behind the rows that are shown."""
    if not isinstance(run, Together):
        return run.items
    frames = []
    for number, each in enumerate(run.runs):
        pairs = zip(each.items["method"], each.items["suite"], strict=True)
        frames.append(each.items[[run.origin[str(method), str(suite)] == number for method, suite in pairs]])
    return pd.concat(frames, ignore_index=True)


def joined(*texts: str) -> str:
    """Notes of one cell as one, each once."""
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _merged(first: Any, second: Any) -> Any:
    """Objects merged key by key; where both have a value, the first's is kept."""
    if first is None:
        return second
    if isinstance(first, dict) and isinstance(second, dict):
        return first | second | {key: _merged(first[key], second[key]) for key in first if key in second}
    return first


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The runs' own names, numbered where several have the same."""
    names = [run.meta.name or run.folder.name for run in runs]
    same = {name for name in names if names.count(name) > 1}
    return tuple(
        f"{name} ({1 + names[:number].count(name)})" if name in same else name for number, name in enumerate(names)
    )


def _notes(
    runs: Sequence[Run], names: Sequence[str], origin: dict[Pair, int], found: Sequence[Difference]
) -> dict[Pair, tuple[str, str]]:
    """For every row the differences that concern it: all as notes on speed, those in tokens on accuracy too."""
    checkpoints = _named_checkpoints(runs, origin)
    notes = {}
    for (method, suite), number in origin.items():
        own = [
            each
            for each in found
            if each.suite in ("", suite) and (each.method == method or (not each.method and each.run == number))
        ]
        in_tokens = [each for each in own if each.check in CHANGES_TOKENS]
        accuracy = joined(*_otherwise(names, in_tokens), checkpoints.get((method, suite), ""))
        notes[method, suite] = (accuracy, joined(*_otherwise(names, own)))
    return notes


def _otherwise(names: Sequence[str], differences: Sequence[Difference]) -> list[str]:
    """The differences of every run from the first, one text per run."""
    by_run: dict[int, list[str]] = {}
    for each in differences:
        by_run.setdefault(each.run, []).append(f"{each.what}: {each.other}, not {each.first}")
    return [f"run {names[number]}: {', '.join(texts)}" for number, texts in by_run.items()]


def _named_checkpoints(runs: Sequence[Run], origin: dict[Pair, int]) -> dict[Pair, str]:
    """The checkpoints of every row, of those roles for which the runs use different ones."""
    used = [weights(run) for run in runs]
    by_role: dict[str, dict[int, set[str]]] = {}
    for number, run_weights in enumerate(used):
        for of_row in run_weights.values():
            for role, checkpoint in of_row.items():
                by_role.setdefault(role, {}).setdefault(number, set()).add(checkpoint)
    differing = {role for role, by_run in by_role.items() if len({frozenset(names) for names in by_run.values()}) > 1}
    return {
        pair: joined(*(f"{role} is {name}" for role, name in used[number].get(pair, {}).items() if role in differing))
        for pair, number in origin.items()
    }

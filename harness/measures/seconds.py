"""Where a run's seconds come from.

Many problems may be decoded side by side, and some of them again, timed: the second run lies in the
folder `speed` of the first one's folder, has the same methods on the first problems, and only its
seconds are used. A method that it alone has, say a slow reference, joins with what it decoded
there. Folders `speed-NAME` next to it hold the same run, timed again in another session or on
another number of threads: claims have the speeds of all of them.
"""

import dataclasses
import math
from pathlib import Path

import pandas as pd
from msgspec import structs

from harness.errors import UserError
from harness.measures.table import PROBLEM
from harness.records.store import KEY, Run, read_run

FOLDER = "speed"
TIMED = (
    *("seconds", "first_block_seconds", "content_seconds", "disturbed"),
    *("draw_seconds", "peak_bytes", "joules"),
)


def read_measured(folder: Path) -> Run:
    """A run, its seconds of the run in its folder `speed` if there is one. Raises UserError as
    `with_speed` does."""
    run = read_run(folder)
    speed = folder / FOLDER
    return with_speed(run, read_run(speed)) if (speed / "run.json").exists() else run


def timed_sessions(folder: Path) -> list[Run]:
    """A run with the seconds of each timed run, that of its tables first. Raises UserError as
    `with_speed`."""
    again = sorted(path.parent for path in folder.glob(f"{FOLDER}-*/run.json"))
    return [
        read_measured(folder),
        *(with_speed(read_run(folder, windows=False), read_run(each)) for each in again),
    ]


def with_speed(run: Run, speed: Run) -> Run:
    """`run` with the seconds of `speed`, NaN for items that it does not have, and the methods that
    only `speed` has.

    Raises:
        UserError: `speed` is not timed, has other problems, settings or code, or lacks a method or
            a suite.
    """
    _check_timed(speed)
    differences = _differences(run, speed)
    if differences:
        raise UserError(
            f"{speed.folder}: {', '.join(differences)}: missing there, or not as in {run.folder}"
        )
    alone = ~speed.items["method"].isin(run.config.methods)
    _check_problems(run, speed, speed.items[alone])
    if alone.any():
        run = _with_methods(run, speed, alone)
    times = speed.items.reindex(columns=[*KEY, *TIMED])
    timed = run.items[list(KEY)].merge(times, on=list(KEY), how="left")
    columns = {name: timed[name].to_numpy(float, na_value=math.nan) for name in TIMED}
    return dataclasses.replace(run, items=run.items.assign(**columns), speed=speed)


def _check_timed(speed: Run) -> None:
    """Raise UserError unless all methods of a timed run have the same problems, the first ones."""
    if speed.items.empty:
        raise UserError(
            f"{speed.folder} has no finished response yet; go on with it, or move it away"
        )
    if not speed.config.timed:
        raise UserError(
            f"{speed.folder}: its seconds were not measured for comparison; make it without"
            " --untimed"
        )
    for suite, items in speed.items.groupby("suite"):
        counts = items.groupby("method")["item"].agg(["size", "max"])
        if counts["size"].nunique() > 1 or (counts["max"] >= counts["size"]).any():
            texts = ", ".join(f"{method} {size}" for method, size in counts["size"].items())
            raise UserError(
                f"{speed.folder}: not all methods have the first problems of {suite} there"
                f" ({texts}): go on with it"
            )


def _differences(run: Run, speed: Run) -> list[str]:
    """What a timed run lacks of another one, or does otherwise; threads may differ."""
    # The first seeds of a run may be timed.
    draws = len(speed.config.draws)
    here = _parts(run, draws)
    there = _parts(speed, draws)
    names = [name for name in here if here[name] != there.get(name)]
    # A plugin that only one of them has decodes nothing of the other.
    return [name for name in names if name in there or not name.startswith("the plugin")]


def _parts(run: Run, draws: int) -> dict[str, object]:
    """What decides the responses of a run, by name: weights by the hashes of their files, of the
    seeds the first `draws`."""
    config = run.config
    methods = config.methods.values()
    roles = {role for method in methods for role in (method.role, method.draft_role) if role}
    parts: dict[str, object] = {
        **config.methods,
        "temperature": config.temperature,
        "dtype": config.dtype,
        "the seeds": config.draws[:draws] if config.temperature else None,
        "the list of suites": list(config.suites),
    }
    for plugin in run.meta.plugins:
        parts[f"the plugin {Path(plugin.path).name}"] = plugin.sha256
    for role in sorted(roles):
        for suite, name in config.models.get(role, {}).items():
            weights = run.meta.weights.get(name, {})
            hashes = [weights.get(key) for key in ("sha256", "adapter")]
            parts[f"the weights of role {role} on {suite}"] = hashes
    return parts


def _check_problems(run: Run, speed: Run, alone: pd.DataFrame) -> None:
    """Raise UserError unless a timed run's problems are those of a run.

    alone: items of methods that only `speed` has.
    """
    columns = [*KEY, "prompt_hash"]
    timed = speed.items.reindex(columns=columns)
    both = run.items.reindex(columns=columns).merge(timed, on=list(KEY))
    known = pd.MultiIndex.from_frame(both[PROBLEM])
    same = both["prompt_hash_x"].eq(both["prompt_hash_y"]).all()
    whole = len(both) == len(speed.items) - len(alone)
    if not (same and whole and pd.MultiIndex.from_frame(alone[PROBLEM]).isin(known).all()):
        raise UserError(f"{speed.folder}: its problems are not those of {run.folder}")


def _with_methods(run: Run, speed: Run, alone: pd.Series) -> Run:
    """A run and the methods that only `speed` has, in the order of `speed`."""
    config = structs.replace(run.config, methods=speed.config.methods)
    weights = {**speed.meta.weights, **run.meta.weights}
    windows = run.windows
    if not speed.windows.empty:
        more = ~speed.windows["method"].isin(run.config.methods)
        windows = pd.concat([windows, speed.windows[more]])
    return dataclasses.replace(
        run,
        meta=structs.replace(run.meta, config=config, weights=weights),
        items=pd.concat([run.items, speed.items[alone]]),
        windows=windows,
    )

"""Runs whose seconds come from another run.

Many problems may be decoded untimed, and the first ones again, timed. The timed run is in the
folder `speed` in the first one's folder. It has the same methods, and only its seconds are used. A
method that only the timed run has, such as a slow reference, is added with its items. Folders
`speed-NAME` next to it hold the same run, timed in another session or with another number of
threads: claims use the speeds of all of them.
"""

import dataclasses
from pathlib import Path

import pandas as pd
from msgspec import structs

from harness.errors import UserError
from harness.measures.table import PROBLEM
from harness.records.store import KEY, TIMED, Run, read_run

FOLDER = "speed"


def read_measured(folder: Path) -> Run:
    """Read a run, with the seconds of the run in its folder `speed` if there is one.

    Raises:
        UserError: as `read_run` and `with_speed`.
    """
    run = read_run(folder)
    speed = folder / FOLDER
    return with_speed(run, read_run(speed)) if (speed / "run.json").exists() else run


def timed_sessions(folder: Path) -> list[Run]:
    """Read a run once for each timed session, with that session's seconds; first the one that
    tables use.

    Raises:
        UserError: as `read_run` and `with_speed`.
    """
    sessions = sorted(path.parent for path in folder.glob(f"{FOLDER}-*/run.json"))
    return [
        read_measured(folder),
        *(with_speed(read_run(folder), read_run(speed)) for speed in sessions),
    ]


def with_speed(run: Run, speed: Run) -> Run:
    """`run` with the seconds of `speed`, and with the methods that only `speed` has.

    Args:
        run: as read.
        speed: a timed run of the same methods on the first problems.

    Returns:
        The run; seconds are NaN for items that `speed` does not have.

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
    items = run.items.drop(columns=[*TIMED], errors="ignore")
    return dataclasses.replace(run, items=items.merge(times, on=list(KEY), how="left"), speed=speed)


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
        # Items are numbered from 0: the largest number shows whether they are the first ones.
        counts = items.groupby("method")["item"].agg(["size", "max"])
        if counts["size"].nunique() > 1 or (counts["max"] >= counts["size"]).any():
            texts = ", ".join(f"{method} {size}" for method, size in counts["size"].items())
            raise UserError(
                f"{speed.folder}: not all methods have the first problems of {suite} there"
                f" ({texts}): go on with it"
            )


def _differences(run: Run, speed: Run) -> list[str]:
    """What the timed run lacks or has otherwise. Threads may differ."""
    # The timed run may have the first seeds alone.
    draws = len(speed.config.draws)
    parts = _parts(run, draws)
    timed = _parts(speed, draws)
    names = [name for name in parts if parts[name] != timed.get(name)]
    # A plugin that only one run has decodes none of the common methods.
    return [name for name in names if name in timed or not name.startswith("the plugin")]


def _parts(run: Run, draws: int) -> dict[str, object]:
    """All that decides the responses of a run, by a name for messages. Weights count by the hashes
    of their files, and of the seeds the first `draws`."""
    config = run.config
    methods = config.methods.values()
    roles = {role for method in methods for role in (method.role, method.draft_role) if role}
    parts: dict[str, object] = {
        **config.methods,
        "temperature": config.temperature,
        "dtype": config.dtype,
        # Seeds matter where tokens are drawn.
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
    """Raise UserError unless the timed run's problems are among those of the run.

    alone: items of methods that only `speed` has, and so no prompts to compare.
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

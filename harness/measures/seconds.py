"""Where a run's seconds come from, and what to doubt about them.

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
from harness.measures.table import PROBLEM, REFERENCE, suite_titles
from harness.records.schema import RunRecord
from harness.records.store import KEY, Run, read_run

FOLDER = "speed"
SPENT = ("seconds", "first_block_seconds", "content_seconds", "disturbed")


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

    Raises UserError if `speed` is not timed, has other problems, settings or code, or lacks a
    method or a suite.
    """
    if speed.items.empty:
        raise UserError(
            f"{speed.folder} has no finished response yet; go on with it, or move it away"
        )
    if not speed.config.timed:
        raise UserError(
            f"{speed.folder}: its seconds were not measured for comparison; make it without"
            " --untimed"
        )
    other = [
        name
        for name, method in run.config.methods.items()
        if speed.config.methods.get(name) != method
    ]
    # Threads may differ, for untimed responses are decoded next to each other.
    other += [
        name
        for name in ("temperature", "dtype")
        if getattr(run.config, name) != getattr(speed.config, name)
    ]
    if run.config.temperature and run.config.draws != speed.config.draws:
        other.append("the seeds")
    if list(speed.config.suites) != list(run.config.suites):
        other.append("the list of suites")
    here = weights_of(run)
    there = weights_of(speed)
    other += [
        f"the weights of role {role} on {suite}"
        for role, suite in here
        if here[role, suite] != there.get((role, suite))
    ]
    other += _other_code(run.meta, speed.meta)
    if other:
        raise UserError(
            f"{speed.folder}: {', '.join(other)}: missing there, or not as in {run.folder}"
        )
    _check_whole(speed)
    both = _both(run, speed)
    alone = ~speed.items["method"].isin(run.config.methods)
    known = pd.MultiIndex.from_frame(both[PROBLEM])
    if (
        both["prompt_hash"].ne(both["prompt_hash_speed"]).any()
        or len(both) < (~alone).sum()
        or not pd.MultiIndex.from_frame(speed.items.loc[alone, PROBLEM]).isin(known).all()
    ):
        raise UserError(f"{speed.folder}: its problems are not those of {run.folder}")
    if alone.any():  # in the order that `speed` has the methods in
        config = structs.replace(run.config, methods=speed.config.methods)
        meta = structs.replace(
            run.meta, config=config, weights={**speed.meta.weights, **run.meta.weights}
        )
        items = pd.concat([run.items, speed.items[alone]])
        windows = run.windows
        if not speed.windows.empty:
            windows = pd.concat(
                [windows, speed.windows[~speed.windows["method"].isin(run.config.methods)]]
            )
        run = dataclasses.replace(run, meta=meta, items=items, windows=windows)
    spent = run.items[list(KEY)].merge(
        speed.items.reindex(columns=[*KEY, *SPENT]), on=list(KEY), how="left"
    )
    items = run.items.assign(
        **{name: spent[name].to_numpy(float, na_value=math.nan) for name in SPENT}
    )
    return dataclasses.replace(run, items=items, speed=speed)


def _other_code(meta: RunRecord, speed: RunRecord) -> list[str]:
    """The plugins, by file or package, that two runs both have, and not alike."""
    here, there = (
        {Path(each.path).name: each.sha256 for each in made.plugins} for made in (meta, speed)
    )
    return [f"the plugin {name}" for name in here if name in there and here[name] != there[name]]


def _check_whole(speed: Run) -> None:
    """Raise UserError unless the methods of a timed run have the same problems, the first ones."""
    for suite, own in speed.items.groupby("suite"):
        there = own.groupby("method")["item"].agg(["size", "max"])
        if there["size"].nunique() > 1 or (there["max"] >= there["size"]).any():
            counts = ", ".join(f"{method} {size}" for method, size in there["size"].items())
            raise UserError(
                f"{speed.folder}: not all methods have the first problems of {suite} there"
                f" ({counts}): go on with it"
            )


def weights_of(run: Run) -> dict[tuple[str, str], object]:
    """By role and suite the hashes of what the methods of a run decode with."""
    methods = run.config.methods.values()
    used = {role for each in methods for role in (each.role, each.draft_role) if role}
    return {
        (role, suite): [run.meta.weights.get(name, {}).get(each) for each in ("sha256", "adapter")]
        for role, suites in run.config.models.items()
        if role in used
        for suite, name in suites.items()
    }


def same_tokens_with(run: Run) -> str:
    """How many responses of the run that the seconds are of have the tokens of this one."""
    assert run.speed is not None
    both = _both(run, run.speed)
    return (
        f"{int(both['tokens_hash'].eq(both['tokens_hash_speed']).sum())} of {len(both)} responses"
        " with these tokens"
    )


def _both(run: Run, speed: Run) -> pd.DataFrame:
    columns = [*KEY, "prompt_hash", "tokens_hash"]
    return run.items.reindex(columns=columns).merge(
        speed.items.reindex(columns=columns), on=list(KEY), suffixes=("", "_speed")
    )


DRIFT = 0.10  # less than this is not mentioned
FEWEST = 9  # LLaDA's items on a suite, for a third to have three
BUSY = 25.0  # percent of all cores, before the run's own work
IDLE = 0x1  # NVML's bit for clocks that are low because there is nothing to do


def drift(run: Run) -> tuple[float, str] | None:
    """How far LLaDA's speed moved within the run, and on which suite: the farthest from 0; None
    without enough items.

    Of a suite with FEWEST items: median seconds per forward of LLaDA's last third, in the order of
    items.jsonl, / that of its first third, minus 1. Each worker's items are taken by themselves.
    """
    own = run.items[run.items["method"] == REFERENCE]
    spent = own[["seconds", "forwards"]].astype(float)
    paces = spent["seconds"] / spent["forwards"]
    moved = []
    by = [own["suite"], *([own["worker"].fillna("")] if "worker" in own else [])]
    for key, pace in paces.groupby(by, sort=False, observed=True):
        third = len(pace) // 3
        if len(pace) >= FEWEST:
            moved.append(
                (float(pace.iloc[-third:].median() / pace.iloc[:third].median() - 1), str(key[0]))
            )
    return max(moved, key=lambda each: abs(each[0]), default=None)


def _marked(run: Run) -> int:
    """How many responses of a run are disturbed."""
    if "disturbed" not in run.items:
        return 0
    return int(run.items["disturbed"].eq(True).sum())


def timing_sentences(run: Run) -> list[str]:
    """Sentences on one run's seconds: drift of more than DRIFT, and what the receipts of its
    sessions show."""
    moved = drift(run)
    sessions = run.meta.sessions
    sentences = []
    if moved and abs(moved[0]) > DRIFT:
        title = suite_titles(run)[moved[1]]
        sentences.append(f"LLaDA's own seconds drifted by {100 * moved[0]:+.0f}% ({title}).")
    busiest = max(
        ((each.get("start") or {}).get("busy_percent") or 0 for each in sessions), default=0
    )
    if busiest > BUSY:
        sentences.append(f"The machine was {busiest:.0f}% busy before the start.")
    disturbed = _marked(run)
    if disturbed:
        sentences.append(
            f"{disturbed} of {len(run.items)} responses were timed while other programs had the"
            " cores; --resume times them again."
        )
    ends = [
        each.get("end") or {}
        for session in sessions
        for each in (session, *(session.get("workers") or {}).values())
    ]
    reported = [(end.get("gpu") or {}).get("throttle_reasons") for end in ends]
    reasons = [int(reason, 16) & ~IDLE for reason in reported if isinstance(reason, str)]
    if any(reasons):
        named = dict.fromkeys(hex(reason) for reason in reasons if reason)
        sentences.append(f"The GPU reported throttling at the end ({', '.join(named)}).")
    if len(sessions) > 1:
        killed = sum(not each.get("end") for each in sessions)
        without = f", {killed} of them without an end" if killed else ""
        sentences.append(f"The run had {len(sessions)} sessions{without}.")
    return sentences

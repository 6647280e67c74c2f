"""Decoding a run and recording its items; its announcement and its status. Whatever process
decodes, only this one writes."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from msgspec import UNSET, structs
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.errors import UserError
from harness.options import command_name
from harness.records.consistency import numbers_of
from harness.records.files import each_line
from harness.records.schema import ItemRecord, Key, RunConfig
from harness.records.store import KEY, Recorder, key_of, read_meta, read_run
from harness.runs.folder import LOCK, begin_meta, new_or_not_at_all, session
from harness.runs.pool import Queue, WorkerPool
from harness.runs.resolve import ResolvedRun
from model_wrappers.batches import MOST_AT_ONCE

FINISHED = "finished"
# Responses that were left out, each with the reason.
Missing = dict[Key, str]


def record(folder: Path, run: ResolvedRun, pool: WorkerPool) -> Missing:
    """Decode and record all responses of a run that are not recorded yet: one session of run.json.

    Args:
        folder: of the run.
        run: the run.
        pool: what decodes, loaded.

    Returns:
        The responses that were left out, with the reason.

    Raises:
        UserError: the recorded responses are of another run, or a response cannot be decoded.
    """
    config = pool.config
    begun = (folder / "run.json").exists()
    recorder = Recorder(folder)
    if recorder.items:
        # For its checks: records that disagree are refused before anything is added to them.
        read_run(folder)
        _check_prompts(folder, config, pool, recorder)
    notes = begin_meta(folder, config, pool.description, run.given, recorder.items)
    for note in notes:
        print(f"goes on with another {note}", file=sys.stderr)
    if config.traced:
        recorder.write_prompts(pool.prompts())
    queue = Queue(
        pool.items,
        list(config.methods),
        recorder.done,
        config.chunk or 1,
        pool.size,
        _in_flight(config),
    )

    # Called at the session's start and end, when more may have been left out.
    def about() -> dict[str, Any]:
        entry = pool.about()
        if queue.left_out:
            entry["left_out"] = [
                {**dict(zip(KEY, key, strict=True)), "reason": reason}
                for key, reason in queue.left_out.items()
            ]
        if notes:
            entry["changed"] = notes
        return entry

    # With workers, this process decodes nothing, and need not have a GPU.
    device = config.device or "cpu" if run.workers is None else "cpu"
    with new_or_not_at_all(folder, begun, recorder.items):
        for line in announcement(config, pool, bool(config.timed), recorder.done):
            print(line, flush=True)
        with session(folder, device, config.timed, about):
            _record_all(recorder, pool, queue)
    disturbed = sum(bool(row.get("disturbed")) for row in recorder.items.values())
    if disturbed:
        print(
            f"{disturbed} of {len(recorder.items)} responses are marked: other programs had the"
            f" cores each time that they were timed; on a quiet machine {command_name()} run"
            f" --resume --out {folder} times them again",
            file=sys.stderr,
        )
    return queue.left_out


def _in_flight(config: RunConfig) -> int:
    """The most responses of a chunk that a worker decodes at once."""
    if config.batch is UNSET:
        return 1
    return MOST_AT_ONCE if config.batch == "auto" else config.batch


def _record_all(recorder: Recorder, pool: WorkerPool, queue: Queue) -> None:
    """Record results as they are finished, with a progress bar."""
    config = pool.config
    total = sum(map(len, pool.items.values())) * len(config.methods)
    done = sum(recorder.done(*key) for key in recorder.items)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Without auto_refresh: a thread that draws would take time from the response that is timed.
    with Progress(*columns, auto_refresh=False) as bar:
        task = bar.add_task("responses", total=total, completed=done)
        for worker, result in pool.results(queue):
            if isinstance(result, dict):
                recorder.add_passes(result)
                continue
            item = result.item
            if worker:
                item["worker"] = worker
            recorder.add(item, result.windows, result.trace)
            title = config.suites[item["suite"]].title or item["suite"]
            bar.update(task, description=title, advance=1, refresh=True)


def _check_prompts(folder: Path, config: RunConfig, pool: WorkerPool, recorder: Recorder) -> None:
    """Raise UserError if recorded responses are to other prompts than the run has now. Methods of
    the role `ar` are left out, for their model may encode prompts otherwise."""
    now = {(prompt.suite, prompt.item): prompt.prompt_hash for prompt in pool.prompts()}
    for (method, suite, item), row in recorder.items.items():
        if method in config.methods and config.methods[method].role == "ar":
            continue
        # Records of other tools need not have the hash.
        if row.get("prompt_hash") not in (None, now.get((suite, item))):
            raise UserError(
                f"--resume: {folder}/items.jsonl: {method} {suite} {item} has another prompt than"
                " now: the responses are of another run; restore its own, or begin one with"
                " another --out"
            )


def announcement(
    config: RunConfig,
    pool: WorkerPool,
    measure: bool,
    done: Callable[[str, str, int], bool] = lambda *_: False,
) -> Iterator[str]:
    """Lines that say what a run will decode and how long it will take, each as soon as it is known.

    Args:
        config: of the run.
        pool: what decodes it.
        measure: decode one response of each method to estimate the time, scaled by length.
        done: whether the response of (method, suite, item) is recorded.
    """
    pending: dict[tuple[str, str], list[int]] = {}
    for name in config.methods:
        for suite, numbers in pool.items.items():
            pending[name, suite] = [item for item in numbers if not done(name, suite, item)]
    responses = sum(map(len, pending.values()))
    if responses == 0:
        yield "all items are decoded already"
        return
    workers = f" on {pool.size} workers" if pool.size > 1 else ""
    counts = ", ".join(f"{suite} {len(numbers)}" for suite, numbers in pool.items.items())
    if len(config.draws) > 1:
        counts = f"{counts}, {len(config.draws)} of each problem"
    yield (
        f"{responses} responses to decode{workers} ({len(config.methods)} methods; items: {counts})"
    )
    if measure:
        yield from _estimates(config, pool, pending)


def _estimates(
    config: RunConfig, pool: WorkerPool, pending: dict[tuple[str, str], list[int]]
) -> Iterator[str]:
    """Lines that say how long a run will take, from one response of each method."""
    total = 0.0
    first = next(suite for (_, suite), items in pending.items() if items)
    for name, method in config.methods.items():
        # Item 0 for a method that has none left in this suite: others may.
        item = (pending[name, first] or [0])[0]
        seconds = pool.warm_up(first, {name: item}).get(name)
        # The item killed every worker: there is nothing to estimate from.
        if seconds is None:
            return
        token_seconds = seconds / (method.suites[first].gen_length or 1)
        tokens = 0
        for suite, setting in method.suites.items():
            tokens += len(pending[name, suite]) * (setting.gen_length or 1)
        total += token_seconds * tokens
        yield f"  {method.label or name}: about {duration(token_seconds * tokens / pool.size)}"
    batched = ""
    if config.batch is not UNSET:
        batched = " if they were decoded one at a time, less in batches"
    yield f"about {duration(total / pool.size)} in all{batched}, then scoring and tables"


def duration(seconds: float) -> str:
    """Seconds in words: "40 s", "6 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def describe_status(folder: Path) -> str:
    """The lines of --status: whether a process works on the run, and the responses by suite.

    Raises:
        UserError: the folder holds no run.
    """
    meta = read_meta(folder)
    config = meta.config
    numbers = {suite: frozenset(items) for suite, items in numbers_of(meta).items()}
    scored = _scored(folder, config, numbers)
    lines = []
    all_done = True
    for suite, name in config.suites.items():
        verdicts = [verdict for key, verdict in scored.items() if key[1] == suite]
        total = len(config.methods) * len(numbers[suite]) if suite in numbers else None
        lines.append(
            f"{name.title or suite}: {len(verdicts)} of {total or '?'} responses, {sum(verdicts)}"
            " scored"
        )
        all_done &= len(verdicts) == total
    left_out = len(meta.sessions[-1].get("left_out", [])) if meta.sessions else 0
    if left_out:
        lines.append(f"left out: {left_out}")
    state = _state(folder, all_done, all(scored.values()))
    return "\n".join([state, *lines])


def _state(folder: Path, all_done: bool, all_scored: bool) -> str:
    """Whether a run is being decoded now, or what to do next."""
    if is_locked(folder):
        return "goes on"
    if not all_done:
        return f"stopped; go on with {command_name()} run --resume --out {folder}"
    if not all_scored:
        return f"decoded, and not all scored; score it with {command_name()} score {folder}"
    return FINISHED


def kept_responses(folder: Path) -> frozenset[Key]:
    """The keys of the responses that --resume does not decode again.

    The folder is only read: another process may be at work on the run.
    """
    rows = (row for _, row in each_line(folder / "items.jsonl", ItemRecord))
    return frozenset(key_of(row) for row in rows if not row.get("disturbed"))


def _scored(
    folder: Path, config: RunConfig, numbers: Mapping[str, Collection[int]]
) -> dict[Key, bool]:
    """Whether each response of the run is scored; records of other methods and items are left
    out."""
    scored = {}
    # Line by line: the process that works on the run may be in the middle of writing one.
    for _, row in each_line(folder / "items.jsonl", ItemRecord):
        item = row["item"]
        if row["method"] in config.methods and item in numbers.get(row["suite"], (item,)):
            scored[key_of(row)] = row.get("correct") is not None
    return scored


def finished(folder: Path, config: RunConfig) -> bool:
    """Whether a folder holds all responses of a run with this configuration."""
    before = read_meta(folder).config
    # None stands for the fastest number, which the recorded run has already.
    config = structs.replace(config, threads=config.threads or before.threads)
    return before == config and describe_status(folder).startswith(FINISHED)


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a run's folder, and so works on it."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    # The folder may only be read here, so that the lock of its owner's process cannot be tried.
    except OSError:
        return False

"""A run from its configuration to recorded items. Whoever decodes, this process alone writes records."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from harness.methods.schedule_files import describe_schedules
from harness.records.schema import RunConfig
from harness.records.store import KEY, Recorder
from harness.runs.chunks import Queue
from harness.runs.crew import Alone, Crew, Workers
from harness.runs.folder import begin_meta, new_or_not_at_all, session
from harness.runs.loading import worker_for
from harness.runs.progress import RunProgress, duration
from harness.runs.results import Response

LeftOut = dict[tuple[str, str, int], str]  # (method, suite, item) -> how its last worker died


def record(folder: Path, config: RunConfig, data: Path, scratch: Path, workers: Workers | None = None) -> LeftOut:
    """Decode all that is asked for and is not recorded yet; returns the responses that were left out, with the reason.

    data: folder of the problems; generated ones are written there. scratch: for what is not kept. workers: of a
    cluster; None to decode in this process.
    """
    for note in describe_schedules(config):
        print(note)
    with crew_for(config, data, scratch, workers) as crew:
        # With workers, this process decodes nothing.
        return _record(folder, config, crew, config.device or "cpu" if workers is None else "cpu")


def crew_for(config: RunConfig, data: Path, scratch: Path, workers: Workers | None) -> AbstractContextManager[Crew]:
    """The workers of a run, ready to decode while the context lasts. Raises UserError or ValueError if they cannot."""
    if workers is None:
        return nullcontext(Alone(worker_for(config, data, scratch)))
    from harness.runs.ray_crew import RayCrew  # Ray is an extra

    return RayCrew(config, workers, data, scratch)


def _record(folder: Path, config: RunConfig, crew: Crew, device: str) -> LeftOut:
    begun = (folder / "run.json").exists()
    begin_meta(folder, config, crew.description)
    recorder = Recorder(folder)
    if config.traced:
        recorder.check_traced()
        recorder.write_prompts(crew.prompts())
    with new_or_not_at_all(folder, begun, recorder.items):
        print(announcement(config, crew, recorder))
        return _decode(folder, config, crew, device, recorder)


def _decode(folder: Path, config: RunConfig, crew: Crew, device: str, recorder: Recorder) -> LeftOut:
    """Record each result as it comes; a session of run.json, with the run's progress shown."""
    queue = Queue(crew.items, list(config.methods), recorder.done, config.chunk or 1, crew.size)

    def more() -> dict[str, Any]:
        named = [{**dict(zip(KEY, key, strict=True)), "reason": reason} for key, reason in queue.left_out.items()]
        return crew.about() | ({"left_out": named} if named else {})

    totals = {suite: count * len(config.methods) for suite, count in crew.items.items()}
    done = Counter(suite for _, suite, _ in recorder.items)
    counted = RunProgress(config, totals, {suite: done[suite] for suite in totals}, folder, lambda: crew.size)
    with session(folder, device, config.timed, more), counted as progress:
        for worker, result in crew.results(queue):
            if not isinstance(result, Response):
                recorder.add_passes(result.line)
                continue
            item = result.item | ({"worker": worker} if worker else {})
            recorder.add(item, result.windows, result.trace)
            progress.finished(item["suite"], item["method"], item["correct"])
    return queue.left_out


def announcement(config: RunConfig, crew: Crew, recorder: Recorder) -> str:
    """What a run will do, and if it is timed for about how long: one response of each method, scaled by length."""
    lengths = {
        (suite, name): method.suites[suite].gen_length or 0
        for name, method in config.methods.items()
        for suite in config.suites
    }
    pending = {
        (suite, method): [item for item in range(crew.items[suite]) if not recorder.done(method, suite, item)]
        for suite, method in lengths
    }
    responses = sum(map(len, pending.values()))
    if responses == 0:
        return "all items are decoded already"
    by = f" on {crew.size} workers" if crew.size > 1 else ""
    said = f"{responses} responses to decode{by} ({len(config.methods)} methods; items: "
    said += f"{', '.join(f'{suite} {count}' for suite, count in crew.items.items())})"
    if not config.timed:  # nothing needs to be warm, and the progress soon tells how long it takes
        return f"{said}, then scoring and tables"
    first = next(suite for suite in config.suites if any(pending[suite, method] for method in config.methods))
    samples = crew.warm_up(first, {method: (pending[first, method] or [0])[0] for method in config.methods})
    if not samples:
        return f"{said}, then scoring and tables"
    a_token = {method: own.seconds / lengths[first, method] for method, own in samples.items()}
    total = sum(len(items) * a_token[method] * lengths[suite, method] for (suite, method), items in pending.items())
    return f"{said}: about {duration(total / crew.size)}, then scoring and tables"

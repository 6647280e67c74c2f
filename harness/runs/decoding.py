"""A run from its configuration to recorded items. Whoever decodes, this process alone writes records."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import UNSET

from harness.records.schema import RunConfig
from harness.records.store import KEY, Recorder
from harness.runs.chunks import Queue
from harness.runs.folder import begin_meta, new_or_not_at_all, session
from harness.runs.pool import WorkerPool
from harness.runs.progress import RunProgress, duration
from harness.runs.resolve import ResolvedRun
from harness.runs.responses import Passes
from model_wrappers.batches import MOST

Missing = dict[tuple[str, str, int], str]  # (method, suite, item) -> why it was left out


def record(folder: Path, run: ResolvedRun, pool: WorkerPool) -> Missing:
    """Decode all that the run has and is not recorded yet; the responses that were left out, with the reason.

    pool: who decodes, ready.
    """
    config, begun = run.config, (folder / "run.json").exists()
    begin_meta(folder, config, pool.description)
    recorder = Recorder(folder)
    if config.traced:
        recorder.check_traced()
        recorder.write_prompts(pool.prompts())
    # With workers, this process decodes nothing.
    device = config.device or "cpu" if run.workers is None else "cpu"
    with new_or_not_at_all(folder, begun, recorder.items):
        print(announcement(config, pool, bool(config.timed), recorder.done))
        return _decode(folder, config, pool, device, recorder)


def _decode(folder: Path, config: RunConfig, pool: WorkerPool, device: str, recorder: Recorder) -> Missing:
    """Record each result as it comes; a session of run.json, with the run's progress shown."""
    at_once = config.batch if isinstance(config.batch, int) else 1 if config.batch is UNSET else MOST
    queue = Queue(pool.items, list(config.methods), recorder.done, config.chunk or 1, pool.size, at_once)

    def more() -> dict[str, Any]:
        named = [{**dict(zip(KEY, key, strict=True)), "reason": reason} for key, reason in queue.left_out.items()]
        return pool.about() | ({"left_out": named} if named else {})

    totals = {suite: count * len(config.methods) for suite, count in pool.items.items()}
    done = Counter(suite for _, suite, _ in recorder.items)
    counted = RunProgress(config, totals, {suite: done[suite] for suite in totals})
    with session(folder, device, config.timed, more), counted as progress:
        for worker, result in pool.results(queue):
            if isinstance(result, Passes):
                recorder.add_passes(result.line)
                continue
            item = result.item | ({"worker": worker} if worker else {})
            recorder.add(item, result.windows, result.trace)
            progress.finished(item["suite"])
    return queue.left_out


def announcement(
    config: RunConfig, pool: WorkerPool, measure: bool, done: Callable[[str, str, int], bool] = lambda *_: False
) -> str:
    """What a run will do and for about how long: one response of each method, scaled by length.

    measure: whether these responses are decoded; the progress of a run without them soon shows how long it takes.
    done: whether the response of (method, suite, item) is recorded.
    """
    lengths = {
        (suite, name): method.suites[suite].gen_length or 0
        for name, method in config.methods.items()
        for suite in config.suites
    }
    pending = {
        (suite, method): [item for item in range(pool.items[suite]) if not done(method, suite, item)]
        for suite, method in lengths
    }
    responses = sum(map(len, pending.values()))
    if responses == 0:
        return "all items are decoded already"
    by = f" on {pool.size} workers" if pool.size > 1 else ""
    text = f"{responses} responses to decode{by} ({len(config.methods)} methods; items: "
    text += f"{', '.join(f'{suite} {count}' for suite, count in pool.items.items())})"
    if not measure:
        return f"{text}, then scoring and tables"
    first = next(suite for suite in config.suites if any(pending[suite, method] for method in config.methods))
    seconds = pool.warm_up(first, {method: (pending[first, method] or [0])[0] for method in config.methods})
    if not seconds:
        return f"{text}, then scoring and tables"
    a_token = {method: own / lengths[first, method] for method, own in seconds.items()}
    total = sum(len(items) * a_token[method] * lengths[suite, method] for (suite, method), items in pending.items())
    alone = "" if config.batch is UNSET else " if they were decoded one at a time, less in batches"
    return f"{text}: about {duration(total / pool.size)}{alone}, then scoring and tables"

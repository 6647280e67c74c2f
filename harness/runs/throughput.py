"""What workers give and cost: items a second of one and of two, and the driver's share with many that only sleep."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import fmean

import pandas as pd

from harness.records.schema import RunConfig
from harness.records.store import Recorder
from harness.runs.arguments import arguments_of
from harness.runs.chunks import Queue
from harness.runs.config import resolve
from harness.runs.crew import Workers, workers_of
from harness.runs.loading import worker_for
from harness.runs.ray_crew import RayCrew
from harness.runs.results import Response
from harness.runs.sleeper import SLEEPERS, Sleeper

LINE = ["--suite", "gsm8k,math", "--data", "generated", "--threads", "1"]  # of the runs that are measured


def bench_workers(model: str, methods: str, items: int, repeats: int) -> dict[str, pd.DataFrame]:
    """The tables `workers` and `driver`.

    model, methods: as harness/run.py has them. items: generated problems of each suite, decoded by one worker of one
    thread and by two, in turn, `repeats` times. workers: mean seconds until all workers have loaded, of these the
    seconds to load the same in this process, and responses a second. driver: with SLEEPERS workers whose responses take
    ASLEEP seconds, percent of the workers' time in which they did not sleep.
    """
    line = [*LINE, "--methods", methods, "--model", model, "--limit", str(items)]
    config = resolve(arguments_of(line))
    with tempfile.TemporaryDirectory() as folder:
        worker_for(config, Path(folder), Path(folder))  # imports and files, which the first one would pay for
        began = time.perf_counter()
        worker_for(config, Path(folder), Path(folder))
        loading = time.perf_counter() - began
    rows = [_decoded(config, [*line, "--workers", str(count)]) for _ in range(repeats) for count in (1, 2)]
    means = pd.DataFrame(rows).groupby("workers", sort=False).mean()
    means["against one"] = means["responses a second"] / means["responses a second"].iloc[0]
    means["seconds to load"] = loading
    return {"workers": means.reset_index(), "driver": pd.DataFrame([_asleep()])}


def _decoded(config: RunConfig, line: list[str]) -> dict[str, float]:
    """A run by the workers that its command line asks for."""
    workers = workers_of(arguments_of(line))
    assert workers is not None
    with tempfile.TemporaryDirectory() as folder:
        scratch, began = Path(folder), time.perf_counter()
        with RayCrew(config, workers, scratch, scratch) as crew:
            ready = time.perf_counter() - began
            for suite in config.suites:
                crew.warm_up(suite, dict.fromkeys(config.methods, 0))
            queue = Queue(crew.items, list(config.methods), lambda *key: False, config.chunk or 1, workers.count)
            seconds, began = 0.0, time.perf_counter()
            recorder = Recorder(scratch)
            for _, result in crew.results(queue):
                if isinstance(result, Response):
                    recorder.add(result.item, result.windows)
                    seconds = time.perf_counter() - began
    return {"workers": workers.count, "seconds to start": ready, "responses a second": len(recorder.items) / seconds}


def _asleep() -> dict[str, float]:
    """The driver's share with workers that sleep."""
    config = RunConfig(methods={}, suites={})
    workers = Workers(argparse.Namespace(), SLEEPERS, None, 0.0, 0)  # who sleeps needs no core
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with RayCrew(config, workers, scratch, scratch, actor=Sleeper) as crew:
            queue = Queue(crew.items, ["sleep"], lambda *key: False, 5, SLEEPERS)
            recorder, began = Recorder(scratch), time.perf_counter()
            last: dict[str, float] = {}
            for name, result in crew.results(queue):
                assert isinstance(result, Response)
                recorder.add(result.item, result.windows)
                last[name] = time.perf_counter() - began
    slept = sum(item["seconds"] for item in recorder.items.values())
    busy = sum(last.values())  # of each worker, until its last record
    return {
        "workers": SLEEPERS,
        "responses": len(recorder.items),
        "ms a response": 1e3 * fmean(item["seconds"] for item in recorder.items.values()),
        "% not asleep": 100 * (busy - slept) / busy,
    }

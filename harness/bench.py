"""Measure what decoding costs on this machine; nothing here is asserted, everything is printed.

    python harness/bench.py                      cost of a forward, and a row per method
    python harness/bench.py --training           throughput of training, all positions against subsets
    python harness/bench.py --instrument         do faster settings lose accuracy on this model? (dev problems)
    python harness/bench.py --costs              cost and memory of each kind of pass; --record RUN: predicted speedups
    python harness/bench.py --costs --arch llada-8b --random-weights --device cuda --prompt 256 --response 256
    python harness/bench.py --tracing            cost of a trace while a response is decoded, a row per method
    python harness/bench.py --throughput         responses a second against how many are decoded at once
    python harness/bench.py --estimate h100      a method's calls on dev problems, priced at LLaDA-8B's shape
    python harness/bench.py --workers            items a second of one and two workers
    python harness/bench.py --recording RUN      cost of writing records; a large run written, opened, rendered

`forwards` is the cost of one call against its rows. `methods` compares a decoder's seconds with those of its
forwards alone: the calls it made, replayed and measured interleaved with it. `--instrument` runs LLaDA at 1, 2,
4 and 8 tokens a step on generated dev problems. Use an idle machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import one_line_errors
from harness.options import RunOptions, checked, option, parsed

if TYPE_CHECKING:
    import pandas as pd

    from harness.runs.resolve import ResolvedRun


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured, and on what."""

    model: str = option(None, "nano")
    device: str = option(None, "cpu")
    dtype: str | None = option(None)
    compile: bool = option("run the model through torch.compile", False)
    graphs: bool = option("run the model through CUDA graphs, on a GPU", False)
    methods: str = option("presets or groups with a row each (default decoders)", "decoders")
    prompt: int = option("tokens of a random prompt (default 32)", 32, least=1)
    response: int = option("tokens of the response (default 48)", 48, least=1)
    repeats: int = option("rounds of which the median is taken (default 7)", 7, least=1)
    instrument: bool = option("LLaDA at 1, 2, 4, 8 tokens a step on dev problems", False)
    training: bool = option("examples and tokens per second of training", False)
    costs: bool = option("cost and memory of draft and verification passes", False)
    rows: str | None = option("numbers of rows for --costs (default 1,2,4,8,16,32)")
    record: Path | None = option("run folder: with --costs, its speedups predicted and measured")
    estimate: str | None = option("of a device (h100): calls of --model's decoders, priced at LLaDA-8B's shape")
    throughput: bool = option("responses a second against how many are decoded at once", False)
    suite: str = option("suites of --estimate and --throughput (default gsm8k,mbpp)", "gsm8k,mbpp")
    tracing: bool = option("responses with and without a trace", False)
    recording: Path | None = option("run folder: cost of its records, and of tables of many such")
    workers: bool = option("one worker against two (Ray)", False)
    arch: str | None = option("a shape instead of --model, such as llada-8b")
    random_weights: bool = option("the weights of --arch, made on the device", False)
    layers: int | None = option("layers of --arch, instead of its own")
    limit: int = option("problems per suite, where problems are decoded (default 200)", 200, least=1)
    out: Path | None = option("also write the tables and the environment as JSON")


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(BenchOptions, line, __doc__)
    from harness.costs.sections import measure
    from harness.records.environment import write_tables

    if options.workers:
        methods = "llada,fef-2" if options.methods == "decoders" else options.methods
        tables, notes = bench_workers(options.model, methods, options.limit, options.repeats), list[str]()
    else:
        tables, notes = measure(options)
    for name, table in tables.items():
        print(f"\n{name}\n{table.to_string(index=False, float_format=shown)}")
    print("", *notes, sep="\n")
    if options.out is not None:
        write_tables(options.out, options, tables, {"notes": notes} if notes else {})
    return 0


def bench_workers(model: str, methods: str, items: int, repeats: int) -> dict[str, pd.DataFrame]:
    """The table `workers`: mean seconds until all workers have loaded, and responses a second.

    model, methods: as harness/run.py has them. items: generated problems of each suite, decoded by one worker of one
    thread and by two, in turn, `repeats` times. Beside them the seconds to load the same in this process.
    """
    import pandas as pd

    from harness.runs.loading import worker_for
    from harness.runs.resolve import resolve

    given = {"suite": "gsm8k,math", "data": "generated", "threads": 1, "limit": items}
    given |= {"methods": methods, "model": model}
    with tempfile.TemporaryDirectory() as folder:
        run = resolve(checked(RunOptions, given))
        worker_for(run, Path(folder))  # imports and files, which the first one would pay for
        began = time.perf_counter()
        worker_for(run, Path(folder))
        loading = time.perf_counter() - began
    runs = [resolve(checked(RunOptions, {**given, "workers": count})) for _ in range(repeats) for count in (1, 2)]
    means = pd.DataFrame(map(_decoded, runs)).groupby("workers", sort=False).mean()
    means["against one"] = means["responses a second"] / means["responses a second"].iloc[0]
    means["seconds to load"] = loading
    return {"workers": means.reset_index()}


def _decoded(run: ResolvedRun) -> dict[str, float]:
    """A run by its workers."""
    from harness.cluster.pool import RayPool
    from harness.runs.chunks import Queue
    from harness.runs.responses import Response

    methods = list(run.config.methods)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with RayPool(run, Path(folder)) as pool:
            ready, size = time.perf_counter() - began, pool.size
            for suite in run.suites:
                pool.warm_up(suite, dict.fromkeys(methods, 0))
            queue = Queue(pool.items, methods, lambda *key: False, run.config.chunk or 1, size)
            began = time.perf_counter()
            done = [time.perf_counter() - began for _, result in pool.results(queue) if isinstance(result, Response)]
    return {"workers": size, "seconds to start": ready, "responses a second": len(done) / done[-1]}


def shown(number: float) -> str:
    """A number of a table: two decimals, or three digits where that takes more."""
    return f"{number:.2f}" if number == 0 or abs(number) >= 1 else f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

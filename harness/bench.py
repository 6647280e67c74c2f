"""Measure what decoding costs on this machine; nothing here is asserted, everything is printed.

    python harness/bench.py                      cost of a forward, and a row per method
    python harness/bench.py --training           throughput of training, all positions against subsets
    python harness/bench.py --instrument         do faster settings lose accuracy on this model? (dev problems)
    python harness/bench.py --costs              cost and memory of each kind of pass; --record RUN: predicted speedups
    python harness/bench.py --costs --arch llada-8b --random-weights --device cuda --prompt 256 --response 256
    python harness/bench.py --tracing            cost of a trace while a response is decoded, a row per method
    python harness/bench.py --workers            items a second of one and two workers
    python harness/bench.py --recording RUN      cost of writing records; a large run written, opened, rendered

`forwards` is the cost of one call against its rows. `methods` compares a decoder's seconds with those of its
forwards alone: the calls it made, replayed and measured interleaved with it. `--instrument` runs LLaDA at 1, 2,
4 and 8 tokens a step on generated dev problems. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import one_line_errors

if TYPE_CHECKING:
    import pandas as pd

    from harness.runs.resolve import ResolvedRun


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    parser.add_argument("--graphs", action="store_true", help="run the model through CUDA graphs, on a GPU")
    parser.add_argument("--methods", default="decoders", help="presets or groups with a row each (default decoders)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a random prompt (default 32)")
    parser.add_argument("--response", type=int, default=48, help="tokens of the response (default 48)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds of which the median is taken (default 7)")
    parser.add_argument("--instrument", action="store_true", help="LLaDA at 1, 2, 4, 8 tokens a step on dev problems")
    parser.add_argument("--training", action="store_true", help="examples and tokens per second of training")
    parser.add_argument("--costs", action="store_true", help="cost and memory of draft and verification passes")
    parser.add_argument("--rows", help="numbers of rows for --costs (default 1,2,4,8,16,32)")
    parser.add_argument("--record", type=Path, help="run folder: with --costs, its speedups predicted and measured")
    parser.add_argument("--tracing", action="store_true", help="responses with and without a trace")
    parser.add_argument("--recording", type=Path, help="run folder: cost of its records, and of tables of many such")
    parser.add_argument("--workers", action="store_true", help="one worker against two (Ray)")
    parser.add_argument("--arch", help="a shape instead of --model, such as llada-8b")
    parser.add_argument("--random-weights", action="store_true", help="the weights of --arch, made on the device")
    parser.add_argument("--layers", type=int, help="layers of --arch, instead of its own")
    parser.add_argument(
        "--limit", type=int, default=200, help="problems per suite, --instrument and --workers (default 200)"
    )
    parser.add_argument("--out", type=Path, help="also write the tables and the environment as JSON")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    asked = arguments_of(line)
    from harness.costs.sections import measure
    from harness.records.environment import describe
    from harness.records.store import write_atomically

    if asked.workers:
        methods = "llada,fef-2" if asked.methods == "decoders" else asked.methods
        tables, notes = bench_workers(asked.model, methods, asked.limit, asked.repeats), list[str]()
    else:
        tables, notes = measure(asked)
    for name, table in tables.items():
        print(f"\n{name}\n{table.to_string(index=False, float_format=shown)}")
    print("", *notes, sep="\n")
    if asked.out is not None:
        record: dict[str, Any] = {"arguments": {k: str(v) for k, v in vars(asked).items() if k != "out"}}
        record["environment"] = describe(asked.device, asked.dtype or "default")
        record |= {"notes": notes} if notes else {}
        for name, table in tables.items():
            record[name] = table.astype(object).where(table.notna(), None).to_dict("records")
        write_atomically(asked.out, json.dumps(record, indent=1) + "\n")
    return 0


def bench_workers(model: str, methods: str, items: int, repeats: int) -> dict[str, pd.DataFrame]:
    """The table `workers`: mean seconds until all workers have loaded, and responses a second.

    model, methods: as harness/run.py has them. items: generated problems of each suite, decoded by one worker of one
    thread and by two, in turn, `repeats` times. Beside them the seconds to load the same in this process.
    """
    import pandas as pd

    from harness.options import options_from
    from harness.runs.loading import worker_for
    from harness.runs.resolve import resolve

    given = {"suite": "gsm8k,math", "data": "generated", "threads": 1, "limit": items}
    given |= {"methods": methods, "model": model}
    with tempfile.TemporaryDirectory() as folder:
        run = resolve(options_from(given))
        worker_for(run, Path(folder))  # imports and files, which the first one would pay for
        began = time.perf_counter()
        worker_for(run, Path(folder))
        loading = time.perf_counter() - began
    runs = [resolve(options_from({**given, "workers": count})) for _ in range(repeats) for count in (1, 2)]
    means = pd.DataFrame(map(_decoded, runs)).groupby("workers", sort=False).mean()
    means["against one"] = means["responses a second"] / means["responses a second"].iloc[0]
    means["seconds to load"] = loading
    return {"workers": means.reset_index()}


def _decoded(run: ResolvedRun) -> dict[str, float]:
    """A run by its workers."""
    from harness.cluster.pool import RayPool
    from harness.records.store import Recorder
    from harness.runs.chunks import Queue
    from harness.runs.responses import Response

    config, workers = run.config, run.workers
    assert workers is not None
    with tempfile.TemporaryDirectory() as folder:
        scratch, began = Path(folder), time.perf_counter()
        with RayPool(run, scratch) as pool:
            ready = time.perf_counter() - began
            for suite in config.suites:
                pool.warm_up(suite, dict.fromkeys(config.methods, 0))
            queue = Queue(pool.items, list(config.methods), lambda *key: False, config.chunk or 1, workers.count)
            seconds, began = 0.0, time.perf_counter()
            recorder = Recorder(scratch)
            for _, result in pool.results(queue):
                if isinstance(result, Response):
                    recorder.add(result.item, result.windows)
                    seconds = time.perf_counter() - began
    return {"workers": workers.count, "seconds to start": ready, "responses a second": len(recorder.items) / seconds}


def shown(number: float) -> str:
    """A number of a table: two decimals, or three digits where that takes more."""
    return f"{number:.2f}" if number == 0 or abs(number) >= 1 else f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

"""Measure what decoding costs on this machine; nothing here is asserted, everything is printed.

    python harness/bench.py                      cost of a forward, and a row per method
    python harness/bench.py --training           throughput of training, all positions against subsets
    python harness/bench.py --costs              cost and memory of each kind of pass
    python harness/bench.py --costs --arch llada-8b --random-weights --device cuda --prompt 256 --response 256
    python harness/bench.py --throughput         responses a second against how many are decoded at once
    python harness/bench.py --estimate h100      a method's calls on dev problems, priced at LLaDA-8B's shape

`forwards` is the cost of one call against its rows. `methods` compares a decoder's seconds with those of its
forwards alone: the calls it made, replayed and measured interleaved with it. Use an idle machine.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import one_line_errors
from harness.options import option, parsed


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured, and on what."""

    model: str = option(None, "nano")
    device: str = option(None, "cpu")
    dtype: str | None = option(None)
    graphs: bool = option("run the model through CUDA graphs, on a GPU", False)
    methods: str = option("presets or groups with a row each (default decoders)", "decoders")
    prompt: int = option("tokens of a random prompt (default 32)", 32, least=1)
    response: int = option("tokens of the response (default 48)", 48, least=1)
    repeats: int = option("rounds of which the median is taken (default 7)", 7, least=1)
    training: bool = option("examples and tokens per second of training", False)
    costs: bool = option("cost and memory of draft and verification passes", False)
    rows: str | None = option("numbers of rows for --costs (default 1,2,4,8,16,32)")
    estimate: str | None = option("of a device (h100): calls of --model's decoders, priced at LLaDA-8B's shape")
    throughput: bool = option("responses a second against how many are decoded at once", False)
    suite: str = option("suites of --estimate and --throughput (default gsm8k,mbpp)", "gsm8k,mbpp")
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

    tables, notes = measure(options)
    for name, table in tables.items():
        print(f"\n{name}\n{table.to_string(index=False, float_format=shown)}")
    print("", *notes, sep="\n")
    if options.out is not None:
        write_tables(options.out, options, tables, {"notes": notes} if notes else {})
    return 0


def shown(number: float) -> str:
    """A number of a table: two decimals, or three digits where that takes more."""
    return f"{number:.2f}" if number == 0 or abs(number) >= 1 else f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

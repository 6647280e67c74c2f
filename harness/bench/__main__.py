"""Measure what decoding costs on this machine. Everything is printed, nothing is asserted; use an
idle machine.

    python -m harness.bench                      # each kind of pass; on a GPU its peak memory
    python -m harness.bench --arch llada-8b --device cuda --prompt 256 --response 256
    python -m harness.bench --gpu --out FILE     # a machine with one GPU, in about ten minutes

`--gpu` measures, in this order:

1. nano's responses, against the golden records;
2. at LLaDA-8B's shape (random weights, bf16, a vocabulary of 126,464) what decoders take beyond the
   model's calls, at prompts of 100 to 900 tokens, greedy and sampled, with every line of code that
   waits for the device;
3. the passes of that shape;
4. responses and passes once more, with CUDA graphs.

It needs no OpenCompass and no download. The record is written after every part. `--device cpu`
tries the first three on a tiny shape.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError, explained, one_line_errors
from harness.options import option, parsed

if TYPE_CHECKING:
    import pandas as pd

    from model_wrappers import Backbone

GOLDEN = Path(__file__).resolve().parents[2] / "results" / "golden" / "nano"
# The presets whose time outside the model's calls --gpu measures.
OVERHEAD_PRESETS = "llada,threshold,ssd,fef-2,fef-fast,fef-two-stream"
Measured = tuple[dict[str, "pd.DataFrame"], list[str]]  # tables by title, and sentences about them


@dataclass(frozen=True)
class Size:
    """How much --gpu measures.

    Attributes:
        arch: the shape with random weights, for passes and decoders.
        rows: numbers of rows of a verification, comma-separated.
        repeats: rounds of which the median is taken.
        problems: how many problems of each suite of the golden records are decoded.
        methods: which methods of the golden records are decoded (None: all).
        lengths: pairs of prompt and response length, in tokens, for the passes.
        prompts: prompt lengths, in tokens and ascending, for the decoders.
        response: tokens of a response, for the decoders.
    """

    arch: str
    rows: str
    repeats: int
    problems: int
    methods: list[str] | None
    lengths: tuple[tuple[int, int], ...]
    prompts: tuple[int, ...]
    response: int


LARGE = Size(
    arch="llada-8b",
    rows="1,2,4,8,16",
    repeats=3,
    problems=5,
    methods=None,
    lengths=((144, 256), (488, 512)),
    prompts=(100, 400, 900),
    response=32,
)
SMALL = Size(
    arch="llada-tiny",
    rows="1,2",
    repeats=1,
    problems=1,
    methods=["llada", "fef-two-stream"],
    lengths=((24, 16), (40, 24)),
    prompts=(16, 40),
    response=8,
)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured, and on what."""

    model: str = option(None, "nano")
    device: str = option("cpu, cuda, ... (default cpu, with --gpu cuda)", "")
    dtype: str | None = option(None)
    graphs: bool = option("run the model through CUDA graphs, on a GPU", False)
    prompt: int = option("tokens of the random prompt (default 32)", 32, least=1)
    response: int = option("tokens of the response (default 48)", 48, least=1)
    repeats: int = option("rounds of which the median is taken (default 7)", 7, least=1)
    rows: str | None = option("numbers of rows of a verification (default 1,2,4,8,16,32)")
    gpu: bool = option("measure all that takes a GPU (about ten minutes)", False)
    arch: str | None = option("random weights of a shape, such as llada-8b, instead of --model")
    layers: int | None = option("layers of --arch (default: the shape's)", least=1)
    out: Path | None = option("also write the tables and the environment as JSON")


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(BenchOptions, line, __doc__)
    if options.out is not None:
        # Before anything is measured, for a measurement takes minutes.
        message = f"--out {options.out} cannot be written; name a JSON file"
        with explained(message, OSError):
            options.out.open("a").close()
    from harness.records.environment import write_tables

    options = replace(options, device=options.device or ("cuda" if options.gpu else "cpu"))
    tables: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    parts: Iterable[Measured] = gpu_parts(options.device) if options.gpu else [costs(options)]
    for measured, statements in parts:
        for name, table in measured.items():
            print(f"\n{name}\n{table.to_string(index=False, float_format='{:.4g}'.format)}")
        print("", *statements, sep="\n")
        tables = tables | measured
        notes = notes + statements
        if options.out is not None:
            write_tables(options.out, options, tables, {"notes": notes} if notes else {})
    return 0


def costs(options: BenchOptions) -> Measured:
    """Measure the passes of a model, and on a GPU its peak memory.

    Raises:
        UserError: --rows has something that is no number, or the model is a block model.
    """
    from harness.bench.passes import ROWS, bench_costs, bench_memory, statements

    with explained(
        f"--rows {options.rows} must be numbers separated by commas, such as 1,2,4", ValueError
    ):
        rows = ROWS if options.rows is None else [int(number) for number in options.rows.split(",")]
    backbone = backbone_of(options)
    found, tables = bench_costs(backbone, options.prompt, options.response, options.repeats, rows)
    if backbone.device.type == "cuda":
        tables["memory"] = bench_memory(backbone, options.prompt, options.response)
    return tables, statements(found)


def backbone_of(options: BenchOptions) -> Backbone:
    """The model, or the shape with random weights. Raises UserError for a block model, which has no
    whole passes."""
    from harness.bench.shapes import random_backbone
    from model_wrappers import load_backbone

    if options.arch is not None:
        return random_backbone(
            options.arch, options.device, options.dtype, options.layers, options.graphs
        )
    backbone = load_backbone(
        options.model, options.device, options.dtype, cuda_graphs=options.graphs
    )
    if backbone.blocks is not None:
        raise UserError(
            f"--model {options.model} attends in blocks of {backbone.blocks.length}, and whole"
            " sequences are measured here: time its methods in a run (harness/run.py)"
        )
    return backbone


def gpu_parts(device: str) -> Iterator[Measured]:
    """Measure the parts of --gpu, one after another.

    Yields:
        The tables of a part, titled "part: table", and sentences about them. A part that fails has
        no tables and one sentence that says why; the others still follow.

    Raises:
        UserError: there is no GPU; or, after the last part, some parts failed.
    """
    import torch

    from harness.bench.decoders import bench_apart, bench_responses
    from harness.bench.passes import random_ids
    from harness.bench.shapes import random_backbone
    from harness.records.store import read_run
    from harness.runs.selection import methods_named

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("torch sees no GPU; to try this without one, on a tiny shape: --device cpu")
    small = not device.startswith("cuda")
    size = SMALL if small else LARGE

    def responses(graphs: bool = False) -> Measured:
        golden = read_run(GOLDEN)
        return bench_responses(golden, device, size.problems, size.methods, graphs)

    def passes(prompt: int, response: int, graphs: bool = False) -> Measured:
        shape = BenchOptions(
            arch=size.arch,
            device=device,
            dtype="bfloat16",
            graphs=graphs,
            prompt=prompt,
            response=response,
            rows=size.rows,
            repeats=size.repeats,
        )
        return costs(shape)

    def apart() -> Measured:
        backbone = random_backbone(size.arch, device, "bfloat16")
        longest = random_ids(backbone.vocab_size, size.prompts[-1], torch.device("cpu"))[0]
        prompts = [longest[:length] for length in size.prompts]
        presets = methods_named(OVERHEAD_PRESETS)
        table, notes = bench_apart(backbone, prompts, size.response, presets)
        return {"decoders": table}, notes

    measurements: dict[str, Callable[[], Measured]] = {"responses": responses, "apart": apart}
    for pair in size.lengths:
        measurements[f"passes, {sum(pair)} tokens"] = partial(passes, *pair)
    if not small:
        measurements["responses, CUDA graphs"] = partial(responses, True)
        for pair in size.lengths:
            name = f"passes, {sum(pair)} tokens, CUDA graphs"
            measurements[name] = partial(passes, *pair, True)
    failed = []
    for name, part in measurements.items():
        try:
            tables, notes = part()
        # Errors of CUDA, such as out of memory, are RuntimeErrors.
        except (UserError, ValueError, RuntimeError) as error:
            failed.append(name)
            yield {}, [f"{name} failed: {' '.join(str(error).split())}"]
        else:
            yield {f"{name}: {title}": table for title, table in tables.items()}, notes
        gc.collect()
        torch.cuda.empty_cache()
    if failed:
        raise UserError(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

"""Measure a machine with one GPU, part by part, in at most ten minutes.

    python harness/gpu.py                                   # on a GPU: into results/runs/gpu.json
    python harness/gpu.py --device cpu --out FILE           # to try it: a tiny shape on the processor, in seconds

Parts: nano's responses against the golden records, token for token, with seconds by suite; cost of every pass and peak
memory at the shape of LLaDA-8B (random weights, bf16, 400 and 1,000 tokens); what decoders spend beyond their passes;
throughput of training with and without the two-stream mask. Each part is printed and written when it is finished; the
same command again does what is left. Needs torch, transformers, accelerate, pandas, scipy, msgspec and psutil, no
OpenCompass and no download. `make gpu` does it where this project is not installed, too. Exit code 1 if a part is left.
"""

import argparse
import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, cannot, one_line_errors

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("torch", "transformers", "accelerate", "pandas", "scipy", "msgspec", "psutil")
OUT = Path("results/runs/gpu.json")
MINUTES = 8.0  # what begins by then is done after ten
GOLDEN = Path(__file__).resolve().parents[1] / "results" / "golden" / "nano"
DTYPE = "bfloat16"
GRAPHS = "CUDA graphs"
OVERHEAD = "llada,threshold,fef-2,fef-fast,fef-two-stream"
Measured = tuple[dict[str, "pd.DataFrame"], list[str]]  # tables by name, and what they say in words
Part = Callable[..., Measured]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    arch: the shape of random weights. lengths: prompt and response of passes, in tokens. rows: of a forward. repeats:
    rounds of which the median is taken. problems, methods: of the golden records, by suite (methods None: all).
    response: tokens of a response whose decoder is measured beside its forwards. batch, steps: of training.
    """

    arch: str
    lengths: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    repeats: int
    problems: int
    methods: tuple[str, ...] | None
    response: int
    batch: int
    steps: int


FULL = Sizes(
    arch="llada-8b",
    lengths=((144, 256), (488, 512)),
    rows=(1, 2, 4, 8, 16),
    repeats=5,
    problems=15,
    methods=None,
    response=48,
    batch=16,
    steps=5,
)
SMALL = Sizes(
    arch="llada-tiny",
    lengths=((24, 16), (40, 24)),
    rows=(1, 2),
    repeats=1,
    problems=1,
    methods=("llada", "fef-two-stream"),
    response=8,
    batch=1,
    steps=1,
)


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a part is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try it with a tiny shape (default cuda)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"file of the record (default {OUT})")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"no part begins later (default {MINUTES:g})")
    args = parser.parse_args(line)
    if not args.minutes > 0:
        raise UserError(f"--minutes {args.minutes:g} must be more than 0")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"packages are needed that are not installed: pip install {' '.join(missing)}")
    import torch

    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("torch sees no GPU; to try this without one, with a tiny shape: --device cpu")
    from model_wrappers.backbones.registry import device_named

    sizes = FULL if device_named(args.device).type == "cuda" else SMALL
    return 0 if measure(args.out, args.device, sizes, args.minutes) else 1


def parts_of(sizes: Sizes, device: str) -> dict[str, Part]:
    """What each part measures, by its name, the most wanted first. A part loads its own model."""
    from harness.costs.architectures import random_backbone
    from harness.costs.costs import bench_costs, statements
    from harness.costs.decoders import bench_methods, bench_prompts
    from harness.costs.memory import bench_memory
    from harness.costs.training import EVERY, MASKED, bench_training
    from harness.methods.selection import methods_named
    from harness.records.store import read_run
    from harness.regression.elsewhere import bench_responses
    from model_wrappers import load_backbone

    def responses(cuda_graphs: bool = False) -> Measured:
        return bench_responses(read_run(GOLDEN, windows=False), device, sizes.problems, sizes.methods, cuda_graphs)

    def passes(prompt: int, response: int, cuda_graphs: bool = False) -> Measured:
        backbone = random_backbone(sizes.arch, device, DTYPE, cuda_graphs=cuda_graphs)
        costs, tables = bench_costs(backbone, prompt, response, sizes.repeats, sizes.rows)
        return tables, statements(costs)

    def memory(prompt: int, response: int) -> Measured:
        return {"memory": bench_memory(random_backbone(sizes.arch, device, DTYPE), prompt, response)}, []

    def overhead() -> Measured:
        backbone = load_backbone("nano", device, DTYPE)
        prompts, presets = bench_prompts(backbone)[: sizes.problems], methods_named(OVERHEAD)
        return {"overhead": bench_methods(backbone, prompts, sizes.response, sizes.repeats, presets)}, []

    def training() -> Measured:
        return {"training": bench_training("nano", sizes.steps, ("llada", EVERY, MASKED), sizes.batch, device)}, []

    lengths = {f"{sum(pair)} tokens": pair for pair in sizes.lengths}
    parts: dict[str, Part] = {"responses": responses}
    parts |= {f"passes, {name}": partial(passes, *pair) for name, pair in lengths.items()}
    parts |= {"overhead": overhead, "training": training}
    if device.startswith("cuda"):
        parts |= {f"memory, {name}": partial(memory, *pair) for name, pair in lengths.items()}
        eager = [name for name in parts if name.split(",")[0] in ("responses", "passes")]
        parts |= {f"{name}, {GRAPHS}": partial(parts[name], cuda_graphs=True) for name in eager}
    return parts


def measure(out: Path, device: str, sizes: Sizes, minutes: float) -> bool:
    """Measure the parts that `out` does not have yet; whether it has all now.

    minutes: no part begins later. A part that fails is named, and the others go on. Raises UserError where `out` is
    damaged, or of another machine, revision or size.
    """
    import torch

    from harness.records.environment import describe, rows_of
    from harness.records.receipts import busy_warning, receipt
    from harness.records.store import write_atomically

    began = time.monotonic()
    record = {"sizes": json.loads(json.dumps(asdict(sizes))), "environment": describe(device, DTYPE)}
    done = _finished(out, record)
    parts, left = parts_of(sizes, device), dict[str, str]()
    for name, part in parts.items():
        if name in done:
            print(f"{name}: finished before")
        elif time.monotonic() - began > 60 * minutes:
            left[name] = "no time"
        else:
            machine, start = receipt(device), time.monotonic()
            print(f"\n{name}: {busy_warning(machine) or 'measuring'}")
            try:
                tables, notes = part()
            except (UserError, ValueError, RuntimeError) as error:  # RuntimeError: of CUDA, out of memory among them
                left[name] = " ".join(str(error).split())
                print(f"{name}: failed: {left[name]}")
            else:
                for title, table in tables.items():
                    print(f"\n{name}: {title}\n{table.to_string(index=False)}")
                print(*notes, sep="\n")
                done[name] = {
                    "tables": {title: rows_of(table) for title, table in tables.items()},
                    "notes": notes,
                    "seconds": time.monotonic() - start,
                    "machine": machine,
                }
                with cannot(f"write {out}", "choose another --out"):
                    out.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(out, json.dumps(record | {"parts": done}, indent=1) + "\n")
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    print(f"{len(done)} of {len(parts)} parts are in {out}")
    if left:
        print(f"the same command again does what is left: {', '.join(left)}")
    return not left


def _finished(out: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The parts of an earlier record of the same machine, revision and sizes."""
    from harness.runs.resolve import differences

    if not out.exists():
        return {}
    try:
        read = json.loads(out.read_bytes())
        before, parts = {"sizes": read["sizes"], **read["environment"]}, dict(read["parts"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{out} is damaged ({type(error).__name__}: {error}); choose another --out") from error
    found = differences(before, {"sizes": record["sizes"], **record["environment"]})
    if found:
        raise UserError(f"{out} is of another machine, revision or size: {'; '.join(found)}; choose another --out")
    return parts


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

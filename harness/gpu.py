"""Measure a machine with one GPU: the kit, part by part, in at most ten minutes.

    python harness/gpu.py                                   # on a GPU: into results/runs/gpu
    python harness/gpu.py --device cpu --out FOLDER         # to try it: a tiny shape on the processor, in seconds

Parts: nano's responses against the golden records, token for token, with seconds by suite; cost of every pass and peak
memory at the shape of LLaDA-8B (random weights, bf16, 400 and 1,000 tokens); what decoders spend beyond their passes;
throughput of training with and without the two-stream mask. Each part is written to kit.json when it is finished; the
same command again does what is left. Needs torch, transformers, accelerate, pandas, scipy, msgspec and psutil, no
OpenCompass and no download. `tables/render.py FOLDER` makes its tables, and `make gpu` does both, also where this
project is not installed. Exit code 1 if a part is left.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from harness.errors import UserError, one_line_errors

NEEDED = ("torch", "transformers", "accelerate", "pandas", "scipy", "msgspec", "psutil")
OUT = Path("results/runs/gpu")
MINUTES = 8.0  # what begins by then is done after ten


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line. Raises UserError for what cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the kit with a tiny shape (default cuda)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the record (default {OUT})")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"no part begins later than this (default {MINUTES:g})"
    )
    asked = parser.parse_args(line)
    if not asked.minutes > 0:
        raise UserError(f"--minutes {asked.minutes:g} must be more than 0")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the kit needs packages that are not installed: pip install {' '.join(missing)}")
    return asked


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a part is left."""
    asked = arguments_of(line)
    import torch

    if asked.device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("torch sees no GPU; to try the kit without one, with a tiny shape: --device cpu")
    from harness.kit.run import FULL, SMALL, run_kit
    from model_wrappers.backbones.registry import device_named

    on_gpu = device_named(asked.device).type == "cuda"
    return 0 if run_kit(asked.out, asked.device, FULL if on_gpu else SMALL, asked.minutes) else 1


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

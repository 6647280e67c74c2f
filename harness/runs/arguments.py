"""The command line of a run, as `harness/run.py` and all that starts a run have it."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.methods.presets import DEFAULT_METHODS
from harness.suites.registry import PAPER_SUITES, SUITES

DEFAULT_SUITES = ",".join(PAPER_SUITES)
UNSAFE_OPTION = "--unsafe-code-execution"  # of every command that scores
UNSAFE_HELP = "where no sandbox works, run model-written code unprotected instead of not scoring it"


def arguments_of(line: list[str] | None, description: str | None = None) -> argparse.Namespace:
    """The parsed command line, of the process if `line` is None. description: for --help."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--suite", default=DEFAULT_SUITES, help=f"comma-separated: {', '.join(SUITES)}, or NAME=FILE of questions")
    add("--methods", default=DEFAULT_METHODS, help="presets, groups or decoders, with (option=value) each; see --list")
    add("--plugin", action="append", default=[], metavar="FILE.py", help="a file, or a module, with decoders or suites")
    add("--model", default="nano", help="nano, a folder, a hub id, role=model,role=model, or a JSON table of roles")
    add("--data", help="folder in OpenCompass's layout, or generated[-dev][:SEED] (default with nano: generated)")
    add("--limit", type=int, help="first N items of each suite (default: all)")
    add("--gen-length", type=int, help="tokens of a response (default: per suite)")
    add("--block-length", type=int, help="tokens of a block (default: per suite; FeF decodes the full sequence)")
    add("--schedules", type=Path, help="folder of DDOSP schedules, <suite>.json (default: the model's own)")
    add("--stop-at-eos", action="store_true", default=None, help="end a response at EOS, with every method alike")
    add("--temperature", type=float, default=0.0)
    add("--seed", type=int, default=0)
    add("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="default: float32 on a CPU, else bfloat16")
    add("--trust-remote-code", action="store_true", help="run the code of a model whose type is unknown here")
    add("--reads-at", type=int, choices=[0, -1], help="of such a model: where the logits of a position stand")
    add("--compile", action="store_true", help="run the models through torch.compile, for all methods alike")
    add("--graphs", action="store_true", help="run the models through CUDA graphs, for all methods alike; on a GPU")
    add("--threads", type=int, help="CPU threads, of each worker (default: torch's own choice; the cores / workers)")
    add("--workers", type=int, metavar="N", help="decode in N processes that own their cores or GPU (needs Ray)")
    add("--ray-address", metavar="HOST:PORT", help="of a Ray cluster that exists (default: one on this machine)")
    add("--gpus-per-worker", type=float, help="with --device cuda: 1, or a part of one, which needs --untimed")
    add("--allow-devices", metavar="NAMES", help="unlike devices that may share a run, by name, between semicolons")
    add("--untimed", action="store_true", help="seconds are not for comparison (runs side by side): no Speed in tables")
    add("--trace", action="store_true", help="record every commit, re-mask and rejected draft; the report plays them")
    add("--chunk", type=int, default=5, help="items that pass through all methods before the next ones (default 5)")
    add("--out", type=Path, help="folder of the run")
    add(UNSAFE_OPTION, action="store_true", help=UNSAFE_HELP)
    add("--resume", action="store_true", help="go on with the run in --out")
    add("--plan", action="store_true", help="print what the run will cost, from a minute of it, and stop")
    add("--costs", type=Path, metavar="FILE", help="with --plan: from a record of harness/bench.py --costs instead")
    add("--status", type=Path, metavar="FOLDER", help="print how far the run in a folder is and stop")
    add("--list", action="store_true", help="print the presets with their options and stop")
    return parser.parse_args(line)

"""Train a masked diffusion model with transformers' Trainer.

    python harness/train.py --objective fef --init FOLDER --data FILE --out training/fef     the paper's recipe
    python harness/train.py --objective fef --preset nano-two-stream --out training/first
    python harness/train.py --objective fef --preset nano --init training/first --out training/nano-fef
    python harness/train.py --objective llada --preset nano-control --out training/control
    python harness/train.py --objective llada --preset nano-base --out training/nano --resume

Objective `fef` is position-conditioned prediction (the paper's Algorithm 1), `llada` clean-token prediction (Eq. 2),
both on absorbing corruption of the response alone. `--mask two-stream` trains `fef` for two-stream verification: one
forward predicts all positions from a random anchor on. The preset gives every value; options override it.
`--data` is JSON lines of {"prompt", "response"}, or GSM8K's own train file; without it nano's generated training
problems. `--out` receives checkpoints, `train.json` (what was asked), `loss.csv`, `loss.png` and, at the end, the model
in bf16 and its tokenizer. A training that was killed goes on with `--resume` from its last checkpoint and sees the
same examples as an uninterrupted one. Several GPUs: `torchrun --nproc-per-node 8 harness/train.py --shard ...`, which
splits the model over them; with `--global-batch` a step sees as many examples on any number. `--trainer` takes any
TrainingArguments as JSON, such as {"gradient_checkpointing": true}.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from harness.errors import one_line_errors
from harness.training.recipes import MASKS, PRESETS, configuration

OBJECTIVES = ("fef", "llada")


def parsed(text: str) -> Any:
    """A value of the command line in JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--objective", choices=OBJECTIVES, required=True)
    add("--preset", choices=sorted(PRESETS), default="paper")
    add("--out", type=Path, required=True)
    add("--resume", action="store_true")
    add("--init", help="folder or hub id of the model to start from")
    add("--data", help="JSON lines of prompt and response, or GSM8K's train file (default: nano's generated problems)")
    add("--mask", choices=MASKS, help="of objective fef: a row per position, or all from a random anchor on in one")
    add("--positions", help="corrupted positions trained per example: a number, or `all` (objective fef, mask full)")
    add("--rows-per-forward", type=int, help="most position-conditioned rows in one forward and backward")
    add("--random-orders", type=float, help="share of the examples in a random order, with --mask two-stream")
    add("--steps", type=int, help="optimizer steps (default: the preset's, or its epochs of --data)")
    add("--epochs", type=float)
    add("--examples", type=int, help="how many generated examples there are, repeated where the steps take more")
    add("--batch", type=int, help="examples per process and forward")
    add("--accumulation", type=int, help="forwards per process in a step")
    add("--global-batch", type=int, help="examples of a step over all processes, whatever their number")
    add("--shard", action="store_true", help="shard the model over the processes of torchrun (FSDP2)")
    add("--lr", type=float)
    add("--warmup", type=int)
    add("--decay-fraction", type=float, help="share of the steps, at their end, in which lr decays")
    add("--loss-weight", choices=["1/t", "none"], help="of objective llada")
    add("--seed", type=int)
    add("--mix", type=parsed, help="JSON object: blocks of generated examples per suite in a round")
    add("--trainer", type=parsed, help="JSON object: further TrainingArguments")
    add("--save-every", type=int, default=250, help="optimizer steps between checkpoints")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    asked = arguments_of(line)
    from harness.training.run import train

    train(asked.objective, configuration(vars(asked)), asked.out, asked.resume, asked.save_every, asked.shard)
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

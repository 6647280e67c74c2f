"""Train a masked diffusion model, or its autoregressive reference, with transformers' Trainer.

    python -m harness.train --objective fef --init FOLDER --data FILE --out training/fef     the paper's recipe
    python -m harness.train --objective fef --preset nano-two-stream --out training/first
    python -m harness.train --objective fef --preset nano --init training/first --out training/nano-fef
    python -m harness.train --objective llada --preset nano-control --out training/control
    python -m harness.train --objective llada --preset nano-base --out training/nano --resume
    python -m harness.train --objective ar --preset nano-ar --out training/ar

Objective `fef` is position-conditioned prediction (the paper's Algorithm 1), `llada` clean-token prediction (Eq. 2),
both on absorbing corruption of the response alone; `ar` is next-token prediction, of an autoregressive model. `--mask
two-stream` trains `fef` for two-stream verification: one forward predicts all positions from a random anchor on. The
preset gives every value; options override it. `--data` is JSON lines of {"prompt", "response"}, or GSM8K's own train
file; without it nano's generated training problems. `--out` receives checkpoints, `train.json` (what was asked),
`loss.csv`, `loss.png` and, at the end, the model in bf16 and its tokenizer. A training that was killed goes on with
`--resume` from its last checkpoint and sees the same examples as an uninterrupted one. Several GPUs: `torchrun
--nproc-per-node 8 -m harness.train --shard ...`, which splits the model over them; with `--global-batch` a step sees as
many examples on any number. `--trainer` takes any TrainingArguments as JSON, such as {"gradient_checkpointing": true}.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_type_hints

from harness.errors import one_line_errors
from harness.train.recipes import PRESETS, Recipe, recipe

OBJECTIVES = ("fef", "llada", "ar")
JSON = ("mix", "trainer")  # options whose value is a JSON object


def parsed(text: str) -> Any:
    """A value of the command line in JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line; options of the recipe that are not given are left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--objective", choices=OBJECTIVES, required=True)
    add("--preset", choices=sorted(PRESETS), default="paper")
    add("--out", type=Path, required=True)
    add("--resume", action="store_true")
    add("--shard", action="store_true", help="shard the model over the processes of torchrun (FSDP2)")
    add("--save-every", type=int, default=250, help="optimizer steps between checkpoints")
    for name, kind in get_type_hints(Recipe, include_extras=True).items():
        told = [each.description for each in getattr(kind, "__metadata__", ()) if each.description]
        if told:
            option, how = f"--{name.replace('_', '-')}", parsed if name in JSON else str
            add(option, dest=f"recipe.{name}", type=how, default=argparse.SUPPRESS, metavar="X", help=told[0])
    return parser.parse_args(line)


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The recipe of a command line. Raises UserError for values that cannot be used."""
    options = {name.partition(".")[2]: value for name, value in vars(args).items() if name.startswith("recipe.")}
    return recipe(args.objective, args.preset, options)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    args = arguments_of(line)
    from harness.train.run import train

    train(args.objective, recipe_of(args), args.out, args.resume, args.save_every, args.shard)
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

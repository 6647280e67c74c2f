"""Train a masked diffusion model, or its autoregressive reference, with transformers' Trainer.

    python -m harness.train --objective fef --init FOLDER --data FILE --out training/fef
    python -m harness.train --objective fef --preset nano-two-stream --out training/first
    python -m harness.train --objective llada --preset nano-base --out training/nano --resume
    python -m harness.train --objective ar --preset nano-ar --out training/ar
    torchrun --nproc-per-node 8 -m harness.train --shard ...

Objective `fef` is position-conditioned prediction (the paper's Algorithm 1), `llada` clean-token
prediction (Eq. 2), `ar` next-token prediction. `--mask two-stream` trains `fef` for two-stream
verification. The preset (model_wrappers/nano/recipes.toml) gives every value; options override it.
`--data` is JSON lines of {"prompt", "response"}, or GSM8K's train file; without it nano's generated
problems. `--out` receives checkpoints, `train.json` (the recipe), `loss.csv`, `loss.png` and, at
the end, the model in bf16 and its tokenizer. `--resume` goes on from the last checkpoint and sees
the same examples as an uninterrupted training; so does `--global-batch` on any number of GPUs.
"""

import sys
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from typing import Literal, get_type_hints

from harness.errors import one_line_errors
from harness.options import option, parsed
from harness.train.recipes import PRESETS, Recipe, recipe


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What is trained, and where it is written; on a command line also the fields of a recipe."""

    objective: Literal["fef", "llada", "ar"] = option(None, required=True)
    preset: str = option(f"{', '.join(PRESETS)} (default paper)", "paper")
    out: Path = option(None, required=True)
    resume: bool = option("go on with the training in --out", False)
    shard: bool = option("shard the model over the processes of torchrun (FSDP2)", False)
    save_every: int = option("optimizer steps between checkpoints (default 250)", 250, least=1)


def options_of(line: list[str] | None) -> tuple[TrainOptions, Recipe]:
    """The options of a command line, and its recipe. Raises UserError for values that cannot be
    used."""
    descriptions = {
        name: meta.description
        for name, kind in get_type_hints(Recipe, include_extras=True).items()
        for meta in getattr(kind, "__metadata__", ())
        if meta.description
    }
    # As texts: what a value must be is checked by the recipe, together with the preset's.
    recipe_fields = [
        (name, str | None, option(description, metavar="X"))
        for name, description in descriptions.items()
    ]
    kind: type[TrainOptions] = make_dataclass(
        "TrainLine", recipe_fields, bases=(TrainOptions,), frozen=True, kw_only=True
    )
    options = parsed(kind, line, __doc__)
    given = {
        name: value
        for name, value in asdict(options).items()
        if name in descriptions and value is not None
    }
    return options, recipe(options.objective, options.preset, given)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    # Options are refused before the seconds that importing transformers takes.
    options, made = options_of(line)
    from harness.train.run import train

    train(options.objective, made, options.out, options.resume, options.save_every, options.shard)
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))

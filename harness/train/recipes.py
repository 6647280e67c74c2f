"""Recipes of python -m harness.train by name: every value of a training is a field, and options override it."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from harness.errors import UserError
from harness.suites.registry import GENERATED

Value = TypeVar("Value")
Count = Annotated[Value, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Rate = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class Size(Struct, frozen=True, kw_only=True):
    """The size of a new model of LLaDA's architecture."""

    hidden_size: int
    layers: int
    heads: int
    mlp_size: int
    max_length: int


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training. A field with a description is an option of python -m harness.train, of the same name.

    size: of a new model, where no `init` is given. repeats: how many times in a row each batch of generated examples
    comes, corrupted anew. shots: whether suites with solved problems before each have them here. blocks: for objective
    llada, share of the batches that are corrupted as decoding in blocks meets them. prefixes, first_weight: see
    training/blocks.py. min_lr_ratio: the last learning rate over `lr`.
    """

    init: Annotated[str | None, Meta(description="folder or hub id of the model to start from")] = None
    size: Size | None = None
    data: Annotated[
        str | None,
        Meta(description="JSON lines of prompt and response, or GSM8K's train file (default: nano's problems)"),
    ] = None
    mask: Annotated[
        Literal["full", "two-stream"],
        Meta(description="of objective fef: a row per position, or all from a random anchor on in one (full)"),
    ] = "full"
    positions: Annotated[
        Literal["all"] | Count[int],
        Meta(description="corrupted positions trained per example: a number, or `all` (objective fef, mask full)"),
    ] = "all"
    rows_per_forward: Annotated[
        Count[int], Meta(description="most position-conditioned rows in one forward and backward")
    ] = 64
    random_orders: Annotated[
        Share, Meta(description="share of the examples in a random order, with --mask two-stream")
    ] = 0.0
    blocks: Share = 0.0
    block_length: Annotated[
        Count[int] | None, Meta(description="train a model that attends in blocks of so many tokens")
    ] = None
    prefixes: Annotated[
        Share, Meta(description="share of those blocks with a clean prefix and masks behind it (objective fef)")
    ] = 0.0
    first_weight: Annotated[Rate, Meta(description="weight of the first mask in such a block")] = 1.0
    steps: Annotated[
        Count[int] | None, Meta(description="optimizer steps (default: the preset's, or its epochs of --data)")
    ] = None
    epochs: Annotated[Rate, Meta(description="times that --data is gone through")] = 1.0
    examples: Annotated[
        Count[int] | None,
        Meta(description="how many generated examples there are, repeated where the steps take more (default: all)"),
    ] = None
    repeats: int = 1
    shots: bool = True
    batch: Annotated[Count[int], Meta(description="examples per process and forward")]
    accumulation: Annotated[Count[int], Meta(description="forwards per process in a step")] = 1
    global_batch: Annotated[
        Count[int] | None,
        Meta(description="examples of a step over all processes, whatever their number; sets the accumulation"),
    ] = None
    lr: Annotated[Rate, Meta(description="learning rate")]
    warmup: Annotated[int, Meta(ge=0, description="steps in which lr grows")]
    decay_fraction: Annotated[Share, Meta(description="share of the steps, at their end, in which lr decays")]
    min_lr_ratio: float
    weight_decay: float = 0.1
    adam_beta2: float = 0.999
    loss_weight: Annotated[Literal["1/t", "none"], Meta(description="of objective llada")] = "none"
    seed: Annotated[int, Meta(description="of examples, their corruption and new weights")] = 0
    mix: Annotated[
        dict[str, Annotated[int, Meta(ge=0)]] | None,
        Meta(description="JSON object: blocks of generated examples per suite in a round"),
    ] = None
    trainer: Annotated[dict[str, Any], Meta(description="JSON object: further TrainingArguments")] = {}


MIX = {"gsm8k": 3, "math": 2, "humaneval": 2, "mbpp": 1, "lists": 2}  # harder suites more often
# The short suites as often as the long ones, every fourth example with solved ones before it.
LONG_MIX = {
    **{"gsm8k": 3, "math": 2, "humaneval": 2, "mbpp": 2, "lists": 2, "gsm8k-long": 6, "code-long": 4},
    **{f"{suite}-4shot": 1 for suite in ("gsm8k", "math", "humaneval", "mbpp", "gsm8k-long", "code-long")},
}
BLOCK_MIX = {
    **{"gsm8k": 2, "math": 2, "humaneval": 1, "mbpp": 1, "lists": 1},
    **{"gsm8k-long": 2, "code-long": 2, "gsm8k-hard": 5, "code-hard": 4},
}
PARALLEL_MIX = {"line-fixed": 2, "line-free": 1, "words": 1}
# Fine-tuning nano, FeF-DLLM's target: the last stage, Algorithm 1 as it stands.
NANO = Recipe(init="nano", batch=16, steps=300, lr=1e-4, warmup=50, decay_fraction=0.98, min_lr_ratio=0.1, mix=MIX)

# On tasks after ParallelBench, of `nano-parallel` and of its control.
PARALLEL = structs.replace(NANO, steps=1000, lr=1e-3, decay_fraction=0.9, min_lr_ratio=0.02, mix=PARALLEL_MIX)

# The last stage for long problems, of `nano-long` and of its control.
LONG = structs.replace(NANO, steps=6000, lr=6e-4, warmup=100, decay_fraction=0.96, min_lr_ratio=0.05, mix=LONG_MIX)

# Attention in blocks, from nano-long, on harder problems; of `nano-block` and of its control.
BLOCK = structs.replace(
    LONG,
    init="nano-long",
    block_length=16,
    steps=4000,
    lr=1e-3,
    decay_fraction=0.9,
    min_lr_ratio=0.02,
    adam_beta2=0.98,
    mix=BLOCK_MIX,
)

PRESETS = {
    # The paper's appendix: 8 GPUs, global batch 16, one epoch.
    "paper": Recipe(
        batch=1, accumulation=2, rows_per_forward=1, lr=1e-5, warmup=50, decay_fraction=0.1, min_lr_ratio=0.1
    ),
    "nano": NANO,
    # The first stage. Nano has not seen this mask, so more examples at a higher rate.
    "nano-two-stream": structs.replace(
        NANO,
        mask="two-stream",
        accumulation=2,
        steps=3000,
        lr=5e-4,
        warmup=100,
        decay_fraction=0.96,
        min_lr_ratio=0.05,
    ),
    # From nano-long: the same problems, a third of them in random orders.
    "nano-long-two-stream": structs.replace(LONG, mask="two-stream", random_orders=0.35),
    # The control's first stage: as many supervised tokens, and the same examples, each of them twice.
    "nano-control": structs.replace(
        NANO, batch=32, examples=96_000, steps=6000, lr=5e-4, warmup=100, decay_fraction=0.96
    ),
    # An autoregressive model of nano's size and beginning, on nano-fef's first examples: as many supervised tokens.
    "nano-ar": structs.replace(NANO, batch=32, steps=3000, lr=1e-3, warmup=100, decay_fraction=0.96, adam_beta2=0.98),
    # The control of nano-long-two-stream: its examples, each under two corruptions, one as decoding in blocks meets it.
    # Problems come without solved ones before them, so that none of the training goes to suites that are not compared.
    "nano-long-control": structs.replace(LONG, accumulation=2, repeats=2, shots=False, blocks=0.5),
    # Nano on problems that are as long as real ones, and on the short ones, with and without solved ones before them.
    "nano-long": structs.replace(
        NANO,
        accumulation=2,
        steps=5000,
        lr=1e-3,
        warmup=100,
        decay_fraction=0.9,
        min_lr_ratio=0.02,
        adam_beta2=0.98,
        loss_weight="1/t",
        mix=LONG_MIX,
    ),
    # Waiting lines and sentences, from FeF-DLLM's weights and from the control's, whose examples come under two
    # corruptions each.
    "nano-parallel": structs.replace(PARALLEL, init="nano-fef", mask="two-stream"),
    "nano-parallel-control": structs.replace(PARALLEL, init="nano-control", accumulation=2, repeats=2),
    "nano-block": structs.replace(BLOCK, mask="two-stream", prefixes=0.75, first_weight=3.0),
    # Its examples under two corruptions each, at random in every block.
    "nano-block-control": structs.replace(BLOCK, accumulation=2, repeats=2),
    # Nano itself, from random weights.
    "nano-base": Recipe(
        size=Size(hidden_size=192, layers=5, heads=6, mlp_size=512, max_length=4096),
        batch=32,
        accumulation=2,
        steps=7000,
        lr=1.5e-3,
        warmup=200,
        decay_fraction=0.3,
        min_lr_ratio=0.02,
        adam_beta2=0.98,
        loss_weight="1/t",
        mix=MIX,
    ),
}


def recipe(objective: str, preset: str, given: dict[str, Any]) -> Recipe:
    """The preset of a command line, with what it gives beyond it: texts or values by name.

    Raises UserError for values that cannot be used.
    """
    if "global_batch" in given and "accumulation" in given:
        raise UserError("--global-batch sets the accumulation by the number of processes; leave --accumulation out")
    values = structs.asdict(PRESETS[preset]) | given
    try:
        made = msgspec.convert(values, Recipe, strict=False)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        name = path.strip("`").partition(".")[0].partition("[")[0]
        raise UserError(f"--{name.replace('_', '-')} {json.dumps(given.get(name))}: {message}") from error
    if made.random_orders and (made.mask != "two-stream" or made.block_length is not None):
        raise UserError(f"--random-orders {made.random_orders} needs --mask two-stream, without --block-length")
    if made.blocks and objective != "llada":
        raise UserError(f"preset {preset} corrupts in blocks, for objective llada; not {objective}")
    if made.block_length is None and (made.prefixes or made.first_weight != 1):
        raise UserError("--prefixes and --first-weight are of blocks: add --block-length")
    if made.prefixes and objective != "fef":
        raise UserError(
            f"--prefixes {made.prefixes} is what FeF-DLLM's targets see, for objective fef; not {objective}"
        )
    if objective == "ar" and made.block_length is not None:
        raise UserError(f"--block-length {made.block_length} is of diffusion models, and objective ar trains another")
    if made.mask == "two-stream" and objective != "fef":
        raise UserError(f"--mask two-stream needs objective fef, not {objective}; use --mask full")
    if made.mask == "two-stream" and "positions" in given:
        raise UserError(
            f"--positions {made.positions} needs --mask full; with two-stream, one row trains all positions from an "
            "anchor on: leave it out"
        )
    if made.mix is not None and (not set(made.mix) <= set(GENERATED) or not any(made.mix.values())):
        raise UserError(
            f"--mix {json.dumps(made.mix)} must give a whole number of blocks, not all 0, "
            f"for suites of {', '.join(GENERATED)}"
        )
    return made

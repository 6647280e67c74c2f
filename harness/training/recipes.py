"""Recipes of harness/train.py by name; every value is there, and options override it.

init: model to start from; None is random weights of the given size. data: None is nano's generated problems. mask: one
of MASKS, for objective fef. random_orders: with mask two-stream, share of the examples whose positions come in a random
order; the others go from left to right. positions: corrupted positions per example, for fef under the full mask; None
for all. batch: examples per process and forward. global_batch: examples of a step over all processes, which then sets
the accumulation; None leaves that as it is. examples: how many generated examples there are, gone through again,
corrupted anew, where the steps take more; None is a new one every time. repeats: how many times in a row each batch of
generated examples comes, corrupted anew. shots: whether suites with solved problems before each have them here. blocks:
for objective llada, share of the batches that are corrupted as decoding in blocks meets them.
"""

from __future__ import annotations

import json
import math
from typing import Any

from harness.errors import UserError
from harness.suites.registry import GENERATED

MASKS = ("full", "two-stream")  # Algorithm 1's row per position; all positions from an anchor on in one row

COMMON: dict[str, Any] = {
    "init": None,
    "data": None,
    "examples": None,
    "repeats": 1,
    "shots": True,
    "blocks": 0.0,
    "global_batch": None,
    "steps": None,
    "epochs": 1.0,
    "mask": "full",
    "random_orders": 0.0,
    "positions": None,
    "rows_per_forward": 64,
    "weight_decay": 0.1,
    "adam_beta2": 0.999,
    "loss_weight": "none",
    "mix": None,
    "trainer": {},
    "seed": 0,
}

MIX = {"gsm8k": 3, "math": 2, "humaneval": 2, "mbpp": 1, "lists": 2}  # harder suites more often
# The short suites as often as the long ones, every fourth example with solved ones before it.
LONG_MIX = {
    **{"gsm8k": 3, "math": 2, "humaneval": 2, "mbpp": 2, "lists": 2, "gsm8k-long": 6, "code-long": 4},
    **{f"{suite}-4shot": 1 for suite in ("gsm8k", "math", "humaneval", "mbpp", "gsm8k-long", "code-long")},
}
# Fine-tuning nano, FeF-DLLM's target: the last stage, Algorithm 1 as it stands.
NANO: dict[str, Any] = COMMON | {
    "init": "nano",
    "batch": 16,
    "accumulation": 1,
    "steps": 300,
    "lr": 1e-4,
    "warmup": 50,
    "decay_fraction": 0.98,
    "min_lr_ratio": 0.1,
    "mix": MIX,
}

# The last stage for long problems, of `nano-long` and of its control.
LONG: dict[str, Any] = NANO | {
    "batch": 16,
    "steps": 6000,
    "lr": 6e-4,
    "warmup": 100,
    "decay_fraction": 0.96,
    "min_lr_ratio": 0.05,
    "mix": LONG_MIX,
}

PRESETS: dict[str, dict[str, Any]] = {
    # The paper's appendix: 8 GPUs, global batch 16, one epoch.
    "paper": COMMON
    | {
        "batch": 1,
        "accumulation": 2,
        "rows_per_forward": 1,
        "lr": 1e-5,
        "warmup": 50,
        "decay_fraction": 0.1,
        "min_lr_ratio": 0.1,
    },
    "nano": NANO,
    # The first stage. Nano has not seen this mask, so more examples at a higher rate.
    "nano-two-stream": NANO
    | {
        "mask": "two-stream",
        "accumulation": 2,
        "steps": 3000,
        "lr": 5e-4,
        "warmup": 100,
        "decay_fraction": 0.96,
        "min_lr_ratio": 0.05,
    },
    # From nano-long: the same problems, a third of them in random orders.
    "nano-long-two-stream": LONG
    | {
        "mask": "two-stream",
        "random_orders": 0.35,
        "accumulation": 1,
    },
    # The control's first stage: as many supervised tokens, and the same examples, each of them twice.
    "nano-control": NANO
    | {
        "batch": 32,
        "examples": 96_000,
        "steps": 6000,
        "lr": 5e-4,
        "warmup": 100,
        "decay_fraction": 0.96,
    },
    # The control of nano-long-two-stream: its examples, each under two corruptions, one as decoding in blocks meets it.
    # Problems come without solved ones before them, so that none of the training goes to suites that are not compared.
    "nano-long-control": LONG
    | {
        "accumulation": 2,
        "repeats": 2,
        "shots": False,
        "blocks": 0.5,
    },
    # Nano on problems that are as long as real ones, and on the short ones, with and without solved ones before them.
    "nano-long": NANO
    | {
        "batch": 16,
        "accumulation": 2,
        "steps": 5000,
        "lr": 1e-3,
        "warmup": 100,
        "decay_fraction": 0.9,
        "min_lr_ratio": 0.02,
        "adam_beta2": 0.98,
        "loss_weight": "1/t",
        "mix": LONG_MIX,
    },
    # Nano itself, from random weights.
    "nano-base": COMMON
    | {
        "hidden_size": 192,
        "layers": 5,
        "heads": 6,
        "mlp_size": 512,
        "max_length": 4096,
        "batch": 32,
        "accumulation": 2,
        "steps": 7000,
        "lr": 1.5e-3,
        "warmup": 200,
        "decay_fraction": 0.3,
        "min_lr_ratio": 0.02,
        "adam_beta2": 0.98,
        "loss_weight": "1/t",
        "mix": MIX,
    },
}


def configuration(asked: dict[str, Any]) -> dict[str, Any]:
    """The preset a command line names, with what it asks for beyond it.

    Raises UserError for values that cannot be used.
    """
    values = PRESETS[asked["preset"]] | overrides(asked)
    if values["random_orders"] and values["mask"] != "two-stream":
        raise UserError(f"--random-orders {values['random_orders']} needs --mask two-stream, not {values['mask']}")
    if values["blocks"] and asked["objective"] != "llada":
        raise UserError(f"preset {asked['preset']} corrupts in blocks, for objective llada; not {asked['objective']}")
    if values["mask"] == "two-stream":
        if asked["objective"] != "fef":
            raise UserError(f"--mask two-stream needs objective fef, not {asked['objective']}; use --mask full")
        if asked["positions"] is not None:
            raise UserError(
                f"--positions {asked['positions']} needs --mask full; with two-stream, one row trains all positions "
                "from an anchor on: leave it out"
            )
        values["positions"] = None
    return values


def overrides(asked: dict[str, Any]) -> dict[str, Any]:
    """What a command line asked for beyond its preset, checked. Raises UserError for values that cannot be used."""
    values = {name: asked[name] for name in COMMON | PRESETS["paper"] if asked.get(name) is not None}
    if "positions" in values:
        text = values["positions"]
        if text != "all" and not (text.isdigit() and int(text) > 0):
            raise UserError(f"--positions {text} must be `all` or a number of at least 1")
        values["positions"] = None if text == "all" else int(text)
    for name in ("rows_per_forward", "examples", "steps", "batch", "global_batch", "accumulation", "epochs", "lr"):
        if name in values and not values[name] > 0:
            raise UserError(f"--{name.replace('_', '-')} {values[name]} must be positive")
    for name in ("epochs", "lr"):
        if math.isinf(values.get(name, 0)):
            raise UserError(f"--{name} {values[name]} must be finite")
    for name in ("decay_fraction", "random_orders"):
        if not 0 <= values.get(name, 0) <= 1:
            raise UserError(f"--{name.replace('_', '-')} {values[name]} must lie between 0 and 1")
    if values.get("warmup", 0) < 0:
        raise UserError(f"--warmup {values['warmup']} must not be negative")
    for name in ("mix", "trainer"):
        if not isinstance(values.get(name, {}), dict):
            raise UserError(f"--{name} must be a JSON object, not {values[name]!r}")
    if "global_batch" in values and "accumulation" in values:
        raise UserError("--global-batch sets the accumulation by the number of processes; leave --accumulation out")
    if "mix" in values:
        check_mix(values["mix"])
    return values


def check_mix(mix: dict[str, Any]) -> None:
    """Raise UserError unless it has numbers of blocks of suites with generated problems, and one of them has some."""
    counts = [type(count) is int and count >= 0 for count in mix.values()]
    if not set(mix) <= set(GENERATED) or not all(counts) or not any(mix.values()):
        raise UserError(
            f"--mix {json.dumps(mix)} must give a whole number of blocks, not all 0, "
            f"for suites of {', '.join(GENERATED)}"
        )

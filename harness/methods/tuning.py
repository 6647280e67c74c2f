"""Settings that every decoder is tuned over, which of them are tried, and files of those that were chosen."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harness.elements import format_call
from harness.errors import UserError, explained
from harness.methods.presets import Preset

GOALS = ("fast", "accurate")
TUNED = "-tuned-"  # between decoder and goal in a method's name
BLOCKS = (8, 16, 32, 64, None)  # None: one block, the whole response
UNMASKING: dict[str, tuple[Any, ...]] = {"block_length": BLOCKS, "cache": ("none", "prefix", "dual")}

SPECULATION: dict[str, tuple[Any, ...]] = {
    "threshold": (0.6, 0.7, 0.85, 0.95),
    "min_span": (1, 2, 4),
    "min_expected": (0.0, 1.0, 2.0),
}


@dataclass(frozen=True)
class Space:
    """What a decoder is tuned over: values by option, the preset they change, the row's name.

    fixed: options of all its settings, unless a value goes before. blocks: for block models alone, or (False) not for
    them.
    """

    preset: str
    label: str
    values: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    blocks: bool | None = None


SPACES = {
    "llada": Space("llada", "LLaDA", UNMASKING),
    "threshold": Space("threshold", "Threshold", {"tau": (0.7, 0.8, 0.9, 0.95, 0.99), **UNMASKING}),
    "factor": Space("factor", "Factor", {"f": (0.1, 0.25, 0.5, 1.0, 2.0), **UNMASKING}),
    "entropy": Space("entropy", "Entropy", {"gamma": (0.01, 0.03, 0.1, 0.3, 1.0), **UNMASKING}),
    "klass": Space(
        "klass", "KLASS", {"conf_threshold": (0.6, 0.8, 0.9, 0.95), "kl_threshold": (0.005, 0.01, 0.05), **UNMASKING}
    ),
    "wino": Space(
        "wino",
        "WINO",
        {"threshold": (0.5, 0.6, 0.7, 0.8), "threshold_back": (0.8, 0.9, 0.95), **UNMASKING},
        blocks=False,
    ),
    "editing": Space(
        "block",
        "Editing",
        {"threshold": (0.5, 0.7, 0.8, 0.9, 0.95), "editing_threshold": (0.5, 0.7, 0.9, 0.95)},
        {"threshold": 0.7, "editing_threshold": 0.5},  # LLaDA2.1's defaults
        blocks=True,
    ),
    "s2d2": Space("s2d2", "S2D2", SPECULATION, blocks=True),
    "linear": Space("s2d2", "Linear speculation", SPECULATION, {"acceptance": "match"}, blocks=True),
    "fef": Space(
        "fef-two-stream",
        "FeF-DLLM two-stream",
        {
            "steps": (1, 2),
            "anchor": (None, 8, 16, 32),
            "refresh_below": (None, 0.5, 0.7, 0.9),
            "remask_below": (None, 0.7, 0.9),
            "window": (8, 16, 32),
        },
    ),
    "fef-literal": Space(
        "fef-2",
        "FeF-DLLM",
        {
            "steps": (1, 2),
            "window": (4, 8, 16),
            "skip_root_row": (False, True),
            "reuse_drafts": (False, True),
            "adaptive_window": (False, True),
        },
        blocks=True,
    ),
}


def decoders_for(in_blocks: bool) -> list[str]:
    """The decoders that are tuned on a block model, or on one that attends over the whole sequence."""
    return [name for name, space in SPACES.items() if space.blocks in (None, in_blocks)]


def settings(decoder: str, gen_length: int, budget: int, seed: int, in_blocks: bool = False) -> list[str]:
    """At most `budget` settings of a decoder for responses of gen_length tokens, as elements of --methods.

    The preset comes first; others are drawn without repetition among those whose blocks divide the response. in_blocks:
    for a block model. Raises UserError for a decoder without a space.
    """
    if decoder not in SPACES:
        raise UserError(f"nothing to tune of {decoder}; valid: {', '.join(SPACES)}")
    space = SPACES[decoder]
    values = {name: each for name, each in space.values.items() if not (in_blocks and name in UNMASKING)}
    if "block_length" in values:
        blocks = [length for length in BLOCKS if length is not None and length < gen_length]
        values["block_length"] = (*(length for length in blocks if gen_length % length == 0), gen_length)
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    combinations = [each for each in combinations if each != space.fixed]
    rng = Random(f"settings {decoder} {gen_length} {seed}")
    drawn = rng.sample(combinations, min(budget - 1, len(combinations))) if values else []
    return [format_call(space.preset, {**space.fixed, **chosen}) for chosen in ({}, *drawn)]


def with_role(element: str, role: str) -> str:
    """An element of `settings` whose method decodes with the checkpoint of a role."""
    return f"{element[:-1]},role={role})" if element.endswith(")") else f"{element}(role={role})"


class Tuned(msgspec.Struct):
    """A method of a file that `choice_of` made."""

    label: str
    method: str
    role: str
    suites: dict[str, dict[str, Any]]


class ChoiceFile(msgspec.Struct):
    """A file that harness/tune.py made."""

    methods: dict[str, Tuned]


def read_choice(path: str) -> dict[str, Preset]:
    """The methods of a file that harness/tune.py made. Raises UserError if it is none."""
    with explained(
        f"{path} is no choice.json of harness/tune.py",
        OSError,
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
    ):
        choice = msgspec.json.decode(Path(path).read_bytes(), type=ChoiceFile)
    return {
        name: Preset(each.label, each.method, role=each.role, suites=each.suites, tuned=True)
        for name, each in choice.methods.items()
    }

"""Recipes of trainings: a struct with a field for every value. Presets are in recipes.toml, beside
nano's weights, and options of the command override them."""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

import model_wrappers
from harness.errors import UserError, explained
from harness.suites.registry import GENERATED
from model_wrappers.options import meant

JSON = ("mix", "trainer")  # options whose value is a JSON object
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
    """All values of a training; a field with a description is an option of the command.

    Attributes:
        size: of a new model, where there is no `init`.
        blocks: share of batches corrupted as decoding in blocks meets them (objective llada).
        repeats, shots: see `NanoExamples`.
        min_lr_ratio: the last learning rate over `lr`.
    """

    init: Annotated[str | None, Meta(description="folder or hub id of the model to start from")] = (
        None
    )
    size: Size | None = None
    data: Annotated[
        str | None,
        Meta(
            description=(
                "JSON lines of prompt and response, or GSM8K's train file (default: nano's"
                " problems)"
            )
        ),
    ] = None
    mask: Annotated[
        Literal["full", "two-stream", "linear"],
        Meta(
            description=(
                "of objective fef: a row per position (full, the default), or all from a random"
                " anchor on in one (two-stream), or, in blocks, all as linear speculation verifies"
                " them (linear)"
            )
        ),
    ] = "full"
    positions: Annotated[
        Literal["all"] | Count[int],
        Meta(
            description=(
                "corrupted positions trained per example: a number, or `all` (objective fef, mask"
                " full)"
            )
        ),
    ] = "all"
    rows_per_forward: Annotated[
        Count[int], Meta(description="most position-conditioned rows in one forward and backward")
    ] = 64
    random_orders: Annotated[
        Share, Meta(description="share of the examples in a random order, with --mask two-stream")
    ] = 0.0
    blocks: Share = 0.0
    block_length: Annotated[
        Count[int] | None,
        Meta(description="train a model that attends in blocks of this many tokens"),
    ] = None
    prefixes: Annotated[
        Share,
        Meta(
            description=(
                "share of those blocks with a clean prefix and masks after it (objective fef)"
            )
        ),
    ] = 0.0
    first_weight: Annotated[Rate, Meta(description="weight of the first mask in such a block")] = (
        1.0
    )
    steps: Annotated[
        Count[int] | None,
        Meta(description="optimizer steps (default: the preset's, or its epochs of --data)"),
    ] = None
    epochs: Annotated[Rate, Meta(description="times that --data is gone through")] = 1.0
    examples: Annotated[
        Count[int] | None,
        Meta(
            description=(
                "how many generated examples there are, repeated where the steps take more"
                " (default: all)"
            )
        ),
    ] = None
    repeats: int = 1
    shots: bool = True
    batch: Annotated[Count[int], Meta(description="examples per process and forward")]
    accumulation: Annotated[Count[int], Meta(description="forwards per process in a step")] = 1
    global_batch: Annotated[
        Count[int] | None,
        Meta(
            description=(
                "examples of a step over all processes, whatever their number; sets the"
                " accumulation"
            )
        ),
    ] = None
    lr: Annotated[Rate, Meta(description="learning rate")]
    warmup: Annotated[int, Meta(ge=0, description="steps in which lr grows")]
    decay_fraction: Annotated[
        Share, Meta(description="share of the steps, at their end, in which lr decays")
    ]
    min_lr_ratio: float
    weight_decay: float = 0.1
    adam_beta2: float = 0.999
    loss_weight: Annotated[Literal["1/t", "none"], Meta(description="of objective llada")] = "none"
    seed: Annotated[int, Meta(description="of examples, their corruption and new weights")] = 0
    mix: Annotated[
        dict[str, Annotated[int, Meta(ge=0)]] | None,
        Meta(description="JSON object: blocks of generated examples per suite in a round"),
    ] = None
    trainer: Annotated[
        dict[str, Any], Meta(description="JSON object: further TrainingArguments")
    ] = {}


FILE = Path(model_wrappers.__file__).with_name("nano") / "recipes.toml"


def _presets() -> dict[str, Recipe]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    mixes = tables.pop("mixes")

    # A preset is the changes to the one that its `from` names, which may have a `from` itself.
    def values(name: str) -> dict[str, Any]:
        changed = dict(tables[name])
        return (values(changed.pop("from")) if "from" in changed else {}) | changed

    presets = {name: values(name) for name in tables}
    for preset in presets.values():
        if "mix" in preset:
            preset["mix"] = mixes[preset["mix"]]
    return msgspec.convert(presets, dict[str, Recipe])


PRESETS = _presets()


def recipe(objective: str, preset: str, given: dict[str, Any]) -> Recipe:
    """A preset with the options of a command line.

    Args:
        objective: llada, fef or ar; what does not belong to it is refused.
        preset: a name in PRESETS.
        given: values of options by name, or their texts.

    Raises:
        UserError: an unknown preset, or options that cannot be used, alone or together.
    """
    if preset not in PRESETS:
        raise UserError(f"--preset {preset} is not known{meant(preset, PRESETS)}")
    # A preset's steps must not override the epochs that were asked for.
    values = (
        structs.asdict(PRESETS[preset]) | ({"steps": None} if "epochs" in given else {}) | given
    )
    with explained("--mix and --trainer must be JSON objects", ValueError):
        values |= {
            name: json.loads(given[name]) for name in JSON if isinstance(given.get(name), str)
        }
    try:
        # not strict: the texts of a command line become numbers
        made = msgspec.convert(values, Recipe, strict=False)
    except msgspec.ValidationError as error:
        # msgspec says where a value is wrong as "$.mix[...]", a user knows it as --mix.
        message, _, path = str(error).partition(" - at `$.")
        name = path.strip("`").partition(".")[0].partition("[")[0]
        raise UserError(
            f"--{name.replace('_', '-')} {json.dumps(given.get(name))}: {message}"
        ) from error
    _check_given(made, given)
    _check_blocks(made, objective, preset)
    _check_objective(made, objective, given)
    _check_mix(made)
    return made


def _check_given(made: Recipe, given: Mapping[str, Any]) -> None:
    """Options that say the same thing twice are refused."""
    if "global_batch" in given and "accumulation" in given:
        raise UserError(
            "--global-batch sets the accumulation by the number of processes; leave"
            " --accumulation out"
        )
    if "epochs" in given and ("steps" in given or made.data is None):
        raise UserError(
            f"--epochs {made.epochs} are of --data FILE, and say the steps; leave --epochs or"
            " --steps out"
        )


def _check_blocks(made: Recipe, objective: str, preset: str) -> None:
    """What belongs to block models needs blocks, and an objective that has them."""
    if made.blocks and objective != "llada":
        raise UserError(f"preset {preset} corrupts in blocks, for objective llada; not {objective}")
    if made.block_length is None:
        if made.prefixes or made.first_weight != 1:
            raise UserError("--prefixes and --first-weight are of blocks: add --block-length")
        if made.mask == "linear":
            raise UserError("--mask linear is of blocks: add --block-length")
    elif objective == "ar":
        raise UserError(
            f"--block-length {made.block_length} is of diffusion models, and objective ar trains"
            " another"
        )


def _check_objective(made: Recipe, objective: str, given: Mapping[str, Any]) -> None:
    """What belongs to FeF-DLLM's targets, or to two streams, is refused elsewhere."""
    two_stream = made.mask == "two-stream"
    if made.random_orders and (made.block_length is not None or not two_stream):
        raise UserError(
            f"--random-orders {made.random_orders} needs --mask two-stream, without --block-length"
        )
    if made.prefixes and objective != "fef":
        raise UserError(
            f"--prefixes {made.prefixes} is what FeF-DLLM's targets see, for objective fef; not"
            f" {objective}"
        )
    if made.mask != "full" and objective != "fef":
        raise UserError(f"--mask {made.mask} needs objective fef, not {objective}; use --mask full")
    if two_stream and "positions" in given:
        raise UserError(
            f"--positions {made.positions} needs --mask full; two-stream trains all positions from"
            " an anchor on"
        )


def _check_mix(made: Recipe) -> None:
    """A mixture gives every suite that it names a whole share, and one of them more than none."""
    if made.mix is None:
        return
    if not set(made.mix) <= set(GENERATED) or not any(made.mix.values()):
        raise UserError(
            f"--mix {json.dumps(made.mix)} must give a whole number of blocks, not all 0, for"
            f" suites of {', '.join(GENERATED)}"
        )

"""What a method decodes with on a suite: lengths and options, merged from a list of layers.

Later layers win:

1. the suite's defaults for the model,
2. what the decoder was published with on the model's family, or by the model's authors,
3. the preset's options and lengths,
4. those that the preset has for the suite,
5. the run's, for all methods alike,
6. those given with the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from harness.errors import UserError
from harness.records.schema import Setting
from harness.suites.published import LENGTHS, settings_of_decoder
from model_wrappers.decoders import Decoder

if TYPE_CHECKING:
    from harness.methods.presets import Preset
    from model_wrappers.backbones.blocks import Blocks

Values = Mapping[str, Any]  # lengths and options by name


def split_lengths(values: Values, where: str) -> tuple[dict[str, int], dict[str, Any]]:
    """Lengths and options among these values; block_length=None is the whole response.

    Args:
        where: what has them, for the message.

    Raises:
        UserError: a length that is no whole number of at least 1.
    """
    lengths = {}
    options = {}
    for name, value in values.items():
        if name not in LENGTHS:
            options[name] = value
            continue
        whole_response = name == "block_length" and value is None
        if not whole_response and (type(value) is not int or value < 1):
            raise UserError(f"{where}: {name}={value!r} must be a whole number of at least 1")
        lengths[name] = value
    return lengths, options


def setting_of(
    preset: Preset,
    suite: str,
    defaults: Values,
    common: Values | None = None,
    family: str = "",
    blocks: Blocks | None = None,
    model: str = "",
) -> Setting:
    """The setting of a method on a suite, checked.

    Args:
        preset: the method, with the options that it was given.
        suite: its name.
        defaults: the suite's `gen_length`, and perhaps its `block_length` and `options`.
        common: lengths and options of the run, for all methods that take them.
        family: the model's `model_type`, "" where none of its settings were published.
        blocks: how a block model attends; its block length replaces that of suites and families.
        model: whose authors' options the decoder is to have, if it is theirs.

    Raises:
        UserError: lengths, steps or a cache that do not fit each other or the model.
        ValueError: an option that the decoder refuses.
    """
    # Here, for it imports torch, which --list does without.
    from model_wrappers.api import check_blocks, check_lengths, check_options

    decoder = preset.decoder
    where = f"{preset.row} on {suite}"
    if preset.tuned_on and suite not in preset.tuned_on:
        tuned = ", ".join(preset.suites)
        raise UserError(f"{where}: not tuned for {suite}, but for {tuned}")
    check_blocks(decoder, blocks)
    if blocks is not None and blocks.causal:
        blocks = None

    published, source = settings_of_decoder(decoder.name, family, suite, model)
    suite_options = _of_decoder(defaults.get("options", {}), decoder)
    chosen = {**published, **preset.options, **preset.lengths, **preset.suites.get(suite, {})}
    given = {**_of_decoder(common or {}, decoder), **preset.given}
    options = {**suite_options, **chosen, **given}

    gen_length = options.pop("gen_length", defaults["gen_length"])
    options.pop("block_length", None)
    if blocks is None:
        block_length = _block_length(decoder, gen_length, defaults, chosen, given)
    else:
        block_length = given.get("block_length", blocks.length) or gen_length
        if options.get("cache", "none") != "none":
            raise UserError(
                f"{where}: a block model keeps finished blocks, exactly; it takes no cache"
            )
    check_lengths(gen_length, block_length)
    if preset.tokens_per_step is not None and "steps" not in options:
        options["steps"] = _steps(preset.tokens_per_step, gen_length, block_length, where)
    if getattr(decoder.options(), "stop_at_eos", False):
        # A default that not all rows share is part of their records.
        options.setdefault("stop_at_eos", True)
    check_options(decoder, options)

    setting = Setting(gen_length=gen_length, block_length=block_length, options=options)
    whole = {"gen_length": gen_length, "block_length": block_length, **options}
    if source and published.items() <= whole.items():
        setting.published = source
    if blocks is not None and blocks.length != block_length:
        setting.attends = blocks.length
    setting.tuned_on = preset.tuned_on.get(suite) or UNSET
    return setting


def _steps(per_step: int, gen_length: int, block_length: int, where: str) -> int:
    """The steps of a response at so many tokens a step.

    Raises:
        UserError: they do not fill a block.
    """
    if gen_length % (per_step * (gen_length // block_length)):
        raise UserError(f"{where}: {per_step} tokens a step do not divide blocks of {block_length}")
    return gen_length // per_step


def _of_decoder(values: Values, decoder: Decoder) -> dict[str, Any]:
    """Lengths, and the options that a decoder takes, without those that are not given."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and (name in LENGTHS or decoder.takes(name))
    }


def _block_length(
    decoder: Decoder, gen_length: int, defaults: Values, chosen: Values, given: Values
) -> int:
    """The block length on a model that attends over the whole sequence.

    One that was given must divide the response; one that is usual is at most the response, and
    that of a suite is for semi-autoregressive decoders alone.
    """
    if "block_length" in given:
        return given["block_length"] or gen_length
    usual = gen_length
    if "block_length" in chosen:
        usual = chosen["block_length"] or gen_length
    elif decoder.semi_autoregressive:
        usual = defaults.get("block_length") or gen_length
    return min(usual, gen_length)

"""What a method decodes with on a suite: later layers win, and lengths fit."""

from dataclasses import replace
from typing import Any

import pytest

from harness.methods.presets import PRESETS
from harness.methods.settings import setting_of

LLADA = PRESETS["llada"]
DEFAULTS: dict[str, Any] = {"gen_length": 16, "block_length": 32, "options": {"cfg_scale": 1.0}}


def test_a_usual_block_length_is_at_most_the_response() -> None:
    assert setting_of(LLADA, "gsm8k", DEFAULTS).block_length == 16


def test_a_block_length_that_is_given_must_fit_the_response() -> None:
    with pytest.raises(ValueError, match="block_length"):
        setting_of(LLADA, "gsm8k", DEFAULTS, {"block_length": 32})


def test_later_layers_win() -> None:
    suite, run, line = (
        setting_of(preset, "gsm8k", DEFAULTS, common)
        for preset, common in (
            (LLADA, {}),
            (LLADA, {"cfg_scale": 2.0}),
            (replace(LLADA, given={"cfg_scale": 3.0}), {"cfg_scale": 2.0}),
        )
    )
    assert [each.options["cfg_scale"] for each in (suite, run, line)] == [1.0, 2.0, 3.0]

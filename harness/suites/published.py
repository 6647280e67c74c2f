"""A suite's lengths and options for a model: what the model's numbers were published with, else the suite's own."""

from __future__ import annotations

from typing import Any

from harness.suites.registry import generation_settings
from harness.suites.spec import Suite

SAME = {"math500": "math"}  # suites with the settings of another


def settings_for(suite: Suite, model: str, small: bool) -> dict[str, Any]:
    """Lengths and decoder options of a suite for a model: gen_length, block_length and options.

    model: nano, a folder or a hub id; its settings go by the last part of that name. small: lengths for a small model
    or generated problems, whatever the model.
    """
    usual = generation_settings(suite, small)
    if small:
        return usual
    from model_wrappers.backbones.registry import published_settings  # torch: not for --list

    found = published_settings(model, SAME.get(suite.name, suite.name))
    return usual if found is None else found[0]

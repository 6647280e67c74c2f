"""What tests register must not stay: others would find it, in whichever order they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import plugins
from harness.methods.presets import PRESETS
from harness.suites.registry import SUITES
from model_wrappers import METHODS
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.decoders import PLUGIN_PRESETS


@contextmanager
def forgotten() -> Iterator[None]:
    """What is registered meanwhile is forgotten afterwards."""
    kept: list[tuple[dict[Any, Any], dict[Any, Any]]] = [
        (each, dict(each))
        for each in (METHODS, PRESETS, PLUGIN_PRESETS, SUITES, FAMILIES, plugins._loaded)
    ]
    try:
        yield
    finally:
        for each, before in kept:
            each.clear()
            each.update(before)

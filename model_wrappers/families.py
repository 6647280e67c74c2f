"""Architectures of your own: what loads their checkpoints is entered beside the built-in ones."""

from __future__ import annotations

from typing import Any

from model_wrappers.backbones.model import Family
from model_wrappers.backbones.registry import FAMILIES


def register_family(family: Family) -> Family:
    """Have `load_backbone` load checkpoints of this family's model_type.

    Raises ValueError for what is no Family, and for a model_type that is taken.
    """
    given: Any = family
    if not isinstance(given, Family):
        raise ValueError(
            f"register_family takes a model_wrappers.backbones.model.Family, not {type(given).__name__} {given!r}"
        )
    if family.model_type in FAMILIES:
        raise ValueError(f"a family of model_type {family.model_type!r} is there already")
    FAMILIES[family.model_type] = family
    return family

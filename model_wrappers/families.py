"""Architectures of your own: what loads their checkpoints is entered beside the built-in ones."""

from __future__ import annotations

from typing import Any

from model_wrappers.backbones.model import Family
from model_wrappers.backbones.registry import FAMILIES


def register_family(family: Family) -> Family:
    """Have `load_backbone` load checkpoints of this family's model_type.

    Raises ValueError for what is no Family, a model without `infer`, and a model_type or an architecture that is taken.
    """
    given: Any = family
    if not isinstance(given, Family):
        raise ValueError(
            f"register_family takes a model_wrappers.backbones.model.Family, not {type(given).__name__} {given!r}"
        )
    if not callable(getattr(family.model, "infer", None)):
        raise ValueError(
            f"the model of the family {family.model_type!r} has no `infer`; derive {family.model.__name__} from "
            "model_wrappers.backbones.heads.HeadAtPositions as well, or write one"
        )
    for known in FAMILIES.values():
        types = {known.model_type, *known.also} & {family.model_type, *family.also}
        if types:
            raise ValueError(f"a family of model_type {min(types)!r} is there already")
        if shared := set(known.architectures) & set(family.architectures):
            raise ValueError(f"a family of the architecture {min(shared)!r} is there already")
    FAMILIES[family.model_type] = family
    return family

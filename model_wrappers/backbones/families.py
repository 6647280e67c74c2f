"""The known families of checkpoints: those of families.toml, and registered ones."""

import tomllib
from pathlib import Path
from typing import Any

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.model import Family


def _family(model_type: str, fields: dict[str, Any]) -> Family:
    """A family from its entry in families.toml, where mask = "" stands for no mask."""
    blocks = {pattern: Blocks(**entry) for pattern, entry in fields.pop("blocks", {}).items()}
    mask = fields.pop("mask", "<|mask|>") or None
    attention = fields.pop("attention", {"sdpa": "sdpa"})
    return Family(model_type, attention=attention, mask=mask, blocks=blocks, **fields)


ENTRIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FAMILIES = {model_type: _family(model_type, fields) for model_type, fields in ENTRIES.items()}

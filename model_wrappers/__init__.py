"""FeF-DLLM and its baselines as decoders for diffusion language models.

from model_wrappers import load_backbone, decode, METHODS

backbone = load_backbone("nano")
out = decode(backbone, prompt_ids, method="fef", gen_length=64)
out.tokens, out.trace
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model_wrappers.api import decode
    from model_wrappers.backbones.model import Backbone
    from model_wrappers.backbones.registry import load_backbone, register_family
    from model_wrappers.decoders import METHODS, register
    from model_wrappers.trace import Decoded, Trace, Window

__all__ = [
    "METHODS",
    "Backbone",
    "Decoded",
    "Trace",
    "Window",
    "decode",
    "load_backbone",
    "register",
    "register_family",
]
# Imported at the first use: importing torch and transformers takes seconds, for which a command's
# --help should not wait.
_NAMES = {
    "api": ("decode",),
    "backbones.model": ("Backbone",),
    "backbones.registry": ("load_backbone", "register_family"),
    "decoders": ("METHODS", "register"),
    "trace": ("Decoded", "Trace", "Window"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

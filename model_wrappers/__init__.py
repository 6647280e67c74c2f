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
# Imported when asked for: torch and transformers take seconds, which a command's --help should not.
_HOME = {
    "METHODS": "model_wrappers.decoders",
    "Backbone": "model_wrappers.backbones.model",
    "Decoded": "model_wrappers.trace",
    "Trace": "model_wrappers.trace",
    "Window": "model_wrappers.trace",
    "decode": "model_wrappers.api",
    "load_backbone": "model_wrappers.backbones.registry",
    "register": "model_wrappers.decoders",
    "register_family": "model_wrappers.backbones.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)

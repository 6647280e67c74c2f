"""FeF-DLLM and its baselines as decoders for diffusion language models.

from model_wrappers import load_backbone, decode, METHODS

backbone = load_backbone("nano")
out = decode(backbone, prompt_ids, method="fef", gen_length=64)
out.tokens, out.trace
"""

from model_wrappers.api import decode
from model_wrappers.backbone import Backbone, load_backbone
from model_wrappers.decoders import METHODS
from model_wrappers.trace import Decoded, Trace, Window

__all__ = ["METHODS", "Backbone", "Decoded", "Trace", "Window", "decode", "load_backbone"]

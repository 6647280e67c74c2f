"""Autoregressive language models on transformers' Qwen2, Qwen3 and Llama: what diffusion models are measured against.

Checkpoints are as transformers has them (Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-8B, meta-llama/Llama-3.1-8B-Instruct).
Logits at position i predict token i + 1, and the decoder `ar` reads them so. Causal masks are given at every call.
"""

from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from model_wrappers.backbones.heads import HeadAtPositions
from model_wrappers.backbones.llada import LLaDAForMaskedLM
from model_wrappers.backbones.model import Family


class Causal(HeadAtPositions):
    """Layers that see all tokens before their own. Raises ValueError for a config with sliding windows."""

    def __init__(self, config: Any) -> None:
        if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise ValueError("its config has layers of sliding windows, which this code does not compute")
        super().__init__(config)


class CausalQwen2(Causal, Qwen2ForCausalLM):
    """Qwen2 and Qwen2.5."""


class CausalQwen3(Causal, Qwen3ForCausalLM):
    """Qwen3, but for its mixtures of experts."""


class CausalLlama(Causal, LlamaForCausalLM):
    """Llama 2 and 3."""


def _family(model: Any, end_of_turn: str) -> Family:
    model_type = model.config_class.model_type
    return Family(model_type, model, {"sdpa": "sdpa"}, end_of_turn=end_of_turn, mask=None, causal=True)


LLAMA = _family(CausalLlama, "<|eot_id|>")
FAMILIES = (_family(CausalQwen2, "<|im_end|>"), _family(CausalQwen3, "<|im_end|>"), LLAMA)
OF_LLADA = {"model_type", "mask_token_id", "is_causal", "block_size", "block_origin", "architectures"}


def of_llada(model: LLaDAForMaskedLM) -> CausalLlama:
    """A causal Llama with the weights of a LLaDA, to be trained."""
    fields = {name: value for name, value in model.config.to_dict().items() if name not in OF_LLADA}
    made = CausalLlama(LlamaConfig(**fields))
    made.load_state_dict(model.state_dict())
    return made

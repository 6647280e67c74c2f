"""Qwen3 as a masked diffusion model: dLLM's Tiny-A2D checkpoints, on transformers' Qwen3 with bidirectional attention.

Reads checkpoints of `model_type` "a2d-qwen3" (dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1), which are Qwen3's otherwise.
Logits at position i predict token i: dLLM trains and samples these without a shift. Its block diffusion checkpoints
have the same `model_type` and "bd3lm" in their name; they attend in blocks of 32 that end with the prompt. No remote
code is ever run.

A turn ends at <|im_end|>, which the config names as EOS; what fills the rest of a response is the padding of dLLM's
fine-tuning, <|endoftext|>. The mask <|mask|> is an added token of the tokenizer, and the config does not name it.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen3Config, Qwen3ForCausalLM

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.heads import HeadAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family

OFFICIAL_CHOICES: dict[str, Any] = {"use_sliding_window": False, "rope_scaling": None, "attention_bias": False}


@strict
class MaskedQwen3Config(Bidirectional, Qwen3Config):
    """Qwen3's configuration, read in both directions."""

    model_type = "a2d-qwen3"
    called, choices = "Qwen3", OFFICIAL_CHOICES


class MaskedQwen3(HeadAtPositions, Qwen3ForCausalLM):
    """Qwen3's layers with bidirectional attention; logits at position i predict token i (no shift)."""

    config_class = MaskedQwen3Config


FAMILY = Family(
    model_type=MaskedQwen3Config.model_type,
    model=MaskedQwen3,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    fill="<|endoftext|>",
    published_ids={"<|mask|>": 151669, "<|im_end|>": 151645, "<|endoftext|>": 151643},
    also=("andi-qwen3",),
    blocks={"bd3lm": Blocks(32, "response")},
)

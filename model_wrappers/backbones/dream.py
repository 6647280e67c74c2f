"""The Dream architecture on transformers' Qwen2: bidirectional attention, logits shifted by one.

Reads checkpoints in the official format, which is Qwen2's with `model_type` "Dream" (Dream-org/Dream-v0-Instruct-7B;
DiffuCoder is of the same architecture). The official sampler reads the logits at i - 1 as the prediction of token i,
and so does `Backbone` where `reads_at` is -1. No remote code is ever run.

A response ends at <|im_end|>; what fills the rest is <|endoftext|>, which the config names as EOS and as padding.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from model_wrappers.backbones.heads import HeadAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family

# What the Qwen2 code computes as Dream's own does. Dream's block diffusion descendants name a block size.
OFFICIAL_CHOICES: dict[str, Any] = {
    "use_sliding_window": False,
    "use_mrope": False,
    "rope_scaling": None,
    "attention_bias": True,
    "block_size": None,
}


@strict
class DreamConfig(Bidirectional, Qwen2Config):
    """Qwen2's configuration with Dream's defaults, read in both directions."""

    model_type = "Dream"
    called, choices = "Dream", OFFICIAL_CHOICES


class DreamForMaskedLM(HeadAtPositions, Qwen2ForCausalLM):
    """Qwen2's layers with bidirectional attention; logits at position i predict token i + 1."""

    config_class = DreamConfig


FAMILY = Family(
    model_type=DreamConfig.model_type,
    model=DreamForMaskedLM,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    published_ids={"<|mask|>": 151666, "<|im_end|>": 151645},
    reads_at=-1,
    also=("dream",),
    tokenizer=Qwen2Tokenizer,  # the folder has its vocabulary and merges alone
)

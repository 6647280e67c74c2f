"""Qwen3 as a masked diffusion model: dLLM's A2D checkpoints, SDAR and TraDo. No remote code is ever run.

Logits at position i predict token i, without a shift. A2D: `model_type` "a2d-qwen3"
(dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1); its block diffusion checkpoints have the same type and "bd3lm" in their name,
and attend in blocks of 32 that end with the prompt. A turn ends at <|im_end|>, which the config names as EOS; what
fills the rest of a response is the padding of dLLM's fine-tuning, <|endoftext|>. The mask <|mask|> is an added token
of the tokenizer, and the config does not name it.

SDAR and TraDo (JetAstra, arXiv 2510.06303; Gen-Verse): `model_type` "sdar", or "sdar_moe" with Qwen3's mixture of
experts. A token sees all earlier blocks and its own; blocks count from the beginning of the sequence, so that the
prompt's last, unfinished block is denoised with the response. Checkpoints have weights by Qwen3's names, and one block
length each, 4 in those of no other name (`block_size` of the config, or -b8, -b16 ... in the name). The mask is the
tokenizer's <|MASK|>.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.heads import ExpertsAtPositions, HeadAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family

QWEN3_CHOICES: dict[str, Any] = {"use_sliding_window": False, "rope_scaling": None, "attention_bias": False}


@strict
class MaskedQwen3Config(Bidirectional, Qwen3Config):
    """Qwen3's configuration, read in both directions."""

    model_type = "a2d-qwen3"
    called, choices = "Qwen3", QWEN3_CHOICES


class MaskedQwen3(HeadAtPositions, Qwen3ForCausalLM):
    """Qwen3's layers with bidirectional attention; logits at position i predict token i (no shift)."""

    config_class = MaskedQwen3Config


A2D_FAMILY = Family(
    model_type=MaskedQwen3Config.model_type,
    model=MaskedQwen3,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    fill="<|endoftext|>",
    published_ids={"<|mask|>": 151669, "<|im_end|>": 151645, "<|endoftext|>": 151643},
    also=("andi-qwen3",),
    blocks={"bd3lm": Blocks(32, "response")},
)


class SDARConfig(MaskedQwen3Config):
    """Qwen3's configuration, with the length of a block."""

    model_type = "sdar"
    block_size: int | None = None


class SDAR(MaskedQwen3):
    """Qwen3's layers; which tokens see which is said at every call."""

    config_class = SDARConfig


@strict
class SDARMoEConfig(Bidirectional, Qwen3MoeConfig):
    """Qwen3-MoE's configuration, with the length of a block."""

    model_type = "sdar_moe"
    called, choices = "SDAR-MoE", QWEN3_CHOICES
    block_size: int | None = None


class SDARMoE(ExpertsAtPositions, Qwen3MoeForCausalLM):
    """Qwen3-MoE's layers; which tokens see which is said at every call."""

    config_class = SDARMoEConfig


# One tensor an expert in checkpoints, one for all of them here.
register_checkpoint_conversion_mapping("SDARMoE", get_checkpoint_conversion_mapping("qwen3_moe"))
NAMED = {rf"-b{length}(-|$)": Blocks(length) for length in (8, 16, 32, 64)}
SDAR_FAMILY = Family(
    model_type=SDARConfig.model_type,
    model=SDAR,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    mask="<|MASK|>",
    published_ids={"<|MASK|>": 151669, "<|im_end|>": 151645, "<|endoftext|>": 151643},
    blocks={**NAMED, "": Blocks(4)},
)
SDAR_MOE_FAMILY = replace(SDAR_FAMILY, model_type=SDARMoEConfig.model_type, model=SDARMoE)

"""SDAR and TraDo: Qwen3, or its mixture of experts, that attends in blocks (JetAstra, arXiv 2510.06303; Gen-Verse).

A token sees all earlier blocks and its own; blocks count from the beginning of the sequence, so that the prompt's last,
unfinished block is denoised with the response. Logits at position i predict token i. Checkpoints have the `model_type`
"sdar" or "sdar_moe", weights by Qwen3's names, and one block length each, 4 in those of no other name (`block_size` of
the config, or -b8, -b16 ... in the name). The mask is the tokenizer's <|MASK|>. The layers are transformers'; no remote
code is ever run.
"""

from __future__ import annotations

from dataclasses import replace

from huggingface_hub.dataclasses import strict
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.heads import ExpertsAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family
from model_wrappers.backbones.qwen3 import OFFICIAL_CHOICES, MaskedQwen3, MaskedQwen3Config


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
    called, choices = "SDAR-MoE", OFFICIAL_CHOICES
    block_size: int | None = None


class SDARMoE(ExpertsAtPositions, Qwen3MoeForCausalLM):
    """Qwen3-MoE's layers; which tokens see which is said at every call."""

    config_class = SDARMoEConfig


# One tensor an expert in checkpoints, one for all of them here.
register_checkpoint_conversion_mapping("SDARMoE", get_checkpoint_conversion_mapping("qwen3_moe"))
NAMED = {rf"-b{length}(-|$)": Blocks(length) for length in (8, 16, 32, 64)}
FAMILY = Family(
    model_type=SDARConfig.model_type,
    model=SDAR,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    mask="<|MASK|>",
    published_ids={"<|MASK|>": 151669, "<|im_end|>": 151645, "<|endoftext|>": 151643},
    blocks={**NAMED, "": Blocks(4)},
)
MOE = replace(FAMILY, model_type=SDARMoEConfig.model_type, model=SDARMoE)

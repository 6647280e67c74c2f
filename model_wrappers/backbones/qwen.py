"""Models on transformers' Qwen2 and Qwen3. Checkpoints are read in their official format, and
remote code is never run.

Dream (Dream-org/Dream-v0-Instruct-7B, arXiv 2508.15487) attends in both directions, and its logits
at position i - 1 predict token i. So do those of Fast-dLLM v2
(Efficient-Large-Model/Fast_dLLM_v2_7B, _1.5B; arXiv 2509.26328). It attends in blocks of `bd_size`,
32, that count from the beginning of the sequence, and the first token of a block is predicted by
the finished block before it.

dLLM's A2D (dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1) has logits at position i for token i; its
checkpoints with "bd3lm" in their name attend in blocks of 32, and the response begins a new block.
A turn ends at <|im_end|>, the config's EOS; <|endoftext|> fills the rest of a response. SDAR and
TraDo (JetAstra, arXiv 2510.06303; Gen-Verse) count blocks from the beginning of the sequence, so
that the prompt's last, unfinished block is denoised with the response. A checkpoint has one block
length, 4 unless its config (`block_size`) or its name (-b8, -b16, ...) has another one.

Qwen2 and Qwen3 themselves are autoregressive, the models that diffusion models are compared with.
"""

from __future__ import annotations

from huggingface_hub.dataclasses import strict
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)

from model_wrappers.backbones.heads import ExpertsAtPositions, HeadAtPositions
from model_wrappers.backbones.llada import Bidirectional


@strict
class DreamConfig(Bidirectional, Qwen2Config):
    """Qwen2's configuration with Dream's defaults."""

    model_type = "Dream"


class DreamForMaskedLM(HeadAtPositions, Qwen2ForCausalLM):
    """Qwen2's layers with bidirectional attention; logits at position i predict token i + 1."""

    config_class = DreamConfig


class FastDLLMConfig(DreamConfig):
    """Qwen2's configuration, with the length of a block."""

    model_type = "Fast_dLLM_Qwen"
    block_size: int | None = None


class FastDLLM(HeadAtPositions, Qwen2ForCausalLM):
    """Qwen2's layers; every call has a mask for its blocks."""

    config_class = FastDLLMConfig


@strict
class MaskedQwen3Config(Bidirectional, Qwen3Config):
    """Qwen3's configuration, read in both directions."""

    model_type = "a2d-qwen3"


class MaskedQwen3(HeadAtPositions, Qwen3ForCausalLM):
    """Qwen3's layers with bidirectional attention; logits at position i predict token i (no
    shift)."""

    config_class = MaskedQwen3Config


class SDARConfig(MaskedQwen3Config):
    """Qwen3's configuration, with the length of a block."""

    model_type = "sdar"
    block_size: int | None = None


class SDAR(MaskedQwen3):
    """Qwen3's layers; every call has a mask for its blocks."""

    config_class = SDARConfig


@strict
class SDARMoEConfig(Bidirectional, Qwen3MoeConfig):
    """Qwen3-MoE's configuration, with the length of a block."""

    model_type = "sdar_moe"
    block_size: int | None = None


class SDARMoE(ExpertsAtPositions, Qwen3MoeForCausalLM):
    """Qwen3-MoE's layers; every call has a mask for its blocks."""

    config_class = SDARMoEConfig


class CausalQwen2(HeadAtPositions, Qwen2ForCausalLM):
    """Qwen2 and Qwen2.5."""


class CausalQwen3(HeadAtPositions, Qwen3ForCausalLM):
    """Qwen3, without its mixtures of experts."""


# Checkpoints have a tensor for each expert; the model here has one for all.
register_checkpoint_conversion_mapping("SDARMoE", get_checkpoint_conversion_mapping("qwen3_moe"))

"""Dream and Fast-dLLM v2 on transformers' Qwen2: logits at position i - 1 predict token i. No remote code is ever run.

Dream (Dream-org/Dream-v0-Instruct-7B, arXiv 2508.15487) reads the whole sequence in both directions. Fast-dLLM v2
(Efficient-Large-Model/Fast_dLLM_v2_7B, _1.5B; NVlabs, arXiv 2509.26328; `model_type` "Fast_dLLM_Qwen") attends in
blocks of `bd_size`, 32, that count from the beginning of the sequence, so that a block's first token is predicted by
the finished block before it; its mask is the tokenizer's |<MASK>|. Both are read in their official format.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.heads import HeadAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family

# What the Qwen2 code computes as Dream's own does. Dream's block diffusion descendants name a block size.
QWEN2_CHOICES: dict[str, Any] = {
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
    called, choices = "Dream", QWEN2_CHOICES


class DreamForMaskedLM(HeadAtPositions, Qwen2ForCausalLM):
    """Qwen2's layers with bidirectional attention; logits at position i predict token i + 1."""

    config_class = DreamConfig


DREAM_FAMILY = Family(
    model_type=DreamConfig.model_type,
    model=DreamForMaskedLM,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    published_ids={"<|mask|>": 151666, "<|im_end|>": 151645},
    reads_at=-1,
    also=("dream",),
    tokenizer=Qwen2Tokenizer,  # the folder has its vocabulary and merges alone
)


class FastDLLMConfig(DreamConfig):
    """Qwen2's configuration, with the length of a block."""

    model_type = "Fast_dLLM_Qwen"
    block_size: int | None = None

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> FastDLLMConfig:
        """Build from our own dictionary or an official one. Raises ValueError for what this code does not compute."""
        d = dict(config_dict)
        length = d.pop("bd_size", None) or d.pop("block_size", None)
        made: Any = super().from_dict(d, **kwargs)
        (made[0] if isinstance(made, tuple) else made).block_size = length
        return made


class FastDLLM(HeadAtPositions, Qwen2ForCausalLM):
    """Qwen2's layers; which tokens see which is said at every call."""

    config_class = FastDLLMConfig


FAST_DLLM_V2_FAMILY = Family(
    model_type=FastDLLMConfig.model_type,
    model=FastDLLM,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    mask="|<MASK>|",
    published_ids={"|<MASK>|": 151665, "<|im_end|>": 151645},
    reads_at=-1,
    blocks={"": Blocks(32)},
)

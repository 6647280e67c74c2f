"""Fast-dLLM v2 on transformers' Qwen2: attention in blocks, logits shifted by one (NVlabs, arXiv 2509.26328).

Reads checkpoints in the official format (Efficient-Large-Model/Fast_dLLM_v2_7B, _1.5B), which is Qwen2's with
`model_type` "Fast_dLLM_Qwen". Blocks of `bd_size`, 32, count from the beginning of the sequence. Logits at position
i - 1 predict token i, so that a block's first token is predicted by the finished block before it. The mask is the
tokenizer's |<MASK>|. No remote code is ever run.
"""

from __future__ import annotations

from typing import Any

from transformers import Qwen2ForCausalLM

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.dream import DreamConfig
from model_wrappers.backbones.heads import HeadAtPositions
from model_wrappers.backbones.model import Family


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


FAMILY = Family(
    model_type=FastDLLMConfig.model_type,
    model=FastDLLM,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    mask="|<MASK>|",
    published_ids={"|<MASK>|": 151665, "<|im_end|>": 151645},
    reads_at=-1,
    blocks={"": Blocks(32)},
)

"""LLaDA2.0 and 2.1: mixtures of experts that attend in blocks (inclusionAI), on transformers' GLM-4-MoE.

Reads checkpoints in the official format (inclusionAI/LLaDA2.0-mini, -flash, LLaDA2.1-mini, -flash). As in the official
code the router's sigmoid scores choose experts of the best groups with a bias that their weights do not have, a shared
expert sees every token, queries and keys are normed by head, and rotary angles turn a part of each head. Logits are
fp32 whatever the weights are, and those at position i predict token i. Blocks of 32 count from the beginning of the
sequence; the official `generate` takes other lengths. No remote code is ever run.
"""

from __future__ import annotations

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.core_model_loading import Split, WeightConverter, WeightRenaming

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.heads import ExpertsAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family

OFFICIAL_FIELDS = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}
# What the GLM-4-MoE code computes; an official config that asks for anything else is refused.
OFFICIAL_CHOICES: dict[str, Any] = {
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_bias": False,
    "norm_head": False,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "norm_topk_prob": True,
    "use_sliding_window": False,
    "rope_scaling": None,
}


@strict
class LLaDA2MoEConfig(Bidirectional, Glm4MoeConfig):
    """GLM-4-MoE's configuration; `from_dict` also reads the official field names."""

    model_type = "llada2_moe"
    called, choices = "LLaDA2", OFFICIAL_CHOICES
    block_size: int | None = None

    @classmethod
    def translated(cls, official: dict[str, Any]) -> dict[str, Any]:
        d = official
        if "num_experts" in d:
            if not d.get("num_shared_experts"):
                raise ValueError("unsupported LLaDA2 config: it names no shared expert (num_shared_experts)")
            d |= {new: d.pop(old) for old, new in OFFICIAL_FIELDS.items()}
            d = {name: value for name, value in d.items() if name not in OFFICIAL_CHOICES}
            d |= {"use_qk_norm": True, "num_nextn_predict_layers": 0}
        return d


class LLaDA2MoEForMaskedLM(ExpertsAtPositions, Glm4MoeForCausalLM):
    """GLM-4-MoE's layers; which tokens see which is said at every call."""

    config_class = LLaDA2MoEConfig

    def infer(self, *given: Any) -> torch.Tensor:
        """As `HeadAtPositions.infer`, in fp32: the official sampler's confidences are of these logits."""
        return super().infer(*given).float()


PROJECTIONS = [f".self_attn.{name}_proj.weight" for name in "qkv"]
register_checkpoint_conversion_mapping(
    "LLaDA2MoEForMaskedLM",
    [
        WeightRenaming("^model.word_embeddings.", "model.embed_tokens."),
        WeightRenaming(".attention.dense.", ".self_attn.o_proj."),
        WeightRenaming(".attention.query_layernorm.", ".self_attn.q_norm."),
        WeightRenaming(".attention.key_layernorm.", ".self_attn.k_norm."),
        WeightRenaming(".gate.expert_bias", ".gate.e_score_correction_bias"),
        WeightConverter(".attention.query_key_value.weight", PROJECTIONS, [Split(dim=0)]),
        *get_checkpoint_conversion_mapping("glm4_moe"),
    ],
)
FAMILY = Family(
    model_type=LLaDA2MoEConfig.model_type,
    model=LLaDA2MoEForMaskedLM,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|role_end|>",
    published_ids={"<|mask|>": 156895, "<|endoftext|>": 156892},
    architectures=("LLaDA2MoeModelLM", "LLaDA2MoEForMaskedLM"),
    blocks={"": Blocks(32)},
)

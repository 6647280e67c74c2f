"""LLaDA-MoE on transformers' Qwen3-MoE: bidirectional attention, 8 of 64 experts a token, no shared expert.

Reads checkpoints in the official format (inclusionAI/LLaDA-MoE-7B-A1B-Instruct). Their `model_type` is "llada" as well;
`architectures` tells them apart. As in the official code queries and keys are normed by head, the router's softmax is
over all experts in fp32 and comes before the choice, and the chosen experts' weights are not normed. Logits at position
i predict token i. No remote code is ever run.

The official code runs one expert after the other, each in three products. transformers has them merged and runs them at
once: the same sums, rounded in another order (tests/official).
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping

from model_wrappers.backbones.heads import ExpertsAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Family

OFFICIAL_FIELDS = {"expert_intermediate_size": "moe_intermediate_size", "dense_intermediate_size": "intermediate_size"}
# What the Qwen3-MoE code computes; an official config that asks for anything else is refused. The official code never
# norms the chosen experts' weights, whatever norm_topk_prob says.
OFFICIAL_CHOICES: dict[str, Any] = {
    "qk_layernorm": True,
    "shared_expert_intermediate_size": None,
    "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax",
    "routed_scaling_factor": 1,
    "partial_rotary_factor": 1,
    "clip_qkv": None,
    "attention_bias": False,
    "rope_scaling": None,
}


@strict
class LLaDAMoEConfig(Bidirectional, Qwen3MoeConfig):
    """Qwen3-MoE's configuration; `from_dict` also reads the official field names."""

    model_type = "llada_moe"
    called, choices = "LLaDA-MoE", OFFICIAL_CHOICES

    @classmethod
    def translated(cls, official: dict[str, Any]) -> dict[str, Any]:
        d = official
        if "expert_intermediate_size" in d:
            d |= {new: d.pop(old) for old, new in OFFICIAL_FIELDS.items() if d.get(old) is not None}
            sparse = d.pop("moe_layer_freq", None) or [1] * d["num_hidden_layers"]
            d["mlp_only_layers"] = [layer for layer, is_sparse in enumerate(sparse) if not is_sparse]
            d |= {"head_dim": d["hidden_size"] // d["num_attention_heads"], "norm_topk_prob": False}
            d = {name: value for name, value in d.items() if name not in OFFICIAL_CHOICES}
        return d


class LLaDAMoEForMaskedLM(ExpertsAtPositions, Qwen3MoeForCausalLM):
    """Qwen3-MoE's layers with bidirectional attention; logits at position i predict token i (no shift)."""

    config_class = LLaDAMoEConfig


# One tensor an expert in checkpoints, one for all of them here.
register_checkpoint_conversion_mapping("LLaDAMoEForMaskedLM", get_checkpoint_conversion_mapping("qwen3_moe"))
FAMILY = Family(
    model_type=LLaDAMoEConfig.model_type,
    model=LLaDAMoEForMaskedLM,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|role_end|>",
    published_ids={"<|mask|>": 156895},
    also=("lladamoe",),
    architectures=("LLaDAMoEModelLM", "LLaDAMoEForMaskedLM"),
)

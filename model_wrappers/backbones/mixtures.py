"""Mixtures of experts: LLaDA-MoE on transformers' Qwen3-MoE, LLaDA2 on GLM-4-MoE, and
DiffusionGemma. No remote code.

LLaDA-MoE (inclusionAI/LLaDA-MoE-7B-A1B-Instruct) attends in both directions. Its `model_type` is
"llada" as well; `architectures` tells them apart. As in the official code queries and keys are
normed by head, the router's softmax is over all experts in fp32 and comes before the choice, and
the chosen experts' weights are not normed.

LLaDA2.0-mini, -flash, 2.1-mini, -flash (inclusionAI) attend in blocks of 32 that count from the
beginning of the sequence; the official `generate` takes other lengths. The router's sigmoid scores
choose experts of the best groups with a bias that their weights do not have, a shared expert sees
every token, queries and keys are normed by head, and rotary angles turn a part of each head. Logits
are fp32 whatever the weights are.

Both are read in their official format, and logits at position i predict token i. transformers runs
all experts at once where the official code runs one after the other: the same sums, rounded in
another order (tests/official).

DiffusionGemma's encoder keeps keys and values of the prompt and of finished canvases, causally; the
decoder, of the same weights, sees those and the whole canvas. There is no mask: a canvas begins as
random tokens, and the logits of the last step, as expected embeddings, condition the next one.
`renoise` decodes it. Shapes: K tokens before the canvas, C of the canvas, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from transformers import (
    DynamicCache,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.core_model_loading import Split, WeightConverter, WeightRenaming

from model_wrappers.backbones.heads import ExpertsAtPositions
from model_wrappers.backbones.llada import Bidirectional
from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.protocol import counted

LLADA_MOE_FIELDS = {
    "expert_intermediate_size": "moe_intermediate_size",
    "dense_intermediate_size": "intermediate_size",
}
# What the Qwen3-MoE code computes; an official config that asks for anything else is refused. The
# official code never norms the chosen experts' weights, whatever norm_topk_prob says.
LLADA_MOE_CHOICES: dict[str, Any] = {
    "qk_layernorm": True,
    "shared_expert_intermediate_size": None,
    "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax",
    "routed_scaling_factor": 1,
    "clip_qkv": None,
    "attention_bias": False,
    "rope_scaling": None,
}


@strict
class LLaDAMoEConfig(Bidirectional, Qwen3MoeConfig):
    """Qwen3-MoE's configuration; `from_dict` also reads the official field names."""

    model_type = "llada_moe"
    called = "LLaDA-MoE"
    choices = LLADA_MOE_CHOICES

    @classmethod
    def translated(cls, official: dict[str, Any]) -> dict[str, Any]:
        d = official
        if "expert_intermediate_size" in d:
            d |= {
                new: d.pop(old) for old, new in LLADA_MOE_FIELDS.items() if d.get(old) is not None
            }
            sparse = d.pop("moe_layer_freq", None) or [1] * d["num_hidden_layers"]
            d["mlp_only_layers"] = [
                layer for layer, is_sparse in enumerate(sparse) if not is_sparse
            ]
            d |= {"head_dim": d["hidden_size"] // d["num_attention_heads"], "norm_topk_prob": False}
            d = {name: value for name, value in d.items() if name not in LLADA_MOE_CHOICES}
        return d


class LLaDAMoEForMaskedLM(ExpertsAtPositions, Qwen3MoeForCausalLM):
    """Qwen3-MoE's layers with bidirectional attention; logits at position i predict token i (no
    shift)."""

    config_class = LLaDAMoEConfig


# One tensor an expert in checkpoints, one for all of them here.
register_checkpoint_conversion_mapping(
    "LLaDAMoEForMaskedLM", get_checkpoint_conversion_mapping("qwen3_moe")
)


LLADA2_FIELDS = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}
# What the GLM-4-MoE code computes; an official config that asks for anything else is refused.
LLADA2_CHOICES: dict[str, Any] = {
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
    called = "LLaDA2"
    choices = LLADA2_CHOICES
    block_size: int | None = None

    @classmethod
    def translated(cls, official: dict[str, Any]) -> dict[str, Any]:
        d = official
        if "num_experts" in d:
            if not d.get("num_shared_experts"):
                raise ValueError(
                    "unsupported LLaDA2 config: it names no shared expert (num_shared_experts)"
                )
            d |= {new: d.pop(old) for old, new in LLADA2_FIELDS.items()}
            d = {name: value for name, value in d.items() if name not in LLADA2_CHOICES}
            d |= {"use_qk_norm": True, "num_nextn_predict_layers": 0}
        return d


class LLaDA2MoEForMaskedLM(ExpertsAtPositions, Glm4MoeForCausalLM):
    """GLM-4-MoE's layers; which tokens see which is said at every call."""

    config_class = LLaDA2MoEConfig

    def infer(self, *given: Any) -> torch.Tensor:
        """As `HeadAtPositions.infer`, in fp32: the official sampler's confidences are of these
        logits."""
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


@dataclass
class Encoded:
    """What the encoder keeps of the first `count` tokens."""

    cache: Any
    count: int = 0


class CanvasBackbone(Backbone):
    """A model that denoises canvases. Its mask_id, one after its vocabulary, is a position without
    a token."""

    @torch.inference_mode()
    def denoise(
        self,
        ids_1K: torch.Tensor,
        canvas_1C: torch.Tensor,
        previous_1CV: torch.Tensor | None = None,
        encoded: Encoded | None = None,
    ) -> tuple[torch.Tensor, Encoded]:
        """Logits (1, C, V), fp32, of a canvas after the tokens ids_1K, and what is kept of these.

        previous_1CV: the logits of the last step on this canvas, as the sampler changed them (None:
        its first step). encoded: what an earlier call kept of the first of these tokens; it is
        changed in place.
        """
        if encoded is None:
            encoded = Encoded(DynamicCache(config=self.model.config.get_text_config(decoder=True)))
        count = ids_1K.shape[1]
        device = ids_1K.device
        new: dict[str, Any] = {}
        if count > encoded.count:
            new["input_ids"] = ids_1K[:, encoded.count :]
            new["position_ids"] = torch.arange(encoded.count, count, device=device)[None]
        if previous_1CV is not None:
            previous_1CV = previous_1CV.to(self.dtype)
        with counted(self.counter, 1, canvas_1C.numel() + count - encoded.count, encoded.count):
            logits_1CV = self.model(
                **new,
                past_key_values=encoded.cache,
                decoder_input_ids=canvas_1C,
                self_conditioning_logits=previous_1CV,
                decoder_position_ids=torch.arange(count, count + canvas_1C.shape[1], device=device)[
                    None
                ],
            ).logits
        encoded.count = count
        return logits_1CV, encoded

"""Mixtures of experts: LLaDA-MoE on transformers' Qwen3-MoE, LLaDA2 on GLM-4-MoE, and
DiffusionGemma. No remote code.

LLaDA-MoE (inclusionAI/LLaDA-MoE-7B-A1B-Instruct) attends in both directions. Its `model_type` is
"llada" as well, so that it is recognised by `architectures`. As in the official code, queries and
keys are normed by head; the router's softmax is over all experts, in fp32, before experts are
chosen; and the weights of the chosen experts are not normalised.

LLaDA2.0-mini, -flash, 2.1-mini, -flash (inclusionAI) attend in blocks of 32 that count from the
beginning of the sequence; the official `generate` takes other lengths too. The router chooses
experts of the best groups by sigmoid scores with a bias, which the experts' weights do not include.
A shared expert sees every token, queries and keys are normed by head, and only a part of each head
is rotated. Logits are fp32 whatever the weights are.

Both are read in their official format, and logits at position i predict token i. transformers runs
all experts at once, the official code one after the other: the sums are the same but rounded in
another order (tests/official).

DiffusionGemma's encoder caches keys and values of the prompt and of finished canvases, causally.
The decoder has the same weights, and sees these and the whole canvas. There is no mask: a canvas
begins as random tokens, and each step is conditioned on the expected embeddings by the logits of
the step before. `renoise` decodes it. Shapes: K tokens before the canvas, C of the canvas, V
vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
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
from transformers.core_model_loading import Split, WeightConverter

from model_wrappers.backbones.heads import ExpertsAtPositions
from model_wrappers.backbones.llada import Bidirectional, renamings
from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.protocol import counted
from model_wrappers.transfers import to_device


@strict
class LLaDAMoEConfig(Bidirectional, Qwen3MoeConfig):
    """Qwen3-MoE's configuration; `from_dict` also reads the official field names."""

    model_type = "llada_moe"

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build from a dictionary in transformers' or the official names (see `Bidirectional`)."""
        fields = dict(config_dict)
        # Only the official config has this field; there head sizes and sparse layers are implicit.
        if "expert_intermediate_size" in fields:
            sparse = fields.pop("moe_layer_freq", None) or [1] * fields["num_hidden_layers"]
            fields["mlp_only_layers"] = [at for at, is_sparse in enumerate(sparse) if not is_sparse]
            fields["head_dim"] = fields["hidden_size"] // fields["num_attention_heads"]
            # The official code does not normalise the experts' weights, whatever the config says.
            fields["norm_topk_prob"] = False
        return super().from_dict(fields, **kwargs)


class LLaDAMoEForMaskedLM(ExpertsAtPositions, Qwen3MoeForCausalLM):
    """Qwen3-MoE's layers with bidirectional attention; logits at position i predict token i (no
    shift)."""

    config_class = LLaDAMoEConfig


# Checkpoints have a tensor for each expert; the model here has one for all.
register_checkpoint_conversion_mapping(
    "LLaDAMoEForMaskedLM", get_checkpoint_conversion_mapping("qwen3_moe")
)


@strict
class LLaDA2MoEConfig(Bidirectional, Glm4MoeConfig):
    """GLM-4-MoE's configuration; `from_dict` also reads the official field names."""

    model_type = "llada2_moe"
    block_size: int | None = None

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build as `Bidirectional.from_dict`, without layers that predict further tokens."""
        fields = config_dict | {"use_qk_norm": True, "num_nextn_predict_layers": 0}
        return super().from_dict(fields, **kwargs)


class LLaDA2MoEForMaskedLM(ExpertsAtPositions, Glm4MoeForCausalLM):
    """GLM-4-MoE's layers; every call has a mask for its blocks."""

    config_class = LLaDA2MoEConfig

    def logits_of(self, hidden_BnD: Tensor) -> Tensor:
        """The logits in fp32, from which the official sampler takes confidences."""
        return super().logits_of(hidden_BnD).float()


PROJECTIONS = [f".self_attn.{name}_proj.weight" for name in "qkv"]
register_checkpoint_conversion_mapping(
    "LLaDA2MoEForMaskedLM",
    [
        *renamings("llada2_moe"),
        WeightConverter(".attention.query_key_value.weight", PROJECTIONS, [Split(dim=0)]),
        *get_checkpoint_conversion_mapping("glm4_moe"),
    ],
)


@dataclass
class Encoded:
    """The encoder's cache of the first `count` tokens."""

    cache: Any
    count: int = 0


class CanvasBackbone(Backbone):
    """A model that denoises canvases. Its mask_id, the id after its vocabulary, stands for
    positions that have no token yet."""

    @torch.inference_mode()
    def denoise(
        self,
        ids_1K: Tensor,
        canvas_1C: Tensor,
        previous_1CV: Tensor | None = None,
        encoded: Encoded | None = None,
    ) -> tuple[Tensor, Encoded]:
        """Denoise a canvas after the tokens ids_1K.

        Args:
            ids_1K: LongTensor (1, K), the prompt and finished canvases.
            canvas_1C: LongTensor (1, C), the canvas.
            previous_1CV: the last step's logits of this canvas, as the sampler changed them (None:
                this is its first step).
            encoded: the cache of an earlier call, of the first of the K tokens; it is changed in
                place (None: a new cache).

        Returns:
            Logits (1, C, V), fp32, and the cache of all K tokens.
        """
        if encoded is None:
            encoded = Encoded(DynamicCache(config=self.model.config.get_text_config(decoder=True)))
        count = ids_1K.shape[1]
        device = self.device
        new_1N, canvas_1C = to_device(device, ids_1K[:, encoded.count :], canvas_1C)
        new: dict[str, Any] = {}
        if count > encoded.count:
            new["input_ids"] = new_1N
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

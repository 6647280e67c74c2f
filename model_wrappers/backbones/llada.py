"""The LLaDA architecture on transformers' Llama: bidirectional attention, official names of
tensors, fp32 rotary angles.

It reads checkpoints in the official format (GSAI-ML/LLaDA-8B-Instruct: `d_model`, `n_layers`, ...;
keys `model.transformer.*`) and in this project's (written by `save_pretrained`), and never runs
remote code. Logits equal those of the official implementation bit for bit in fp32 and bf16. Llama 2
and 3 themselves, which are autoregressive, are here too (meta-llama/Llama-3.1-8B-Instruct).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from model_wrappers.backbones.families import FAMILIES
from model_wrappers.backbones.heads import HeadAtPositions

OFFICIAL_MASK_ID = 126336  # of GSAI-ML/LLaDA-8B
# Of GSAI-ML/iLLaDA-8B, by its card and ML-GSAI/LLaDA's README.
ILLADA_VOCABULARY = 155136
ILLADA_MASK_ID = 5


@dataclass
class Bidirectional:
    """A mixin for configs of transformers whose layers attend in both directions.

    Attributes:
        is_causal: False for both the mask builder and the attention of transformers.
        use_cache: whether a forward caches keys and values by default.
        mask_token_id: the mask's id.
    """

    is_causal: bool = False
    use_cache: bool = False
    mask_token_id: int | None = None
    model_type: ClassVar[str]

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build from a dictionary in transformers' or the official names (families.toml).

        Args:
            config_dict: fields by name; fields that the architecture does not have become
                attributes.
            kwargs: as in transformers.
        """
        fields = dict(config_dict)
        for official, name in FAMILIES[cls.model_type].fields.items():
            value = fields.pop(official, None)
            if value is not None:
                fields[name] = value
        fields.pop("auto_map", None)  # it names code that is never run
        # A padding index would zero and freeze the embedding of <|endoftext|>.
        fields |= {"model_type": cls.model_type, "pad_token_id": None}
        return super().from_dict(fields, **kwargs)  # type: ignore[misc]


@strict
class LLaDAConfig(Bidirectional, LlamaConfig):
    """Llama's configuration with LLaDA's defaults.

    Attributes:
        block_size: length of the blocks of a model that attends in blocks.
        block_origin: where these begin (see blocks.Blocks).
    """

    model_type = "llada"
    mask_token_id: int | None = OFFICIAL_MASK_ID
    bos_token_id: int | None = 126080
    block_size: int | None = None
    block_origin: str = "sequence"

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> LLaDAConfig:
        """Build as `Bidirectional.from_dict`, with the mask of iLLaDA, whose config names none."""
        # iLLaDA has LLaDA's model_type; its size of vocabulary tells it apart.
        if config_dict.get("vocab_size") == ILLADA_VOCABULARY:
            config_dict = {"mask_token_id": ILLADA_MASK_ID} | config_dict
        return super().from_dict(config_dict, **kwargs)


# transformers fills `inv_freq` in classes whose name ends like this one's.
class _Fp32RotaryEmbedding(LlamaRotaryEmbedding):
    """Rotary angles in fp32, as by `rope_full_precision=True` in the official code; they stay fp32
    when the model is cast."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        inv_freq: Tensor = self.inv_freq
        super()._apply(fn, recurse)
        # A model that was made without memory has no values to move: they are computed here.
        if inv_freq.is_meta:
            inv_freq, _ = self.compute_default_rope_parameters(self.config)
        self._buffers["inv_freq"] = inv_freq.to(self.inv_freq.device)  # moved, not cast
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].float() * self.inv_freq.to(x.device)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()


def _sdpa(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    # Queries and keys leave the fp32 rotation as fp32 and are cast back, as in the official code.
    return sdpa_attention_forward(
        module, query.to(value.dtype), key.to(value.dtype), value, attention_mask, **kwargs
    )


AttentionInterface.register("llada_sdpa", _sdpa)
AttentionMaskInterface.register("llada_sdpa", sdpa_mask)


class LLaDAForMaskedLM(HeadAtPositions, LlamaForCausalLM):
    """Llama's layers with bidirectional attention; logits at position i predict token i (no
    shift)."""

    config_class = LLaDAConfig

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__(config)
        self.model.rotary_emb = _Fp32RotaryEmbedding(config)
        if self.config._attn_implementation == "sdpa":
            self.set_attn_implementation("llada_sdpa")


def renamings(model_type: str) -> list[Any]:
    """The renamings of a family's tensors from official names to those of transformers."""
    return [WeightRenaming(*names) for names in FAMILIES[model_type].tensors.items()]


register_checkpoint_conversion_mapping("LLaDAForMaskedLM", renamings("llada"))


class CausalLlama(HeadAtPositions, LlamaForCausalLM):
    """Llama 2 and 3 (meta-llama/Llama-3.1-8B-Instruct). The decoder `ar` reads logits at position i
    for token i + 1."""


FAMILY = FAMILIES["llada"]
LLAMA_FAMILY = FAMILIES["llama"]
# Fields of LLaDA's config that Llama's does not have, or has with another value.
LLADA_FIELDS = {
    "model_type",
    "mask_token_id",
    "is_causal",
    "block_size",
    "block_origin",
    "architectures",
}


def causal_llama(model: LLaDAForMaskedLM) -> CausalLlama:
    """A causal Llama with the weights of a LLaDA, as a beginning of its training."""
    fields = {
        name: value for name, value in model.config.to_dict().items() if name not in LLADA_FIELDS
    }
    llama = CausalLlama(LlamaConfig(**fields))
    llama.load_state_dict(model.state_dict())
    return llama

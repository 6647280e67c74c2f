"""The LLaDA architecture on transformers' Llama: bidirectional attention, official key names, fp32
rotary angles.

Reads checkpoints in the official format (GSAI-ML/LLaDA-8B-Instruct: `d_model`, `n_layers`, ...;
keys `model.transformer.*`) and this project's own (written by `save_pretrained`). No remote code is
ever run. Logits equal the official implementation's bit for bit in fp32 and bf16. Llama itself is
here too, autoregressive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from model_wrappers.backbones.heads import CausalAtPositions, HeadAtPositions
from model_wrappers.backbones.model import Family

# Of GSAI-ML/LLaDA-8B.
OFFICIAL_MASK_ID = 126336
OFFICIAL_EOT_ID = 126348
# Of GSAI-ML/iLLaDA-8B, by its card and ML-GSAI/LLaDA's README.
ILLADA_VOCABULARY = 155136
ILLADA_MASK_ID = 5

OFFICIAL_KEYS = {
    "^model.transformer.wte.": "^model.embed_tokens.",
    "^model.transformer.ln_f.": "^model.norm.",
    "^model.transformer.ff_out.": "^lm_head.",
    "^model.transformer.blocks.": "^model.layers.",
    ".attn_norm.": ".input_layernorm.",
    ".ff_norm.": ".post_attention_layernorm.",
    ".q_proj.": ".self_attn.q_proj.",
    ".k_proj.": ".self_attn.k_proj.",
    ".v_proj.": ".self_attn.v_proj.",
    ".attn_out.": ".self_attn.o_proj.",
    ".ff_proj.": ".mlp.gate_proj.",
    ".up_proj.": ".mlp.up_proj.",
    ".ff_out.": ".mlp.down_proj.",
}
OFFICIAL_FIELDS = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "mlp_hidden_size": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "weight_tying": "tie_word_embeddings",
}
# What the Llama code below computes; an official config that asks for anything else is refused.
OFFICIAL_CHOICES: dict[str, Any] = {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "scale_logits": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
}


def refuse_unlike(model: str, config: dict[str, Any], choices: dict[str, Any]) -> None:
    """Raise ValueError if a config asks for anything other than what the code computes."""
    unlike = {key: config[key] for key, value in choices.items() if config.get(key, value) != value}
    if unlike:
        raise ValueError(f"unsupported {model} config: {unlike}; expected {choices}")


@dataclass
class Bidirectional:
    """What a config of transformers' becomes where its layers are read in both directions.

    called: the model, for messages. choices: what the layers compute; a config that asks for
    anything else is refused.
    """

    is_causal: bool = False  # the mask builder and the attention both follow this
    use_cache: bool = False
    mask_token_id: int | None = None
    called: ClassVar[str]
    choices: ClassVar[dict[str, Any]]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build from our own dictionary or an official one. Raises ValueError for what this code
        does not compute."""
        d = {name: value for name, value in config_dict.items() if value is not None}
        refuse_unlike(cls.called, d, cls.choices)
        # A padding index would zero and freeze the embedding of <|endoftext|>.
        own = cls.translated(dict(config_dict))
        own |= {"model_type": cls.model_type, "pad_token_id": None}  # type: ignore[attr-defined]
        return super().from_dict(own, **kwargs)  # type: ignore[misc]

    @classmethod
    def translated(cls, official: dict[str, Any]) -> dict[str, Any]:
        """An official dictionary in the names that transformers has."""
        return official


@strict
class LLaDAConfig(LlamaConfig):
    """Llama's configuration with LLaDA's defaults; `from_dict` also reads the official field
    names."""

    model_type = "llada"
    is_causal: bool = False  # the mask builder and the attention both follow this
    use_cache: bool = False
    pad_token_id: int | None = (
        None  # a padding index would zero and freeze the embedding of <|endoftext|>
    )
    mask_token_id: int = OFFICIAL_MASK_ID
    bos_token_id: int | None = 126080
    block_size: int | None = None  # of a model that attends in blocks
    block_origin: str = "sequence"  # see blocks.Blocks

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> LLaDAConfig:
        """Build from our own dictionary or an official one.

        Raises ValueError for another model type, a config without sizes (Llama's own would be 7 B
        parameters), or an official config of an architecture other than LLaDA's.
        """
        d = config_dict
        if d.get("model_type", cls.model_type) != cls.model_type:
            raise ValueError(f"model_type {d['model_type']!r} is not {cls.model_type!r}")
        if not {"d_model", "hidden_size"} & set(d) or "vocab_size" not in d:
            raise ValueError(
                "the config names no sizes: hidden_size or d_model, and vocab_size, are needed"
            )
        if d["vocab_size"] == ILLADA_VOCABULARY:
            d = {"mask_token_id": ILLADA_MASK_ID, **d}
        if "d_model" in d:
            refuse_unlike("LLaDA", d, OFFICIAL_CHOICES)
            same = ("rms_norm_eps", "eos_token_id", "mask_token_id")
            d = (
                {key: d[key] for key in same}
                | {
                    "vocab_size": d.get("embedding_size") or d["vocab_size"]
                }  # with what pads the embedding
                | {new: d[old] for old, new in OFFICIAL_FIELDS.items()}
                | {"rope_parameters": {"rope_type": "default", "rope_theta": d["rope_theta"]}}
            )
        return super().from_dict(d, **kwargs)


# by this end of the name transformers fills `inv_freq`
class _Fp32RotaryEmbedding(LlamaRotaryEmbedding):
    """Rotary angles in fp32, as `rope_full_precision=True` of the official code; a cast of the
    model leaves them so."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        inv_freq: torch.Tensor = self.inv_freq
        super()._apply(fn, recurse)
        if inv_freq.is_meta:
            inv_freq, _ = self.compute_default_rope_parameters(self.config)
        self._buffers["inv_freq"] = inv_freq.to(self.inv_freq.device)  # moved, not cast
        return self

    @torch.no_grad()
    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        angles = position_ids[..., None].float() * self.inv_freq.to(x.device)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()


def _sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    # Queries and keys leave the fp32 rotation as fp32: cast back once, as the official code does.
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


register_checkpoint_conversion_mapping(
    "LLaDAForMaskedLM", [WeightRenaming(old, new) for old, new in OFFICIAL_KEYS.items()]
)
FAMILY = Family(
    model_type=LLaDAConfig.model_type,
    model=LLaDAForMaskedLM,
    attention={"sdpa": "llada_sdpa"},
    end_of_turn="<|eot_id|>",
    mask="<|mdm_mask|>",
    published_ids={"<|mdm_mask|>": OFFICIAL_MASK_ID, "<|eot_id|>": OFFICIAL_EOT_ID},
)


class CausalLlama(CausalAtPositions, LlamaForCausalLM):
    """Llama 2 and 3 (meta-llama/Llama-3.1-8B-Instruct). The decoder `ar` reads logits at position i
    for token i + 1."""


LLAMA_FAMILY = Family(
    model_type="llama",
    model=CausalLlama,
    attention={"sdpa": "sdpa"},
    end_of_turn="<|eot_id|>",
    mask=None,
    causal=True,
)
OF_LLADA = {
    "model_type",
    "mask_token_id",
    "is_causal",
    "block_size",
    "block_origin",
    "architectures",
}


def causal_llama(model: LLaDAForMaskedLM) -> CausalLlama:
    """A causal Llama with the weights of a LLaDA, to be trained."""
    fields = {name: value for name, value in model.config.to_dict().items() if name not in OF_LLADA}
    made = CausalLlama(LlamaConfig(**fields))
    made.load_state_dict(model.state_dict())
    return made

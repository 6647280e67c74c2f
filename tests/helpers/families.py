"""Tiny random models of every family, and their checkpoints as the official ones look."""

import json
from pathlib import Path
from typing import Any

import torch
from fakes import add_nanos_tokenizer

from model_wrappers import Backbone
from model_wrappers.backbones.protocol import KeyValues
from model_wrappers.backbones.registry import FAMILIES, NANO

# Those that attend to the whole sequence.
NAMES = [
    name
    for name, each in FAMILIES.items()
    if not ("" in each.blocks or each.causal or each.backbone)
]
CAUSAL = [name for name, family in FAMILIES.items() if family.causal]
SHIFTED = [name for name in NAMES if FAMILIES[name].reads_at]
VOCABULARY = 40
SIZES: dict[str, Any] = {
    **{
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
    },
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
    **{"initializer_range": 0.3, "rms_norm_eps": 1e-6},
    **{"mask_token_id": VOCABULARY - 1, "eos_token_id": VOCABULARY - 2},
}
ROPE = {"rope_theta": 10000.0, "rope_scaling": None}
# config.json of each family but LLaDA, whose official field names are in fakes.OFFICIAL_CONFIG.
OFFICIAL: dict[str, dict[str, Any]] = {
    "Dream": SIZES
    | ROPE
    | {"architectures": ["DreamModel"], "pad_token_id": VOCABULARY - 2, "use_mrope": False},
    "a2d-qwen3": SIZES | ROPE | {"architectures": ["A2DQwen3LMHeadModel"], "head_dim": 16},
    "sdar": SIZES | ROPE | {"architectures": ["SDARForCausalLM"], "head_dim": 16, "block_size": 4},
    "sdar_moe": {
        **SIZES | ROPE,
        **{
            "architectures": ["SDARMoeForCausalLM"],
            "head_dim": 16,
            "block_size": 4,
            "norm_topk_prob": True,
        },
        **{"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    },
    "Fast_dLLM_Qwen": SIZES | ROPE | {"architectures": ["Fast_dLLM_QwenForCausalLM"], "bd_size": 4},
    "diffusion_gemma": {
        **{"architectures": ["DiffusionGemmaForBlockDiffusion"], "canvas_length": 8},
        **{
            name: VOCABULARY - at
            for at, name in enumerate(("image_token_id", "boi_token_id", "eoi_token_id"), 1)
        },
        "text_config": {
            **{
                name: SIZES[name]
                for name in ("vocab_size", "hidden_size", "intermediate_size", "initializer_range")
            },
            **{
                name: SIZES[name]
                for name in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
            },
            **{
                "layer_types": ["sliding_attention", "full_attention"],
                "sliding_window": 16,
                "eos_token_id": 1,
            },
            **{
                "num_global_key_value_heads": 1,
                "head_dim": 16,
                "global_head_dim": 16,
                "max_position_embeddings": 128,
            },
            **{"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
        },
        "vision_config": {
            **{
                "model_type": "gemma4_vision",
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
            },
            **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8},
        },
    },
    "llada2_moe": {
        **SIZES | ROPE,
        **{
            "architectures": ["LLaDA2MoeModelLM"],
            "head_dim": 16,
            "block_size": 4,
            "partial_rotary_factor": 0.5,
        },
        **{"use_qkv_bias": False, "use_bias": False, "num_experts": 8, "num_shared_experts": 1},
        **{"num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
        **{"moe_intermediate_size": 16, "first_k_dense_replace": 1},
    },
    "llada_moe": {
        **SIZES | ROPE,
        **{"model_type": "llada", "architectures": ["LLaDAMoEModelLM"], "moe_layer_freq": [1, 0]},
        **{
            "expert_intermediate_size": 16,
            "dense_intermediate_size": 48,
            "shared_expert_intermediate_size": None,
        },
        **{
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "norm_topk_prob": None,
            "routed_scaling_factor": 1,
        },
        **{"moe_router_score_function": "softmax", "moe_router_enable_expert_bias": False},
        **{"qk_layernorm": True, "partial_rotary_factor": 1, "clip_qkv": None},
    },
}


def config_of(name: str, **changes: Any) -> Any:
    """A tiny configuration of a family; `changes` to its dictionary."""
    kind: Any = FAMILIES[name].imported().model.config_class
    fields = OFFICIAL.get(name, SIZES | {"bos_token_id": None})
    return kind.from_dict({"model_type": name} | fields | changes)


def random_model(name: str, seed: int = 0, **changes: Any) -> Any:
    """A tiny random model of a family, as transformers has it."""
    config = config_of(name, **changes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = FAMILIES[name].imported().model(config)
        with torch.no_grad():
            for weight in model.parameters():
                # scales of norms, which begin as ones, and biases, which begin as zeros
                if weight.dim() == 1:
                    weight.add_(0.3 * torch.randn(weight.shape))
    return model


def tiny(name: str, seed: int = 0, **changes: Any) -> Backbone:
    """A tiny random backbone of a family; the mask is its last id, EOS the one before."""
    family = FAMILIES[name].imported()
    return (family.backbone or Backbone)(
        family, random_model(name, seed, **changes), None, f"{name}-{seed}"
    )


def checkpoint(name: str, folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A tiny checkpoint with the official config.json; tensors as `save_pretrained` writes them."""
    random_model(name, seed, **changes).save_pretrained(folder)
    if name in OFFICIAL:
        (folder / "config.json").write_text(
            json.dumps({"model_type": name} | OFFICIAL[name] | changes)
        )
    return folder


def with_nanos_tokenizer(name: str, folder: Path) -> Path:
    """A tiny checkpoint of at most 512 tokens with nano's tokenizer and its ids."""
    config = json.loads((NANO / "config.json").read_text())
    ids = {key: config[key] for key in ("vocab_size", "mask_token_id", "eos_token_id")}
    changes = ids | {"max_position_embeddings": 512}
    if name == "diffusion_gemma":
        changes = {
            "text_config": OFFICIAL[name]["text_config"] | changes,
            "image_token_id": ids["vocab_size"] - 1,
        }
    return add_nanos_tokenizer(checkpoint(name, folder, **changes))


def kept_layers(cache: KeyValues) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The kept keys and values of every layer, (1, heads, kept, head size) each."""
    kept = cache.get_seq_length()
    return [
        (keys[:, :, :kept], values[:, :, :kept])
        for keys, values in zip(*cache.buffers, strict=True)
    ]

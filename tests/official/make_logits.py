"""Record what an official implementation computes on a tiny random checkpoint: goldens/logits/NAME.safetensors.

    PYTHONPATH=tests/helpers python tests/official/make_logits.py NAME --code FOLDER --module M --class C \\
        --repository OWNER/NAME --commit HASH

It runs the code that it is given; run it where that may be done. `--code` is the folder that has the modeling file as a
module or as part of a package (`--module package.models.modeling_x`). `--shim` notes a change to the code, and may be
given several times. Needs torch, safetensors and a transformers that the code was written for.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from official_weights import kernels, random_ids, random_weights
from safetensors.torch import save_file

HERE = Path(__file__).parent
SEED = 20
VOCABULARY, LENGTH = 64, 24
COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "eos_token_id": VOCABULARY - 2, "mask_token_id": VOCABULARY - 1}
QWEN: dict[str, Any] = COMMON | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llada": COMMON
    | {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 4,
        "mlp_hidden_size": 48,
        "mlp_ratio": 4,
        "max_sequence_length": 64,
        "embedding_size": VOCABULARY,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope": True,
        "rope_full_precision": True,
        "weight_tying": False,
        "pad_token_id": VOCABULARY - 2,
        "block_type": "llama",
        "block_group_size": 1,
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "attention_layer_norm": False,
        "attention_layer_norm_with_affine": True,
        "bias_for_layer_norm": False,
        "multi_query_attention": None,
        "attention_dropout": 0.0,
        "residual_dropout": 0.0,
        "embedding_dropout": 0.0,
        "input_emb_norm": False,
        "alibi": False,
        "alibi_bias_max": 8.0,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "scale_logits": False,
        "init_device": "cpu",
        "init_fn": "mitchell",
        "init_std": 0.02,
        "use_cache": False,
    },
    "dream": QWEN
    | {
        "model_type": "Dream",
        "architectures": ["DreamModel"],
        "pad_token_id": VOCABULARY - 2,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 2,
    },
    "fast_dllm_v2": QWEN
    | {
        "model_type": "Fast_dLLM_Qwen",
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "pad_token_id": VOCABULARY - 2,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 2,
        "bd_size": 4,
    },
    "qwen3": QWEN
    | {
        "model_type": "a2d-qwen3",
        "architectures": ["A2DQwen3LMHeadModel"],
        "head_dim": 16,
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
    },
    "sdar": QWEN
    | {
        "model_type": "sdar",
        "architectures": ["SDARForCausalLM"],
        "head_dim": 16,
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "block_size": 4,
        "fuse_cross_entropy": False,
    },
    "llada2_moe": QWEN
    | {
        "model_type": "llada2_moe",
        "architectures": ["LLaDA2MoeModelLM"],
        "pad_token_id": VOCABULARY - 2,
        "num_hidden_layers": 3,
        "head_dim": 16,
        "partial_rotary_factor": 0.5,
        "use_qkv_bias": False,
        "use_bias": False,
        "norm_head": False,
        "num_experts": 8,
        "num_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "score_function": "sigmoid",
        "moe_router_enable_expert_bias": True,
        "block_size": 4,
    },
    "llada_moe": QWEN
    | {
        "model_type": "llada",
        "architectures": ["LLaDAMoEModelLM"],
        "pad_token_id": VOCABULARY - 2,
        "num_hidden_layers": 3,
        "expert_intermediate_size": 16,
        "dense_intermediate_size": 48,
        "shared_expert_intermediate_size": None,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_layer_freq": [1, 0, 1],
        "moe_router_enable_expert_bias": False,
        "moe_router_score_function": "softmax",
        "norm_topk_prob": None,
        "qk_layernorm": True,
        "partial_rotary_factor": 1,
        "attention_bias": False,
        "clip_qkv": None,
        "routed_scaling_factor": 1,
    },
}


def official_model(config: dict[str, Any], module: str, name: str, attention: str | None) -> torch.nn.Module:
    """The official class on a config, with random weights."""
    kind: Any = getattr(importlib.import_module(module), name)
    settings = kind.config_class(**{key: value for key, value in config.items() if key != "model_type"})
    if attention is not None:
        settings._attn_implementation = attention
    model: torch.nn.Module = kind(settings)
    shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
    model.load_state_dict(random_weights(shapes, SEED))
    return model.eval()


def in_blocks(length: int) -> torch.Tensor:
    """What each token sees, bool (1, 1, L, L): all earlier blocks and its own."""
    number_L = torch.arange(LENGTH) // length
    return (number_L <= number_L[:, None])[None, None]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("name", choices=sorted(CONFIGS))
    add("--code", type=Path, required=True, help="folder of the official code")
    add("--module", required=True)
    add("--class", dest="kind", required=True)
    add("--repository", required=True)
    add("--commit", required=True)
    add("--attention", help="the official code's attention, where it has several")
    add("--shim", action="append", default=[], help="what was changed in the code to run it")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(asked.code.resolve()))
    config = CONFIGS[asked.name]
    model: Any = official_model(config, asked.module, asked.kind, asked.attention)
    ids_BL = random_ids((2, LENGTH), VOCABULARY, SEED)
    tensors = {"ids": ids_BL}
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            for weight in model.parameters():  # `model.to` would cast what from_pretrained leaves as fp32: the angles
                weight.data = weight.data.to(dtype)
            length = config.get("block_size", config.get("bd_size"))
            seen = {} if length is None else {"attention_mask": in_blocks(length)}
            tensors[str(dtype).removeprefix("torch.")] = model(ids_BL, **seen).logits.contiguous()
    about = {
        "config": json.dumps(config),
        "shapes": json.dumps({key: list(value.shape) for key, value in model.state_dict().items()}),
        "seed": str(SEED),
        "repository": asked.repository,
        "commit": asked.commit,
        "module": f"{asked.module}:{asked.kind}" + (f", attention {asked.attention}" if asked.attention else ""),
        "shims": json.dumps(asked.shim),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "kernels": kernels(),
        "sha256": hashlib.sha256(tensors["float32"].numpy().tobytes()).hexdigest(),
    }
    save_file(tensors, HERE / "goldens" / "logits" / f"{asked.name}.safetensors", metadata=about)
    print(json.dumps({key: value for key, value in about.items() if key not in ("config", "shapes")}, indent=1))


if __name__ == "__main__":
    main()

"""Large models by their shape, with random weights: what a pass costs depends on the shape, not on
the values."""

from __future__ import annotations

from typing import Any

import torch

from harness.errors import UserError
from harness.records.environment import free_bytes
from model_wrappers import Backbone
from model_wrappers.backbones.llada import FAMILY, OFFICIAL_MASK_ID, LLaDAConfig, LLaDAForMaskedLM
from model_wrappers.backbones.registry import device_named, dtype_named
from model_wrappers.options import meant

STD = 0.02
SHAPES: dict[str, dict[str, Any]] = {
    "llada-8b": {  # GSAI-ML/LLaDA-8B-Instruct
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 12288,
        "vocab_size": 126464,
        "max_position_embeddings": 4096,
        "mask_token_id": OFFICIAL_MASK_ID,
        "eos_token_id": 126081,
    },
    "llada-tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 192,
        "vocab_size": 512,
        "max_position_embeddings": 512,
        "mask_token_id": 511,
        "eos_token_id": 510,
        "bos_token_id": None,
    },
}
ROPE = {"rope_type": "default", "rope_theta": 500000.0}


def random_backbone(
    arch: str,
    device: str = "cpu",
    dtype: str | None = None,
    layers: int | None = None,
    cuda_graphs: bool = False,
) -> Backbone:
    """A model of one of SHAPES with normal weights of standard deviation STD; prints the memory it
    needs.

    layers: instead of the shape's. Raises UserError for an unknown shape, or weights that do not
    fit into free memory.
    """
    if arch not in SHAPES:
        raise UserError(f"unknown architecture {arch!r}{meant(arch, SHAPES)}")
    torch_device = device_named(device, cuda_graphs)
    shape = SHAPES[arch] | ({} if layers is None else {"num_hidden_layers": layers})
    with torch.device("meta"):  # shapes alone, to refuse before anything is allocated
        model: Any = LLaDAForMaskedLM(LLaDAConfig(**shape, rope_parameters=ROPE))
    model = model.to(dtype_named(dtype, torch_device))
    needed = sum(weight.nbytes for weight in model.parameters())
    free = free_bytes(torch_device)
    size = (
        f"{arch}, layers: {shape['num_hidden_layers']}, {model.dtype}: the weights need"
        f" {needed / 1e9:.2f} GB"
    )
    size += f", and {free / 1e9:.2f} GB are free on {torch_device}"
    print(size)
    if needed > free:
        raise UserError(f"{size}; free some, or give fewer --layers or bfloat16")
    model.to_empty(device=torch_device)
    generator = torch.Generator(torch_device).manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:  # of a norm
                weight.fill_(1)
            else:
                weight.normal_(0, STD, generator=generator)
    return Backbone(FAMILY, model, None, arch, cuda_graphs=cuda_graphs)

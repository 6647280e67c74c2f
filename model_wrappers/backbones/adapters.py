"""Adapters: a folder of peft's is merged into the weights of its base, under the names that the base's files have.

The merged weights are then read as any checkpoint's are. So an adapter fits that was trained on the model's official
code, whatever this project calls the same layers.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers.utils import cached_file

from model_wrappers.backbones.weights import QUIET, safetensors_of

CONFIG, WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
# What a LoRA may do beside changing matrices.
NO_MATRIX = ("layer_replication", "trainable_token_indices", "alora_invocation_tokens", "arrow_config")


def adapter_of(source: str) -> Path | None:
    """Where the files of an adapter lie; None for a folder or hub id that holds none.

    Raises ValueError without peft: a model is never decoded without its adapter.
    """
    try:
        found = cached_file(source, CONFIG, **QUIET)
    except OSError:  # neither a folder nor a hub id, as the search for its config will say
        found = None
    if found is not None and find_spec("peft") is None:
        raise ValueError(
            f"{source} holds an adapter ({CONFIG}), which peft merges into its base: pip install 'peft>=0.18' (the "
            "extra peft)"
        )
    for name in WEIGHTS if found is not None else ():  # of a hub id, they come to lie beside it
        cached_file(source, name, **QUIET)
    return None if found is None else Path(found).parent


def base_of(folder: Path) -> str:
    """The model that an adapter is for: the weights beside it, else what its config names.

    Raises ValueError for a config that names none.
    """
    if (folder / "config.json").exists() and [*folder.glob("model*.safetensors")]:
        return str(folder)
    try:
        named = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, TypeError, LookupError):
        named = None
    if not named or not isinstance(named, str):
        raise ValueError(f"{folder / CONFIG} names no base_model_name_or_path")
    return named


def merged(adapter: Path, base: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The weights of a base, a folder or hub id, with an adapter merged into them, by the names of the base's files.

    dtype: of the merge, as peft has it for a model that is loaded in it. Raises ValueError for a base of another shape
    or without safetensors, for an adapter that is no LoRA, or more than that, and for tensors without a place.
    """
    from peft import PeftConfig, PeftModel
    from peft.utils.save_and_load import load_peft_weights, set_peft_model_state_dict

    written = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    if (kind := written.get("peft_type")) != "LORA":
        raise ValueError(f"its adapter is of the type {kind}, and only LoRA is merged here")
    config = PeftConfig.from_pretrained(str(adapter))
    for name, value in written.items():
        if value and (name in NO_MATRIX or not hasattr(config, name)) and name != "peft_version":
            known = "is more than a change of matrices" if name in NO_MATRIX else "this version of peft does not know"
            raise ValueError(f"its adapter has {name}, which {known}: give a folder of merged weights")
    config.task_type, config.inference_mode = None, True  # peft asks the model of a task for more than matrices
    files = safetensors_of(base)
    if not files:
        raise ValueError(f"{base}, the base of its adapter, has no safetensors")
    weights = {name: tensor.to(dtype) for file in files for name, tensor in load_file(file).items()}
    try:
        model = PeftModel(_matrices(weights), config)
        places = {name for name in model.state_dict() if "lora_" in name or "modules_to_save" in name}
        found: Any = set_peft_model_state_dict(model, load_peft_weights(str(adapter), device="cpu"))
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"its adapter does not fit its base {base}: {' '.join(str(error).split())}") from error
    if wrong := sorted({*found.unexpected_keys} | (places & {*found.missing_keys})):
        raise ValueError(f"its adapter does not fit its base {base}: {len(wrong)} tensors, such as {wrong[0]}")
    return weights | model.merge_and_unload().state_dict()


def _matrices(weights: dict[str, torch.Tensor]) -> nn.Module:
    """The matrices of a checkpoint as linear layers of a module that is nothing else, for peft to find by name."""
    root = nn.Module()
    for name, weight in weights.items():
        *path, last, kind = name.split(".")
        if kind != "weight" or weight.dim() != 2:
            continue
        at = root
        for part in path:
            if part not in at._modules:
                at.add_module(part, nn.Module())
            at = at.get_submodule(part)
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        layer.weight = nn.Parameter(weight, requires_grad=False)
        at.add_module(last, layer)
    return root

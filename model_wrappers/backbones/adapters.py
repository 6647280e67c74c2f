"""Adapters: a folder of peft's is merged into the weights of its base, under the names that the
base's files have.

The merged weights are then read as any checkpoint's are. So an adapter fits that was trained on the
model's official code, whatever this project calls the same layers.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.utils import cached_file

from model_wrappers.backbones.weights import QUIET, safetensors_of

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def adapter_of(source: str) -> Path | None:
    """Where the files of an adapter lie; None for a folder or hub id that holds none."""
    try:
        config = cached_file(source, CONFIG, **QUIET)
    except OSError:  # neither a folder nor a hub id, as the search for its config will say
        config = None
    if config is None:
        return None
    for name in WEIGHTS:  # of a hub id, they come into its folder
        cached_file(source, name, **QUIET)
    return Path(config).parent


def base_of(folder: Path) -> str:
    """The model that an adapter is for: the weights in its folder, else what its config names.

    Raises:
        ValueError: a config that names none.
    """
    if (folder / "config.json").exists() and [*folder.glob("model*.safetensors")]:
        return str(folder)
    name = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not name:
        raise ValueError(f"{folder / CONFIG} names no base_model_name_or_path")
    return str(name)


def merged(adapter: Path, base: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights of a base with an adapter merged into them.

    Args:
        adapter: a folder.
        base: a folder or hub id.
        dtype: of the merge, as peft has it for a model that is loaded in it.

    Returns:
        Weights by the names of the base's files.

    Raises:
        ValueError: without peft, for a base of another shape or without safetensors, and for an
            adapter that is no LoRA.
    """
    try:
        from peft import PeftConfig, PeftModel
        from peft.utils.save_and_load import load_peft_weights, set_peft_model_state_dict
    except ImportError as error:
        raise ValueError(
            f"it holds an adapter ({CONFIG}), which needs peft: pip install 'peft>=0.18'"
        ) from error

    config = PeftConfig.from_pretrained(str(adapter))
    if config.peft_type != "LORA":
        raise ValueError(f"its adapter is {config.peft_type}, and only LoRA is merged")
    config.task_type = None  # peft asks the model of a task for more than matrices
    config.inference_mode = True
    weights = {
        name: tensor.to(dtype)
        for file in safetensors_of(base)
        for name, tensor in load_file(file).items()
    }
    try:
        model = PeftModel(_matrices(weights), config)
        places = [
            name for name in model.state_dict() if "lora_" in name or "modules_to_save" in name
        ]
        info: Any = set_peft_model_state_dict(model, load_peft_weights(str(adapter), device="cpu"))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"its adapter does not fit its base {base}: {' '.join(str(error).split())}"
        ) from error
    wrong = [*info.unexpected_keys, *(name for name in places if name in info.missing_keys)]
    if wrong:
        raise ValueError(
            f"its adapter does not fit its base {base}: {len(wrong)} tensors, such as {wrong[0]}"
        )
    return weights | model.merge_and_unload().state_dict()


def _matrices(weights: dict[str, Tensor]) -> nn.Module:
    """The matrices of a checkpoint as linear layers of a module that is nothing else, for peft to
    find by name."""
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

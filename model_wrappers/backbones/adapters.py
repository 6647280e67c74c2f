"""Adapters: merge an adapter of peft into the weights of its base, by the names in the base's
files.

The merged weights are then loaded as those of any checkpoint. So an adapter that was trained on a
model's official code fits, although this project has other names for the layers.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.utils import cached_file

from model_wrappers.backbones.weights import OR_NONE, safetensors_of

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def adapter_of(source: str) -> Path | None:
    """The folder of an adapter's files; None if the folder or hub id has no adapter."""
    try:
        config = cached_file(source, CONFIG, **OR_NONE)
    except OSError:  # neither a folder nor a hub id: loading its config gives the message
        config = None
    if config is None:
        return None
    for name in WEIGHTS:  # a hub id's files are downloaded next to its config
        cached_file(source, name, **OR_NONE)
    return Path(config).parent


def base_of(folder: Path) -> str:
    """The base model of an adapter: the weights in its folder, or else the model that its config
    names.

    Raises:
        ValueError: the config names none.
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
        adapter: the adapter's folder.
        base: a folder or hub id.
        dtype: dtype of the merge, as when peft merges into a model that was loaded in it.

    Returns:
        Weights by the names in the base's files.

    Raises:
        ValueError: peft is not installed, the adapter is no LoRA, or the base has other shapes or
            no safetensors.
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
        tensor_names = [
            name for name in model.state_dict() if "lora_" in name or "modules_to_save" in name
        ]
        info: Any = set_peft_model_state_dict(model, load_peft_weights(str(adapter), device="cpu"))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"its adapter does not fit its base {base}: {' '.join(str(error).split())}"
        ) from error
    unfit = [*info.unexpected_keys, *(name for name in tensor_names if name in info.missing_keys)]
    if unfit:
        raise ValueError(
            f"its adapter does not fit its base {base}: {len(unfit)} tensors, such as {unfit[0]}"
        )
    return weights | model.merge_and_unload().state_dict()


def _matrices(weights: dict[str, Tensor]) -> nn.Module:
    """A module whose linear layers are a checkpoint's matrices, for peft to find by name."""
    root = nn.Module()
    for name, weight in weights.items():
        *path, last, kind = name.split(".")
        if kind != "weight" or weight.dim() != 2:
            continue
        parent = root
        for part in path:
            if part not in parent._modules:
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        layer.weight = nn.Parameter(weight, requires_grad=False)
        parent.add_module(last, layer)
    return root

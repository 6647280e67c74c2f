"""Loading a backbone: the architectures by `model_type`, and the checkpoints shipped with this project.

A new architecture is one file beside this one and one entry in FAMILIES.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from model_wrappers.backbones import llada
from model_wrappers.backbones.model import Backbone, Family

FAMILIES: dict[str, Family] = {family.model_type: family for family in (llada.FAMILY,)}
NANO = Path(__file__).parents[1] / "nano"
SHIPPED = {"nano": NANO} | {f"nano-{role}": NANO / role for role in ("fef", "control")}
DEVICES = "cpu, cuda, cuda:0, ..."
LOADING_ERRORS = (
    *(OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError),
    *(SafetensorError, StrictDataclassError, UnpicklingError),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie if it is shipped or a local folder; for a hub id a path that does not exist."""
    return SHIPPED.get(str(name), Path(name))


def load_backbone(
    name: str | Path,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    attn: str = "sdpa",
    compiled: bool = False,
) -> Backbone:
    """Load a shipped model (SHIPPED: "nano" and what was trained from it), a local folder or a hub id.

    Folders and hub ids are in LLaDA's format or ours.
    dtype: a name or torch.dtype; None is bfloat16 on a GPU and float32 on a CPU. attn: "sdpa". compiled: run the model
    through torch.compile. A folder without a tokenizer loads too; then only `decode` on ids works. Raises ValueError
    for anything that cannot be loaded.
    """
    torch_device = device_named(device)
    torch_dtype = dtype_named(dtype, torch_device)
    folder = model_folder(name)
    if folder.exists() and not (folder / "config.json").exists():
        raise ValueError(f"{folder} has no config.json: not a model folder; give nano, a folder or a hub id")
    source = str(folder) if folder.exists() else str(name)
    with _named_in_errors(name):
        family = _family(source)
        if attn not in family.attention:
            raise ValueError(f"unknown attn {attn!r}; valid: {', '.join(family.attention)}")
        loading: Any = family.model
        model, info = loading.from_pretrained(
            source, dtype=torch_dtype, attn_implementation=family.attention[attn], output_loading_info=True
        )
        _check_weights(model, info)
    return Backbone(family, model.to(torch_device), _tokenizer(source), str(name), compiled)


def _check_weights(model: torch.nn.Module, info: Any) -> None:
    """Raise ValueError unless the file and the config have the same weights, finite, no matrix all zero."""
    if info["missing_keys"]:  # they would stay random
        raise ValueError(f"no weights for {', '.join(sorted(info['missing_keys']))}")
    # Angles are computed; some checkpoints hold them all the same.
    unused = sorted(name for name in info["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq"))
    if unused:
        raise ValueError(f"the config has no place for {len(unused)} of its weights, such as {unused[0]}")
    for name, weight in model.named_parameters():
        low, high = weight.detach().aminmax()
        if not bool(torch.isfinite(low) & torch.isfinite(high)):
            raise ValueError(f"the weights {name} are not finite: the file is damaged")
        if weight.dim() > 1 and not bool((low != 0) | (high != 0)):
            raise ValueError(f"the weights {name} are all zero: the file is not of a trained model")


def _family(source: str) -> Family:
    """The family of a checkpoint, by its config's `model_type`. Raises ValueError for one that is not known."""
    try:
        config, _ = PretrainedConfig.get_config_dict(source)
    except (AttributeError, TypeError):  # what becomes of some JSON that is no object
        config = None
    if not isinstance(config, dict):
        raise ValueError("its config.json must hold a JSON object")
    model_type = config.get("model_type", llada.FAMILY.model_type)
    if model_type not in FAMILIES:
        raise ValueError(f"unknown model_type {model_type!r}; valid: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


@contextmanager
def _named_in_errors(name: str | Path) -> Iterator[None]:
    """What goes wrong when a model is loaded as one line with the model's name, a ValueError."""
    try:
        yield
    except LOADING_ERRORS as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"cannot load model {name!s}: {reason} (valid: nano, a local folder, a hub id)") from error


def device_named(device: str | torch.device) -> torch.device:
    """The device. Raises ValueError if there is none of that name here."""
    try:
        torch_device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"unknown device {device!r}; valid: {DEVICES}") from error
    if torch_device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {device!s} is not supported; valid: {DEVICES}")
    if torch_device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!s} was asked for, but torch sees no CUDA device; use cpu")
    return torch_device


def dtype_named(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype; None is bfloat16 on a GPU and float32 on a CPU. Raises ValueError for an unknown name."""
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a model's folder or hub id; None where it has none."""
    try:
        return PreTrainedTokenizerFast.from_pretrained(source)
    except (OSError, ValueError, TypeError) as error:
        if (Path(source) / "tokenizer.json").exists():
            raise ValueError(f"cannot load the tokenizer of {source}: {error}") from error
        return None

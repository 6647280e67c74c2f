"""Load backbones: find the family by `model_type`, and the checkpoints that this project ships.

A new architecture is a file in this folder and an entry in families.toml.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import cached_file

from model_wrappers.backbones.adapters import adapter_of, base_of, merged
from model_wrappers.backbones.families import FAMILIES
from model_wrappers.backbones.model import Backbone, Family, ReadsAt, check_finite
from model_wrappers.backbones.placement import DeviceMap, main_device
from model_wrappers.backbones.protocol import counted_by
from model_wrappers.backbones.weights import OR_NONE, check_dtypes, load_remote, load_weights, quiet

NANO = Path(__file__).parents[1] / "nano"
# nano, and the checkpoints trained from it, by name.
SHIPPED = {"nano": NANO} | {
    f"nano-{config.parent.name}": config.parent for config in sorted(NANO.glob("*/config.json"))
}
VALID = "(valid: nano, a local folder, a hub id)"
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "float": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "half": torch.float16,
}


def load_backbone(
    name: str | Path,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    reads_at: ReadsAt | None = None,
    cuda_graphs: bool = False,
    device_map: DeviceMap | None = None,
    offload_folder: str | Path | None = None,
) -> Backbone:
    """Load a shipped model ("nano" and what was trained from it), a local folder or a hub id.

    A folder or hub id has a model of one of FAMILIES, in its official format or this project's, or
    an adapter of peft, which is merged into its base. Without a tokenizer only `decode` on ids
    works.

    Args:
        name: "nano", another shipped model's name, a folder or a hub id.
        device: a name or torch.device.
        dtype: a name or torch.dtype, or "auto" for the checkpoint's (None: bfloat16 on a GPU,
            float32 on a CPU).
        trust_remote_code: whether to load a model of an unknown family by running the code that
            comes with it (weights.py says what such a model cannot do).
        reads_at: 0 if the logits at position i predict token i, -1 if those at i - 1 do (None: the
            family's, or else 0).
        cuda_graphs: whether to run by CUDA graphs, on a GPU.
        device_map: replaces device for a model that is larger than one: "auto" for all visible
            devices, or devices by the names of modules, as in transformers.
        offload_folder: folder for weights that a device map puts on "disk".

    Raises:
        ValueError: the model cannot be loaded.
    """
    torch_device = _main_device(device, device_map, cuda_graphs)
    placed: dict[str, Any] = {}
    if device_map is not None:
        placed = {"device_map": device_map, "offload_folder": offload_folder}
    if reads_at not in (None, 0, -1):
        raise ValueError(
            f"reads_at={reads_at!r} must be 0 (logits at a position predict its token) or -1 (the"
            " next)"
        )
    try:
        # An adapter's folder has no config.json of a model: that is its base's.
        folder = _source(name)
        adapter = adapter_of(folder)
        source = folder if adapter is None else _source(base_of(adapter))
        config = _config(source)
        family = family_of(config)
        torch_dtype = dtype_named(dtype, torch_device, config)
        if family is not None:
            family = family.imported()
            if reads_at is not None:
                family = replace(family, reads_at=reads_at)
            model = _model(family, source, config, adapter, dtype=torch_dtype, **placed)
            if device_map is None:
                model.to(torch_device)
            tokenizer = None if adapter is None else _tokenizer(str(adapter), family)
            if tokenizer is None:
                tokenizer = _tokenizer(source, family)
            kind: Any = family.backbone or Backbone
            backbone: Backbone = kind(family, model, tokenizer, str(name), cuda_graphs)
            backbone.adapter = adapter
        elif not trust_remote_code:
            raise ValueError(
                f"unknown model_type {config.get('model_type')!r}; known: {', '.join(FAMILIES)};"
                " --trust-remote-code (trust_remote_code=True) runs the code that comes with a"
                " model"
            )
        elif cuda_graphs or adapter is not None:
            raise ValueError("CUDA graphs and adapters need a model of a known family")
        else:
            options = {"dtype": torch_dtype, **placed}
            backbone = load_remote(source, config, str(name), reads_at or 0, **options)
            if device_map is None:
                backbone.model.to(torch_device)
        # If a decoder loads a model, the calls of this check are no cost of its response.
        with counted_by(None):
            check_finite(backbone)
    except Exception as error:  # transformers raises many kinds for a damaged folder
        raise ValueError(f"cannot load model {name!s}: {_reason(error)}") from error
    return backbone


def _model(
    family: Any,
    source: str,
    config: dict[str, Any],
    adapter: Path | None,
    **options: Any,
) -> Any:
    """Load the model of a known family, with its adapter merged; options are
    `from_pretrained`'s."""
    check_dtypes(source)
    weights = None if adapter is None else merged(adapter, source, options["dtype"])
    with quiet():
        settings = family.model.config_class.from_dict(config)
    options["attn_implementation"] = family.attention["sdpa"]
    return load_weights(family.model, source, settings, weights, **options)


def model_folder(name: str | Path) -> Path:
    """The folder of a shipped or local model; for a hub id a path that does not exist."""
    return SHIPPED.get(str(name), Path(name).expanduser())


def _source(name: str | Path) -> str:
    """The folder of a shipped or local model, or else the hub id. Raises ValueError for a path that
    does not exist."""
    folder = model_folder(name)
    if folder.exists():
        return str(folder)
    if str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:
        raise ValueError(f"there is no such folder {VALID}")
    return str(name)


def _reason(error: Exception) -> str:
    """Why a model cannot be loaded, in a line."""
    reason = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
    if isinstance(error, OSError):  # a name that the hub does not know
        return f"{reason} {VALID}"
    if isinstance(error, ValueError | RuntimeError):
        return reason
    return f"{type(error).__name__} {reason}"


def family_of(config: dict[str, Any]) -> Family | None:
    """The family of a checkpoint by the `architectures` of its config.json, or else by its
    `model_type`; None if it is unknown."""
    listed = set(config.get("architectures") or ())
    model_type = config.get("model_type", "llada")
    # Architectures first: LLaDA-MoE's model_type is "llada" too.
    by_architecture = (family for family in FAMILIES.values() if listed & set(family.architectures))
    by_type = (
        family for family in FAMILIES.values() if model_type in (family.model_type, *family.also)
    )
    return next(by_architecture, None) or next(by_type, None)


def register_family(family: Family) -> Family:
    """Let `load_backbone` load checkpoints of this family.

    Raises:
        ValueError: the model has no `infer`, or a model_type or architecture is taken.
    """
    name = family.model_type
    if not isinstance(family.model, str) and not hasattr(family.model, "infer"):
        raise ValueError(
            f"the model of the family {name!r} has no `infer`; derive {family.model.__name__} from "
            "model_wrappers.backbones.heads.HeadAtPositions as well, or write one"
        )
    for existing in FAMILIES.values():
        for taken in sorted(family.names & existing.names):
            raise ValueError(f"a family of {taken!r} is there already")
    FAMILIES[name] = family
    return family


def _config(source: str) -> dict[str, Any]:
    """A checkpoint's config.json, checked, without fields that would scale rotary angles by 1."""
    config, _ = PretrainedConfig.get_config_dict(source)
    if config.pop("quantization_config", None):
        raise ValueError("its weights are quantized (quantization_config), which is not supported")
    for name in ("dtype", "torch_dtype"):
        if config.get(name) == "auto":
            del config[name]
    family = family_of(config)
    if family is None:
        return config
    # Without sizes, as without a config.json, transformers would build a model of its default
    # sizes, which takes 28 GB.
    if not {"hidden_size", "d_model", "text_config"} & set(config):
        raise ValueError(f"its config.json names no sizes, such as hidden_size {VALID}")
    if family.causal or family.mask is None:
        return config
    for name in ("rope_scaling", "rope_parameters"):
        rope = config.pop(name, None) or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default" and (kind != "linear" or rope.get("factor") != 1):
            raise ValueError(f"its config asks for what this code does not compute: {name}={rope}")
        if "rope_theta" in rope:
            config[name] = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
    return config


def _main_device(
    device: str | torch.device, device_map: DeviceMap | None, cuda_graphs: bool
) -> torch.device:
    """The device of a model; for a model with a map, the kind of device that it computes on."""
    if device_map is None:
        return device_named(device, cuda_graphs)
    if str(device) != "cpu":
        raise ValueError(f"device_map says where a model is: leave device={device!s} out")
    if cuda_graphs:
        raise ValueError("CUDA graphs are of one device: leave them out, or device_map")
    return device_named(main_device(device_map))


def device_named(device: str | torch.device, cuda_graphs: bool = False) -> torch.device:
    """The device of a name, prepared for decoding.

    Raises:
        ValueError: there is no such device, or it has no CUDA graphs if these are wanted.
    """
    try:
        torch_device = torch.device(device)
    except RuntimeError:  # no device's name: refused below as a kind that is not supported
        torch_device = torch.device("meta")
    if torch_device.type not in ("cpu", "cuda"):
        problem = "is not supported; valid: cpu, cuda, cuda:0, ..."
    elif torch_device.type == "cuda" and not torch.cuda.is_available():
        problem = "was asked for, but torch sees no CUDA device; use cpu"
    elif cuda_graphs and torch_device.type != "cuda":
        problem = "has no CUDA graphs: leave them out, or run on a GPU"
    else:
        if torch_device.type == "cuda":
            # cuDNN plans attention anew for every shape, which takes some 50 ms: decoders that run
            # pieces of many lengths would be slowed down most (results/LOG.md).
            torch.backends.cuda.enable_cudnn_sdp(False)
        return torch_device
    raise ValueError(f"device {device!s} {problem}")


def dtype_named(
    dtype: str | torch.dtype | None, device: torch.device, config: dict[str, Any] | None = None
) -> torch.dtype:
    """The dtype of a name.

    Args:
        dtype: a name or torch.dtype. "auto" is the config's, if it has one; that failing, and for
            None, it is bfloat16 on a GPU and float32 on a CPU.
        device: the model's device.
        config: the checkpoint's config.

    Raises:
        ValueError: the name is unknown.
    """
    if dtype == "auto":
        fields = config or {}
        dtype = fields.get("dtype") or fields.get("torch_dtype")
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    name = dtype.removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(DTYPES)}, auto")
    return DTYPES[name]


def _tokenizer(source: str, family: Any) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a model's folder or hub id; None if it has none."""
    file = cached_file(source, "tokenizer.json", **OR_NONE)
    if file is None:
        if family.tokenizer is None or cached_file(source, "vocab.json", **OR_NONE) is None:
            return None
        return family.tokenizer.from_pretrained(source)
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(source)
    # Where the ids of added tokens have a gap, loading renumbers them without notice.
    for added in json.loads(Path(file).read_text(encoding="utf-8")).get("added_tokens") or []:
        read = tokenizer.convert_tokens_to_ids(added["content"])
        if read != added["id"]:
            raise ValueError(
                f"the tokenizer of {source} has {added['content']} as {added['id']}, and reads"
                f" {read}"
            )
    return tokenizer

"""Loading a backbone: the architectures by `model_type`, and the checkpoints shipped with this
project.

A new architecture is a file in this folder and an entry in families.ALL.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import cached_file

from model_wrappers.backbones import families, llada
from model_wrappers.backbones.adapters import CONFIG as ADAPTER
from model_wrappers.backbones.adapters import WEIGHTS as ADAPTER_WEIGHTS
from model_wrappers.backbones.adapters import adapter_of, base_of, merged
from model_wrappers.backbones.model import Backbone, Family, ReadsAt, check_finite
from model_wrappers.backbones.protocol import counted_by
from model_wrappers.backbones.weights import QUIET, check_dtypes, load_remote, load_weights, quiet

FAMILIES: dict[str, Family] = {family.model_type: family for family in families.ALL}
NANO = Path(__file__).parents[1] / "nano"
TRAINED = (
    "fef",
    "control",
    "ar",
    "long",
    "long-control",
    "block",
    "block-control",
    "block-linear",
    "parallel",
    "parallel-control",
)
SHIPPED = {"nano": NANO} | {f"nano-{name}": NANO / name for name in TRAINED}
DEVICES = "cpu, cuda, cuda:0, ..."
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHORT_DTYPES = {
    "fp32": "float32",
    "float": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
}


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie if it is shipped or a local folder; for a hub id a path that
    does not exist."""
    return SHIPPED.get(str(name), Path(name).expanduser())


def load_backbone(
    name: str | Path,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    attn: str = "sdpa",
    trust_remote_code: bool = False,
    reads_at: ReadsAt | None = None,
    cuda_graphs: bool = False,
) -> Backbone:
    """Load a shipped model ("nano" and what was trained from it), a local folder or a hub id.

    Folders and hub ids are of one of FAMILIES, in its official format or ours, or hold an adapter
    of peft's, which is merged into its base; without a tokenizer only `decode` on ids works.

    Args:
        name: of the model.
        device: a name or torch.device.
        dtype: a name or torch.dtype, or "auto", the checkpoint's; None is bfloat16 on a GPU and
            float32 on a CPU.
        attn: "sdpa", for which "eager" stands too.
        trust_remote_code: load a model of no known family by running the code that comes with it
            (weights.py says what it then can do).
        reads_at: 0 where the logits at position i predict token i, -1 where those at i - 1 do;
            None is the family's, else 0.
        cuda_graphs: CUDA graphs, on a GPU.

    Raises:
        ValueError: for what cannot be loaded.
    """
    torch_device = device_named(device, cuda_graphs)
    if isinstance(dtype, str) and dtype != "auto":
        dtype = dtype_named(dtype, torch_device)
    if reads_at not in (None, 0, -1):
        raise ValueError(
            f"reads_at={reads_at!r} must be 0 (logits at a position predict its token) or -1 (the"
            " next)"
        )
    given = _source(name)
    try:
        adapter = adapter_of(given)
        source = given if adapter is None else _source(base_of(adapter))
        _check_folder(Path(source))
        config = _config(source)
        family = family_of(config)
        torch_dtype = dtype_named(dtype, torch_device, config)
        if family is None:
            _check_remote(config, trust_remote_code, adapter, cuda_graphs)
            backbone: Backbone = load_remote(
                source, config, str(name), reads_at or 0, dtype=torch_dtype
            )
            backbone.model.to(torch_device)
        else:
            family = family.imported()
            if reads_at is not None:
                family = replace(family, reads_at=reads_at)
            how = {"dtype": torch_dtype, "attn_implementation": _attention(family, attn)}
            model = _model(family, source, config, adapter, how).to(torch_device)
            backbone = _backbone(family, model, source, adapter, str(name), cuda_graphs)
        with counted_by(None):  # a decoder that loads a model pays for its own calls alone
            check_finite(backbone)
    except Exception as error:  # whatever transformers makes of a folder
        raise ValueError(f"cannot load model {name!s}: {_reason(error, given)}") from error
    return backbone


def _model(
    family: Any, source: str, config: dict[str, Any], adapter: Path | None, how: dict[str, Any]
) -> Any:
    """The model of a known family, with its adapter merged. how: options of transformers'
    `from_pretrained`."""
    check_dtypes(source)
    weights = None if adapter is None else merged(adapter, source, how["dtype"])
    with quiet():
        settings = family.model.config_class.from_dict(config)
    return load_weights(family.model, source, settings, weights, **how)


def _backbone(
    family: Any, model: Any, source: str, adapter: Path | None, name: str, cuda_graphs: bool
) -> Backbone:
    """A loaded model with its tokenizer, which an adapter may bring."""
    tokenizer = None
    if adapter is not None:
        tokenizer = _tokenizer(str(adapter), family)
        blocks = family.blocks_of(model.config.to_dict(), source)
        if blocks is not None:
            family = replace(family, blocks={"": blocks})  # by the name of the base
    if tokenizer is None:
        tokenizer = _tokenizer(source, family)
    backbone: Backbone = (family.backbone or Backbone)(family, model, tokenizer, name, cuda_graphs)
    backbone.adapter = adapter
    return backbone


def _source(name: str | Path) -> str:
    """The folder of a model that is here, else its hub id. Raises ValueError for a folder that is
    not there."""
    folder = model_folder(name)
    if folder.exists():
        return str(folder)
    if str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:
        raise ValueError(
            f"cannot load model {name}: there is no such folder (valid: nano, a local folder, a"
            " hub id)"
        )
    return str(name)


def _check_folder(folder: Path) -> None:
    """Raise ValueError for a folder that holds no model, or an adapter that would be passed
    over."""
    if not folder.exists():
        return
    if not (folder / "config.json").exists():
        raise ValueError(
            "it has no config.json: not a model folder; give nano, a folder or a hub id"
        )
    if not (folder / ADAPTER).exists():
        for name in ADAPTER_WEIGHTS:
            if (folder / name).exists():
                raise ValueError(f"it holds the weights of an adapter, {name}, and no {ADAPTER}")


def _check_remote(
    config: dict[str, Any], trusted: bool, adapter: Path | None, cuda_graphs: bool
) -> None:
    """Raise ValueError unless a model of no known family may and can run by its own code."""
    if not trusted:
        raise ValueError(
            f"unknown model_type {config.get('model_type')!r}; known: {', '.join(FAMILIES)};"
            " --trust-remote-code (trust_remote_code=True) runs the code that comes with a model"
        )
    if cuda_graphs or adapter is not None:
        raise ValueError(
            "CUDA graphs and adapters need a model of a known family, not one that brings its own"
            " code"
        )


def _attention(family: Family, name: str) -> str:
    """What transformers calls an attention. Raises ValueError for an unknown name."""
    if name == "eager":
        name = "sdpa"  # the same numbers
    if name not in family.attention:
        raise ValueError(f"unknown attn {name!r}; valid: {', '.join(family.attention)}")
    return family.attention[name]


def _reason(error: Exception, source: str) -> str:
    """Why a model cannot be loaded, in a line."""
    reason = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
    if not isinstance(error, OSError | ValueError | RuntimeError):
        reason = f"{type(error).__name__} {reason}"
    # a name that the hub does not know
    if isinstance(error, OSError) and not Path(source).exists():
        reason += " (valid: nano, a local folder, a hub id)"
    return reason


def family_of(config: dict[str, Any]) -> Family | None:
    """The family of a checkpoint, by what its config.json lists as architectures or else says as
    `model_type`."""
    listed = set(config.get("architectures") or ())
    model_type = config.get("model_type", llada.FAMILY.model_type)
    by_architecture = (each for each in FAMILIES.values() if listed & set(each.architectures))
    by_type = (each for each in FAMILIES.values() if model_type in (each.model_type, *each.also))
    return next(by_architecture, None) or next(by_type, None)


def register_family(family: Family) -> Family:
    """Have `load_backbone` load checkpoints of this family's model_type.

    Raises ValueError for a model without `infer`, and a model_type or an
    architecture that is taken.
    """
    name = family.model_type
    if not isinstance(family.model, str) and not hasattr(family.model, "infer"):
        raise ValueError(
            f"the model of the family {name!r} has no `infer`; derive {family.model.__name__} from "
            "model_wrappers.backbones.heads.HeadAtPositions as well, or write one"
        )
    taken = {kind for known in FAMILIES.values() for kind in (known.model_type, *known.also)}
    taken |= {kind for known in FAMILIES.values() for kind in known.architectures}
    for kind in (name, *family.also, *family.architectures):
        if kind in taken:
            raise ValueError(f"a family of {kind!r} is there already")
    FAMILIES[family.model_type] = family
    return family


def _config(source: str) -> dict[str, Any]:
    """A checkpoint's config.json, without what asks for nothing.

    Raises ValueError for one that holds no JSON object, and for quantized weights and scaled
    angles.
    """
    config, _ = PretrainedConfig.get_config_dict(source)
    if not isinstance(config, dict):
        raise ValueError("its config.json must hold a JSON object")
    if config.get("quantization_config"):
        raise ValueError("its weights are quantized (quantization_config), which is not supported")
    config.pop("quantization_config", None)
    for name in ("dtype", "torch_dtype"):
        if config.get(name) == "auto":
            del config[name]
    family = family_of(config)
    if family is None:
        return config
    # transformers' own would take 28 GB
    if not {"hidden_size", "d_model", "text_config"} & set(config):
        raise ValueError("its config names no sizes, such as hidden_size")
    if not family.causal and family.mask is not None:
        for name in ("rope_scaling", "rope_parameters"):
            rope = _unscaled(name, config.pop(name, None))
            if rope is not None:
                config[name] = rope
    return config


def _unscaled(name: str, rope: dict[str, Any] | None) -> dict[str, Any] | None:
    """Rotary angles of a config without a scale of 1. Raises ValueError for another one, which is
    not computed."""
    if not rope:
        return None
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default" and (kind != "linear" or rope.get("factor") not in (None, 1)):
        raise ValueError(f"its config asks for what this code does not compute: {name}={rope}")
    if "rope_theta" not in rope:
        return None
    return {"rope_type": "default", "rope_theta": rope["rope_theta"]}


def device_named(device: str | torch.device, cuda_graphs: bool = False) -> torch.device:
    """The device. Raises ValueError if there is none of that name here, or none that has the graphs
    that are wanted."""
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        wrong = f"is {'unknown' if found is None else 'not supported'}; valid: {DEVICES}"
    elif found.type == "cuda" and not torch.cuda.is_available():
        wrong = "was asked for, but torch sees no CUDA device; use cpu"
    elif cuda_graphs and found.type != "cuda":
        wrong = "has no CUDA graphs: leave them out, or run on a GPU"
    else:
        return found
    raise ValueError(f"device {device!s} {wrong}")


def dtype_named(
    dtype: str | torch.dtype | None, device: torch.device, config: dict[str, Any] | None = None
) -> torch.dtype:
    """The dtype; None is bfloat16 on a GPU and float32 on a CPU, "auto" what the config says, or
    else that.

    Raises ValueError for an unknown name.
    """
    if dtype == "auto":
        written = config or {}
        dtype = written.get("dtype") or written.get("torch_dtype")
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    name = str(dtype).removeprefix("torch.")
    name = SHORT_DTYPES.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(DTYPES)}, auto")
    return DTYPES[name]


def _tokenizer(source: str, family: Family) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a model's folder or hub id; None where it has none."""
    kind: Any = PreTrainedTokenizerFast
    if (
        family.tokenizer is not None
        and not _has(source, "tokenizer.json")
        and _has(source, "vocab.json")
    ):
        kind = family.tokenizer
    try:
        tokenizer = kind.from_pretrained(source)
    except Exception as error:  # tokenizers raises nothing more special
        if any((Path(source) / file).exists() for file in ("tokenizer.json", "vocab.json")):
            reason = (
                str(error)
                if isinstance(error, OSError | ValueError)
                else f"{type(error).__name__}: {error}"
            )
            raise ValueError(f"cannot load the tokenizer of {source}: {reason}") from error
        return None
    if (
        file := cached_file(source, "tokenizer.json", **QUIET)
    ) is not None:  # loading numbers them anew where they gap
        added = json.loads(Path(file).read_text(encoding="utf-8")).get("added_tokens") or []
        for each in added:
            if (found := tokenizer.convert_tokens_to_ids(each["content"])) != each["id"]:
                raise ValueError(
                    f"the tokenizer of {source} has {each['content']} as {each['id']}, and reads"
                    f" {found}"
                )
    return tokenizer


def _has(source: str, file: str) -> bool:
    """Whether a model's folder or hub id has a file."""
    return cached_file(source, file, **QUIET) is not None

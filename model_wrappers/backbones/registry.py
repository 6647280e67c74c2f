"""Loading a backbone: the architectures by `model_type`, and the checkpoints shipped with this project.

A new architecture is a file in this folder and an entry in FAMILIES.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import cached_file

from model_wrappers.backbones import llada, mixtures, qwen
from model_wrappers.backbones.adapters import CONFIG as ADAPTER
from model_wrappers.backbones.adapters import QUIET, adapter_of, base_of, merged
from model_wrappers.backbones.adapters import WEIGHTS as ADAPTER_WEIGHTS
from model_wrappers.backbones.model import Backbone, Family, ReadsAt, check_extends
from model_wrappers.backbones.weights import load_remote, load_weights

FAMILIES: dict[str, Family] = {
    each.model_type: each for each in (llada.FAMILY, llada.LLAMA_FAMILY, *mixtures.FAMILIES, *qwen.FAMILIES)
}
BUILT_IN = frozenset(FAMILIES)
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
LOADING_ERRORS = (
    *(OSError, EOFError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError),
    AssertionError,
    *(SafetensorError, StrictDataclassError, UnpicklingError),
)
SIZES = ("hidden_size", "d_model", "num_hidden_layers", "n_layers", "num_attention_heads", "n_heads", "vocab_size")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
# What transformers' rope_parameters may hold and is computed; anything else that is neither null nor 1 is not.
ROPE = dict.fromkeys(("rope_type", "type"), (None, "default"))
SCALED = (  # of other architectures, or of old names
    *("rope_scaling_factor", "scaling_factor", "final_logit_softcapping", "attn_logit_softcapping"),
    *("logit_scale", "logits_scaling", "embedding_multiplier", "residual_multiplier", "attention_multiplier"),
)
PARTIAL = ("llada2_moe",)  # models that turn a part of each head, as partial_rotary_factor says
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie if it is shipped or a local folder; for a hub id a path that does not exist."""
    return SHIPPED.get(str(name), Path(name))


def load_backbone(
    name: str | Path,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    attn: str = "sdpa",
    trust_remote_code: bool = False,
    reads_at: ReadsAt | None = None,
    cuda_graphs: bool = False,
) -> Backbone:
    """Load a shipped model (SHIPPED: "nano" and what was trained from it), a local folder or a hub id.

    Folders and hub ids are of one of FAMILIES, in its official format or ours, or hold an adapter of peft's, which is
    merged into its base; without a tokenizer only `decode` on ids works. dtype: a name or torch.dtype; None is bfloat16
    on a GPU and float32 on a CPU. attn: "sdpa".
    trust_remote_code: load a model of no known family by running the code that comes with it (weights.py says what it
    then can do). reads_at: 0 where the logits at position i predict token i, -1 where those at i - 1 do (None: the
    family's, else 0). cuda_graphs: CUDA graphs, on a GPU. Raises ValueError for what cannot be loaded.
    """
    torch_device = device_named(device, cuda_graphs)
    torch_dtype = dtype_named(dtype, torch_device)
    if reads_at is not None and (type(reads_at) is not int or reads_at not in (0, -1)):
        raise ValueError(f"reads_at={reads_at!r} must be 0 (logits at a position predict its token) or -1 (the next)")
    folder = model_folder(name)
    given = str(folder) if folder.exists() else str(name)
    adapter = adapter_of(given)
    base = given if adapter is None else base_of(adapter)
    folder = model_folder(base)
    source = str(folder) if folder.exists() else base
    if not folder.exists() and (base.startswith((".", "/", "~")) or base.count("/") > 1):
        raise ValueError(f"cannot load model {base}: there is no such folder (valid: nano, a local folder, a hub id)")
    for wrong in _folder_faults(folder):
        raise ValueError(f"{folder} {wrong}")
    try:
        config = _config(source)
        family = family_of(config)
        if family is None and not trust_remote_code:
            raise ValueError(
                f"unknown model_type {config.get('model_type')!r}; known: {', '.join(FAMILIES)}; --trust-remote-code "
                "(trust_remote_code=True) runs the code that comes with a model"
            )
        if family is None and cuda_graphs:
            raise ValueError("cuda_graphs=True needs a model of a known family, not one that brings its own code")
        if family is None and adapter is not None:
            raise ValueError("an adapter is merged into models of a known family alone: merge it with peft")
        if family is None:
            remote = load_remote(source, config, str(name), reads_at or 0, dtype=torch_dtype)
            remote.model.to(torch_device)
            return remote
        lacking = [size for size in ("hidden_size", "num_hidden_layers", "vocab_size") if size not in config]
        if family.causal and lacking:  # transformers' defaults are 7 B parameters
            raise ValueError(f"its config says model_type {family.model_type!r} and no {', '.join(lacking)}")
        asked = "" if family.causal or family.mask is None else _not_computed(config, family)
        if asked:
            raise ValueError(f"its config asks for what this code does not compute: {asked}")
        if attn not in family.attention:
            raise ValueError(f"unknown attn {attn!r}; valid: {', '.join(family.attention)}")
        _check_tensors(source, config)
        weights = None if adapter is None else merged(adapter, source, torch_dtype)
        how = {"dtype": torch_dtype, "attn_implementation": family.attention[attn]}
        model = load_weights(family.model, source, weights, **how)
    except LOADING_ERRORS as error:
        lines = [each.strip() for each in str(error).strip().splitlines()]
        reason = " ".join(lines if isinstance(error, StrictDataclassError) else lines[:1])
        if not isinstance(error, OSError | ValueError | RuntimeError):
            reason = f"{type(error).__name__} {reason}"
        raise ValueError(f"cannot load model {name!s}: {reason} (valid: nano, a local folder, a hub id)") from error
    if reads_at is not None:
        family = replace(family, reads_at=reads_at)
    tokenizer = None if adapter is None else _tokenizer(str(adapter), family)
    if adapter is not None and (blocks := family.blocks_of(config, base)) is not None:
        family = replace(family, blocks={"": blocks})  # by the name of the base
    backbone = (family.backbone or Backbone)(
        family, model.to(torch_device), tokenizer or _tokenizer(source, family), str(name), cuda_graphs
    )
    backbone.adapter = adapter
    if family.extends and family.model_type not in BUILT_IN:  # those are tested
        check_extends(backbone)
    return backbone


def family_of(config: dict[str, Any]) -> Family | None:
    """The family of a checkpoint, by what its config.json lists as architectures or else says as `model_type`."""
    listed = set(config.get("architectures") or ())
    model_type = config.get("model_type", llada.FAMILY.model_type)
    by_architecture = (each for each in FAMILIES.values() if listed & set(each.architectures))
    by_type = (each for each in FAMILIES.values() if model_type in (each.model_type, *each.also))
    return next(by_architecture, None) or next(by_type, None)


def register_family(family: Family) -> Family:
    """Have `load_backbone` load checkpoints of this family's model_type.

    Raises ValueError for what is no Family, a model without `infer`, and a model_type or an architecture that is taken.
    """
    given: Any = family
    wrong = ""
    if not isinstance(given, Family):
        wrong = f"register_family takes a model_wrappers.backbones.model.Family, not {type(given).__name__} {given!r}"
    elif not callable(getattr(family.model, "infer", None)):
        wrong = (
            f"the model of the family {family.model_type!r} has no `infer`; derive {family.model.__name__} from "
            "model_wrappers.backbones.heads.HeadAtPositions as well, or write one"
        )
    for known in FAMILIES.values() if not wrong else ():
        types = {known.model_type, *known.also} & {family.model_type, *family.also}
        if names := sorted(types or set(known.architectures) & set(family.architectures)):
            wrong = f"a family of {'model_type' if types else 'the architecture'} {names[0]!r} is there already"
    if wrong:
        raise ValueError(wrong)
    FAMILIES[family.model_type] = family
    return family


def _config(source: str) -> dict[str, Any]:
    """A checkpoint's config.json. Raises ValueError for one that holds no JSON object."""
    try:
        config, _ = PretrainedConfig.get_config_dict(source)
    except (AttributeError, TypeError):  # what becomes of some JSON that is no object
        config = None
    for wrong in _faults(config):
        raise ValueError(wrong)
    return dict(config or {})


def _faults(config: Any) -> Iterator[str]:
    """What a checkpoint's config.json has that this code cannot load, the first of which is said."""
    if not isinstance(config, dict):
        yield "its config.json must hold a JSON object"
    for name in SIZES:
        if isinstance(config.get(name), int) and config[name] < 1:
            yield f"the config's {name} must be at least 1, not {config[name]}"
    for name in ("dtype", "torch_dtype"):
        if config.get(name) is not None and not isinstance(getattr(torch, str(config[name]), None), torch.dtype):
            yield f"its config has the {name} {config[name]!r}; valid: {', '.join(DTYPES)}"
    if config.get("quantization_config") is not None:
        yield "its config asks for quantized weights, which are not supported: give a checkpoint without"
    sizes = [config[name] for name in ("block_size", "bd_size") if name in config]
    origin = config.get("block_origin")  # the default stands beside a null size in the configs of other models
    if origin is not None and (not sizes or (origin != "sequence" and not any(sizes))):
        yield "its config has a block_origin and no block_size: a block model needs the length of its blocks"
    if config.get("is_causal"):
        yield "its config says is_causal, and a masked model attends in both directions"
    named = {each for name in ("mask_token_id", "eos_token_id") if type(each := config.get(name)) is int}
    if len(named) == 1 and config.get("mask_token_id") == config.get("eos_token_id"):
        yield f"its config has the same id for mask and EOS, {min(named)}"


def _not_computed(config: dict[str, Any], family: Family) -> str:
    """What a config says of rotary angles that are scaled or of a part of each head, under the names of every
    generation, of two bases of theirs, of a sliding window, or of scaled activations; "" where nothing of these."""
    base, also = config.get("rope_theta"), (config.get("rope_parameters") or {}).get("rope_theta")
    if None not in (base, also) and base != also:
        return f"rope_theta={base} beside rope_parameters.rope_theta={also}"
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        return f"sliding_window={config['sliding_window']}"
    part = () if family.model_type in PARTIAL else ("partial_rotary_factor",)
    for field in ("rope_scaling", "rope_parameters"):
        rope = config.get(field) or {}
        names = rope.keys() - ({"rope_theta"} if part else {"rope_theta", "partial_rotary_factor"})
        if any(rope[name] not in ROPE.get(name, (None, 1)) for name in names):
            return f"{field}={rope}"
    factors = {field: config.get(field) for field in (*SCALED, *part)}
    return ", ".join(f"{field}={factor}" for field, factor in factors.items() if factor not in (None, 1))


def _folder_faults(folder: Path) -> Iterator[str]:
    """What a local folder has, or lacks, so that it is not clear which model it holds."""
    if folder.exists() and not (folder / "config.json").exists():
        yield "has no config.json: not a model folder; give nano, a folder or a hub id"
    sets = [name for name in WEIGHTS if (folder / name).exists()]
    if len(sets) > 1:
        yield f"holds {len(sets)} sets of weights, {' and '.join(sets)}: leave one of them there"
    if not (folder / ADAPTER).exists() and (names := [name for name in ADAPTER_WEIGHTS if (folder / name).exists()]):
        yield f"holds the weights of an adapter, {names[0]}, and no {ADAPTER}: put that there, or take them away"


def _check_tensors(source: str, config: dict[str, Any]) -> None:
    """Raise ValueError, before memory is taken, for what a folder's weights cannot be.

    Integers, of no tensor of the config's width, or with names of two formats, by which one would be there twice.
    """
    official, sizes, width = set[bool](), set[int](), config.get("hidden_size", config.get("d_model"))
    files = sorted(Path(source).glob("*.safetensors"))
    for file in files:
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                tensor = weights.get_slice(name)
                sizes |= {*tensor.get_shape()}
                official |= {name.startswith("model.transformer.")} if name.startswith("model.") else set()
                if not tensor.get_dtype().startswith(("F", "BF")) or tensor.get_dtype().startswith("F8"):
                    raise ValueError(
                        f"the tensor {name} is of type {tensor.get_dtype()}, and weights are floating-point numbers: "
                        "quantized checkpoints are not supported"
                    )
    if len(official) > 1:
        raise ValueError("some of its weights have LLaDA's official names, model.transformer.*, and some others")
    if files and isinstance(width, int) and width not in sizes:
        raise ValueError(f"no weight has the config's hidden size of {width}")


def device_named(device: str | torch.device, cuda_graphs: bool = False) -> torch.device:
    """The device. Raises ValueError if there is none of that name here, or none that has the graphs that are wanted."""
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


def dtype_named(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype; None is bfloat16 on a GPU and float32 on a CPU. Raises ValueError for an unknown name."""
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; valid: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _tokenizer(source: str, family: Family) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a model's folder or hub id; None where it has none."""
    kind: type[PreTrainedTokenizerBase] = PreTrainedTokenizerFast
    if family.tokenizer is not None and not _has(source, "tokenizer.json") and _has(source, "vocab.json"):
        kind = family.tokenizer
    try:
        tokenizer = kind.from_pretrained(source)
    except Exception as error:  # tokenizers raises nothing more special
        if any((Path(source) / file).exists() for file in ("tokenizer.json", "vocab.json")):
            reason = str(error) if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {error}"
            raise ValueError(f"cannot load the tokenizer of {source}: {reason}") from error
        return None
    if (file := cached_file(source, "tokenizer.json", **QUIET)) is not None:  # loading numbers them anew where they gap
        added = json.loads(Path(file).read_text(encoding="utf-8")).get("added_tokens") or []
        for each in added:
            if (found := tokenizer.convert_tokens_to_ids(each["content"])) != each["id"]:
                raise ValueError(f"the tokenizer of {source} has {each['content']} as {each['id']}, and reads {found}")
    return tokenizer


def _has(source: str, file: str) -> bool:
    """Whether a model's folder or hub id has a file."""
    return cached_file(source, file, **QUIET) is not None

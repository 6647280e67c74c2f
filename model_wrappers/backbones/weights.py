"""Loading a checkpoint: all weights, of the right shape, finite; and models that bring their code.

Such a model gives logits of whole sequences. Not supported: `extend` (two-stream verification,
wino, caches), causal attention (dcd), CUDA graphs, training.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import cached_file, logging
from transformers.utils.hub import get_checkpoint_shard_files

from model_wrappers.backbones.heads import read_positions
from model_wrappers.backbones.model import Backbone, Family, ReadsAt
from model_wrappers.backbones.protocol import counted

NAMED = 5  # most tensors that a message names
# Missing files are None, not errors.
QUIET = {
    f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors")
}


def load_weights(
    kind: Any,
    source: str,
    config: Any = None,
    weights: dict[str, torch.Tensor] | None = None,
    **options: Any,
) -> Any:
    """The model of a folder or hub id by a class of transformers' (`kind.from_pretrained`) with
    these options.

    config: in the place of the folder's. weights: by name, in the place of those there. Raises
    ValueError naming tensors that are missing, misshapen, or of parts of a layer that are not
    computed; others that have no place are named in a warning.
    """
    if config is not None:
        options["config"] = config
    if weights is not None:
        options["state_dict"] = weights
    with quiet():  # what transformers would print is said below
        model, info = kind.from_pretrained(
            source if weights is None else None,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    if info["missing_keys"]:  # they would stay random
        raise ValueError(f"no weights for {_listed(info['missing_keys'])}")
    if info["mismatched_keys"]:  # and so would these
        shapes = (
            (name, *("x".join(map(str, shape)) for shape in both))
            for name, *both in info["mismatched_keys"]
        )
        misshapen = (f"{name} ({there}, not {here})" for name, there, here in shapes)
        raise ValueError(f"weights of another shape than the config's: {_listed(misshapen)}")
    _check_unused(model, source, info["unexpected_keys"])
    model.config.name_or_path = source
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """transformers prints errors alone in this block."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def safetensors_of(source: str) -> list[str]:
    """The safetensors that transformers reads of a folder or hub id; none where it has none."""
    whole = cached_file(source, "model.safetensors", **QUIET)
    if whole is not None:
        return [str(whole)]
    index = cached_file(source, "model.safetensors.index.json", **QUIET)
    return [] if index is None else list(get_checkpoint_shard_files(source, index)[0])


def check_dtypes(source: str) -> None:
    """Raise ValueError for weights of 8 bits or fewer, which transformers would read as numbers of
    another scale."""
    for file in safetensors_of(source):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                dtype = tensors.get_slice(name).get_dtype()
                if name.endswith("weight") and dtype.startswith(("I8", "U8", "F8", "F4")):
                    raise ValueError(
                        f"the tensor {name} is of type {dtype}: quantized weights are not supported"
                    )


def _check_unused(model: Any, source: str, names: Iterable[str]) -> None:
    """Warn of tensors that a model has no place for; raise ValueError if one of them would change
    what a layer does."""
    unused = sorted(name for name in names if not name.endswith("rotary_emb.inv_freq"))  # computed
    parts = {_place_of(name) for name in unused if _is_of_a_layer(model, name)}
    for file in safetensors_of(source) if parts else ():
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if _place_of(name) not in parts:
                    continue
                tensor = tensors.get_tensor(name)
                if tensor.is_floating_point() and bool(tensor.any()):
                    raise ValueError(
                        f"its layers have weights that this code does not compute, such as {name}"
                    )
    if unused:
        warnings.warn(
            f"{source}: weights without a place in the model are left out: {_listed(unused)}",
            stacklevel=2,
        )


def _place_of(name: str) -> tuple[str, ...]:
    """What a tensor's name in a file has in common with its name in the model: the layer's number,
    and the end."""
    parts = name.split(".")
    return (*[part for part in parts if part.isdecimal()], *parts[-2:])


def _is_of_a_layer(model: torch.nn.Module, name: str) -> bool:
    """Whether a tensor would belong to a layer that the model has."""
    module = model
    in_layer = False
    for part in name.split("."):
        if part not in module._modules:
            return in_layer
        in_layer = in_layer or isinstance(module, torch.nn.ModuleList)
        module = module.get_submodule(part)
    return in_layer


def _listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - NAMED
    return ", ".join(ordered[:NAMED]) + (f" and {more} more" if more > 0 else "")


AUTO_CLASSES = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel")
LENGTH_FIELDS = ("max_position_embeddings", "max_sequence_length", "n_positions")


class RemoteBackbone(Backbone):
    """Logits of a model with layers that are unknown.

    Mask and EOS are what its config names, else its tokenizer; a turn ends at the tokenizer's EOS,
    if that is another.
    """

    extend: Any = None

    def logits(
        self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        """As `Backbone.logits`; the vocabulary head runs everywhere.

        Raises ValueError for causal=True, and for a model that gives no logits of this shape.
        """
        if causal:
            raise ValueError(
                f"{self.name} is run by code of its own, which is not asked for causal attention"
            )
        with torch.inference_mode(), counted(self.counter, len(ids_BL), ids_BL.numel()):
            logits_BLV = getattr(self.model(ids_BL), "logits", None)
        wanted = (*ids_BL.shape, self.vocab_size)
        if logits_BLV is None or logits_BLV.shape != wanted:
            given = (
                "no logits" if logits_BLV is None else f"logits of shape {tuple(logits_BLV.shape)}"
            )
            raise ValueError(f"the code of {self.name} gives {given}, not those of shape {wanted}")
        read = self._read_in_whole(positions, ids_BL.shape[1], ids_BL.device)
        return logits_BLV if read is None else read_positions(logits_BLV, read)


def load_remote(
    source: str, config: dict[str, Any], name: str, reads_at: ReadsAt, **options: Any
) -> RemoteBackbone:
    """The model of a folder or hub id, by the automatic class that its config.json names, on the
    CPU.

    options: of transformers' `from_pretrained`. Raises ValueError for weights that are not as they
    must be.
    """
    named = [each for each in AUTO_CLASSES if each in (config.get("auto_map") or {})]
    kind: Any = getattr(transformers, (named or AUTO_CLASSES)[0])
    model = load_weights(kind, source, trust_remote_code=True, **options)
    tokenizer = _tokenizer(source)
    for field in ("mask_token_id", "eos_token_id"):
        if type(getattr(model.config, field, None)) is not int:
            setattr(model.config, field, getattr(tokenizer, field, None))
    lengths = [
        getattr(model.config, field) for field in LENGTH_FIELDS if hasattr(model.config, field)
    ]
    # no limit that is known
    model.config.max_position_embeddings = lengths[0] if lengths else sys.maxsize
    end = "" if tokenizer is None or tokenizer.eos_token is None else str(tokenizer.eos_token)
    family = Family(
        str(config.get("model_type")), type(model), {}, end_of_turn=end, reads_at=reads_at
    )
    return RemoteBackbone(family, model, tokenizer, name)


def _tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer, by its own code where it has some; None where there is none."""
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    except (OSError, ValueError, TypeError, KeyError):
        return None

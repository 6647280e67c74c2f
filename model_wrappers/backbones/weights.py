"""Load weights: all of them, of the right shapes; and load models that bring their own code.

A model with its own code gives logits of whole sequences. It does not support `extend` (two-stream
verification, wino, caches), causal attention (dcd), CUDA graphs, and training.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import cached_file, logging
from transformers.utils.hub import get_checkpoint_shard_files

from model_wrappers.backbones.heads import read_positions
from model_wrappers.backbones.model import Backbone, Family, ReadsAt
from model_wrappers.backbones.protocol import counted
from model_wrappers.options import first_few
from model_wrappers.transfers import to_device

QUANTIZED = ("I8", "U8", "F8", "F4")  # beginnings of the names of quantized dtypes in safetensors
# Arguments of cached_file with which a missing file is None and not an error.
OR_NONE = {
    "_raise_exceptions_for_missing_entries": False,
    "_raise_exceptions_for_connection_errors": False,
}


def load_weights(
    kind: Any,
    source: str,
    config: Any = None,
    weights: dict[str, Tensor] | None = None,
    **options: Any,
) -> Any:
    """Load a model by a transformers class, and check that all its weights were there.

    It warns of tensors that the model has no place for.

    Args:
        kind: the class.
        source: a folder or a hub id, which also becomes the model's name_or_path.
        config: used instead of the source's; needed with `weights`.
        weights: all weights by name, used instead of the source's.
        options: further arguments of `kind.from_pretrained`.

    Returns:
        The model.

    Raises:
        ValueError: tensors are missing or have another shape, or layers of the checkpoint have
            weights, not all zero, that the model's layers do not.
    """
    with quiet():  # transformers would print what the errors and the warning here say
        model, info = kind.from_pretrained(
            source if weights is None else None,
            config=config,
            state_dict=weights,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    if info["missing_keys"]:
        raise ValueError(f"no weights for {first_few(sorted(info['missing_keys']))}")
    if info["mismatched_keys"]:
        misshapen = [
            f"{name} ({_shape(stored)}, not {_shape(wanted)})"
            for name, stored, wanted in info["mismatched_keys"]
        ]
        raise ValueError(
            f"weights of another shape than the config's: {first_few(sorted(misshapen))}"
        )
    # Rotary frequencies are computed, so those of a checkpoint are not needed.
    unused = {name for name in info["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq")}
    _check_unused(model, source, unused)
    if unused:
        named = first_few(sorted(unused))
        warnings.warn(
            f"{source}: weights without a place in the model are left out: {named}",
            stacklevel=2,
        )
    model.config.name_or_path = source
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """A context in which transformers prints only errors."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def safetensors_of(source: str) -> list[str]:
    """The safetensors files that transformers reads from a folder or hub id; [] if it has none."""
    whole = cached_file(source, "model.safetensors", **OR_NONE)
    if whole is not None:
        return [str(whole)]
    index = cached_file(source, "model.safetensors.index.json", **OR_NONE)
    return [] if index is None else list(get_checkpoint_shard_files(source, index)[0])


def stored_tensors(source: str) -> Iterator[tuple[str, Any]]:
    """Iterate over the tensors in a checkpoint's safetensors files.

    Yields:
        A tensor's name, and the open file (safe_open) that has it, which closes after its last
        tensor.
    """
    for path in safetensors_of(source):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file


def check_dtypes(source: str) -> None:
    """Check that weights are not quantized, as transformers would read them without their scales.

    Raises:
        ValueError: a weight has 8 bits or fewer.
    """
    for name, file in stored_tensors(source):
        dtype = file.get_slice(name).get_dtype()
        if name.endswith("weight") and dtype.startswith(QUANTIZED):
            raise ValueError(
                f"the tensor {name} is of type {dtype}: quantized weights are not supported"
            )


def _check_unused(model: torch.nn.Module, source: str, names: Iterable[str]) -> None:
    """Check that tensors without a place in the model would not change what its layers compute.

    Raises:
        ValueError: such a tensor of a layer is not zero, for instance a bias.
    """
    # Layers are modules whose names end with a number. Only the last two parts of a tensor's name
    # are compared: the checkpoint may call what stands before them otherwise.
    modules = [name for name, _ in model.named_modules()]
    layers = tuple(f"{name}." for name in modules if name.rpartition(".")[2].isdecimal())
    endings = tuple(
        "." + ".".join(name.split(".")[-2:]) for name in names if name.startswith(layers)
    )
    for name, file in stored_tensors(source) if endings else ():
        if not name.endswith(endings):
            continue
        tensor = file.get_tensor(name)
        if tensor.is_floating_point() and bool(tensor.any()):
            raise ValueError(
                f"its layers have weights that this code does not compute, such as {name}"
            )


def _shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


AUTO_CLASSES = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel")
LENGTH_FIELDS = ("max_position_embeddings", "max_sequence_length", "n_positions")


class RemoteBackbone(Backbone):
    """A model with its own code, whose layers are unknown."""

    # Not supported: callers ask `can_extend` before they use it.
    extend: Any = None

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Logits as of `Backbone.logits`; the vocabulary head runs at all positions.

        Raises:
            ValueError: causal attention is not supported, or the model's logits have another shape.
        """
        if causal:
            raise ValueError(
                f"{self.name} is run by code of its own, which is not asked for causal attention"
            )
        with torch.inference_mode(), counted(self.counter, len(ids_BL), ids_BL.numel()):
            ids_BL, positions = to_device(self.device, ids_BL, positions)
            # An output without logits fails the check of the shape below.
            logits_BLV = getattr(self.model(ids_BL), "logits", torch.empty(0))
        shape = (*ids_BL.shape, self.vocab_size)
        if logits_BLV.shape != shape:
            raise ValueError(
                f"the code of {self.name} gives logits of shape {tuple(logits_BLV.shape)}, not"
                f" {shape}"
            )
        read = self._read_in_whole(positions, ids_BL.shape[1], ids_BL.device)
        return read_positions(logits_BLV, read)


def load_remote(
    source: str, config: dict[str, Any], name: str, reads_at: ReadsAt, **options: Any
) -> RemoteBackbone:
    """Load a model that brings its own code.

    Its class is the first of AUTO_CLASSES that config.json has in auto_map, or else the first of
    all. Mask and EOS are the config's, or else the tokenizer's; the tokenizer's EOS ends a turn.
    The longest sequence is the config's; if it has none, there is no limit.

    Args:
        source: a folder or a hub id.
        config: its config.json.
        name: the backbone's name.
        reads_at: where logits are read (see `Family`).
        options: further arguments of `from_pretrained`; without a device map the model is on the
            CPU.

    Raises:
        ValueError: see `load_weights`.
    """
    named = [auto for auto in AUTO_CLASSES if auto in (config.get("auto_map") or {})]
    kind: Any = getattr(transformers, (named or AUTO_CLASSES)[0])
    model = load_weights(kind, source, trust_remote_code=True, **options)
    tokenizer = _tokenizer(source)
    for field in ("mask_token_id", "eos_token_id"):
        if type(getattr(model.config, field, None)) is not int:
            setattr(model.config, field, getattr(tokenizer, field, None))
    # Each architecture has another name for the longest sequence; without one no limit is known.
    config_lengths = (getattr(model.config, name, None) for name in LENGTH_FIELDS)
    model.config.max_position_embeddings = next(filter(None, config_lengths), sys.maxsize)
    end = str(getattr(tokenizer, "eos_token", None) or "")
    family = Family(
        str(config.get("model_type")), type(model), {}, end_of_turn=end, reads_at=reads_at
    )
    return RemoteBackbone(family, model, tokenizer, name)


def _tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer, which may bring its own code; None if there is none."""
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    except (OSError, ValueError, TypeError, KeyError):
        return None

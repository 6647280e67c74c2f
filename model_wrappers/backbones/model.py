"""Backbone: a checkpoint on transformers' layers, as decoders see it (`protocol.BackboneLike`).

Shapes: B batch, L length, V vocabulary, n positions whose logits are read, N tokens of a call after
K cached ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.flop import Shapes, flop_of
from model_wrappers.backbones.graphs import GraphedForward
from model_wrappers.backbones.placement import input_device, weights_of
from model_wrappers.backbones.plain import ModelForward
from model_wrappers.backbones.protocol import CallCounter, KeyValues, Write, counted
from model_wrappers.transfers import to_device

ReadsAt = Literal[0, -1]


@dataclass(frozen=True)
class Family:
    """An architecture that the registry knows, and what its checkpoints have in common.

    Each class may be given as "module:name", which is imported when a checkpoint is loaded
    (`imported`). Tokens are given as text; the tokenizer has their ids.

    Attributes:
        model_type: the `model_type` of config.json.
        model: the transformers class, with `infer` and a `forward` that takes `positions` (see
            `heads.HeadAtPositions`).
        attention: the transformers implementation, as {"sdpa": name}.
        end_of_turn: the token that ends a turn.
        mask: the mask token, for configs that name no id (None: the model has no mask).
        fill: the token that fills a response after its end, if that is not the config's EOS.
        published_ids: ids of tokens in published checkpoints, for folders without a tokenizer.
        reads_at: 0 if the model's logits at position i predict token i, -1 if those at i - 1 do.
        also: other values of `model_type`.
        architectures: `architectures` of config.json, if `model_type` does not tell families apart.
        tokenizer: the class that reads vocab.json, for folders without tokenizer.json.
        extends: whether `infer` supports attention masks and caches.
        blocks: how models attend in blocks, by a pattern that the last part of the model's name, in
            lower case, contains ("": all models). The config's `block_size` (or `bd_size`) and
            `block_origin` come before it.
        fields: from the official config's field names to those of transformers.
        tensors: from patterns of the official tensor names to those of transformers.
        causal: whether the model is autoregressive.
        backbone: the class that runs it (None: Backbone).
    """

    model_type: str
    model: type[PreTrainedModel] | str
    attention: Mapping[str, str]
    end_of_turn: str
    mask: str | None = "<|mask|>"
    fill: str | None = None
    published_ids: Mapping[str, int] = field(default_factory=dict)
    reads_at: ReadsAt = 0
    also: Sequence[str] = ()
    architectures: Sequence[str] = ()
    tokenizer: type[PreTrainedTokenizerBase] | str | None = None
    extends: bool = True
    blocks: Mapping[str, Blocks] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    causal: bool = False
    backbone: type[Backbone] | str | None = None

    @property
    def names(self) -> set[str]:
        """All names that a config.json may have for the family."""
        return {self.model_type, *self.also, *self.architectures}

    def imported(self) -> Any:
        """This family with its classes imported."""
        classes = {
            name: _imported(getattr(self, name)) for name in ("model", "tokenizer", "backbone")
        }
        return replace(self, **classes)

    def blocks_of(self, config: Mapping[str, Any], name: str) -> Blocks | None:
        """The blocks that a checkpoint attends in.

        Args:
            config: its config.json.
            name: its folder or hub id.

        Returns:
            None if it attends to the whole sequence.

        Raises:
            ValueError: the config's length or origin is invalid (msgspec.ValidationError).
        """
        if self.causal:
            return Blocks(1, masks=False, causal=True)
        if self.mask is None:
            return Blocks(config["canvas_length"], "response", masks=False)
        last = Path(name).name.lower()
        matching = (blocks for pattern, blocks in self.blocks.items() if re.search(pattern, last))
        blocks = next(matching, None)
        configured = {
            "length": config.get("block_size", config.get("bd_size")),
            "origin": config.get("block_origin"),
        }
        if blocks is None and configured["length"] is None:
            return None
        fields: dict[str, Any] = {} if blocks is None else asdict(blocks)
        fields |= {name: value for name, value in configured.items() if value is not None}
        return msgspec.convert(fields, Blocks)


def _imported(source: Any) -> Any:
    """The class that "module:name" names; any other value unchanged."""
    if not isinstance(source, str):
        return source
    module, _, name = source.partition(":")
    return getattr(import_module(module), name)


class Backbone:
    """A model of a known family and, if its folder has one, its tokenizer.

    Attributes:
        mask_id: the mask's id; the id after the vocabulary if there is no mask.
        eos_id: the id that fills a response after its end; the first one of several EOS ids.
        eot_id: the end of a turn, if that is another token.
        vocab_size: V, of the model.
        max_length: the most tokens of a sequence.
        blocks: the blocks that the model attends in (None: it attends to the whole sequence).
        adapter: the folder of the adapter that was merged into the weights, if there was one.

    Raises:
        ValueError: EOS or mask ids are not of the vocabulary, the tokenizer's vocabulary is larger
            than the model's, or CUDA graphs are not possible.
    """

    def __init__(
        self,
        family: Family,
        model: Any,
        tokenizer: PreTrainedTokenizerBase | None,
        name: str,
        cuda_graphs: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.adapter: Path | None = None
        self.family = family
        self.reads_at = family.reads_at
        self.counter = CallCounter.of(model.eval().base_model)
        self.forward = ModelForward(model)
        self._run: Any = self.forward
        if cuda_graphs:
            self._run = GraphedForward(self.forward)
        config = model.config.get_text_config()
        self.vocab_size = int(config.vocab_size)
        if tokenizer is not None and len(tokenizer) > self.vocab_size:
            raise ValueError(
                f"the tokenizer of {name} has {len(tokenizer)} tokens, its model a vocabulary of"
                f" {self.vocab_size}: they do not belong together"
            )
        self._name_tokens(config)
        self.max_length = int(config.max_position_embeddings)
        # By the name of an adapter's base, not of the adapter: the base determines the attention.
        self.blocks = family.blocks_of(model.config.to_dict(), model.config.name_or_path or name)
        if not family.extends:
            self.extend = None  # type: ignore[method-assign,assignment]

    def __repr__(self) -> str:
        return f"Backbone {self.name}: {self.dtype} on {self.device}"

    def _name_tokens(self, config: Any) -> None:
        """Set the ids of mask, EOS and end of turn from the config, the tokenizer and the
        family."""
        family = self.family
        ids = family.published_ids if self.tokenizer is None else self.tokenizer.get_vocab()
        self.mask_id = self.vocab_size
        if family.mask is not None:
            token_id = ids.get(family.mask)
            config_id = getattr(config, "mask_token_id", None)
            self.mask_id = self._id("mask_token_id", token_id if config_id is None else config_id)
            if self.tokenizer is None and self.mask_id != token_id:
                # Another mask than the published one: another vocabulary, of which no id is known.
                ids = {}
        eos_id = getattr(config, "eos_token_id", None)
        ends: list[Any] = eos_id if isinstance(eos_id, list) and eos_id else [eos_id]
        fill = ends[0] if family.fill is None else ids.get(family.fill, ends[0])
        self.eos_id = self._id("eos_token_id", fill)
        eot_id = ids.get(family.end_of_turn)
        if eot_id in (None, self.eos_id):  # another end that the config lists, if any
            eot_id = next((end for end in ends if end != self.eos_id), eot_id)
        self.eot_id: int | None = None if eot_id is None or eot_id >= self.vocab_size else eot_id

    def _id(self, field: str, value: Any) -> int:
        """Check that the value of a config's field is an id of the vocabulary, and return it."""
        if type(value) is not int or not 0 <= value < self.vocab_size:
            raise ValueError(
                f"the config of {self.name} must name one {field} of its vocabulary, 0 to"
                f" {self.vocab_size - 1}, not {value!r}"
            )
        return value

    def text_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer.

        Raises:
            ValueError: the model's folder has none.
        """
        if self.tokenizer is None:
            raise ValueError(f"model {self.name} has no tokenizer; text needs one")
        return self.tokenizer

    @property
    def model(self) -> Any:
        """The transformers model. It may be modified or replaced, as by a compiled one."""
        return self.forward.model

    @model.setter
    def model(self, model: Any) -> None:
        self.forward.model = model

    @property
    def is_changed(self) -> bool:
        """Whether the model's modules were changed after loading, as seen by the last call, which
        then ran the model's own code."""
        return self.forward.is_changed

    @property
    def shapes(self) -> Shapes | None:
        """The shapes from which FLOP are counted; None for unknown layers, mixtures of experts, and
        changed models."""
        plain = self.forward.plain
        return None if plain is None or self.is_changed else plain.shapes

    @property
    def can_pack(self) -> bool:
        """Whether calls of several responses can be made together (`batches`)."""
        return self._run is self.forward and self.forward.plain is not None

    @property
    def device(self) -> torch.device:
        return input_device(self.model)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def graphs(self) -> int:
        """Number of CUDA graphs that were made of this model so far."""
        return getattr(self._run, "count", 0)

    @torch.inference_mode()
    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Logits in the model's dtype, on its device.

        The vocabulary head runs only at the positions that are read.

        Args:
            ids_BL: LongTensor (B, L); this and the other index tensors may be on the CPU or on the
                device.
            positions: LongTensor (n,), the same in every row, or (B, n), each row's (None: all).
            causal: attend to earlier positions only (the copula model of DCD).

        Returns:
            (B, n, V), or (B, L, V) at all positions.

        Raises:
            ValueError: this is a block model, whose attention depends on where the response begins.
        """
        if self.blocks is not None:
            raise ValueError(
                f"{self.name} attends in blocks of {self.blocks.length}, and has no logits without"
                " them"
            )
        length = ids_BL.shape[1]
        device = self.device
        read = self._read_in_whole(positions, length, ids_BL.device)
        ids_BL, read = to_device(device, ids_BL, read)
        position_1L = torch.arange(length, device=device)[None]
        mask = None
        if causal:
            visible_LL = torch.ones(length, length, dtype=torch.bool, device=device).tril()
            mask = visible_LL[None, None]
        rows = len(ids_BL)
        read_count = length if positions is None else positions.shape[-1]
        flop = flop_of(self.shapes, rows * length, length, rows * read_count)
        with counted(self.counter, rows, rows * length, flop=flop):
            return self._run(ids_BL, position_1L, mask, None, read)

    @torch.inference_mode()
    def extend(
        self,
        ids_1N: Tensor,
        position_N: Tensor,
        positions: Tensor,
        cache: KeyValues | None = None,
        visible_NK: Tensor | None = None,
        write: Write = "append",
        slot_N: Tensor | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Run N tokens on K cached ones.

        Args:
            ids_1N: LongTensor (1, N).
            position_N: LongTensor (N,), the tokens' positions in the sequence (rotary angles).
            positions: LongTensor (n,), indices into the N tokens whose logits are read.
            cache: keys and values, changed in place (None: a new cache).
            visible_NK: bool (N, K + N), which tokens each token attends to (None: all).
            write: "append" puts the new keys and values at the cache's end; "replace" overwrites
                cached ones, and visible_NK is then (N, K); "none" leaves the cache unchanged.
            slot_N: LongTensor (N,), the cached tokens that "replace" overwrites (default:
                position_N).

        Returns:
            Logits (1, n, V), and the cache.

        Raises:
            ValueError: the model's logits at a position come from the token before it, and a token
                that is read is not preceded by that token in this call.
        """
        assert cache is not None or write == "append", "the call that starts a cache appends"
        cache = KeyValues() if cache is None else cache
        read = self._read_in_piece(position_N, positions)
        device = self.device
        ids_1N, position_N, read, slot_N = to_device(device, ids_1N, position_N, read, slot_N)
        mask = None
        if visible_NK is not None:
            mask = visible_NK[None, None].to(device, non_blocking=True)
        count = ids_1N.shape[1]
        before = cache.get_seq_length()
        keys = before if write == "replace" else before + count
        flop = flop_of(self.shapes, count, keys, positions.numel())
        with counted(self.counter, 1, count, before, flop):
            cache.begin(count, write, position_N if slot_N is None else slot_N)
            logits_1NV = self._run(ids_1N, position_N[None], mask, cache, read)
            cache.end()
        return logits_1NV, cache

    def _read_in_whole(
        self, positions: Tensor | None, length: int, device: torch.device
    ) -> Tensor | None:
        """Indices of the positions' logits in the output of a whole sequence; None for all."""
        if self.reads_at == 0:
            return positions
        read = torch.arange(length, device=device) if positions is None else positions
        return (read + self.reads_at).clamp(min=0)  # the first token of all reads itself

    def _read_in_piece(self, position_N: Tensor, positions: Tensor) -> Tensor:
        """Indices, in the output of a piece of the sequence, of the logits of the tokens at indices
        `positions` of the piece."""
        if self.reads_at == 0:
            return positions
        at_n = position_N[positions]
        # Position 0 has no token before it, and reads its own logits.
        read_n = torch.where(at_n == 0, positions, positions - 1)
        is_before_n = position_N[read_n.clamp(min=0)] == (at_n - 1).clamp(min=0)
        if not bool((is_before_n & (read_n >= 0)).all()):
            raise ValueError(
                f"the logits of {self.name} at a position come from the token before it: put that"
                " token before it in the same call"
            )
        return read_n


def check_finite(backbone: Any) -> None:
    """Check that all weights, and the logits of a few tokens, are finite.

    Raises:
        ValueError: one is not.
    """
    # Finite logits are not enough: attention on a CPU may pass over NaN.
    for name, weight in weights_of(backbone.model):
        if not bool(weight.detach().sum(dtype=torch.float32).isfinite()):
            raise ValueError(f"the weights {name} are not finite: the file is damaged")
    ids_1L = torch.arange(8, device=backbone.device)[None] % backbone.vocab_size
    position_L = torch.arange(8, device=backbone.device)
    if hasattr(backbone, "denoise"):
        logits_BLV, _ = backbone.denoise(ids_1L[:, :4], ids_1L)
    elif backbone.blocks is None:
        logits_BLV = backbone.logits(ids_1L)
    else:
        logits_BLV, _ = backbone.extend(ids_1L, position_L, position_L)
    if bool((torch.isnan(logits_BLV) | (logits_BLV == torch.inf)).any()):
        raise ValueError(f"its logits are not finite: {backbone.dtype} overflows (try float32)")

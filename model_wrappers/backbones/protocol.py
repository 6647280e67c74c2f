"""What decoders need of a model, the cached keys and values that they pass on, and the ledger, the
only place where costs are counted.

Shapes: B batch, L length, V vocabulary, n positions to read, N tokens of a call after K cached
ones, H heads, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from model_wrappers.backbones.flop import Shapes, added, flop_of

# What happens to the keys and values of a call's tokens: they are appended to the cached ones,
# replace some of these, or are dropped after the call.
Write = Literal["append", "replace", "none"]
# Keys and values, a tensor (1, H, capacity, D) for each layer.
Buffers = tuple[list[Tensor], list[Tensor]]
# The least number of further tokens that a new buffer has room for; it is a quarter of the tokens
# that the buffer is made for, if that is more. So buffers are seldom copied as sequences grow.
ROOM = 64


class KeyValues:
    """A cache for transformers' attention layers.

    A call begins with `begin`, which says how it writes. Then each layer passes its new keys and
    values to `update`, which returns all that the layer attends to. `end` makes appended ones part
    of the cache.

    Attributes:
        reads_queries: whether it reads the queries of calls too; such calls run without
            CUDA graphs.
    """

    reads_queries = False

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._kept = self._filled = 0
        self._write: Write = "append"
        self._slot_N: Tensor | None = None

    @property
    def buffers(self) -> Buffers:
        """The buffers of keys and values by layer; empty lists before the first call."""
        return self._keys, self._values

    @property
    def filled(self) -> int:
        """The number of tokens that the present call attends to: the cached ones and, unless they
        replace some of these, its own."""
        return self._filled

    def adopt(self, buffers: Buffers) -> None:
        """Use other buffers from now on: the cached tokens are copied, and the rest is zeroed."""
        for old_layers, new_layers in zip(self.buffers, buffers, strict=True):
            for layer, new in enumerate(new_layers):
                new.zero_()
                if old_layers:
                    new[:, :, : self._kept] = old_layers[layer][:, :, : self._kept]
        self._keys, self._values = (list(layers) for layers in buffers)

    def slots(self, count: int, device: torch.device) -> Tensor:
        """The slots of the present call's tokens, filled up to `count` with slots after all cached
        tokens, (N,)."""
        after_N = torch.arange(self._kept, self._kept + count, device=device)
        if self._slot_N is None or self._write != "replace":
            return after_N
        return torch.cat([self._slot_N, after_N[: count - len(self._slot_N)]])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of cached tokens, the same in every layer."""
        return self._kept

    def forget(self, count: int) -> None:
        """Remove the last `count` tokens from the cache."""
        assert 0 <= count <= self._kept, "no more than there are"
        self._kept -= count

    def begin(self, count: int, write: Write = "append", slot_N: Tensor | None = None) -> None:
        """Begin a call of `count` tokens; write and slot_N are as in `Backbone.extend`."""
        self._write = write
        self._slot_N = slot_N
        self._filled = self._kept + (0 if write == "replace" else count)

    def update(
        self, key_1HND: Tensor, value_1HND: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values of a layer.

        Args:
            key_1HND: keys of the N new tokens.
            value_1HND: values of the N new tokens.
            layer_idx: the layer.

        Returns:
            All keys and values of the layer, with the new ones: (1, H, K + N, D), or (1, H, K, D)
            if the new ones replace cached ones.
        """
        # Keys leave the rotation as fp32. They are cached in the values' dtype, to which attention
        # would cast them.
        keys = self._put(self._keys, layer_idx, key_1HND.to(value_1HND.dtype))
        return keys, self._put(self._values, layer_idx, value_1HND)

    def _put(self, buffers: list[Tensor], layer: int, new_1HND: Tensor) -> Tensor:
        while len(buffers) <= layer:  # a skipped layer has zeros
            buffers.append(self._buffer(new_1HND))
        if buffers[layer].shape[2] < self._filled:
            larger = self._buffer(new_1HND)
            larger[:, :, : self._kept] = buffers[layer][:, :, : self._kept]
            buffers[layer] = larger
        if self._write == "replace":
            assert self._slot_N is not None, "begin() says where"
            # Layers may be on other devices than the tokens.
            buffers[layer].index_copy_(2, self._slot_N.to(new_1HND.device), new_1HND)
        else:
            buffers[layer].narrow(2, self._kept, self._filled - self._kept).copy_(new_1HND)
        return buffers[layer].narrow(2, 0, self._filled)

    def end(self) -> None:
        """End the call: the tokens that it appended stay in the cache."""
        if self._write == "append":
            self._kept = self._filled

    def _buffer(self, like_1HND: Tensor) -> Tensor:
        room = max(ROOM, self._filled // 4)
        return like_1HND.new_zeros(*like_1HND.shape[:2], self._filled + room, like_1HND.shape[3])


class BackboneLike(Protocol):
    """What decoders need of a model.

    Optional attributes are `max_length`, `device`, `eot_id` and `extend` (see model.Backbone);
    `reads_at`, -1 if the logits of a position come from the token before it, which matters only to
    `extend` (default: 0); and `shapes`, from which FLOP are counted (default: None, not known).
    """

    mask_id: int
    eos_id: int
    vocab_size: int

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Logits (B, L, V), or (B, n, V) at positions: (n,) are the same in every row, (B, n) are
        each row's."""


class Ledger:
    """A backbone that counts its calls, their rows and tokens, and checks its logits.

    Attributes:
        cached: number of tokens whose keys and values came from a cache.
        flop: FLOP of the calls by `flop_of`; None after a call of unknown shapes.
        changed: number of calls of a model whose modules were changed after loading
            (Backbone.is_changed).
        counter: an object that is the same for all backbones that run the same model.
        ends: EOS and, if there is one, EoT.
    """

    def __init__(self, backbone: BackboneLike) -> None:
        self._backbone: Any = backbone
        self.counter = getattr(backbone, "counter", backbone)
        self.tokenizer: Any = getattr(backbone, "tokenizer", None)
        self.mask_id = backbone.mask_id
        self.eos_id = backbone.eos_id
        self.vocab_size = backbone.vocab_size
        self.eot_id: int | None = getattr(backbone, "eot_id", None)
        self.ends = [end for end in (self.eos_id, self.eot_id) if end is not None]
        self.device = torch.device(getattr(backbone, "device", "cpu"))
        self.max_length: int | None = getattr(backbone, "max_length", None)
        self.reads_at: int = getattr(backbone, "reads_at", 0)
        self.can_extend = callable(getattr(backbone, "extend", None))
        self.calls = 0
        self.rows = 0
        self.tokens = 0
        self.cached = 0
        self.changed = 0
        self.flop: int | None = 0
        self._shapes: Shapes | None = getattr(backbone, "shapes", None)
        self._total: Tensor | None = None

    def is_model_of(self, other: Ledger) -> bool:
        """Whether both ledgers are of the same backbone."""
        return self._backbone is other._backbone

    @property
    def model(self) -> Any:
        """The backbone's transformers model, if it has one; direct calls of it are counted too."""
        return self._backbone.model

    def enter(
        self, calls: int, rows: int, tokens: int, cached: int = 0, flop: int | None = 0
    ) -> None:
        """Add to the counts; flop is None if it is not known."""
        self.calls += calls
        self.rows += rows
        self.tokens += tokens
        self.cached += cached
        self.flop = added(self.flop, flop)

    def add(self, other: Ledger) -> None:
        """Add the counts of another ledger, unless its backbone is a ledger too: that has counted
        the same calls already."""
        if not isinstance(other._backbone, Ledger):
            self.enter(other.calls, other.rows, other.tokens, other.cached, other.flop)
            self.changed += other.changed

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """The backbone's logits; the call is counted."""
        rows, length = ids_BL.shape
        read = length if positions is None else positions.shape[-1]
        flop = flop_of(self._shapes, rows * length, length, rows * read)
        self.enter(1, rows, rows * length, flop=flop)
        with counted_by(None):
            return self._watched(self._backbone.logits(ids_BL, positions=positions, causal=causal))

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
        """The backbone's `extend`; the call is counted as one row of N tokens, and the cached
        tokens that it does not replace."""
        cached = 0 if cache is None else cache.get_seq_length()
        count = ids_1N.numel()
        if write == "replace":
            cached -= count
        flop = flop_of(self._shapes, count, cached + count, positions.numel())
        self.enter(1, 1, count, cached, flop)
        # A backbone whose `extend` can only append need not have these arguments.
        writing = {} if write == "append" else {"write": write, "slot_N": slot_N}
        with counted_by(None):
            logits, cache = self._backbone.extend(
                ids_1N, position_N, positions, cache=cache, visible_NK=visible_NK, **writing
            )
        return self._watched(logits), cache

    def context(
        self, ids_1L: Tensor, read_n: Tensor, cache: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Run a whole sequence: logits (1, n, V) at read_n, LongTensor (n,), and its keys and
        values.

        cache: an earlier cache of the decoder, whose buffers are used again.
        """
        if cache is not None:
            cache.forget(cache.get_seq_length())
        position_L = torch.arange(ids_1L.shape[1], device=ids_1L.device)
        return self.extend(ids_1L, position_L, read_n, cache)

    def denoise(
        self,
        ids_1K: Tensor,
        canvas_1C: Tensor,
        previous_1CV: Tensor | None,
        encoded: Any,
    ) -> tuple[Tensor, Any]:
        """A canvas model's `denoise`; encoding new tokens before it is counted as a call of its
        own."""
        encoded_count = 0 if encoded is None else encoded.count
        new = ids_1K.numel() - encoded_count
        # Canvas models are mixtures of experts.
        self.enter(1, 1, canvas_1C.numel(), ids_1K.numel(), flop=None)
        if new:
            self.enter(1, 1, new, encoded_count, flop=None)
        with counted_by(None):
            logits_1CV, encoded = self._backbone.denoise(ids_1K, canvas_1C, previous_1CV, encoded)
        return self._watched(logits_1CV), encoded

    def check_logits(self, other: Ledger) -> None:
        """Check all logits of this ledger and another; -inf is allowed, a probability of 0.

        Raises:
            ValueError: a logit was NaN or +inf.
        """
        for total in (self._total, other._total):
            if total is not None and not float(total) < math.inf:
                raise ValueError(
                    "the model's logits are not finite: its weights are damaged, or its dtype"
                    " overflows (try float32)"
                )

    def _watched(self, logits: Tensor) -> Tensor:
        # A running sum is NaN or +inf if any logit was. It stays on the device: nothing waits for
        # it while decoding.
        total = logits.sum(dtype=None if logits.dtype == torch.float64 else torch.float32)
        self._total = total if self._total is None else self._total + total
        self.changed += getattr(self._backbone, "is_changed", False)
        return logits


Ledgers = tuple[Ledger, Ledger]  # of a response's target and draft model
# The ledgers of the response that is being decoded. None outside of decoding, and while a counted
# call runs, so that calls within it are not counted again.
_COUNTING: ContextVar[Ledgers | None] = ContextVar("_COUNTING", default=None)


@contextmanager
def counted_by(ledgers: Ledgers | None) -> Iterator[None]:
    """A context in which direct calls of models are entered in these ledgers, and in no others.

    A response that is decoded within another one, as a draft, is a cost of the other one too.
    """
    outer = _COUNTING.get()
    token = _COUNTING.set(ledgers)
    try:
        yield
    finally:
        _COUNTING.reset(token)
        if outer is not None and ledgers is not None:
            target, draft = outer
            for ledger in ledgers:
                (target if ledger.counter is target.counter else draft).add(ledger)


@contextmanager
def counted(
    counter: Any, rows: int, tokens: int, cached: int = 0, flop: int | None = None
) -> Iterator[None]:
    """A context that is one call of a model which no ledger made; nothing in it is counted again.

    Args:
        counter: the model's `Ledger.counter`. The call is the target's if it is the target's model,
            and otherwise counts as a draft's.
        rows: rows of the call.
        tokens: tokens of all rows.
        cached: cached tokens that it reads.
        flop: its FLOP (None: not known).
    """
    ledgers = _COUNTING.get()
    if ledgers is None:
        yield
        return
    target, draft = ledgers
    (target if target.counter is counter else draft).enter(1, rows, tokens, cached, flop)
    with counted_by(None):
        yield


class CallCounter:
    """A hook of a transformers module that counts direct calls of it, as for hidden states."""

    @classmethod
    def of(cls, module: torch.nn.Module) -> CallCounter:
        """The hook of a module, made at the first use; all backbones that run the module share
        it."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, cls):
                return hook
        counter = cls()
        module.register_forward_pre_hook(counter, with_kwargs=True)
        return counter

    def __call__(self, module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Count a call with these arguments; ids (B, L), or embeddings (B, L, E), are the first one
        or have a name."""
        candidates = (*args[:1], options.get("input_ids"), options.get("inputs_embeds"))
        inputs = [candidate for candidate in candidates if isinstance(candidate, Tensor)]
        rows, length = inputs[0].shape[:2] if inputs else (1, 0)
        with counted(self, rows, rows * length):
            pass

    def __deepcopy__(self, memo: dict[int, Any]) -> CallCounter:
        """The hook itself: a copy of a model, as a quantized one, counts as the model."""
        return self

"""What decoders need of a model, the keys and values that they pass on, and the ledger, where alone
cost is counted.

Shapes: B batch, L length, V vocabulary, n positions to read, N tokens put after K cached ones, H
heads, D head size.
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

# What becomes of the keys and values of new tokens: appended to the kept ones, put in the place of
# some, or not kept.
Write = Literal["append", "replace", "none"]
# keys and values by layer, (1, H, capacity, D) each
Buffers = tuple[list[Tensor], list[Tensor]]
# tokens that a new buffer has room for beyond those it is made for, at least; or a quarter of them
ROOM = 64


class KeyValues:
    """What transformers' attention layers take for a cache.

    A call says first how it writes (`begin`); then every layer hands over its new keys and values
    (`update`) and gets all that there are; in the end they count (`end`).

    Attributes:
        shows_queries: it reads the queries of a call too; such a call takes no CUDA graph.
    """

    shows_queries = False

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._kept = self._filled = 0
        self._write: Write = "append"
        self._slot_N: Tensor | None = None

    @property
    def buffers(self) -> Buffers:
        """Where keys and values lie, by layer; empty lists before the first call."""
        return self._keys, self._values

    @property
    def filled(self) -> int:
        """How many tokens a query of the call that has begun may see: the kept ones and, if they
        are new, its own."""
        return self._filled

    def adopt(self, buffers: Buffers) -> None:
        """Use other buffers from now on: what is kept is copied, the rest of them is zeros."""
        for own, others in zip(self.buffers, buffers, strict=True):
            for layer, other in enumerate(others):
                other.zero_()
                if own:
                    other[:, :, : self._kept] = own[layer][:, :, : self._kept]
        self._keys, self._values = (list(layers) for layers in buffers)

    def slots(self, count: int, device: torch.device) -> Tensor:
        """Where the call that has begun puts its tokens, and after all that is kept any others up
        to `count`, (N,)."""
        behind_N = torch.arange(self._kept, self._kept + count, device=device)
        if self._slot_N is None or self._write != "replace":
            return behind_N
        return torch.cat([self._slot_N, behind_N[: count - len(self._slot_N)]])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens are kept, in every layer."""
        return self._kept

    def forget(self, count: int) -> None:
        """Keep the last `count` tokens no longer."""
        assert 0 <= count <= self._kept, "no more than there are"
        self._kept -= count

    def begin(self, count: int, write: Write = "append", slot_N: Tensor | None = None) -> None:
        """A call with `count` tokens. write, slot_N: as `Backbone.extend` takes them."""
        self._write = write
        self._slot_N = slot_N
        self._filled = self._kept + (0 if write == "replace" else count)

    def update(
        self, key_1HND: Tensor, value_1HND: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Take the new keys and values of a layer.

        Keys leave the rotation as fp32; kept in the values' dtype, which is the one attention casts
        them to.

        Args:
            key_1HND: of the N new tokens.
            value_1HND: of the N new tokens.
            layer_idx: the layer.

        Returns:
            All of the layer, with them: (1, H, K + N, D), or K if they replace.
        """
        keys = self._put(self._keys, layer_idx, key_1HND.to(value_1HND.dtype))
        return keys, self._put(self._values, layer_idx, value_1HND)

    def _put(self, buffers: list[Tensor], layer: int, new_1HND: Tensor) -> Tensor:
        while len(buffers) <= layer:  # of a layer that is skipped there are zeros
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
        """The call is over: what it appended is kept."""
        if self._write == "append":
            self._kept = self._filled

    def _buffer(self, like_1HND: Tensor) -> Tensor:
        room = max(ROOM, self._filled // 4)
        return like_1HND.new_zeros(*like_1HND.shape[:2], self._filled + room, like_1HND.shape[3])


class BackboneLike(Protocol):
    """What decoders need of a model.

    Optional: `max_length`, `device`, `eot_id`, `extend` (see model.Backbone), and `reads_at`: -1
    where the logits of a position come from the token before it, which matters to `extend` alone
    (default: 0). `shapes`: what its FLOP are counted from (default: None, they are not known).
    """

    mask_id: int
    eos_id: int
    vocab_size: int

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Logits (B, L, V); with positions (n,) those positions of every row, with (B, n) each
        row's own: (B, n, V)."""


class Ledger:
    """A backbone that counts the calls, rows and tokens that go through it, and watches its logits.

    Attributes:
        cached: tokens with keys and values that were read from a cache instead.
        flop: of the calls, as `flop_of` counts them; None once there was a call of unknown shapes.
        changed: calls of a model whose modules are not those that were loaded
            (Backbone.is_changed).
        counter: the same for all that run one model.
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
        """Whether both count the same backbone."""
        return self._backbone is other._backbone

    @property
    def model(self) -> Any:
        """The backbone's model of transformers', if it has one; calls that go to it are counted."""
        return self._backbone.model

    def enter(
        self, calls: int, rows: int, tokens: int, cached: int = 0, flop: int | None = 0
    ) -> None:
        """Add to the counts. flop: None if they are not known."""
        self.calls += calls
        self.rows += rows
        self.tokens += tokens
        self.cached += cached
        self.flop = added(self.flop, flop)

    def add(self, other: Ledger) -> None:
        """Add the counts of another ledger, unless it counted calls of a ledger, which has counted
        them itself."""
        if not isinstance(other._backbone, Ledger):
            self.enter(other.calls, other.rows, other.tokens, other.cached, other.flop)
            self.changed += other.changed

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """The backbone's logits, entered in the ledger."""
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
        """The backbone's `extend`, entered in the ledger: one row, N tokens, and the cached ones
        that are not new."""
        kept = 0 if cache is None else cache.get_seq_length()
        count = ids_1N.numel()
        if write == "replace":
            kept -= count
        flop = flop_of(self._shapes, count, kept + count, positions.numel())
        self.enter(1, 1, count, kept, flop)
        # A backbone that only appends need not know of the rest.
        writing = {} if write == "append" else {"write": write, "slot_N": slot_N}
        with counted_by(None):
            logits, cache = self._backbone.extend(
                ids_1N, position_N, positions, cache=cache, visible_NK=visible_NK, **writing
            )
        return self._watched(logits), cache

    def context(
        self, ids_1L: Tensor, read_n: Tensor, cache: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Logits (1, n, V) at read_n, LongTensor (n,), and keys and values of all that these
        positions attend to.

        cache: an earlier one of the decoder's, with room that they may take.
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
        """A canvas model's `denoise`, entered in the ledger; what it encodes first is a call of its
        own."""
        known = 0 if encoded is None else encoded.count
        new = ids_1K.numel() - known
        # Canvas models are mixtures of experts.
        self.enter(1, 1, canvas_1C.numel(), ids_1K.numel(), flop=None)
        if new:
            self.enter(1, 1, new, known, flop=None)
        with counted_by(None):
            logits_1CV, encoded = self._backbone.denoise(ids_1K, canvas_1C, previous_1CV, encoded)
        return self._watched(logits_1CV), encoded

    def check_logits(self, other: Ledger) -> None:
        """Check the logits of this ledger and another; -inf is a probability of 0.

        Raises:
            ValueError: any were NaN or +inf.
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
# Those of the response that is being decoded; None where nothing is, and while a call that is
# counted runs.
_COUNTING: ContextVar[Ledgers | None] = ContextVar("_COUNTING", default=None)


@contextmanager
def counted_by(ledgers: Ledgers | None) -> Iterator[None]:
    """Calls of models in this block are entered in these ledgers, and in no others.

    A response that is decoded within another one, as a draft, costs the other one too.
    """
    around = _COUNTING.get()
    token = _COUNTING.set(ledgers)
    try:
        yield
    finally:
        _COUNTING.reset(token)
        if around is not None and ledgers is not None:
            target, draft = around
            for ledger in ledgers:
                (target if ledger.counter is target.counter else draft).add(ledger)


@contextmanager
def counted(
    counter: Any, rows: int, tokens: int, cached: int = 0, flop: int | None = None
) -> Iterator[None]:
    """Enter a call that no ledger makes, of a `Ledger.counter`: as the target's, or else as a
    draft's.

    What runs in this block is part of that call. flop: None if they are not known.
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
    """A hook before a module of transformers' that enters calls which go to it directly, as for
    hidden states."""

    @classmethod
    def of(cls, module: torch.nn.Module) -> CallCounter:
        """The hook of a module, which is the same for all backbones that run it."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, cls):
                return hook
        counter = cls()
        module.register_forward_pre_hook(counter, with_kwargs=True)
        return counter

    def __call__(self, module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Enter a call with these arguments: ids (B, L), or their embeddings (B, L, E), come first
        or by name."""
        candidates = (*args[:1], options.get("input_ids"), options.get("inputs_embeds"))
        inputs = [candidate for candidate in candidates if isinstance(candidate, Tensor)]
        rows, length = inputs[0].shape[:2] if inputs else (1, 0)
        with counted(self, rows, rows * length):
            pass

    def __deepcopy__(self, memo: dict[int, Any]) -> CallCounter:
        """A copy of a model, as a quantized one, counts as the model."""
        return self

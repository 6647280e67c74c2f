"""Which keys and values a decoder that unmasks block by block reuses: none, or Fast-dLLM's two (Wu et al., 2505.22618).

    none    every step runs the whole sequence.
    prefix  the first step of a block runs the whole sequence; the others run the block and all after it, on the keys
            and values of what stands before the block.
    dual    the first step of a block runs the whole sequence; the others run the block alone, on the keys and values of
            all that stands before and after it.

Cached keys and values are those of the block's first step: tokens that are committed since have changed what they would
be. So a cache changes logits, and tokens with them. Shapes: L length of prompt and response, M tokens that a pass over
everything has (L, and what a decoder puts behind them), N of these whose logits are read, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch

from model_wrappers.backbones.blocks import BlockLedger
from model_wrappers.backbones.key_values import KeyValues
from model_wrappers.backbones.protocol import Ledger

CacheName = Literal["none", "prefix", "dual"]


class BlockCache(Protocol):
    """What a decoder asks. readable: positions of the sequence whose logits can be read by the next step."""

    readable: range

    def begin_block(self, start: int, end: int) -> None:
        """A block begins: positions start .. end - 1 of the sequence."""
        ...

    def logits(
        self,
        ids_1M: torch.Tensor,
        read_N: torch.Tensor,
        position_M: torch.Tensor | None = None,
        visible_MM: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits (N, V) given the sequence and, behind it, whatever tokens the decoder adds.

        ids_1M: LongTensor (1, M). read_N: LongTensor (N,), ascending indices into the M. position_M: their positions in
        the sequence (default: 0 .. M - 1). visible_MM: bool (M, M), what each token attends to (default: everything).
        """
        ...

    def committed(self, position_N: torch.Tensor) -> None:
        """Tokens were put at positions of the sequence."""
        ...


def make_cache(name: CacheName, backbone: Ledger, length: int) -> BlockCache:
    """The cache of a name, for sequences of `length` tokens. Raises ValueError if the backbone cannot serve it."""
    if name == "none":
        return NoCache(backbone, length)
    if isinstance(backbone, BlockLedger):
        raise ValueError(f"cache={name!r}: a block model keeps finished blocks by itself, exactly; use 'none'")
    if not backbone.can_extend:
        raise ValueError(f"cache={name!r} needs a backbone with cached attention (a method `extend`); use 'none'")
    return (PrefixCache if name == "prefix" else DualCache)(backbone, length)


class NoCache:
    """Every step runs the whole sequence; of a block model all that is not final."""

    def __init__(self, backbone: Ledger, length: int) -> None:
        self._backbone, self.readable = backbone, range(length)

    def begin_block(self, start: int, end: int) -> None:
        """Nothing is kept here. A block model does not look ahead."""
        if isinstance(self._backbone, BlockLedger):
            self.readable = range(end)

    def logits(
        self,
        ids_1M: torch.Tensor,
        read_N: torch.Tensor,
        position_M: torch.Tensor | None = None,
        visible_MM: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if position_M is None and visible_MM is None:
            return self._backbone.logits(ids_1M, positions=read_N)[0]
        return _whole(self._backbone, ids_1M, read_N, position_M, visible_MM)[0]

    def committed(self, position_N: torch.Tensor) -> None:
        """Nothing is kept."""


class PrefixCache:
    """What stands before the block is kept; the block and all after it run at every step but the first."""

    def __init__(self, backbone: Ledger, length: int) -> None:
        self._backbone, self._length = backbone, length
        self._cache: KeyValues | None = None
        self._start = self._end = 0
        self.readable = range(length)

    def begin_block(self, start: int, end: int) -> None:
        self._start, self._end, self._cache = start, end, None
        self.readable = range(self._length)

    def logits(
        self,
        ids_1M: torch.Tensor,
        read_N: torch.Tensor,
        position_M: torch.Tensor | None = None,
        visible_MM: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if self._cache is not None:
            return self._of_piece(self._cache, ids_1M, read_N, position_M, visible_MM)
        logits_NV, self._cache = _whole(self._backbone, ids_1M, read_N, position_M, visible_MM)
        self.readable = self._later
        return logits_NV

    def committed(self, position_N: torch.Tensor) -> None:
        """Keys and values stay as the block's first step made them."""

    @property
    def _later(self) -> range:
        """What can be read after the first step."""
        return range(self._start, self._length)

    def _of_piece(
        self,
        cache: KeyValues,
        ids_1M: torch.Tensor,
        read_N: torch.Tensor,
        position_M: torch.Tensor | None,
        visible_MM: torch.Tensor | None,
    ) -> torch.Tensor:
        # Where logits come from the token before, the piece begins at the one before the block.
        first = self._start + self._backbone.reads_at
        surplus = cache.get_seq_length() - first
        if surplus:
            cache.forget(surplus)
        piece_N = torch.arange(first, ids_1M.shape[1], device=ids_1M.device)
        at_N = piece_N if position_M is None else position_M[piece_N]
        seen_NM = None if visible_MM is None else visible_MM[piece_N]
        return self._backbone.extend(ids_1M[:, piece_N], at_N, read_N - first, cache, seen_NM, write="none")[0][0]


class DualCache(PrefixCache):
    """All but the block is kept; its keys and values are replaced at every step, as are those of added tokens."""

    @property
    def _later(self) -> range:
        return range(self._start, self._end)

    def _of_piece(
        self,
        cache: KeyValues,
        ids_1M: torch.Tensor,
        read_N: torch.Tensor,
        position_M: torch.Tensor | None,
        visible_MM: torch.Tensor | None,
    ) -> torch.Tensor:
        index_M = torch.arange(ids_1M.shape[1], device=ids_1M.device)
        piece_N = torch.cat([index_M[self._start + self._backbone.reads_at : self._end], index_M[self._length :]])
        at_N = piece_N if position_M is None else position_M[piece_N]
        seen_NM = None if visible_MM is None else visible_MM[piece_N]
        read = torch.searchsorted(piece_N, read_N)
        return self._backbone.extend(ids_1M[:, piece_N], at_N, read, cache, seen_NM, write="replace", slot_N=piece_N)[
            0
        ][0]


def _whole(
    backbone: Ledger,
    ids_1M: torch.Tensor,
    read_N: torch.Tensor,
    position_M: torch.Tensor | None,
    visible_MM: torch.Tensor | None,
) -> tuple[torch.Tensor, KeyValues]:
    """Logits (N, V) of a pass over everything, and the cache of it."""
    if position_M is None:
        position_M = torch.arange(ids_1M.shape[1], device=ids_1M.device)
    logits_1NV, cache = backbone.extend(ids_1M, position_M, read_N, visible_NK=visible_MM)
    return logits_1NV[0], cache

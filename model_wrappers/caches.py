"""Caches of decoders that unmask block by block: none, or one of Fast-dLLM's two (Wu et al.,
2505.22618).

    none    Every step runs the whole sequence.
    prefix  A block's first step runs the whole sequence. The other steps run the block and all
            after it, on cached keys and values of all before it.
    dual    A block's first step runs the whole sequence. The other steps run the block alone.

Cached keys and values are those of the block's first step. Tokens committed later would change
them, so a cache changes logits and may change tokens. Shapes: L length of prompt and response, M
tokens of a pass over everything (L and the tokens that a decoder adds), N of these whose logits are
read, P of them that run in a block's later steps, V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from model_wrappers.backbones.blocks import BlockLedger
from model_wrappers.backbones.protocol import KeyValues, Ledger, Write

CacheName = Literal["none", "prefix", "dual"]


def make_cache(name: CacheName, backbone: Ledger, length: int) -> NoCache:
    """Make the cache of a name, for sequences of `length` tokens.

    Raises:
        ValueError: the backbone does not support the cache.
    """
    if name == "none":
        return NoCache(backbone, length)
    if isinstance(backbone, BlockLedger):
        raise ValueError(
            f"cache={name!r}: a block model keeps finished blocks by itself, exactly; use 'none'"
        )
    if not backbone.can_extend:
        raise ValueError(
            f"cache={name!r} needs a backbone with cached attention (a method `extend`); use 'none'"
        )
    return (PrefixCache if name == "prefix" else DualCache)(backbone, length)


class NoCache:
    """No cache, and the base class of those that are one.

    Every step runs the whole sequence; in a block model, all that is not final.

    Attributes:
        readable: positions of the sequence whose logits the next step can read.
    """

    def __init__(self, backbone: Ledger, length: int) -> None:
        self._backbone = backbone
        self._length = length
        self.readable = range(length)

    def begin_block(self, start: int, end: int) -> None:
        """Begin the block of positions start .. end - 1."""
        if isinstance(self._backbone, BlockLedger):  # later blocks are not run
            self.readable = range(end)

    def logits(
        self,
        ids_1M: Tensor,
        read_N: Tensor,
        position_M: Tensor | None = None,
        visible_MM: Tensor | None = None,
    ) -> Tensor:
        """Logits (N, V) of the sequence followed by the tokens that the decoder adds.

        `begin_block` must have been called. Without position_M nothing is added, and M = L.

        Args:
            ids_1M: LongTensor (1, M).
            read_N: LongTensor (N,), ascending indices into the M tokens, of `readable` positions or
                added tokens.
            position_M: the M tokens' positions in the sequence (default: 0 .. M - 1).
            visible_MM: bool (M, M), which tokens each token attends to (default: all), the same in
                all steps of a block; only with position_M.
        """
        if position_M is None:
            return self._backbone.logits(ids_1M, positions=read_N)[0]
        return self._backbone.extend(ids_1M, position_M, read_N, visible_NK=visible_MM)[0][0]


class PrefixCache(NoCache):
    """Keys and values before the block are cached; each step after the first runs the block and all
    after it."""

    # What later steps do with the keys and values that they compute: see `Backbone.extend`.
    write: Write = "none"
    # Whether positions after the block can be read after the block's first step.
    reads_ahead = True

    def begin_block(self, start: int, end: int) -> None:
        self._start = start
        self._end = end
        self._cache: KeyValues | None = None
        self.readable = range(self._length)

    def logits(
        self,
        ids_1M: Tensor,
        read_N: Tensor,
        position_M: Tensor | None = None,
        visible_MM: Tensor | None = None,
    ) -> Tensor:
        index_M = torch.arange(ids_1M.shape[1])
        position_M = index_M if position_M is None else position_M
        # The block's first step: a pass over everything fills the cache.
        if self._cache is None:
            logits_1NV, self._cache = self._backbone.extend(
                ids_1M, position_M, read_N, visible_NK=visible_MM
            )
            self.readable = range(self._start, self._length if self.reads_ahead else self._end)
            # The same pieces run in all later steps, so that indices and masks are made once.
            pieces = self._pieces(self._cache)
            self._piece_P = torch.cat([index_M[piece] for piece in pieces])
            if visible_MM is not None:
                self._visible_PM = torch.cat([visible_MM[piece] for piece in pieces])
            return logits_1NV[0]
        piece_P = self._piece_P
        logits_1NV, _ = self._backbone.extend(
            ids_1M[:, piece_P],
            position_M[piece_P],
            # Indices into the tokens that run, which all of read_N are among.
            torch.searchsorted(piece_P, read_N),
            self._cache,
            None if visible_MM is None else self._visible_PM,
            self.write,
            piece_P,
        )
        return logits_1NV[0]

    def _pieces(self, cache: KeyValues) -> list[slice]:
        """Which of the M tokens run in a block's later steps; cuts the cache to what these rely
        on."""
        # reads_at is -1 where logits come from the token before: the one before the block then runs
        # too.
        first = self._start + self._backbone.reads_at
        cache.forget(cache.get_seq_length() - first)
        return [slice(first, None)]


class DualCache(PrefixCache):
    """All keys and values are cached; each step replaces those of the block and of the tokens that
    the decoder adds."""

    write: Write = "replace"
    reads_ahead = False

    def _pieces(self, cache: KeyValues) -> list[slice]:
        first = self._start + self._backbone.reads_at
        return [slice(first, self._end), slice(self._length, None)]

"""Block models: a token sees all earlier blocks and its own. What stands before the block is final,
and kept exactly.

Keys and values of a finished block depend on it and those before it alone. So a call runs the
current block and what was finished since the last one, whatever sequence a decoder hands over. Rows
that differ in the current block alone, as in a literal verification, share the kept prefix and run
as one call, packed one after the other with a mask. Shapes: B rows, L length of the sequence, N
tokens of a call, K kept, n positions whose logits are read, M = B n.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from model_wrappers.backbones.protocol import BackboneLike, KeyValues, Ledger
from model_wrappers.transfers import to_device


@dataclass(frozen=True)
class Blocks:
    """How a model's attention is cut into blocks of `length` tokens.

    origin: blocks count from position 0 of the sequence (SDAR, LLaDA2), or from the response
    (dLLM's BD3LM). masks: False for canvases, which begin as random tokens, and where it is causal:
    a token of an autoregressive model is a block.
    """

    length: Annotated[int, Meta(ge=1)]
    origin: Literal["sequence", "response"] = "sequence"
    masks: bool = True
    causal: bool = False


@dataclass(frozen=True)
class Grid:
    """The blocks of one sequence. phase: a position where one begins."""

    length: int
    phase: int

    @classmethod
    def of(cls, blocks: Blocks, start: int) -> Grid:
        """start: where the response begins."""
        return cls(blocks.length, start % blocks.length if blocks.origin == "response" else 0)

    def begin(self, position: int) -> int:
        """Where the block of a position begins; not before the sequence."""
        return max(0, position - (position - self.phase) % self.length)

    def end(self, position: int) -> int:
        """Index after the block of a position."""
        return position - (position - self.phase) % self.length + self.length

    def number(self, position_N: Tensor) -> Tensor:
        """The blocks of positions, numbered in their order."""
        return (position_N - self.phase).div(self.length, rounding_mode="floor")


@dataclass
class Kept:
    """Keys and values of finished blocks, for all ledgers of one model and response.

    ids_K: their tokens. next_11V: logits of the token after them, where they come from the token
    before.
    """

    ids_K: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    cache: KeyValues | None = None
    next_11V: Tensor | None = None


class BlockLedger(Ledger):
    """The ledger of a block model: it takes whole sequences, and runs of them what is needed."""

    def __init__(self, backbone: BackboneLike, grid: Grid, kept: Kept) -> None:
        super().__init__(backbone)
        self.grid = grid
        self._kept = kept

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Logits (B, n, V) at positions, as `Backbone.logits` takes them; the rows are equal before
        their block.

        Raises ValueError for the causal copula of a whole sequence, which a block model is not.
        """
        if causal:
            raise ValueError("a block model has no causal logits of a whole sequence")
        if positions is None:
            positions = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        logits_1MV = self._run(ids_BL, positions.expand(len(ids_BL), -1))
        return logits_1MV.view(len(ids_BL), -1, logits_1MV.shape[-1])

    def context(
        self, ids_1L: Tensor, read_n: Tensor, cache: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Logits (1, n, V), and keys and values of all up to the end of the block; valid until the
        next such call."""
        logits_1nV = self._run(ids_1L, read_n[None])
        assert self._kept.cache is not None, "a call keeps its own"
        return logits_1nV, self._kept.cache

    def _run(self, ids_BL: Tensor, position_Bn: Tensor) -> Tensor:
        """Logits (1, B n, V) by one call of all that is not kept, up to the end of the last block
        that is read."""
        rows = len(ids_BL)
        device = ids_BL.device
        begin = self.grid.begin(int(position_Bn.min()))
        end = min(self.grid.end(int(position_Bn.max())), ids_BL.shape[1])
        if rows > 1:  # rows share all that stands before the first block in which they differ
            differ_L = (ids_BL != ids_BL[:1]).any(0).nonzero()[:, 0]
            if len(differ_L):
                begin = min(begin, self.grid.begin(int(differ_L[0])))
        # Where logits come from the token before, the first position's come from the finished block
        # before it, once.
        is_next_M = (position_Bn == begin).flatten() & bool(self.reads_at and begin)
        if bool(is_next_M.all()):
            end = begin + 1
        kept = self._trim(ids_BL[0, :begin])
        if kept == begin and bool(is_next_M.all()):
            return self._next().expand(1, len(is_next_M), -1)
        before_N = torch.arange(kept, begin, device=device)
        own_N = torch.arange(begin, end, device=device)
        ids_1N = torch.cat([ids_BL[0, kept:begin], ids_BL[:, begin:end].flatten()])[None]
        position_N = torch.cat([before_N, own_N.repeat(rows)])
        visible_NK = None  # everything
        if rows > 1 or kept < begin or end - begin > self.grid.length:
            # A token sees the kept blocks, and of its row, or of what all rows share, the blocks up
            # to its own.
            number_N = self.grid.number(position_N)
            place_N = torch.arange(len(position_N), device=device) - len(before_N)
            row_N = place_N // len(own_N)
            sees_NN = (number_N <= number_N[:, None]) & ((row_N < 0) | (row_N == row_N[:, None]))
            visible_NK = torch.cat([sees_NN.new_ones(len(position_N), kept), sees_NN], 1)
        first_B = len(before_N) + len(own_N) * torch.arange(rows, device=device)
        read_M = (first_B[:, None] + position_Bn - begin).flatten()[~is_next_M]
        # what is finished now has the logits of the token after it
        if self.reads_at and len(before_N):
            read_M = torch.cat([read_M, torch.tensor([len(before_N)], device=device)])
        logits_1MV, cache = self.extend(ids_1N, position_N, read_M, self._kept.cache, visible_NK)
        self.enter(0, rows - 1, 0)
        self._kept.cache = cache
        self._kept.ids_K = ids_BL[0, :begin].clone()
        if self.reads_at and len(before_N):
            self._kept.next_11V = logits_1MV[:, -1:]
            logits_1MV = logits_1MV[:, :-1]
        if bool(is_next_M.any()):
            # The kept logits first, then those of this call in their order.
            row_M = (~is_next_M).cumsum(0).masked_fill(is_next_M, 0)
            (row_M,) = to_device(logits_1MV.device, row_M)
            return torch.cat([self._next(), logits_1MV], 1).index_select(1, row_M)
        return logits_1MV

    def _next(self) -> Tensor:
        """Logits (1, 1, V) of the token after the kept blocks, from their last call."""
        assert self._kept.next_11V is not None, "a call over those blocks keeps them"
        return self._kept.next_11V

    def _trim(self, ids_K: Tensor) -> int:
        """Forget what is not of these tokens' blocks; how many of them are kept."""
        kept = self._kept
        if kept.cache is None:
            return 0
        both = min(len(ids_K), len(kept.ids_K))
        other = (ids_K[:both] != kept.ids_K[:both]).nonzero()[:, 0]
        same = self.grid.begin(int(other[0])) if len(other) else both
        if self.reads_at and same == len(ids_K) != len(kept.ids_K):
            # what is known is the token after other blocks
            same = self.grid.begin(max(0, same - 1))
        surplus = kept.cache.get_seq_length() - same
        if surplus:
            kept.cache.forget(surplus)
        return same


def ledgers(
    backbone: BackboneLike, draft: BackboneLike, start: int, blocks: Blocks | None
) -> tuple[Ledger, Ledger]:
    """The ledgers of a response's target and draft model.

    Args:
        backbone: the target.
        draft: the draft model; it may be the same.
        start: where the response begins.
        blocks: those that the target attends in here, its own or longer or shorter ones.

    Raises:
        ValueError: one of two models attends in blocks and the other does not, or in others.
    """
    if getattr(draft, "blocks", None) != getattr(backbone, "blocks", None):
        raise ValueError("the draft model must attend as the target does, in the same blocks")
    if blocks is None or blocks.causal:
        return Ledger(backbone), Ledger(draft)
    grid = Grid.of(blocks, start)
    kept = Kept()
    of_draft = kept if draft is backbone else Kept()
    return BlockLedger(backbone, grid, kept), BlockLedger(draft, grid, of_draft)

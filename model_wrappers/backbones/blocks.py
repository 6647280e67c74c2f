"""Block models: a token sees all earlier blocks and its own block, so that caching finished blocks
is exact.

Keys and values of a finished block depend only on this block and earlier ones. So a call runs only
the current block and those finished since the last call, whatever sequence a decoder passes. Rows
that differ only in the current block, as in a literal verification, share the cached prefix and run
as one call, packed one after the other under a mask. Shapes: B rows, L length of the sequence, N
tokens of a call, K cached tokens, n positions whose logits are read, M = B n.
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
    """The blocks that a model attends in.

    Attributes:
        length: tokens of a block.
        origin: whether blocks count from position 0 of the sequence (SDAR, LLaDA2), or from the
            beginning of the response (dLLM's BD3LM).
        masks: whether blocks are decoded from masks. Canvases are not, which begin as random
            tokens, nor are autoregressive models.
        causal: whether the model is autoregressive; its blocks are single tokens.
    """

    length: Annotated[int, Meta(ge=1)]
    origin: Literal["sequence", "response"] = "sequence"
    masks: bool = True
    causal: bool = False


@dataclass(frozen=True)
class Grid:
    """The blocks of one sequence; `phase` is a position at which a block begins."""

    length: int
    phase: int

    @classmethod
    def of(cls, blocks: Blocks, start: int) -> Grid:
        """The grid of a sequence whose response begins at `start`."""
        return cls(blocks.length, start % blocks.length if blocks.origin == "response" else 0)

    def begin(self, position: int) -> int:
        """Index of the first token of a position's block, at least 0."""
        return max(0, position - (position - self.phase) % self.length)

    def end(self, position: int) -> int:
        """Index after the last token of a position's block."""
        return position - (position - self.phase) % self.length + self.length

    def number(self, position_N: Tensor) -> Tensor:
        """The numbers of positions' blocks, which count from left to right."""
        return (position_N - self.phase).div(self.length, rounding_mode="floor")


@dataclass
class Kept:
    """The cache of finished blocks, which all ledgers of one model and response share.

    Attributes:
        ids_K: the tokens of the finished blocks.
        cache: their keys and values.
        next_11V: logits of the token after them, if logits come from the token before.
    """

    ids_K: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    cache: KeyValues | None = None
    next_11V: Tensor | None = None


class BlockLedger(Ledger):
    """The ledger of a block model: it takes whole sequences, and runs only the parts needed."""

    def __init__(self, backbone: BackboneLike, grid: Grid, kept: Kept) -> None:
        super().__init__(backbone)
        self.grid = grid
        self._kept = kept

    def logits(
        self, ids_BL: Tensor, positions: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Logits (B, n, V) at positions, as in `Backbone.logits`; rows are equal before their
        block.

        Raises:
            ValueError: causal logits of a whole sequence (dcd), which a block model does not have.
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
        """Logits (1, n, V), and keys and values of the sequence up to the end of the block, which
        are valid until the next such call."""
        logits_1nV = self._run(ids_1L, read_n[None])
        assert self._kept.cache is not None, "a call keeps its own"
        return logits_1nV, self._kept.cache

    def _run(self, ids_BL: Tensor, position_Bn: Tensor) -> Tensor:
        """Logits (1, B n, V) by one call of all tokens that are not cached, up to the end of the
        last block that is read."""
        rows = len(ids_BL)
        device = ids_BL.device
        begin = self.grid.begin(int(position_Bn.min()))
        end = min(self.grid.end(int(position_Bn.max())), ids_BL.shape[1])
        # Rows share everything before the first block in which they differ; from there on each
        # runs.
        if rows > 1:
            differ_L = (ids_BL != ids_BL[:1]).any(0).nonzero()[:, 0]
            if len(differ_L):
                begin = min(begin, self.grid.begin(int(differ_L[0])))
        # If logits come from the token before, those of the block's first position come from the
        # finished block before it. They are computed once, when that block is run, and kept.
        is_next_M = (position_Bn == begin).flatten() & bool(self.reads_at and begin)
        if bool(is_next_M.all()):
            end = begin + 1
        cached = self._trim(ids_BL[0, :begin])
        if cached == begin and bool(is_next_M.all()):
            return self._next().expand(1, len(is_next_M), -1)
        before_N = torch.arange(cached, begin, device=device)
        block_N = torch.arange(begin, end, device=device)
        ids_1N = torch.cat([ids_BL[0, cached:begin], ids_BL[:, begin:end].flatten()])[None]
        position_N = torch.cat([before_N, block_N.repeat(rows)])
        visible_NK = None  # everything
        if rows > 1 or cached < begin or end - begin > self.grid.length:
            # A token sees the cached blocks and, in its own row and in the part that all rows share
            # (of negative row number), the blocks up to its own.
            number_N = self.grid.number(position_N)
            index_N = torch.arange(len(position_N), device=device) - len(before_N)
            row_N = index_N // len(block_N)
            sees_NN = (number_N <= number_N[:, None]) & ((row_N < 0) | (row_N == row_N[:, None]))
            visible_NK = torch.cat([sees_NN.new_ones(len(position_N), cached), sees_NN], 1)
        first_B = len(before_N) + len(block_N) * torch.arange(rows, device=device)
        read_M = (first_B[:, None] + position_Bn - begin).flatten()[~is_next_M]
        # Blocks that are finished now also give the logits of the token after them.
        if self.reads_at and len(before_N):
            read_M = torch.cat([read_M, torch.tensor([len(before_N)], device=device)])
        logits_1MV, cache = self.extend(ids_1N, position_N, read_M, self._kept.cache, visible_NK)
        # The packed call was counted as one row; it stands for `rows`.
        self.enter(0, rows - 1, 0)
        self._kept.cache = cache
        self._kept.ids_K = ids_BL[0, :begin].clone()
        if self.reads_at and len(before_N):
            self._kept.next_11V = logits_1MV[:, -1:]
            logits_1MV = logits_1MV[:, :-1]
        if bool(is_next_M.any()):
            # Row 0 are the kept logits; the others are those of this call in their order.
            row_M = (~is_next_M).cumsum(0).masked_fill(is_next_M, 0)
            (row_M,) = to_device(logits_1MV.device, row_M)
            return torch.cat([self._next(), logits_1MV], 1).index_select(1, row_M)
        return logits_1MV

    def _next(self) -> Tensor:
        """Logits (1, 1, V) of the token after the cached blocks."""
        assert self._kept.next_11V is not None, "a call over those blocks keeps them"
        return self._kept.next_11V

    def _trim(self, ids_K: Tensor) -> int:
        """Drop cached blocks that are not those of these tokens; returns how many tokens are cached
        then."""
        kept = self._kept
        if kept.cache is None:
            return 0
        common = min(len(ids_K), len(kept.ids_K))
        differing = (ids_K[:common] != kept.ids_K[:common]).nonzero()[:, 0]
        same = self.grid.begin(int(differing[0])) if len(differing) else common
        if self.reads_at and same == len(ids_K) != len(kept.ids_K):
            # The cached next logits are of the token after other blocks: the last block runs again.
            same = self.grid.begin(max(0, same - 1))
        surplus = kept.cache.get_seq_length() - same
        if surplus:
            kept.cache.forget(surplus)
        return same


def ledgers(
    backbone: BackboneLike, draft: BackboneLike, start: int, blocks: Blocks | None
) -> tuple[Ledger, Ledger]:
    """Make the ledgers of a response's target and draft model.

    Args:
        backbone: the target.
        draft: the draft model; it may be the target.
        start: index of the response's first token.
        blocks: the blocks in which the target attends for this response, of any length.

    Raises:
        ValueError: the two models do not attend in the same blocks.
    """
    if getattr(draft, "blocks", None) != getattr(backbone, "blocks", None):
        raise ValueError("the draft model must attend as the target does, in the same blocks")
    if blocks is None or blocks.causal:
        return Ledger(backbone), Ledger(draft)
    grid = Grid.of(blocks, start)
    kept = Kept()
    draft_kept = kept if draft is backbone else Kept()
    return BlockLedger(backbone, grid, kept), BlockLedger(draft, grid, draft_kept)

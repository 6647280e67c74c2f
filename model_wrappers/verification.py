"""Where FeF-DLLM's laws come from: one row per draft, or two streams on top of cached keys and values.

Both give, for the places j_1 < j_2 < ... of a window, the target law of each given the drafts before it and nothing of
those after it. The first gives draft laws of the places to come as well if asked to, so that these need no pass.
Shapes: L length of prompt and response, W window, V vocabulary, R rows, N tokens put after the cached ones.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from transformers import Cache

from model_wrappers.backbone import Ledger

Laws = dict[int, torch.Tensor]  # place -> logits (V,)


class Verified(NamedTuple):
    """Target logits of a window, (W, V) or without the first place; and draft laws of places to come.

    ahead: by how many drafts may be accepted, the laws of the places after these given these alone. If all are
    accepted, the law at the next place is the target's own.
    """

    target_WV: torch.Tensor
    ahead: dict[int, Laws]


class Verification(Protocol):
    """What the decoder asks. cell: the unresolved places that come next, ascending indices into the sequence.

    backbone, draft: the models of the target and of the draft laws. x_1L: LongTensor (1, L), filled in by the decoder.
    window: most places of a window.
    """

    def __init__(self, backbone: Ledger, draft: Ledger, x_1L: torch.Tensor, window: int) -> None: ...

    def start(self, cell: list[int]) -> Laws:
        """Get ready for a new cell; the laws at its places, given what is resolved, if that gives them."""
        ...

    def draft(self, cell: list[int]) -> Laws:
        """Draft laws of the next window at least, given what is resolved, by a pass of their own."""
        ...

    def verify(self, cell: list[int], drafts: list[int], skip: bool, look_ahead: bool) -> Verified:
        """Target laws of the window: as many places as there are drafts, or one if there are none.

        skip: leave out the first place, whose target law is known. look_ahead: give draft laws of places to come, too.
        """
        ...


class FullVerification:
    """The paper's Algorithm 2: input m of a batch is the sequence with the drafts before place m filled in."""

    def __init__(self, backbone: Ledger, draft: Ledger, x_1L: torch.Tensor, window: int) -> None:
        self._backbone, self._draft, self._x_1L, self._window = backbone, draft, x_1L, window

    def start(self, cell: list[int]) -> Laws:
        """None: every pass runs the whole sequence."""
        return {}

    def draft(self, cell: list[int]) -> Laws:
        """Of the next window, from one forward of the sequence as it is."""
        return _draft_forward(self._draft, self._x_1L, cell[: self._window])

    def verify(self, cell: list[int], drafts: list[int], skip: bool, look_ahead: bool) -> Verified:
        """One batch; laws ahead are those of the row of the accepted drafts, and one more row is that of all drafts."""
        wide = max(1, len(drafts))
        rows = range(int(skip), wide + (look_ahead and wide < len(cell)))
        if not rows:
            return Verified(torch.empty(0, self._backbone.vocab_size, device=self._x_1L.device), {})
        inputs_RL = self._x_1L.repeat(len(rows), 1)
        for m, input_L in zip(rows, inputs_RL, strict=True):
            input_L[cell[:m]] = _tensor(drafts[:m], input_L)
        # A row is read at its own place, and where laws ahead are wanted at as many as a window after it.
        reads = [cell[m : m + 1 + (self._window if look_ahead else 0)] for m in rows]
        most = max(map(len, reads))
        filled = [read + read[-1:] * (most - len(read)) for read in reads]
        logits_RNV = self._backbone.logits(inputs_RL, positions=_tensor(filled, self._x_1L))
        ahead: dict[int, Laws] = {}
        if look_ahead:
            laws = [dict(zip(read, logits_NV, strict=False)) for read, logits_NV in zip(reads, logits_RNV, strict=True)]
            ahead = dict(zip(rows, laws, strict=True))
        return Verified(logits_RNV[: wide - skip, 0], ahead)


class TwoStreamVerification:
    """Target laws from 2W tokens on top of keys and values that are kept, instead of W sequences.

    A context pass runs the whole sequence once for a cell of places. What it saw of the cell is hidden again from
    whoever must not see it: a query of place m, the corrupted token there, sees the committed tokens and the drafts of
    the cell before m, as clean tokens, in the context what comes after m, and itself; the clean token of place m sees
    the same, and is one of them. So the law at m is a function of the context and of the cell's tokens before m: one
    chain law for every window, draft and acceptance, though another one than that of FullVerification. Committed clean
    tokens stay in the cache until the cell is done. The backbone must have `extend`.
    """

    def __init__(self, backbone: Ledger, draft: Ledger, x_1L: torch.Tensor, window: int) -> None:
        self._backbone, self._draft, self._x_1L, self._window = backbone, draft, x_1L, window
        self._cell: list[int] = []
        self._ordinal_L = torch.empty(0)
        self._clean: list[int] = []  # the cell's first tokens, as far as the cache holds them
        self._cache: Cache | None = None

    def start(self, cell: list[int]) -> Laws:
        """The context pass; a place's own mask there gives its law, the target's at the first place."""
        length = self._x_1L.shape[1]
        self._cell, self._clean = cell, []
        place_L = torch.arange(length, device=self._x_1L.device)
        # Ordinal in the cell; places outside it come after all ordinals, so that everyone sees them.
        self._ordinal_L = torch.full_like(place_L, length)
        self._ordinal_L[cell] = place_L[: len(cell)]
        logits_1NV, self._cache = self._backbone.extend(self._x_1L, place_L, _tensor(cell, place_L))
        return dict(zip(cell, logits_1NV[0], strict=True))

    def draft(self, cell: list[int]) -> Laws:
        """Of the next window: queries see the committed tokens, and in the context all to come but their own."""
        cell, whole = cell[: self._window], len(cell)
        if not self._draft.is_model_of(self._backbone):
            return _draft_forward(self._draft, self._x_1L, cell)
        done = len(self._cell) - whole
        logits_NV = self._extend(self._draft, done, [], [(done + m, done) for m in range(len(cell))])
        return dict(zip(cell, logits_NV, strict=True))

    def verify(self, cell: list[int], drafts: list[int], skip: bool, look_ahead: bool) -> Verified:
        """One pass of a query for each place and the clean tokens before it; no laws ahead, for these would cost more.

        Raises ValueError if laws ahead are asked for.
        """
        if look_ahead:
            raise ValueError("two-stream verification gives no laws ahead")
        wide, done = max(1, len(drafts)), len(self._cell) - len(cell)
        queries = [(done + m, done + m) for m in range(int(skip), wide)]
        if not queries:
            return Verified(torch.empty(0, self._backbone.vocab_size, device=self._x_1L.device), {})
        return Verified(self._extend(self._backbone, done, drafts[: wide - 1], queries), {})

    def _extend(self, model: Ledger, done: int, drafts: list[int], queries: list[tuple[int, int]]) -> torch.Tensor:
        """Logits (len(queries), V) with the cell's first `done` tokens committed and then `drafts`, as clean tokens.

        queries: (ordinal in the cell, how many clean tokens it sees).
        """
        assert self._cache is not None, "start() comes first"
        context = self._x_1L.shape[1]
        tokens: list[int] = self._x_1L[0, self._cell[:done]].tolist() + drafts
        kept = 0  # from the first token on that was not committed, drafts leave the cache, and so do the old queries
        while kept < min(done, len(self._clean)) and self._clean[kept] == tokens[kept]:
            kept += 1
        surplus = self._cache.get_seq_length() - context - kept
        if surplus:
            self._cache.crop(-surplus)
        self._clean = tokens

        clean = [(ordinal, ordinal + 1) for ordinal in range(kept, len(tokens))]
        rows_N2 = _tensor([*clean, *queries], self._x_1L)
        ordinal_N, sees_N1 = rows_N2[:, 0], rows_N2[:, 1:]
        place_N = _tensor(self._cell, rows_N2)[ordinal_N]
        ids_N = torch.cat([_tensor(tokens[kept:], rows_N2), self._x_1L[0, place_N[len(clean) :]]])
        in_context_NL = (self._ordinal_L >= sees_N1) & (self._ordinal_L != ordinal_N[:, None])
        is_clean_NC = torch.arange(len(tokens), device=ids_N.device) < sees_N1
        itself_NQ = torch.eye(len(ids_N), dtype=torch.bool, device=ids_N.device)[:, len(clean) :]
        visible_NK = torch.cat([in_context_NL, is_clean_NC, itself_NQ], 1)
        read = torch.arange(len(clean), len(ids_N), device=ids_N.device)
        logits_1NV, self._cache = model.extend(ids_N[None], place_N, read, self._cache, visible_NK)
        return logits_1NV[0]


def _draft_forward(draft: Ledger, x_1L: torch.Tensor, places: list[int]) -> Laws:
    return dict(zip(places, draft.logits(x_1L, positions=_tensor(places, x_1L))[0], strict=True))


def _tensor(values: object, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=like.device)

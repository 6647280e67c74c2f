"""Where FeF-DLLM's targets come from: one row per draft, or two streams on top of cached keys and values.

Both give, for the positions j_1 < j_2 < ... of a window, the target of each given the drafts before it and nothing of
those after it. The first gives draft logits of the positions to come as well if asked to, so that these need no pass.
Shapes: L length of prompt and response, W window, V vocabulary, R rows, N tokens put after the cached ones.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F

from model_wrappers.backbones.key_values import KeyValues
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.request import Request
from model_wrappers.sampling import token_probs

PositionLogits = dict[int, torch.Tensor]  # position in the sequence -> logits (V,)


class Proposal(NamedTuple):
    """What a window is verified on.

    tokens: its W drafts, none without speculation. probs_WV: what they were drawn from. root_1V: target logits of the
    first position where a pass gave them already; it then is left out of the verification. logits_WV: the draft logits.
    """

    tokens: list[int]
    probs_WV: torch.Tensor | None
    root_1V: torch.Tensor | None
    logits_WV: torch.Tensor | None = None


class Verified(NamedTuple):
    """Target logits of a window, and draft logits of positions to come.

    next_drafts: by how many drafts may be accepted, the logits of the positions after these given these alone. If all
    are accepted, those of the next position are the target's own.
    """

    logits_WV: torch.Tensor
    next_drafts: dict[int, PositionLogits]

    def probs_of(self, tokens: list[int], exclude: list[int]) -> torch.Tensor:
        """The target's probability, at temperature 1, of a token at each of the first positions: float64 (N,)."""
        probs_NV = token_probs(self.logits_WV[: len(tokens)], 1.0, exclude=exclude)
        return probs_NV.gather(1, _tensor(tokens, probs_NV)[:, None])[:, 0]


class Verifier(Protocol):
    """What the decoder asks. segment: the unresolved positions that come next, ascending indices into the sequence."""

    def begin(self, segment: list[int]) -> PositionLogits:
        """Get ready for a new segment; the logits at its positions, given what is resolved, if that gives them."""
        ...

    def arrange(self, segment: list[int]) -> None:
        """The order in which the positions of the segment that has just begun are resolved, if it is another one."""
        ...

    def is_fresh(self, segment: list[int]) -> bool:
        """Whether the target of the segment's first position is conditioned on all that is resolved in every way."""
        ...

    def draft(self, segment: list[int]) -> PositionLogits:
        """Draft logits of the next window at least, given what is resolved, by a pass of their own."""
        ...

    def verify(self, segment: list[int], proposal: Proposal, want_drafts: bool) -> Verified:
        """Targets of the window: as many positions as there are drafts, or one if there are none.

        want_drafts: give draft logits of positions to come, too.
        """
        ...


def make_verifier(name: str, request: Request, window: int) -> Verifier:
    """The verification of a name, for windows of at most `window` positions.

    Raises ValueError for what the backbone cannot serve.
    """
    backbone = request.backbone
    if name == "two-stream" and not backbone.can_extend:
        raise ValueError("verify='two-stream' needs a backbone with cached attention (a method `extend`); use 'full'")
    if backbone.max_length is not None and window > backbone.max_length:
        raise ValueError(f"window={window} exceeds the model's limit of {backbone.max_length} tokens")
    return (TwoStreamVerifier if name == "two-stream" else FullVerifier)(request, window)


class FullVerifier:
    """The paper's Algorithm 2: input m of a batch is the sequence with the drafts before position m filled in."""

    def __init__(self, request: Request, window: int) -> None:
        self._backbone, self._draft, self._x_1L, self._window = request.backbone, request.draft, request.x_1L, window

    def begin(self, segment: list[int]) -> PositionLogits:
        """None: every pass runs the whole sequence."""
        return {}

    def arrange(self, segment: list[int]) -> None:
        """Nothing is kept of a segment."""

    def is_fresh(self, segment: list[int]) -> bool:
        """Always."""
        return True

    def draft(self, segment: list[int]) -> PositionLogits:
        """Of the next window, from one forward of the sequence as it is."""
        return _draft_forward(self._draft, self._x_1L, segment[: self._window])

    def verify(self, segment: list[int], proposal: Proposal, want_drafts: bool) -> Verified:
        """One batch; the next drafts are those of the row of the accepted drafts, and one more row has all drafts."""
        wide, skip = max(1, len(proposal.tokens)), proposal.root_1V is not None
        rows = range(int(skip), wide + (want_drafts and wide < len(segment)))
        if not rows:
            return _with_root(proposal, torch.empty(0, self._backbone.vocab_size, device=self._x_1L.device))
        inputs_RL = self._x_1L.repeat(len(rows), 1)
        for m, input_L in zip(rows, inputs_RL, strict=True):
            input_L[segment[:m]] = _tensor(proposal.tokens[:m], input_L)
        # A row is read at its own position, and where drafts are wanted at as many as a window after it.
        reads = [segment[m : m + 1 + (self._window if want_drafts else 0)] for m in rows]
        most = max(map(len, reads))
        filled = [read + read[-1:] * (most - len(read)) for read in reads]
        logits_RNV = self._backbone.logits(inputs_RL, positions=_tensor(filled, self._x_1L))
        next_drafts: dict[int, PositionLogits] = {}
        if want_drafts:
            pairs = zip(reads, logits_RNV, strict=True)
            next_drafts = dict(zip(rows, (dict(zip(*pair, strict=False)) for pair in pairs), strict=True))
        return _with_root(proposal, logits_RNV[: wide - skip, 0], next_drafts)


class TwoStreamVerifier:
    """Targets from 2W tokens on top of keys and values that are kept, instead of W sequences.

    A context pass runs the whole sequence once for a segment of positions. What it saw of the segment is hidden again
    from whoever must not see it. With the segment j_1 < j_2 < j_3, clean tokens c_m and queries q_m (the corrupted
    token at j_m), all at the rotary positions they have in the sequence (x: the row sees the column):

                  context                           clean tokens     queries
                  outside   j_1   j_2   j_3         c_1  c_2  c_3    q_1  q_2  q_3
        c_1          x             x     x           x
        c_2          x                   x           x    x
        c_3          x                               x    x    x
        q_1          x             x     x                            x
        q_2          x                   x           x                     x
        q_3          x                               x    x                     x

    So the target at j_m is a function of the context and of the segment's tokens before m: one chain distribution,
    which does not depend on the window, the draft or what was accepted. It equals one-token-at-a-time decoding under
    the same mask, but it is not the distribution of FullVerifier. Committed clean tokens stay in the cache until the
    segment is done. The backbone must have `extend`.
    """

    def __init__(self, request: Request, window: int) -> None:
        self._backbone, self._draft, self._x_1L, self._window = request.backbone, request.draft, request.x_1L, window
        self._segment: list[int] = []
        self._segment_S = self._sees = self._elsewhere = torch.empty(0)
        self._clean: list[int] = []  # the segment's first tokens, as far as the cache holds them
        self._cache: KeyValues | None = None

    def begin(self, segment: list[int]) -> PositionLogits:
        """The context pass; a position's own mask there gives its logits, the target's at the first position."""
        position_L = torch.arange(self._x_1L.shape[1], device=self._x_1L.device)
        self._clean = []
        self.arrange(segment)
        if self._cache is not None:
            self._cache.forget(self._cache.get_seq_length())
        read = _tensor(segment, position_L)
        logits_1NV, self._cache = self._backbone.extend(self._x_1L, position_L, read, self._cache)
        return dict(zip(segment, logits_1NV[0], strict=True))

    def arrange(self, segment: list[int]) -> None:
        """Any order: a chain of distributions needs one that is fixed before the tokens are drawn, and no more.

        The masks of all its windows are made here. Over the context and then all clean tokens, (S + 1, L + S): what
        sees the first s tokens of the segment; and (S, L + S): what is not where the query of an ordinal stands. Where
        logits come from the token before, that token stands before its query, and neither sees what is at both places.
        """
        context, device = self._x_1L.shape[1], self._x_1L.device
        self._segment, self._segment_S = segment, _tensor(segment, self._x_1L)
        ordinal_S1 = torch.arange(len(segment) + 1, device=device)
        # Positions outside the segment come after all ordinals, so that everyone sees them.
        ordinal_L = torch.full((context,), len(segment) + 1, device=device).index_put(
            (self._segment_S,), ordinal_S1[:-1]
        )
        self._sees = torch.cat([ordinal_L >= ordinal_S1[:, None], ordinal_S1[:-1] < ordinal_S1[:, None]], 1)
        position_K = torch.cat([torch.arange(context, device=device), self._segment_S])
        behind_SK = self._segment_S[:, None] - position_K
        self._elsewhere = (behind_SK < 0) | (behind_SK > -self._backbone.reads_at)

    def is_fresh(self, segment: list[int]) -> bool:
        """Where nothing was resolved since the context pass."""
        return len(segment) == len(self._segment)

    def draft(self, segment: list[int]) -> PositionLogits:
        """Of the next window: queries see the committed tokens, and in the context all to come but their own."""
        window, left = segment[: self._window], len(segment)
        if not self._draft.is_model_of(self._backbone):
            return _draft_forward(self._draft, self._x_1L, window)
        done = len(self._segment) - left
        logits_NV = self._extend(self._draft, done, [], range(done, done + len(window)), chained=False)
        return dict(zip(window, logits_NV, strict=True))

    def verify(self, segment: list[int], proposal: Proposal, want_drafts: bool) -> Verified:
        """One pass of a query for each position and the clean tokens before it.

        Raises ValueError if drafts are asked for: these would cost more than a draft pass.
        """
        if want_drafts:
            raise ValueError("two-stream verification gives no draft logits")
        wide, done, skip = max(1, len(proposal.tokens)), len(self._segment) - len(segment), proposal.root_1V is not None
        queries = range(done + skip, done + wide)
        if not queries:
            return _with_root(proposal, torch.empty(0, self._backbone.vocab_size, device=self._x_1L.device))
        return _with_root(proposal, self._extend(self._backbone, done, proposal.tokens[: wide - 1], queries))

    def _extend(
        self, model: Ledger, done: int, drafts: list[int], queries: range, chained: bool = True
    ) -> torch.Tensor:
        """Logits (len(queries), V) with the segment's first `done` tokens committed and then `drafts`, as clean tokens.

        queries: their ordinals in the segment. chained: a query sees all clean tokens before it, else those committed.
        """
        assert self._cache is not None, "begin() comes first"
        context = self._x_1L.shape[1]
        tokens: list[int] = self._x_1L[0, self._segment_S[:done]].tolist() + drafts
        kept = 0  # from the first token on that was not committed, drafts leave the cache, and so do the old queries
        while kept < min(done, len(self._clean)) and self._clean[kept] == tokens[kept]:
            kept += 1
        surplus = self._cache.get_seq_length() - context - kept
        if surplus:
            self._cache.forget(surplus)
        self._clean = tokens

        columns, lead = context + len(tokens), -model.reads_at
        sees_QK = self._sees[queries.start : queries.stop, :columns] if chained else self._sees[[done], :columns]
        query_QK = sees_QK & self._elsewhere[queries.start : queries.stop, :columns]
        at_Q = self._segment_S[queries.start : queries.stop]
        ids_Q, itself_QQ = self._x_1L[0, at_Q], torch.eye(len(queries), dtype=torch.bool, device=at_Q.device)
        if lead:  # where logits come from the token before, that token stands before its query
            before_Q = at_Q - 1
            filled_L = self._x_1L[0].index_put((self._segment_S[: len(tokens)],), _tensor(tokens, at_Q))
            corrupted_Q = sees_QK.expand_as(query_QK).gather(1, before_Q[:, None])[:, 0]
            before_ids_Q = torch.where(corrupted_Q, self._x_1L[0, before_Q], filled_L[before_Q])
            at_Q, ids_Q = torch.stack([before_Q, at_Q], 1).flatten(), torch.stack([before_ids_Q, ids_Q], 1).flatten()
            query_QK = query_QK.repeat_interleave(2, 0)
            itself_QQ = itself_QQ.repeat_interleave(2, 0).repeat_interleave(2, 1)
        clean_CK = self._sees[kept + 1 : len(tokens) + 1, :columns]
        visible_NK = torch.cat([clean_CK, query_QK])
        itself_NQ = F.pad(itself_QQ, (0, 0, len(clean_CK), 0))
        ids_N = torch.cat([_tensor(tokens[kept:], at_Q), ids_Q])
        position_N = torch.cat([self._segment_S[kept : len(tokens)], at_Q])
        read = torch.arange(len(clean_CK) + lead, len(ids_N), 1 + lead, device=ids_N.device)
        visible_NK = torch.cat([visible_NK, itself_NQ], 1)
        logits_1NV, self._cache = model.extend(ids_N[None], position_N, read, self._cache, visible_NK)
        return logits_1NV[0]


def _with_root(
    proposal: Proposal, logits_NV: torch.Tensor, next_drafts: dict[int, PositionLogits] | None = None
) -> Verified:
    """The verified logits, behind those of the first position where the proposal has them."""
    whole_WV = logits_NV if proposal.root_1V is None else torch.cat([proposal.root_1V, logits_NV])
    return Verified(whole_WV, next_drafts or {})


def _draft_forward(draft: Ledger, x_1L: torch.Tensor, positions: list[int]) -> PositionLogits:
    return dict(zip(positions, draft.logits(x_1L, positions=_tensor(positions, x_1L))[0], strict=True))


def _tensor(values: object, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=like.device)

"""FeF-DLLM's targets from two streams on top of cached keys and values.

Shapes: L length of prompt and response, W window, S segment, V vocabulary, N tokens put after the
cached ones.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from model_wrappers.backbones.protocol import KeyValues, Ledger
from model_wrappers.decoders.fef.targets import (
    PositionLogits,
    Proposal,
    Verified,
    draft_forward,
    ids_tensor,
    with_first,
)
from model_wrappers.request import Request
from model_wrappers.sampling import in_doubt, token_probs


class TwoStreamVerifier:
    """Targets from 2W tokens on top of keys and values that are kept, instead of W sequences.

    A context pass runs the whole sequence (of a block model: up to the end of the block) once for a
    segment of positions; later passes hide what they must not see of it. With the segment j_1 < j_2
    < j_3, clean tokens c_m and queries q_m (the corrupted token at j_m), all at their rotary
    positions in the sequence (x: the row sees the column):

                  context                           clean tokens     queries
                  outside   j_1   j_2   j_3         c_1  c_2  c_3    q_1  q_2  q_3
        c_1          x             x     x           x
        c_2          x                   x           x    x
        c_3          x                               x    x    x
        q_1          x             x     x                            x
        q_2          x                   x           x                     x
        q_3          x                               x    x                     x

    So the target at j_m depends on the context and the segment's tokens before m alone: one chain
    distribution for every window and draft, that of one-token-at-a-time decoding under the same
    mask, but not that of FullVerifier. The backbone must have `extend`. anchor: positions of a
    segment (None: all that are unresolved). refresh_below: a position with a best token of less
    probability begins a segment (None: never). by_confidence: the most confident position of a
    segment comes first. excluded: ids without probability.
    """

    def __init__(
        self,
        request: Request,
        window: int,
        anchor: int | None = None,
        refresh_below: float | None = None,
        by_confidence: bool = False,
        excluded: Sequence[int] = (),
    ) -> None:
        self._backbone = request.backbone
        self._draft = request.draft
        self._x_1L = request.x_1L
        self._window = window
        self._anchor = anchor
        self._refresh_below = refresh_below
        self._by_confidence = by_confidence
        self._excluded = list(excluded)
        self._left: list[int] = []  # of the segment, what is unresolved
        self._until_doubt: int | None = (
            None  # positions of the last window before one in doubt; None without any
        )
        self._segment: list[int] = []
        self._segment_S = self._sees = self._elsewhere = torch.empty(0)
        self._clean: list[int] = []  # the segment's first tokens, as far as the cache holds them
        self._cache: KeyValues | None = None
        self._cached = 0  # tokens of the context that the cache holds
        self.context: PositionLogits = {}

    def segment(self, unresolved: list[int]) -> list[int]:
        """What is left of the segment; or a new one, after a context pass."""
        self.context = {}
        if not self._left:
            self._left = unresolved[: self._anchor]
            self.context = self.begin(self._left)
            if self._by_confidence:
                self._left = by_confidence(self.context, self._excluded)
                self.arrange(self._left)
        return self._left

    def advance(self, count: int, accepted: int) -> None:
        """Where all is accepted up to a position in doubt, that one begins a new segment."""
        self._left = [] if accepted == self._until_doubt else self._left[count:]

    def begin(self, segment: list[int]) -> PositionLogits:
        """The context pass; a position's own mask there gives its logits, the target's at the first
        position."""
        self._clean = []
        logits_1NV, self._cache = self._backbone.context(
            self._x_1L, ids_tensor(segment, self._x_1L), self._cache
        )
        self._cached = self._cache.get_seq_length()
        self.arrange(segment)
        return dict(zip(segment, logits_1NV[0], strict=True))

    def arrange(self, segment: list[int]) -> None:
        """The masks of all windows of a segment, in any order that is fixed before its tokens are
        drawn.

        Over the context and then all clean tokens, (S + 1, L + S): what sees the first s tokens of
        the segment; and (S, L + S): what is not where the query of an ordinal stands. Where logits
        come from the token before, that token stands before its query, and neither sees what is at
        both places.
        """
        context = self._cached
        device = self._x_1L.device
        self._segment = segment
        self._segment_S = ids_tensor(segment, self._x_1L)
        ordinal_S1 = torch.arange(len(segment) + 1, device=device)
        # Positions outside the segment come after all ordinals, so that everyone sees them.
        ordinal_L = torch.full((context,), len(segment) + 1, device=device).index_put(
            (self._segment_S,), ordinal_S1[:-1]
        )
        self._sees = torch.cat(
            [ordinal_L >= ordinal_S1[:, None], ordinal_S1[:-1] < ordinal_S1[:, None]], 1
        )
        position_K = torch.cat([torch.arange(context, device=device), self._segment_S])
        behind_SK = self._segment_S[:, None] - position_K
        self._elsewhere = (behind_SK < 0) | (behind_SK > -self._backbone.reads_at)

    def in_doubt(self, segment: list[int], best_W: torch.Tensor) -> torch.Tensor:
        """Those below refresh_below; not the first one where nothing was resolved since the context
        pass."""
        return in_doubt(best_W, self._refresh_below, fresh=len(segment) == len(self._segment))

    def before_doubt(self, segment: list[int], logits_WV: torch.Tensor) -> int:
        """How many of a window's positions, with these target logits, come before the first one in
        doubt.

        A function of the target, and so of the tokens before alone: one chain distribution for all
        windows and drafts.
        """
        if self._refresh_below is None:
            return len(logits_WV)
        best_W = token_probs(logits_WV, 1.0, exclude=self._excluded).amax(1)
        return int((~self.in_doubt(segment, best_W)).cumprod(0).sum())

    def draft(self, segment: list[int]) -> PositionLogits:
        """Of the next window: queries see the committed tokens, and in the context all to come but
        their own."""
        window = segment[: self._window]
        left = len(segment)
        if not self._draft.is_model_of(self._backbone):
            return draft_forward(self._draft, self._x_1L, window)
        done = len(self._segment) - left
        logits_NV = self._extend(
            self._draft, done, [], range(done, done + len(window)), chained=False
        )
        return dict(zip(window, logits_NV, strict=True))

    def verify(self, segment: list[int], proposal: Proposal) -> Verified:
        """One pass of a query for each position and the clean tokens before it; what is in doubt is
        left out."""
        wide = max(1, len(proposal.tokens))
        done = len(self._segment) - len(segment)
        queries = range(done + (proposal.first_target_1V is not None), done + wide)
        logits_NV = torch.empty(0, self._backbone.vocab_size, device=self._x_1L.device)
        if queries:
            logits_NV = self._extend(self._backbone, done, proposal.tokens[: wide - 1], queries)
        logits_WV = with_first(proposal, logits_NV).logits_WV
        count = self.before_doubt(segment, logits_WV)
        self._until_doubt = count if count < len(logits_WV) else None
        return Verified(logits_WV[:count], {})

    def _extend(
        self, model: Ledger, done: int, drafts: list[int], queries: range, chained: bool = True
    ) -> torch.Tensor:
        """Logits (len(queries), V) with the segment's first `done` tokens committed and then
        `drafts`, as clean tokens.

        queries: their ordinals in the segment. chained: a query sees all clean tokens before it,
        else those committed.
        """
        tokens: list[int] = self._x_1L[0, self._segment_S[:done]].tolist() + drafts
        kept = self._keep(tokens[:done])
        self._clean = tokens
        columns = self._cached + len(tokens)
        sees_QK = (
            self._sees[queries.start : queries.stop, :columns]
            if chained
            else self._sees[[done], :columns]
        )
        query_QK = sees_QK & self._elsewhere[queries.start : queries.stop, :columns]
        at_Q = self._segment_S[queries.start : queries.stop]
        ids_Q = self._x_1L[0, at_Q]
        itself_QQ = torch.eye(len(queries), dtype=torch.bool, device=at_Q.device)
        a_query = 1 - model.reads_at  # tokens of a query
        if model.reads_at:
            at_Q, ids_Q = self._with_token_before(at_Q, ids_Q, sees_QK.expand_as(query_QK), tokens)
            query_QK = query_QK.repeat_interleave(2, 0)
            itself_QQ = itself_QQ.repeat_interleave(2, 0).repeat_interleave(2, 1)
        clean_CK = self._sees[kept + 1 : len(tokens) + 1, :columns]
        itself_NQ = F.pad(itself_QQ, (0, 0, len(clean_CK), 0))
        visible_NK = torch.cat([torch.cat([clean_CK, query_QK]), itself_NQ], 1)
        ids_N = torch.cat([ids_tensor(tokens[kept:], at_Q), ids_Q])
        position_N = torch.cat([self._segment_S[kept : len(tokens)], at_Q])
        read = torch.arange(len(clean_CK) + a_query - 1, len(ids_N), a_query, device=ids_N.device)
        logits_1NV, self._cache = model.extend(
            ids_N[None], position_N, read, self._cache, visible_NK
        )
        return logits_1NV[0]

    def _keep(self, committed: list[int]) -> int:
        """How many clean tokens of the cache are these; drafts that were not committed leave it,
        and old queries."""
        assert self._cache is not None, "begin() comes first"
        kept = 0
        while kept < min(len(committed), len(self._clean)) and self._clean[kept] == committed[kept]:
            kept += 1
        surplus = self._cache.get_seq_length() - self._cached - kept
        if surplus:
            self._cache.forget(surplus)
        return kept

    def _with_token_before(
        self, at_Q: torch.Tensor, ids_Q: torch.Tensor, sees_QK: torch.Tensor, tokens: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions and ids (2Q,) of queries, each with the token before it, where a model's logits
        come from that one.

        sees_QK: what a query sees of the context: of a corrupted position before it, the mask.
        tokens: the clean ones.
        """
        before_Q = at_Q - 1
        filled_L = self._x_1L[0].index_put(
            (self._segment_S[: len(tokens)],), ids_tensor(tokens, at_Q)
        )
        corrupted_Q = sees_QK.gather(1, before_Q[:, None])[:, 0]
        before_ids_Q = torch.where(corrupted_Q, self._x_1L[0, before_Q], filled_L[before_Q])
        return torch.stack([before_Q, at_Q], 1).flatten(), torch.stack(
            [before_ids_Q, ids_Q], 1
        ).flatten()


def by_confidence(context: PositionLogits, excluded: list[int]) -> list[int]:
    """The positions of a segment, that of the likeliest token first; ties from left to right."""
    best_N = (
        token_probs(torch.stack(list(context.values())), 1.0, exclude=excluded).amax(1).tolist()
    )
    return [at for _, at in sorted((-best, at) for best, at in zip(best_N, context, strict=True))]

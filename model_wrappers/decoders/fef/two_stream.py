"""FeF-DLLM's targets from two streams on top of cached keys and values.

Shapes: L length of prompt and response, W window, S segment, V vocabulary, K tokens that a new one
may see (those of the context, and clean ones), N new tokens, Q queries, C new clean tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model_wrappers.backbones.protocol import KeyValues, Ledger
from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.targets import (
    FullVerifier,
    PositionLogits,
    Proposal,
    Targets,
    with_first,
)
from model_wrappers.request import Request
from model_wrappers.sampling import best_probs, in_doubt
from model_wrappers.transfers import to_host


class TwoStreamVerifier(FullVerifier):
    """Targets from 2W tokens on top of kept keys and values, instead of W sequences.

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
    mask, but not that of FullVerifier. The backbone must have `extend`.
    """

    def __init__(self, request: Request, options: FeFOptions) -> None:
        super().__init__(request, options)
        self._segment: list[int] = []
        self._segment_S = self._sees = self._elsewhere = torch.empty(0)
        self._clean: list[int] = []  # the segment's first tokens, as far as the cache holds them
        self._cache: KeyValues | None = None
        self._cached = 0  # tokens of the context that the cache holds

    def segment(self, unresolved: list[int]) -> list[int]:
        """A new segment, of `anchor` positions, after its context pass."""
        segment = unresolved[: self._options.anchor]
        self.context = self.begin(segment)
        if self._options.order == "confidence":
            segment = by_confidence(self.context)
            self.arrange(segment)
        return segment

    def begin(self, segment: list[int]) -> PositionLogits:
        """Make the context pass of a segment.

        Returns:
            Each position's logits, from its own mask; at the first one they are the target's.
        """
        self._clean = []
        read_S = torch.tensor(segment)
        logits_1SV, self._cache = self._backbone.context(self._x_1L, read_S, self._cache)
        self._cached = self._cache.get_seq_length()
        self.arrange(segment)
        return dict(zip(segment, self._restricted(logits_1SV[0]), strict=True))

    def arrange(self, segment: list[int]) -> None:
        """Make the masks of all windows of a segment, in any order that is fixed before its tokens
        are drawn.

        Over the context and then all clean tokens, (S + 1, L + S): what sees the first s tokens of
        the segment; and (S, L + S): what is not where the query of an ordinal stands. Where logits
        come from the token before, that token stands before its query, and neither sees what is at
        both places.
        """
        self._segment = segment
        self._segment_S = torch.tensor(segment)
        ordinal_S1 = torch.arange(len(segment) + 1)
        # Positions outside the segment come after all ordinals, so that everyone sees them.
        outside_L = torch.full((self._cached,), len(segment) + 1)
        ordinal_L = outside_L.index_put((self._segment_S,), ordinal_S1[:-1])
        self._sees = torch.cat(
            [ordinal_L >= ordinal_S1[:, None], ordinal_S1[:-1] < ordinal_S1[:, None]], 1
        )
        position_K = torch.cat([torch.arange(self._cached), self._segment_S])
        behind_SK = self._segment_S[:, None] - position_K
        self._elsewhere = (behind_SK < 0) | (behind_SK > -self._backbone.reads_at)

    def in_doubt(self, segment: list[int], best_W: Tensor) -> Tensor:
        """Those below `refresh_below`; not the first where nothing was resolved since the context
        pass."""
        is_fresh = len(segment) == len(self._segment)
        return in_doubt(best_W, self._options.refresh_below, fresh=is_fresh)

    def before_doubt(self, segment: list[int], logits_WV: Tensor) -> Tensor | None:
        """How many of a window's positions come before the first one in doubt, LongTensor (1,);
        None where none ever is.

        A function of the target, and so of the tokens before alone: one chain distribution for all
        windows and drafts.
        """
        if self._options.refresh_below is None:
            return None
        is_doubtful_W = self.in_doubt(segment, best_probs(logits_WV))
        return (~is_doubtful_W).cumprod(0).sum(0, keepdim=True)

    def draft(self, segment: list[int]) -> PositionLogits:
        """Draft logits of the next window: queries that see the committed tokens, and in the
        context all to come but their own."""
        if not self._draft.is_model_of(self._backbone):
            return super().draft(segment)
        window = segment[: self._options.window]
        done = len(self._segment) - len(segment)
        queries = range(done, done + len(window))
        logits_WV = self._extend(self._draft, done, [], queries, chained=False)
        return dict(zip(window, logits_WV, strict=True))

    def verify(self, segment: list[int], drafts: Proposal) -> Targets:
        """The targets of a window's positions, from one pass of a query for each and the clean
        tokens before it; what is in doubt is left out."""
        width = max(1, len(drafts.tokens))
        done = len(self._segment) - len(segment)
        queries = range(done + drafts.first_is_target, done + width)
        logits_WV = drafts.logits_WV[:1]
        if queries:
            verified_NV = self._extend(self._backbone, done, drafts.tokens[: width - 1], queries)
            logits_WV = with_first(drafts, verified_NV)
        return Targets(logits_WV, {}, self.before_doubt(segment, logits_WV))

    def _extend(
        self, model: Ledger, done: int, drafts: list[int], queries: range, chained: bool = True
    ) -> Tensor:
        """Logits (Q, V) of queries with clean tokens before them.

        Args:
            model: the target's, or that of the drafts.
            done: how many tokens of the segment are committed; these are clean.
            drafts: clean tokens after those.
            queries: their ordinals in the segment.
            chained: whether a query sees all clean tokens before it, or the committed ones alone.
        """
        tokens: list[int] = self._x_1L[0, self._segment_S[:done]].tolist() + drafts
        kept = self._keep(tokens[:done])
        self._clean = tokens
        columns = self._cached + len(tokens)
        rows = slice(queries.start, queries.stop)
        sees_QK = self._sees[rows if chained else [done], :columns]
        query_QK = sees_QK & self._elsewhere[rows, :columns]
        at_Q = self._segment_S[rows]
        ids_Q = self._x_1L[0, at_Q]
        itself_QQ = torch.eye(len(queries), dtype=torch.bool)
        tokens_per_query = 1 - model.reads_at
        if model.reads_at:
            at_Q, ids_Q = self._with_token_before(at_Q, ids_Q, sees_QK.expand_as(query_QK), tokens)
            query_QK = query_QK.repeat_interleave(2, 0)
            itself_QQ = itself_QQ.repeat_interleave(2, 0).repeat_interleave(2, 1)
        clean_CK = self._sees[kept + 1 : len(tokens) + 1, :columns]
        itself_NQ = F.pad(itself_QQ, (0, 0, len(clean_CK), 0))
        visible_NK = torch.cat([torch.cat([clean_CK, query_QK]), itself_NQ], 1)
        ids_N = torch.cat([torch.tensor(tokens[kept:], dtype=torch.long), ids_Q])
        position_N = torch.cat([self._segment_S[kept : len(tokens)], at_Q])
        first = len(clean_CK) + tokens_per_query - 1
        read_Q = torch.arange(first, len(ids_N), tokens_per_query)
        logits_1QV, self._cache = model.extend(
            ids_N[None], position_N, read_Q, self._cache, visible_NK
        )
        return self._restricted(logits_1QV[0])

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
        self, at_Q: Tensor, ids_Q: Tensor, sees_QK: Tensor, tokens: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Positions and ids (2Q,) of queries, each with the token before it, where a model's logits
        come from that one.

        Args:
            at_Q: positions of the queries.
            ids_Q: their ids.
            sees_QK: what a query sees of the context: of a corrupted position before it, the mask.
            tokens: the clean ones.
        """
        before_Q = at_Q - 1
        clean_L = self._x_1L[0].index_put(
            (self._segment_S[: len(tokens)],), torch.tensor(tokens, dtype=torch.long)
        )
        sees_mask_Q = sees_QK.gather(1, before_Q[:, None])[:, 0]
        before_ids_Q = torch.where(sees_mask_Q, self._x_1L[0, before_Q], clean_L[before_Q])
        both_at_Q = torch.stack([before_Q, at_Q], 1).flatten()
        return both_at_Q, torch.stack([before_ids_Q, ids_Q], 1).flatten()


def by_confidence(context: PositionLogits) -> list[int]:
    """The positions of a segment, that of the likeliest token first; ties from left to right."""
    (best_N,) = to_host(best_probs(torch.stack(list(context.values()))))
    ranked = sorted((-best, at) for best, at in zip(best_N.tolist(), context, strict=True))
    return [at for _, at in ranked]

"""FeF-DLLM's targets from two streams (clean tokens and queries) on cached keys and values.

Shapes: L length of prompt and response, W window, S segment, V vocabulary, K tokens that a new
token may see (the context's and clean ones), N new tokens, Q queries, C new clean tokens.
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
    with_first_target,
)
from model_wrappers.request import Request
from model_wrappers.sampling import best_probs, in_doubt
from model_wrappers.transfers import to_host


class TwoStreamVerifier(FullVerifier):
    """Targets from 2W tokens on cached keys and values, instead of W sequences.

    A context pass runs the whole sequence (for a block model: up to the end of the block) once for
    a segment of positions. Later passes run only new tokens, and hide the parts of the context that
    these must not see. For a segment j_1 < j_2 < j_3 the new tokens are clean tokens c_m and
    queries q_m (the corrupted token at j_m), all at their rotary positions in the sequence (x: the
    row sees the column):

                  context                           clean tokens     queries
                  outside   j_1   j_2   j_3         c_1  c_2  c_3    q_1  q_2  q_3
        c_1          x             x     x           x
        c_2          x                   x           x    x
        c_3          x                               x    x    x
        q_1          x             x     x                            x
        q_2          x                   x           x                     x
        q_3          x                               x    x                     x

    So the target at j_m depends only on the context and on the segment's tokens before m. The chain
    distribution is the same for every window and draft, namely that of decoding one token at a time
    under this attention mask; it is not FullVerifier's. The backbone must have `extend`.
    """

    def __init__(self, request: Request, options: FeFOptions) -> None:
        super().__init__(request, options)
        self._segment: list[int] = []
        self._segment_S = self._sees = self._elsewhere = torch.empty(0)
        self._clean: list[int] = []  # those of the segment's first tokens that the cache holds
        self._cache: KeyValues | None = None
        # Number of the context's tokens in the cache; clean tokens come after them.
        self._context_size = 0

    def segment(self, unresolved: list[int]) -> list[int]:
        """Make the context pass of the next `anchor` unresolved positions, and return these."""
        segment = unresolved[: self._options.anchor]
        self.context = self.begin(segment)
        if self._options.order == "confidence":
            segment = by_confidence(self.context)
            self.arrange(segment)
        return segment

    def begin(self, segment: list[int]) -> PositionLogits:
        """Make the context pass of a segment.

        Returns:
            The logits of each position, from the corrupted token there. At the first position they
            are the target's.
        """
        self._clean = []
        read_S = torch.tensor(segment)
        logits_1SV, self._cache = self._backbone.context(self._x_1L, read_S, self._cache)
        self._context_size = self._cache.get_seq_length()
        self.arrange(segment)
        return dict(zip(segment, self._restricted(logits_1SV[0]), strict=True))

    def arrange(self, segment: list[int]) -> None:
        """Make the attention masks of all windows of a segment.

        Two tables have a column for each token of the context and then for each clean token. Row s
        of `_sees`, (S + 1, L + S), is what a token sees that is conditioned on the first s tokens
        of the segment. Row s of `_elsewhere`, (S, L + S), is which tokens are not at the position
        of query s. If logits come from the token before, this token precedes its query, and both
        exclude what is at either position.

        Args:
            segment: its positions in the order of decoding, which may be any order that is fixed
                before the tokens are drawn.
        """
        self._segment = segment
        self._segment_S = torch.tensor(segment)
        ordinal_S1 = torch.arange(len(segment) + 1)
        # A context token of ordinal o is visible as long as it is not replaced by a clean one: o >=
        # s. Positions outside the segment have an ordinal above all others, so they always are.
        outside_L = torch.full((self._context_size,), len(segment) + 1)
        ordinal_L = outside_L.index_put((self._segment_S,), ordinal_S1[:-1])
        self._sees = torch.cat(
            [ordinal_L >= ordinal_S1[:, None], ordinal_S1[:-1] < ordinal_S1[:, None]], 1
        )
        position_K = torch.cat([torch.arange(self._context_size), self._segment_S])
        distance_SK = self._segment_S[:, None] - position_K
        self._elsewhere = (distance_SK < 0) | (distance_SK > -self._backbone.reads_at)

    def in_doubt(self, segment: list[int], best_W: Tensor) -> Tensor:
        """Which positions have no token as likely as `refresh_below`, bool (W,).

        The first position is not in doubt if nothing was resolved since the context pass.
        """
        is_fresh = len(segment) == len(self._segment)
        return in_doubt(best_W, self._options.refresh_below, fresh=is_fresh)

    def before_doubt(self, segment: list[int], logits_WV: Tensor) -> Tensor | None:
        """The number of a window's positions before the first that is in doubt, LongTensor (1,).

        None without `refresh_below`. It is a function of the targets, and so only of the tokens
        before, which keeps the chain distribution the same for all windows and drafts.
        """
        if self._options.refresh_below is None:
            return None
        is_doubtful_W = self.in_doubt(segment, best_probs(logits_WV))
        return (~is_doubtful_W).cumprod(0).sum(0, keepdim=True)

    def draft(self, segment: list[int]) -> PositionLogits:
        """Draft logits of the next window, from queries without drafts before them.

        A query sees the committed tokens, and the context at all later positions but its own.
        """
        # The cache is the target's: another model runs the whole sequence.
        if not self._draft.is_model_of(self._backbone):
            return super().draft(segment)
        window = segment[: self._options.window]
        done = len(self._segment) - len(segment)
        queries = range(done, done + len(window))
        logits_WV = self._extend(self._draft, done, [], queries, chained=False)
        return dict(zip(window, logits_WV, strict=True))

    def verify(self, segment: list[int], drafts: Proposal) -> Targets:
        """Compute the targets of a window in one pass, of its queries and the clean tokens before
        each; positions from the first one in doubt on do not count (`Targets.limit_1`)."""
        width = max(1, len(drafts.tokens))
        done = len(self._segment) - len(segment)
        queries = range(done + drafts.first_is_target, done + width)
        logits_WV = drafts.logits_WV[:1]
        if queries:
            verified_NV = self._extend(self._backbone, done, drafts.tokens[: width - 1], queries)
            logits_WV = with_first_target(drafts, verified_NV)
        return Targets(logits_WV, {}, self.before_doubt(segment, logits_WV))

    def _extend(
        self, model: Ledger, done: int, drafts: list[int], queries: range, chained: bool = True
    ) -> Tensor:
        """Run queries, and the clean tokens before them that the cache lacks; logits (Q, V).

        Args:
            model: the target's model, or the draft's.
            done: how many tokens of the segment are committed; they are clean tokens.
            drafts: drafts after those, also clean tokens.
            queries: ordinals of the queries in the segment.
            chained: True lets a query see all clean tokens before it, False only the committed
                ones.
        """
        tokens: list[int] = self._x_1L[0, self._segment_S[:done]].tolist() + drafts
        clean_count = self._keep(tokens[:done])
        self._clean = tokens
        columns = self._context_size + len(tokens)
        rows = slice(queries.start, queries.stop)
        # Unchained queries all see what the first one does: the row of the committed tokens.
        sees_QK = self._sees[rows if chained else [done], :columns]
        query_QK = sees_QK & self._elsewhere[rows, :columns]
        at_Q = self._segment_S[rows]
        ids_Q = self._x_1L[0, at_Q]
        # Queries do not see one another, only themselves.
        itself_QQ = torch.eye(len(queries), dtype=torch.bool)
        tokens_per_query = 1 - model.reads_at
        if model.reads_at:
            at_Q, ids_Q = self._with_token_before(at_Q, ids_Q, sees_QK.expand_as(query_QK), tokens)
            query_QK = query_QK.repeat_interleave(2, 0)
            itself_QQ = itself_QQ.repeat_interleave(2, 0).repeat_interleave(2, 1)
        # Clean token m sees the first m + 1 tokens, so itself too.
        clean_CK = self._sees[clean_count + 1 : len(tokens) + 1, :columns]
        itself_NQ = F.pad(itself_QQ, (0, 0, len(clean_CK), 0))
        visible_NK = torch.cat([torch.cat([clean_CK, query_QK]), itself_NQ], 1)
        ids_N = torch.cat([torch.tensor(tokens[clean_count:], dtype=torch.long), ids_Q])
        position_N = torch.cat([self._segment_S[clean_count : len(tokens)], at_Q])
        # Read at the query's index; a backbone with reads_at -1 takes the logits of the one before.
        first = len(clean_CK) + tokens_per_query - 1
        read_Q = torch.arange(first, len(ids_N), tokens_per_query)
        logits_1QV, self._cache = model.extend(
            ids_N[None], position_N, read_Q, self._cache, visible_NK
        )
        return self._restricted(logits_1QV[0])

    def _keep(self, committed: list[int]) -> int:
        """Drop rejected drafts and old queries from the cache.

        Returns:
            How many of the committed tokens the cache holds as clean tokens.
        """
        assert self._cache is not None, "begin() comes first"
        size = 0
        while size < min(len(committed), len(self._clean)) and self._clean[size] == committed[size]:
            size += 1
        surplus = self._cache.get_seq_length() - self._context_size - size
        if surplus:
            self._cache.forget(surplus)
        return size

    def _with_token_before(
        self, at_Q: Tensor, ids_Q: Tensor, sees_QK: Tensor, tokens: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Positions and ids (2Q,) of the queries, each preceded by the token before it.

        For models whose logits come from the token before.

        Args:
            at_Q: positions of the queries.
            ids_Q: ids of the queries.
            sees_QK: which tokens each query sees; whether it sees the context at the position
                before decides if the token there is the corrupted or the clean one.
            tokens: the segment's clean tokens.
        """
        before_Q = at_Q - 1
        clean_L = self._x_1L[0].index_put(
            (self._segment_S[: len(tokens)],), torch.tensor(tokens, dtype=torch.long)
        )
        is_corrupted_Q = sees_QK.gather(1, before_Q[:, None])[:, 0]
        before_ids_Q = torch.where(is_corrupted_Q, self._x_1L[0, before_Q], clean_L[before_Q])
        both_at_Q = torch.stack([before_Q, at_Q], 1).flatten()
        return both_at_Q, torch.stack([before_ids_Q, ids_Q], 1).flatten()


def by_confidence(context: PositionLogits) -> list[int]:
    """A segment's positions in descending probability of their likeliest tokens, ties from left to
    right."""
    (best_N,) = to_host(best_probs(torch.stack(list(context.values()))))
    ranked = sorted((-best, at) for best, at in zip(best_N.tolist(), context, strict=True))
    return [at for _, at in ranked]

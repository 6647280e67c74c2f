"""Flash-dLLM: commit confident tokens, and verify other drafts by masks of their own (Nguyen-Tri et
al., arXiv 2609.26796). At temperature 0 its tokens equal the official code's.

A step has two calls of the model. The first runs a window of W masks on cached keys and values of
all other tokens. It renews the keys and values of some of these: of the decoded tokens that the
last window attended to most, and of the masks after the window. It commits the tokens of at least
`threshold`, or the most confident one. The second call verifies the next drafts in descending
confidence. Each position stands in it twice: as its draft, which later positions see, and as a
mask, which sees the earlier drafts and gives the draft's probability. Drafts are committed as long
as the product of these probabilities is at least `gamma`.

Where paper and official code (VILA-Lab/Flash-dLLM) differ, this follows the code: in the paper each
mask must predict its draft and reach gamma alone. With tile=128, as in the code, EOS fills the
sequence after the response up to a multiple of 128 tokens, the tile that its attention kernel reads
at once. The last windows reach into these, and until an EOS is committed such a position counts as
any other. The official second call also runs if there is nothing to verify; this one does not. For
models whose logits come from the token before, as Dream's, there is no official code: here that
token stands in front of each mask of a verification, as the mask's view of the sequence has it.

Shapes: L length of prompt and response, M with what stands after it, K of these that have keys, W
window, T tracked tokens of a verification, S drafts that it verifies, A their masks and what stands
in front of these, Q tokens of a call, H heads, D head size, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from model_wrappers.backbones.protocol import KeyValues
from model_wrappers.decoders.llada import Choice
from model_wrappers.options import Count, EndOptions, Positive, Share
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import hold_ends_back, softmax_at
from model_wrappers.trace import CommitKind, Rejected, Window
from model_wrappers.transfers import to_device, to_host

# The first layer whose attention scores count for which tokens are renewed.
FIRST_LAYER = 2


class FlashOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `flash`.

    Attributes:
        window: W, the number of masks that a step proposes tokens for.
        threshold: the least confidence at which a token is committed without verification.
        gamma: the least product of their probabilities at which drafts are accepted.
        tracked: number of decoded tokens that a step renews (None: it renews all tokens).
        masked: number of masks that a step renews, including the window.
        verify: whether a step has the second call.
        tile: the sequence is filled with EOS to a multiple of this many tokens (None: not at all).
        stop_at_eos: whether nothing is decoded after the first EOS that is committed.
    """

    window: Positive = 16
    threshold: Share = 0.9
    gamma: Share = 0.8
    tracked: Count | None = 64
    masked: Count = 64
    verify: bool = True
    tile: Positive | None = None
    stop_at_eos: bool = True


def decode_flash(request: Request, options: FlashOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: the backbone's layers show no attention.
    """
    canvas = Canvas(request, options)
    while canvas.is_open():
        drafts = canvas.draft()
        # Drafts are in descending confidence: [0, confident) is committed at once and
        # [confident, end) verified: at most half a window, as in the official code.
        confident = max(1, int((drafts.confidence_W >= options.threshold).sum()))
        useful = len(drafts.position_W) - int(canvas.is_after_end(drafts.position_W).sum())
        end = min(max(confident, useful), confident + options.window // 2)
        canvas.commit(drafts.part(0, confident), "unmasked")
        accepted = 0
        if options.verify and end > confident:
            accepted = canvas.verify(drafts.part(confident, end))
        # Accepted drafts stay last in the order: the next step treats them as the most attended.
        canvas.rank(canvas.decoded - accepted)
    fill_after_eos(request)


class Drafts(NamedTuple):
    """Positions in the sequence with their drafts and confidences, on the CPU, in descending
    confidence."""

    position_W: Tensor
    token_W: Tensor
    confidence_W: Tensor

    def part(self, begin: int, end: int) -> Drafts:
        """The drafts begin .. end - 1."""
        return Drafts(*(column_W[begin:end] for column_W in self))


class Canvas:
    """The sequence, and which of its positions are decoded.

    Attributes:
        ids_M: the sequence's tokens and, after them, EOS or what is committed there.
        order_M: all positions: first the decoded ones, the most attended last, then the window's,
            then all others.
        decoded: how many positions are decoded.
    """

    def __init__(self, request: Request, options: FlashOptions) -> None:
        self._request = request
        self._options = options
        self._choice = Choice(request, options, exact=True)
        self._cache = AttendedKeys()
        self._eos_id = eos_id = request.backbone.eos_id
        self._length = length = request.x_1L.shape[1]
        self._keys = total = length
        # Only K positions have keys; a window at the end may reach further, into EOS without keys.
        if options.tile is not None:
            limit = request.backbone.max_length or torch.iinfo(torch.long).max
            self._keys = min(limit, (length // options.tile + 1) * options.tile)
            total = min(limit, ((length + options.window) // options.tile + 1) * options.tile)
        self._end = length
        self._has_end = False
        self._step = 0
        is_masked_L = request.x_1L[0] == request.mask_id
        is_masked_L[: request.start] = False
        self.ids_M = torch.full((total,), eos_id)
        self.ids_M[:length] = request.x_1L[0]
        self.order_M = torch.arange(total)
        self.order_M[:length] = is_masked_L.sort(stable=True).indices
        self.decoded = int((~is_masked_L).sum())

    def is_open(self) -> bool:
        """Whether a position before the end is still to be decoded."""
        return bool((self.order_M[self.decoded :] < self._end).any())

    def is_after_end(self, position_N: Tensor) -> Tensor:
        """Which positions are after an EOS that is committed, bool (N,)."""
        return (position_N >= self._end) & self._has_end

    def draft(self) -> Drafts:
        """Run the window and the renewed tokens; return the window's drafts."""
        window_W = self.order_M[self.decoded : self.decoded + self._options.window]
        # The first call fills the cache with the whole sequence; later ones replace parts of it.
        if self._step == 0:
            window_W = window_W[window_W < self._keys]
            position_Q = torch.arange(self._keys)
            read_W = window_W
            writing: dict[str, Any] = {}
        else:
            read_from_W = window_W + self._request.backbone.reads_at
            position_Q = torch.cat([window_W, read_from_W, self._renewed()]).unique()
            read_W = torch.searchsorted(position_Q, window_W)
            # Positions without keys are written to slot K, which is never read: the cache's buffers
            # have room after the tokens that they hold.
            slot_Q = position_Q.clamp(max=self._keys)
            writing = {"write": "replace", "slot_N": slot_Q}
        self._step += 1
        logits_1WV, _ = self._request.backbone.extend(
            self.ids_M[None, position_Q], position_Q, read_W, self._cache, **writing
        )
        token_W, confidence_W, _ = self._choice(logits_1WV[0])
        confidence_W = confidence_W.masked_fill(self.is_after_end(window_W), 0.0)
        descending_W = confidence_W.sort(descending=True, stable=True).indices
        # The window's part of the order becomes the drafts' order, so that commits take from its
        # beginning, and what is not committed begins the next window.
        drafts = Drafts(window_W[descending_W], token_W[descending_W], confidence_W[descending_W])
        self.order_M[self.decoded : self.decoded + len(window_W)] = drafts.position_W
        return drafts

    def _renewed(self) -> Tensor:
        """The positions outside the window whose keys and values a step computes again."""
        begin = 0
        end = self._keys
        if self._options.tracked is not None:
            begin = max(0, self.decoded - self._options.tracked)
            end = min(end, self.decoded + self._options.masked)
        after_window_M = self.order_M[:end][self.decoded + self._options.window :]
        return torch.cat([self.order_M[begin : self.decoded], after_window_M])

    def commit(self, drafts: Drafts, how: CommitKind) -> None:
        """Commit drafts, which must be the next positions of the order."""
        position_N, token_N, confidence_N = drafts
        self.ids_M[position_N] = token_N
        self.decoded += len(position_N)
        # The request holds no positions after the response; those stay in ids_M alone.
        inside_N = position_N < self._length
        self._request.commit(position_N[inside_N], token_N[inside_N], confidence_N[inside_N], how)
        end_N = position_N[token_N == self._eos_id]
        if self._options.stop_at_eos and not self._has_end and len(end_N):
            self._has_end = True
            self._end = int(end_N.max()) + 1

    def verify(self, drafts: Drafts) -> int:
        """Commit drafts as long as the product of their masks' probabilities reaches gamma.

        Returns:
            The number of accepted drafts.
        """
        position_S, token_S, confidence_S = drafts
        count = len(position_S)
        # The call has 2 W tokens: a draft and a mask for each position, and in their place, where
        # drafts are fewer than W, the last decoded tokens of the order: those of this step, and
        # before them the most attended ones.
        tracked = 2 * (self._options.window - count)
        tracked_T = self.order_M[max(0, self.decoded - tracked) : self.decoded]
        backbone = self._request.backbone
        lead = -backbone.reads_at
        position_Q, visible_QX = two_views(self._keys, tracked_T, position_S, lead)
        # The sequence as the next mask sees it: with the earlier drafts filled in.
        seen_M = self.ids_M.clone()
        ids = [self.ids_M[tracked_T], token_S]
        for position, token in zip(position_S, token_S, strict=True):
            ids.append(seen_M[position - lead : position + 1].clone())
            seen_M[position] = token
        ids_Q = torch.cat(ids)
        read_S = torch.arange(len(ids_Q) - count * (1 + lead), len(ids_Q))[lead :: 1 + lead]
        logits_1SV, _ = backbone.extend(
            ids_Q[None], position_Q, read_S, self._cache, visible_QX, "none"
        )
        logits_SV = hold_ends_back(logits_1SV[0], self._options, backbone)
        (prob_S,) = to_host(softmax_at(logits_SV, *to_device(logits_SV.device, token_S)))
        prob_S = prob_S.masked_fill(self.is_after_end(position_S), 0.0)
        accepted = int((prob_S.cumprod(0) >= self._options.gamma).sum())

        self.commit(Drafts(position_S, token_S, prob_S).part(0, accepted), "accepted")
        if accepted < count:
            rejected = Drafts(position_S, token_S, confidence_S).part(accepted, count)
            self._request.reject(
                lambda: Rejected(
                    rejected.position_W.tolist(),
                    rejected.token_W.tolist(),
                    rejected.confidence_W,
                    prob_S[accepted:],
                )
            )
        first = int(position_S.min()) - self._request.start
        window = Window(0, self._step - 1, first, count, accepted, accepted)
        self._request.record(window, position_S.tolist())
        return accepted

    def rank(self, count: int) -> None:
        """Sort the first `count` decoded positions by the window's attention to them, ascending."""
        score_M = torch.zeros(len(self.order_M))
        score_M[: self._keys] = self._cache.scores()
        position_N = self.order_M[:count].clone()
        self.order_M[:count] = position_N[score_M[position_N].sort(stable=True).indices]


def two_views(keys: int, tracked_T: Tensor, position_S: Tensor, lead: int) -> tuple[Tensor, Tensor]:
    """Positions and attention mask of a verification's tokens: tracked tokens, drafts, and masks.

    All see the cached tokens at other positions, and the tracked ones. Of the verified positions, a
    mask sees the drafts before its own and the masks of its own and all later ones. A draft sees
    itself instead of its mask, and a tracked token sees masks only. If logits come from the token
    before, that token stands in front of each mask, to be read: it sees what the mask sees, and no
    token sees it.

    Args:
        keys: K, the number of cached tokens.
        tracked_T: positions of tracked tokens.
        position_S: positions of the drafts, in the order in which they are accepted.
        lead: how many tokens stand in front of each mask, 0 or 1.

    Returns:
        Positions (Q,), and which of the cached tokens and of these tokens each token sees, bool (Q,
        K + Q).
    """
    count = len(position_S)
    rank_S = torch.arange(count)
    rank_A = rank_S.repeat_interleave(1 + lead)
    judged_A = position_S.repeat_interleave(1 + lead)
    position_A = torch.stack([position_S - back for back in range(lead, -1, -1)], 1).flatten()
    position_Q = torch.cat([tracked_T, position_S, position_A])
    # How many drafts each token sees; of all later positions it sees the masks.
    drafts_Q1 = torch.cat([torch.zeros_like(tracked_T), rank_S + 1, rank_A])[:, None]
    visible_QK = torch.ones(len(position_Q), keys, dtype=torch.bool)
    # A cached token is stale where the call runs its position again.
    again_N = torch.cat([tracked_T, position_S])
    visible_QK[:, again_N[again_N < keys]] = False
    visible_QT = torch.ones(len(position_Q), len(tracked_T), dtype=torch.bool)
    visible_QA = (rank_A >= drafts_Q1) & (position_A == judged_A)
    return position_Q, torch.cat([visible_QK, visible_QT, rank_S < drafts_Q1, visible_QA], 1)


class AttendedKeys(KeyValues):
    """Cached keys and values, and how much the last window's queries attended to them.

    A key's score is the sum of its products with the queries whose logits are read, before the
    softmax, over all heads and over the layers from FIRST_LAYER on.
    """

    reads_queries = True

    def __init__(self) -> None:
        super().__init__()
        self._score_K: Tensor | None = None

    def update(
        self,
        key_1HND: Tensor,
        value_1HND: Tensor,
        layer_idx: int,
        *_: Any,
        query_1HND: Tensor | None = None,
        read_n: Tensor | None = None,
        **__: Any,
    ) -> tuple[Tensor, Tensor]:
        keys_1HKD, values_1HKD = super().update(key_1HND, value_1HND, layer_idx)
        # A call that writes nothing is a verification, which scores nothing.
        if query_1HND is not None and read_n is not None and self._write != "none":
            self._score(query_1HND[0, :, read_n], keys_1HKD[0], layer_idx)
        return keys_1HKD, values_1HKD

    def _score(self, query_HnD: Tensor, key_HKD: Tensor, layer: int) -> None:
        if self._score_K is None or layer == 0:
            self._score_K = torch.zeros(key_HKD.shape[1], device=key_HKD.device)
        if layer < FIRST_LAYER:
            return
        heads, _, size = key_HKD.shape
        # With grouped queries several query heads share a key's head: their sum scores the key.
        query_H1D = query_HnD.float().sum(1).view(heads, -1, size).sum(1, keepdim=True)
        score_K = (key_HKD.float() * query_H1D).sum((0, 2))
        self._score_K += score_K.to(self._score_K.device)

    def scores(self) -> Tensor:
        """The scores of all keys, float32 (K,), on the CPU.

        Raises:
            ValueError: the model's layers do not pass their queries to the cache.
        """
        if self._score_K is None:
            raise ValueError(
                "flash renews the tokens that the window attends to most, and this model's own code"
                " shows no attention: use a model of known layers without hooks"
            )
        (score_K,) = to_host(self._score_K)
        return score_K

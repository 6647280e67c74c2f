"""Flash-dLLM: commit what is sure, and verify other drafts with their own masks (Nguyen-Tri et al.,
arXiv 2609.26796), token for token the official code at temperature 0.

A step has two calls. The first runs a window of W masks, on cached keys and values of all other
tokens; some of these it renews: the decoded tokens that the last window attended to most, and the
masks after the window. Tokens of at least `threshold` are committed, or else the surest one. The
second call verifies the next ones, the surest first. Each stands in it twice: as its draft, which
later ones see, and as a mask, which sees the earlier drafts and gives the draft's probability.
Drafts are committed as long as the product of these probabilities is at least `gamma`.

Where paper and official code differ, this is the code (VILA-Lab/Flash-dLLM): in the paper each mask
must predict its draft and reach gamma alone. With tile=128, as there, EOS stands after the
response, up to a multiple of 128 tokens, which the attention kernel reads at once; the last windows
go on there, and before an EOS is committed such a position counts as any other. The official second
call also runs where there is nothing to verify; here it does not. Models whose logits come from the
token before, as Dream, have no official code: there each mask of a verification has that token in
front of it, as its view has it.

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
from model_wrappers.trace import How, Rejected, Window
from model_wrappers.transfers import to_device, to_host

# The first layer whose attention counts for what is renewed.
FIRST_LAYER = 2


class FlashOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `flash`.

    Attributes:
        window: W, the masks that a step has tokens for.
        threshold: the least confidence of a token that is committed without verification.
        gamma: the least product of the probabilities of drafts that are verified.
        tracked: decoded tokens that a step renews (None: it renews all tokens).
        masked: masks that a step renews, the window among them.
        verify: whether there is a second call.
        tile: what the number of keys is a multiple of (None: nothing stands after the response).
        stop_at_eos: decode nothing after the first EOS that is committed.
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
        ValueError: a backbone without `extend`, or layers that show no attention.
    """
    if not request.backbone.can_extend:
        raise ValueError("flash needs a backbone with an attention mask (a method `extend`)")
    canvas = Canvas(request, options)
    while canvas.is_open():
        drafts = canvas.draft()
        sure = max(1, int((drafts.confidence_W >= options.threshold).sum()))
        wanted = len(drafts.position_W) - int(canvas.is_after_end(drafts.position_W).sum())
        verified = min(max(sure, wanted), sure + options.window // 2)
        canvas.commit(drafts.part(0, sure), "unmasked")
        accepted = 0
        if options.verify and verified > sure:
            accepted = canvas.verify(drafts.part(sure, verified))
        canvas.rank(canvas.decoded - accepted)
    fill_after_eos(request)


class Drafts(NamedTuple):
    """Positions of the sequence, their tokens and the confidence in them, on the CPU, the surest
    first."""

    position_W: Tensor
    token_W: Tensor
    confidence_W: Tensor

    def part(self, begin: int, end: int) -> Drafts:
        """Some of them, in their order."""
        return Drafts(*(column_W[begin:end] for column_W in self))


class Canvas:
    """The sequence, and which of it is decoded.

    Attributes:
        ids_M: its tokens, and after it EOS or what is committed there.
        order_M: all positions: those that are decoded, the most attended last, then the window,
            then all others.
        decoded: how many are.
    """

    def __init__(self, request: Request, options: FlashOptions) -> None:
        self._request = request
        self._options = options
        self._choice = Choice(request, options, exact=True)
        self._cache = AttendedKeys()
        self._eos_id = eos_id = request.backbone.eos_id
        self._length = length = request.x_1L.shape[1]
        self._keys = total = length
        if options.tile is not None:
            most = request.backbone.max_length or torch.iinfo(torch.long).max
            self._keys = min(most, (length // options.tile + 1) * options.tile)
            total = min(most, ((length + options.window) // options.tile + 1) * options.tile)
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
        """Whether a position before the end is not decoded."""
        return bool((self.order_M[self.decoded :] < self._end).any())

    def is_after_end(self, position_N: Tensor) -> Tensor:
        """Which positions are after an EOS that is committed, bool (N,)."""
        return (position_N >= self._end) & self._has_end

    def draft(self) -> Drafts:
        """Run the window and what is renewed: what the window proposes."""
        window_W = self.order_M[self.decoded : self.decoded + self._options.window]
        if self._step == 0:
            window_W = window_W[window_W < self._keys]
            position_Q = torch.arange(self._keys)
            read_W = window_W
            writing: dict[str, Any] = {}
        else:
            read_from_W = window_W + self._request.backbone.reads_at
            position_Q = torch.cat([window_W, read_from_W, self._renewed()]).unique()
            read_W = torch.searchsorted(position_Q, window_W)
            # What has no keys is written where nothing is read: buffers have room behind the kept.
            slot_Q = position_Q.clamp(max=self._keys)
            writing = {"write": "replace", "slot_N": slot_Q}
        self._step += 1
        self._cache.watch(read_W)
        logits_1WV, _ = self._request.backbone.extend(
            self.ids_M[None, position_Q], position_Q, read_W, self._cache, **writing
        )
        token_W, confidence_W, _ = self._choice(logits_1WV[0])
        confidence_W = confidence_W.masked_fill(self.is_after_end(window_W), 0.0)
        best_W = confidence_W.sort(descending=True, stable=True).indices
        drafts = Drafts(window_W[best_W], token_W[best_W], confidence_W[best_W])
        self.order_M[self.decoded : self.decoded + len(window_W)] = drafts.position_W
        return drafts

    def _renewed(self) -> Tensor:
        """Positions outside the window that a step computes again."""
        begin = 0
        end = self._keys
        if self._options.tracked is not None:
            begin = max(0, self.decoded - self._options.tracked)
            end = min(end, self.decoded + self._options.masked)
        after_window_M = self.order_M[:end][self.decoded + self._options.window :]
        return torch.cat([self.order_M[begin : self.decoded], after_window_M])

    def commit(self, drafts: Drafts, how: How) -> None:
        """Decode the next positions, which these are."""
        position_N, token_N, confidence_N = drafts
        self.ids_M[position_N] = token_N
        self.decoded += len(position_N)
        inside_N = position_N < self._length
        self._request.commit(position_N[inside_N], token_N[inside_N], confidence_N[inside_N], how)
        end_N = position_N[token_N == self._eos_id]
        if self._options.stop_at_eos and not self._has_end and len(end_N):
            self._has_end = True
            self._end = int(end_N.max()) + 1

    def verify(self, drafts: Drafts) -> int:
        """Commit drafts as long as their masks agree; how many."""
        position_S, token_S, confidence_S = drafts
        count = len(position_S)
        # Before the drafts the call has decoded tokens, those of this step and the most attended.
        tracked = 2 * (self._options.window - count)
        tracked_T = self.order_M[max(0, self.decoded - tracked) : self.decoded]
        backbone = self._request.backbone
        lead = -backbone.reads_at
        position_Q, visible_QX = two_views(self._keys, tracked_T, position_S, lead)
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
        """Order the first `count` decoded positions by how much the window attended to them."""
        score_M = torch.zeros(len(self.order_M))
        score_M[: self._keys] = self._cache.scores()
        position_N = self.order_M[:count].clone()
        self.order_M[:count] = position_N[score_M[position_N].sort(stable=True).indices]


def two_views(keys: int, tracked_T: Tensor, position_S: Tensor, lead: int) -> tuple[Tensor, Tensor]:
    """The tokens of a verification: tracked ones, drafts, and masks.

    A mask sees the drafts of earlier positions and the masks of all others; a draft sees itself
    too, and a tracked token masks alone. In front of a mask stands, where logits come from there,
    the token before its position, which it alone sees.

    Args:
        keys: K, the cached tokens.
        tracked_T: positions.
        position_S: of the drafts, in the order in which they are accepted.
        lead: how many tokens stand in front of a mask, 0 or 1.

    Returns:
        Positions (Q,), and which of the cached and of these tokens each sees, bool (Q, K + Q).
    """
    count = len(position_S)
    rank_S = torch.arange(count)
    rank_A = rank_S.repeat_interleave(1 + lead)
    judged_A = position_S.repeat_interleave(1 + lead)
    position_A = torch.stack([position_S - back for back in range(lead, -1, -1)], 1).flatten()
    position_Q = torch.cat([tracked_T, position_S, position_A])
    # How many drafts each sees; of all others it sees the masks.
    drafts_Q1 = torch.cat([torch.zeros_like(tracked_T), rank_S + 1, rank_A])[:, None]
    visible_QK = torch.ones(len(position_Q), keys, dtype=torch.bool)
    visible_QK[:, position_Q[position_Q < keys]] = False
    visible_QT = torch.ones(len(position_Q), len(tracked_T), dtype=torch.bool)
    visible_QA = (rank_A >= drafts_Q1) & (position_A == judged_A)
    visible_QX = torch.cat([visible_QK, visible_QT, rank_S < drafts_Q1, visible_QA], 1)
    if lead:
        visible_AX = visible_QX[-len(rank_A) :]
        visible_AX &= torch.cat([torch.arange(keys), position_Q]) != judged_A[:, None] - 1
        visible_AX[:, -len(rank_A) :] |= rank_A == rank_A[:, None]
    return position_Q, visible_QX


class AttendedKeys(KeyValues):
    """Keys and values, and how much some queries attended to them in the last call.

    A key's score is the sum of its products with these queries, before the softmax, over heads and
    over the layers from FIRST_LAYER on.
    """

    shows_queries = True

    def __init__(self) -> None:
        super().__init__()
        self._read_N = torch.empty(0)
        self._score_K: Tensor | None = None

    def watch(self, read_N: Tensor) -> None:
        """Score the keys of the next call by its queries at these indices, LongTensor (N,)."""
        self._read_N = read_N
        self._score_K = None

    def update(
        self,
        key_1HND: Tensor,
        value_1HND: Tensor,
        layer_idx: int,
        *_: Any,
        query_1HND: Tensor | None = None,
        **__: Any,
    ) -> tuple[Tensor, Tensor]:
        keys_1HKD, values_1HKD = super().update(key_1HND, value_1HND, layer_idx)
        # A call that writes nothing is a verification, which scores nothing.
        if query_1HND is not None and self._write != "none":
            self._score(query_1HND[0], keys_1HKD[0], layer_idx)
        return keys_1HKD, values_1HKD

    def _score(self, query_HND: Tensor, key_HKD: Tensor, layer: int) -> None:
        if self._score_K is None:
            self._score_K = torch.zeros(key_HKD.shape[1], device=key_HKD.device)
        if layer < FIRST_LAYER:
            return
        heads, _, size = key_HKD.shape
        query_HD = query_HND[:, self._read_N.to(query_HND.device)].float().sum(1)
        # Of queries that share a key's head.
        query_H1D = query_HD.view(heads, -1, size).sum(1, keepdim=True)
        score_K = (key_HKD.float() * query_H1D).sum((0, 2))
        self._score_K += score_K.to(self._score_K.device)

    def scores(self) -> Tensor:
        """Of all keys, float32 (K,), on the CPU.

        Raises:
            ValueError: the model's layers show no queries.
        """
        if self._score_K is None:
            raise ValueError(
                "flash renews the tokens that the window attends to most, and this model's own code"
                " shows no attention: use a model of known layers without hooks"
            )
        (score_K,) = to_host(self._score_K)
        return score_K

"""WINO: commit many tokens at a low threshold, and revoke those that do not hold (Hong et al.,
arXiv 2507.18578).

The sequence is followed by a shadow of the block: for each of its positions a mask, which sees
everything but the token at that position. So the shadow gives each committed token a confidence
that does not rest on the token itself. Below a threshold the position is masked again, unless the
caller gave its token. The bounds on a step's commits and revocations are the official code's.
Shapes: L length of prompt and response, M with the shadow, N positions whose logits are read, H
positions of committed tokens of the block, V vocabulary.
"""

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Choice, UnmaskOptions, highest
from model_wrappers.options import Share
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import softmax_at, without
from model_wrappers.transfers import to_device, to_host

# The most commits of a step: a share of the masks, but from 5 to 20; numbers of the official code.
LEAST_LIMIT = 5
MOST_LIMIT = 20
SHARE = 0.7
# A step revokes fewer positions than the step before committed, so that every two steps leave fewer
# masks; the first step of a block revokes fewer than this.
FIRST_REVOCATIONS = 30


class WINOOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options of the decoder `wino`.

    Attributes:
        threshold: the confidence above which a position is committed.
        threshold_back: the least confidence in the shadow with which a committed token stays.
    """

    threshold: Share = 0.6
    threshold_back: Share = 0.9


def decode_wino(request: Request, options: WINOOptions) -> None:
    """Fill the response."""
    x_1L = request.x_1L
    mask_id = request.mask_id
    length = x_1L.shape[1]
    choice = Choice(request, options, exact=True)
    given_L = x_1L[0] != mask_id
    for places in request.blocks():
        end = places.stop
        block = torch.arange(places.start, end)
        choice.cache.begin_block(places.start, end)
        shadow = Shadow(request, block)
        masked_L = x_1L[0] == mask_id
        last_count = FIRST_REVOCATIONS
        while bool(masked_L[:end].any()):
            first = choice.cache.readable.start
            position_N = first + masked_L[first:end].nonzero()[:, 0]
            if len(position_N) == 0:
                break
            # One forward has both: candidates are read at their own positions, and the block's
            # committed tokens are judged at their masks in the shadow.
            committed = block[~masked_L[block] & ~given_L[block]]
            read_N = torch.cat([position_N, shadow.mask_indices(committed)])
            logits_NV = choice.cache.logits(
                shadow.appended_to(x_1L), read_N, shadow.position_M, shadow.visible_MM
            )
            token_N, confidence_N, _ = choice(logits_NV[: len(position_N)])
            shadow_prob_H = confidence_N[:0]
            if len(committed):
                (token_H,) = to_device(logits_NV.device, x_1L[0, committed])
                logits_HV = without(
                    logits_NV[len(position_N) :], request.backbone.ends, options.eos_penalty
                )
                (shadow_prob_H,) = to_host(softmax_at(logits_HV, token_H))

            limit = min(max(int(len(position_N) * SHARE), LEAST_LIMIT), MOST_LIMIT)
            confident = int((confidence_N > options.threshold).sum())
            count = max(1, min(confident, limit))
            best = highest(length + len(block), position_N, confidence_N, count)
            chosen = position_N[best]
            request.commit(chosen, token_N[best], confidence_N[best], "unmasked")
            # A chosen mask counts as a token too, so that this is not read from the sequence.
            masked_L[chosen] = False

            # Fewer than the last step committed, and none after a single commit: decoding ends.
            if len(chosen) > 1:
                doubtful = int((shadow_prob_H < options.threshold_back).sum())
                revoked = committed[
                    shadow_prob_H.topk(min(doubtful, last_count - 1), largest=False).indices
                ]
                request.remask(revoked.tolist())
                masked_L[revoked] = True
            last_count = len(chosen)
        if options.stop_at_eos and fill_after_eos(request):
            return
        request.finish(places)


class Shadow:
    """The masks after the sequence that judge a block's tokens, and the attention mask of both.

    If the model's logits come from the token before, each mask is preceded by the token before its
    position, which only this mask sees.

    Attributes:
        position_M: positions in the sequence of all M tokens.
        visible_MM: bool (M, M), which tokens each token sees.
    """

    def __init__(self, request: Request, block: Tensor) -> None:
        self._block = block
        self._mask_id = request.mask_id
        self._lead = -request.backbone.reads_at
        self._length = length = request.x_1L.shape[1]
        self._at = torch.stack([block - back for back in range(self._lead, -1, -1)], 1).flatten()
        self.position_M = torch.cat([torch.arange(length), self._at])
        total = length + len(self._at)
        visible_MM = torch.zeros(total, total, dtype=torch.bool)
        visible_MM[:, :length] = True
        # For each token of the shadow, the position that its mask judges.
        judged = block.repeat_interleave(1 + self._lead)
        is_mask = self._at == judged
        visible_MM[length:, length:] = is_mask | (judged[:, None] == judged)
        for back in range(1 + self._lead):
            visible_MM[torch.arange(length, total), judged - back] = False
        # It grows with the square of the sequence, so it goes to the device once a block, not once
        # a step.
        self.visible_MM = visible_MM.to(request.backbone.device, non_blocking=True)

    def mask_indices(self, position_N: Tensor) -> Tensor:
        """Indices into the M tokens of the masks that judge these positions of the block."""
        return self._length + (position_N - self._block[0]) * (1 + self._lead) + self._lead

    def appended_to(self, x_1L: Tensor) -> Tensor:
        """The sequence with the shadow after it, (1, M)."""
        shadow_1S = torch.full_like(self._at, self._mask_id)[None]
        # The tokens in front of the masks change as the sequence does; every other one is such.
        if self._lead:
            shadow_1S[:, ::2] = x_1L[:, self._at[::2]]
        return torch.cat([x_1L, shadow_1S], 1)

"""WINO: commit many tokens at a low threshold, and revoke those that do not hold (Hong et al.,
arXiv 2507.18578).

After the sequence comes a shadow of the block: a mask for each position, which sees everything but
the token that is there. What the shadow gives a committed token is its confidence without having
seen itself; below a threshold the position is masked again, unless it was given. The bounds on
commits and revocations of a step are the official code's. Shapes: L length of prompt and response,
M with the shadow, N positions whose logits are read, V vocabulary.
"""

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Choice, UnmaskOptions, highest
from model_wrappers.options import Share
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import softmax_at, without
from model_wrappers.transfers import to_device, to_host

# Most commits of a step: a share of the masks, within these bounds.
LEAST_LIMIT = 5
MOST_LIMIT = 20
SHARE = 0.7
# a step revokes fewer positions than the step before committed; the first one fewer than this
FIRST_REVOCATIONS = 30


class WINOOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options of the decoder `wino`.

    Attributes:
        threshold: what a committed position's confidence exceeds.
        threshold_back: what a committed token's confidence in the shadow must reach to stay.
    """

    threshold: Share = 0.6
    threshold_back: Share = 0.9


def decode_wino(request: Request, options: WINOOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: a backbone without `extend`: the shadow needs an attention mask.
    """
    if not request.backbone.can_extend:
        raise ValueError("wino needs a backbone with an attention mask (a method `extend`)")
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
        last_accept = FIRST_REVOCATIONS
        while bool(masked_L[:end].any()):
            first = choice.cache.readable.start
            position_N = first + masked_L[first:end].nonzero()[:, 0]
            if len(position_N) == 0:
                break
            # The model reads the candidates where they stand, and judges through the shadow what is
            # committed here, so that it may be revoked.
            held = block[~masked_L[block] & ~given_L[block]]
            read_N = torch.cat([position_N, shadow.of(held)])
            logits_NV = choice.cache.logits(
                shadow.behind(x_1L), read_N, shadow.position_M, shadow.visible_MM
            )
            token_N, confidence_N, _ = choice(logits_NV[: len(position_N)])
            back_H = confidence_N[:0]
            if len(held):
                (held_token_H,) = to_device(logits_NV.device, x_1L[0, held])
                held_HV = without(
                    logits_NV[len(position_N) :], request.backbone.ends, options.eos_penalty
                )
                (back_H,) = to_host(softmax_at(held_HV, held_token_H))

            limit = min(max(int(len(position_N) * SHARE), LEAST_LIMIT), MOST_LIMIT)
            sure = int((confidence_N > options.threshold).sum())
            best = highest(length + len(block), position_N, confidence_N, max(1, min(sure, limit)))
            chosen = position_N[best]
            request.commit(chosen, token_N[best], confidence_N[best], "unmasked")
            masked_L[chosen] = False

            if len(chosen) > 1:
                doubtful = int((back_H < options.threshold_back).sum())
                revoked = held[back_H.topk(min(doubtful, last_accept - 1), largest=False).indices]
                request.remask(revoked.tolist())
                masked_L[revoked] = True
            last_accept = len(chosen)
        if options.stop_at_eos and fill_after_eos(request):
            return
        request.finish(places)


class Shadow:
    """The masks after the sequence that judge a block's tokens, and what every token sees of the
    whole.

    Where the model's logits come from the token before, a mask has the token before its position in
    front of it, which it alone sees.

    Attributes:
        position_M: of all tokens, in the sequence.
        visible_MM: bool, what each sees.
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
        # by which mask, and by what stands before it
        judged = block.repeat_interleave(1 + self._lead)
        is_mask = self._at == judged
        visible_MM[length:, length:] = is_mask | (judged[:, None] == judged)
        for back in range(1 + self._lead):
            visible_MM[torch.arange(length, total), judged - back] = False
        # It is as large as the square of the sequence: it goes to the device once a block.
        self.visible_MM = visible_MM.to(request.backbone.device, non_blocking=True)

    def of(self, held: Tensor) -> Tensor:
        """Indices of the masks that judge positions of the block."""
        return self._length + (held - self._block[0]) * (1 + self._lead) + self._lead

    def behind(self, x_1L: Tensor) -> Tensor:
        """The sequence with the shadow after it, (1, M)."""
        shadow_1S = torch.full_like(self._at, self._mask_id)[None]
        if self._lead:
            shadow_1S[:, ::2] = x_1L[:, self._at[::2]]
        return torch.cat([x_1L, shadow_1S], 1)

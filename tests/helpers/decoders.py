"""Files of decoders from outside, for runs of the whole command."""

from __future__ import annotations

LEFT_TO_RIGHT = """
import os

from model_wrappers import register
from model_wrappers.options import Options
from model_wrappers.sampling import draw, token_probs


@register("mine")
def mine(request, options: Options):
    before(request)
    for position in range(request.start, request.x_1L.shape[1]):
        position_1 = (request.x_1L[0] == request.mask_id).nonzero()[:1, 0]
        logits_1V = request.backbone.logits(request.x_1L, positions=position_1)[0]
        probs_1V = token_probs(logits_1V, request.temperature, exclude=request.mask_id)
        token_1 = draw(probs_1V, request.temperature, request.sampler)
        request.commit(position_1, token_1, probs_1V.gather(1, token_1[:, None])[:, 0], "unmasked")


def before(request):
    pass
"""


def that_first(code: str) -> str:
    """A file with the decoder `mine`, which runs `code`, indented by four spaces, before it decodes `request`."""
    return LEFT_TO_RIGHT.replace("    pass\n", code)

"""Autoregressive decoding, token by token with cached keys and values: the reference that every
reader knows."""

import torch

from model_wrappers.options import SampleOptions
from model_wrappers.request import Request
from model_wrappers.sampling import probs_at, sample, token_probs, without
from model_wrappers.transfers import to_host


class AROptions(SampleOptions, frozen=True, kw_only=True):
    """Options of the decoder `ar`.

    Attributes:
        logits_eos_inf: whether EOS and the end of a turn are never predicted, so that the response
            has its full length.
    """

    logits_eos_inf: bool = False


def decode_ar(request: Request, options: AROptions) -> None:
    """Fill the response, one call a token.

    The first call runs the prompt, each later one the token before. The logits of the last token
    predict the next one, as in transformers' causal models. After EOS or an end of turn the rest is
    filled with EOS.
    """
    backbone = request.backbone
    x_1L = request.x_1L
    temperature = request.temperature
    excluded = backbone.ends if options.logits_eos_inf else []
    masked = request.masked(request.start, request.start + request.length).tolist()
    cache = None
    cached = 0
    for number, position in enumerate(masked, 1):
        # All tokens since the last call: first the prompt, then a token and, where the caller gave
        # tokens of the response, those after it.
        new_N = torch.arange(cached, position)
        visible_NK = None
        if len(new_N) > 1:  # a single token sees all that is cached, without a mask
            visible_NK = torch.arange(position) <= new_N[:, None]
        logits_11V, cache = backbone.extend(
            x_1L[:, cached:position], new_N, new_N[-1:] - cached, cache, visible_NK
        )
        logits_1V = without(logits_11V[0], excluded)
        token_1 = sample(logits_1V, temperature, request.sampler, options=options)
        prob_1 = torch.ones(1, device=token_1.device)  # of the likeliest token, at temperature 0
        if temperature > 0:
            prob_1 = probs_at(token_probs(logits_1V, temperature, options=options), token_1)
        token_1, prob_1 = to_host(token_1, prob_1)
        cached = position
        request.commit([position], token_1, prob_1, "drawn")
        if int(token_1) in backbone.ends:
            rest = masked[number:]
            if rest:
                request.commit(rest, backbone.eos_id, None, "filled")
            return

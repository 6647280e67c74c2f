"""Autoregressive decoding, token by token with kept keys and values: the reference that every
reader knows."""

import torch

from model_wrappers.options import SampleOptions
from model_wrappers.request import Request
from model_wrappers.sampling import probs_at, sample, token_probs, without
from model_wrappers.transfers import to_host


class AROptions(SampleOptions, frozen=True, kw_only=True):
    """logits_eos_inf: EOS and the end of a turn are never predicted, so that all of the response is
    written."""

    logits_eos_inf: bool = False


def decode_ar(request: Request, options: AROptions) -> None:
    """One call a token, over the prompt or the token before it; what stands after EOS or an end of
    turn is EOS.

    Logits of the last token predict the next one, as transformers' causal models have them.
    """
    backbone = request.backbone
    x_1L = request.x_1L
    temperature = request.temperature
    excluded = backbone.ends if options.logits_eos_inf else []
    masked = request.masked(request.start, request.start + request.length).tolist()
    cache = None
    known = 0
    for number, at in enumerate(masked, 1):
        new_N = torch.arange(known, at)
        visible_NK = None
        if len(new_N) > 1:  # else it sees all
            visible_NK = torch.arange(at) <= new_N[:, None]
        logits_11V, cache = backbone.extend(
            x_1L[:, known:at], new_N, new_N[-1:] - known, cache, visible_NK
        )
        logits_1V = without(logits_11V[0], excluded)
        token_1 = sample(logits_1V, temperature, request.sampler, options=options)
        prob_1 = torch.ones(1, device=token_1.device)  # of the likeliest token, at temperature 0
        if temperature > 0:
            prob_1 = probs_at(token_probs(logits_1V, temperature, options=options), token_1)
        token_1, prob_1 = to_host(token_1, prob_1)
        known = at
        request.commit([at], token_1, prob_1, "drawn")
        if int(token_1) in backbone.ends:
            rest = masked[number:]
            if rest:
                request.commit(rest, backbone.eos_id, None, "filled")
            return

"""Dream's sampler: a schedule of times, and an order by confidence (Ye et al., arXiv 2508.15487).

Times fall evenly from 1 to eps. A step from time t to s commits a share 1 - s / t of the masks that
are left; the last step commits all of them. Source: `DreamGenerationMixin._sample` of the
checkpoints (a copy in ZHZisZZ/dllm at ca17675,
`dllm/pipelines/dream/models/generation_utils.py`); tokens at temperature 0 are equal. Dream has no
blocks; with several here, the steps are divided among them. Shapes: N masked positions, V
vocabulary.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from model_wrappers.decoders.llada import highest, steps_per_block
from model_wrappers.options import EndOptions, NotNegative, Positive
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import (
    hold_ends_back,
    likeliest,
    probs_at,
    truncated,
    unranked_ends,
    without,
)
from model_wrappers.transfers import to_host

EPSILON = 1e-10  # the official code's, in the logarithm of the entropy


class DreamOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `dream`.

    Attributes:
        steps: forwards for the whole response (None: its length), a multiple of the number of
            blocks.
        eps: the last time.
        alg: which positions a step commits: "origin" draws each by chance; the others take the most
            confident ones, by the token's probability ("maskgit_plus"), by the margin between the
            two likeliest tokens ("topk_margin"), or by the least entropy ("entropy").
        alg_temp: temperature at which positions are drawn by their confidence; 0 takes the most
            confident ones.
    """

    steps: Positive | None = None
    eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-3
    alg: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "entropy"
    alg_temp: NotNegative = 0.0


def decode_dream(request: Request, options: DreamOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: the steps do not fit the response's length and blocks.
    """
    x_1L = request.x_1L
    steps = steps_per_block(request.length, request.block_length, options.steps)
    times = torch.linspace(1, options.eps, steps + 1)
    for block in request.blocks():
        for step in range(steps):
            masked_N = request.masked(block.start, block.stop)
            if len(masked_N) == 0:
                break
            logits_1NV = request.backbone.logits(x_1L, positions=masked_N)
            token_N, prob_N, score_N = proposed(logits_1NV[0], request, options)
            share = 1 - times[step + 1] / times[step]
            # Times end at eps, not at 0, so the last step would leave masks.
            if step == steps - 1:
                share = torch.tensor(1.0)
            chosen = positions_of_step(masked_N, score_N, share, request, options)
            request.commit(masked_N[chosen], token_N[chosen], prob_N[chosen], "unmasked")
            if options.stop_at_eos and fill_after_eos(request):
                return
        request.finish(block)


def proposed(
    logits_NV: Tensor, request: Request, options: DreamOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Choose a token for every mask (the official `sample_tokens`).

    Returns:
        Tokens, their probabilities, and the scores by which a step ranks positions; (N,) each, on
        the CPU. Probabilities and scores are those at the request's temperature, truncated, in the
        logits' dtype.
    """
    backbone = request.backbone
    temperature = request.temperature
    logits_NV = hold_ends_back(logits_NV, options, backbone)
    if temperature > 0:
        logits_NV = logits_NV / temperature
    logits_NV = truncated(logits_NV, options)
    probs_NV = torch.softmax(logits_NV, -1)
    if temperature > 0:
        with request.sampler.timed():
            token_N = request.sampler.tokens(probs_NV)
    else:
        token_N = likeliest(probs_NV)
    ranked_NV = probs_NV
    unranked = unranked_ends(options, backbone, temperature)
    if unranked:
        ranked_NV = torch.softmax(without(logits_NV, unranked), -1)
    prob_N = probs_at(ranked_NV, token_N)
    if options.alg == "topk_margin":
        best_N2 = ranked_NV.topk(2, -1).values
        score_N = best_N2[:, 0] - best_N2[:, 1]
    elif options.alg == "entropy":
        # The negative entropy: the least entropy comes first.
        score_N = (ranked_NV * torch.log(ranked_NV + EPSILON)).sum(-1)
    else:
        score_N = prob_N
    token_N, prob_N, score_N = to_host(token_N, prob_N, score_N)
    return token_N, prob_N, score_N


def positions_of_step(
    masked_N: Tensor, score_N: Tensor, share: Tensor, request: Request, options: DreamOptions
) -> Tensor:
    """The masks that a step commits, as indices into masked_N.

    Args:
        masked_N: positions of the masks.
        score_N: scores of their tokens.
        share: scalar, the share of masks to commit: each mask's chance with "origin", otherwise a
            number of masks, rounded down.
        request: the response, with its sampler.
        options: `alg` and `alg_temp`.
    """
    sampler = request.sampler
    if options.alg == "origin":
        chance_2 = torch.stack([1 - share, share])
        return sampler.tokens(chance_2.expand(len(masked_N), 2)).nonzero()[:, 0]
    count = int(len(masked_N) * share)
    if options.alg_temp == 0:
        return highest(request.x_1L.shape[1], masked_N, score_N, count)
    weight_N = score_N.double() / options.alg_temp
    chosen = torch.empty(count, dtype=torch.long)
    # Without replacement, as the official torch.multinomial: a drawn position loses its weight.
    for rank in range(count):
        chosen[rank] = sampler.tokens(torch.softmax(weight_N, -1)[None])[0]
        weight_N[chosen[rank]] = -torch.inf
    return chosen

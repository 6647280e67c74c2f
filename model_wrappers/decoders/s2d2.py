"""S2D2: a block model drafts a block and verifies it itself, one token at a time (arXiv
2603.25702).

At block length 1 a block model is autoregressive. A step drafts every mask of the block in one
pass, and a second pass has the target of each token of the first run of masks, given the drafts
before it: they are accepted or corrected as in speculative sampling. Where too few drafts can be
expected to be accepted, the step commits by a threshold, as `block` does. Source: phymhan/S2D2,
`generate_ssd_policy.py`, without its other routing policies and its causal caches. With acceptance
"match" it is Nemotron-Labs-Diffusion's linear speculation (SGLang, `linear_spec.py`), for models
whose logits predict their own position. Shapes: N masked positions of the block, S those of their
first run, M tokens of a verification, K kept, V vocabulary.
"""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from model_wrappers.backbones.protocol import KeyValues
from model_wrappers.decoders.block import commit_best
from model_wrappers.options import NotNegative, Positive, SampleOptions, Share
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import (
    block_accept,
    greedy_accept,
    likeliest,
    probs_at,
    quotas,
    speculative_accept,
    token_probs,
)
from model_wrappers.trace import Rejected, Window, ways_of
from model_wrappers.transfers import to_device, to_host


class S2D2Options(SampleOptions, frozen=True, kw_only=True):
    """Options of the decoder `s2d2`.

    Attributes:
        steps: of a block, over which its positions are spread evenly (None: its length).
        threshold: a confidence above it commits without verification.
        min_span: the shortest run of masks that is verified.
        min_expected: how many drafts must be expected to be accepted.
        acceptance: at temperature 0, "ratio" accepts a draft with min(1, target / draft) of the
            probabilities at temperature 1, as the official code does, and "match" if it is the
            target's likeliest token. "block" is "ratio" with drafts accepted jointly
            (`sampling.block_accept`).
        stop_at_eos: once a block is done.
    """

    steps: Positive | None = None
    threshold: Share = 0.85
    min_span: Positive = 1
    min_expected: NotNegative = 0.0
    acceptance: Literal["ratio", "match", "block"] = "ratio"
    stop_at_eos: bool = True


def decode_s2d2(request: Request, options: S2D2Options) -> None:
    """Fill the response. A mask that is chosen stays and is chosen again, as in the official
    sampler.

    Raises:
        ValueError: a model whose logits predict the next position.
    """
    x_1L = request.x_1L
    backbone = request.backbone
    sampler = request.sampler
    if backbone.reads_at:
        raise ValueError(
            "s2d2 verifies with masks, whose logits must predict their own position; this model's"
            " do not"
        )
    # of the probabilities that judge, where the drafts are the likeliest too
    temperature = request.temperature or 1.0
    accept_drafts = block_accept if options.acceptance == "block" else speculative_accept
    by_match = options.acceptance == "match" and not request.temperature
    schedule = quotas(request.block_length, options.steps or request.block_length)
    for block in request.blocks():
        begin = block.start
        end = block.stop
        for step, quota in enumerate(schedule):
            masked_N = request.masked(begin, end)
            if not len(masked_N):
                break
            logits_1NV, cache = backbone.context(x_1L, masked_N)
            with sampler.timed():
                draft_NV = token_probs(logits_1NV[0], temperature, options=options)
                draft_N = sampler.tokens(draft_NV) if request.temperature else likeliest(draft_NV)
            # masks without a gap, from the first on
            run = 1 + int((masked_N.diff() == 1).cumprod(0).sum())
            at_S = masked_N[:run]
            draft_SV = draft_NV[:run]
            token_N, confidence_N, expected_1 = to_host(
                draft_N, probs_at(draft_NV, draft_N), expected(draft_SV)
            )
            committed = 0
            if run >= options.min_span and float(expected_1) >= options.min_expected:
                drafts = token_N[:run].tolist()
                logits_SV = verify(request, begin, at_S, token_N[:run], cache)
                with sampler.timed():
                    target_SV = token_probs(logits_SV, temperature, options=options)
                    if by_match:
                        accepted_1, token_S = greedy_accept(likeliest(target_SV), draft_N[:run])
                    else:
                        accepted_1, token_S = accept_drafts(
                            target_SV, draft_SV, draft_N[:run], sampler
                        )
                accepted_1, token_S, prob_S = to_host(
                    accepted_1, token_S, probs_at(target_SV, token_S)
                )
                accepted = int(accepted_1)
                committed = min(accepted + 1, run)
                request.commit(
                    at_S[:committed],
                    token_S[:committed],
                    prob_S[:committed],
                    ways_of(committed, accepted, "corrected"),
                )
                if accepted < run:
                    request.reject(
                        partial(rejected, at_S, drafts, accepted, logits_1NV[0, :run], logits_SV)
                    )
                window = Window(0, step, int(at_S[0]) - request.start, run, accepted, committed)
                request.record(window, at_S.tolist())
            least = min(quota, len(masked_N)) - committed
            if least > 0:
                left = slice(committed, None)
                commit_best(
                    request,
                    masked_N[left],
                    token_N[left],
                    confidence_N[left],
                    least,
                    options.threshold,
                )
        if options.stop_at_eos and fill_after_eos(request):
            return
        request.finish(block)


def expected(draft_SV: Tensor) -> Tensor:
    """How many drafts can be expected to be accepted, (1,) (the official `soft_entropy_negexp`).

    A draft's probability to be accepted is estimated by exp(-H), H its entropy as a share of the
    greatest one.
    """
    entropy_S = torch.special.entr(draft_SV).sum(-1) / math.log(draft_SV.shape[1])
    return torch.exp(-entropy_S).cumprod(0).sum(0, keepdim=True)


def verify(request: Request, begin: int, at_S: Tensor, draft_S: Tensor, cache: KeyValues) -> Tensor:
    """The targets' logits (S, V): a mask at each position sees the blocks before its own, and the
    tokens before itself.

    Args:
        request: the response.
        begin: of the block.
        at_S: positions of the drafts.
        draft_S: the drafts.
        cache: what the draft's pass kept, the block with its masks last, which is hidden again.
    """
    x_L = request.x_1L[0]
    kept = cache.get_seq_length()
    # the block's tokens, each seeing those before it
    chain_C = torch.arange(begin, int(at_S[-1]))
    position_M = torch.cat([chain_C, at_S])
    ids_M = torch.cat([x_L.index_put((at_S,), draft_S)[chain_C], x_L[at_S]])
    sees_MC = chain_C < position_M[:, None]
    visible_MK = torch.cat([torch.arange(kept).expand(len(ids_M), -1) < begin, sees_MC], 1)
    visible_MK = torch.nn.functional.pad(visible_MK, (0, len(at_S)))
    visible_MK[:, kept:] |= torch.eye(len(ids_M), dtype=torch.bool)
    read_S = torch.arange(len(chain_C), len(ids_M))
    logits_1SV, _ = request.backbone.extend(ids_M[None], position_M, read_S, cache, visible_MK)
    return logits_1SV[0]


def rejected(
    at_S: Tensor,
    drafts: list[int],
    accepted: int,
    draft_SV: Tensor,
    target_SV: Tensor,
) -> Rejected:
    """The drafts from the first that was not accepted on. draft_SV, target_SV: logits."""
    (token_R,) = to_device(draft_SV.device, torch.tensor(drafts[accepted:]))
    draft_R, target_R = (
        probs_at(token_probs(logits_SV[accepted:], 1.0), token_R)
        for logits_SV in (draft_SV, target_SV)
    )
    return Rejected(at_S[accepted:].tolist(), drafts[accepted:], draft_R, target_R)

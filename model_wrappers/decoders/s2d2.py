"""S2D2: a block model drafts a block and verifies it itself, one token at a time (arXiv
2603.25702).

At block length 1 a block model is autoregressive. A step drafts every mask of the block in one
pass. A second pass computes a target for each position of the first run of masks, given the drafts
before it, and the drafts are accepted or corrected as in speculative sampling. If too few drafts
are expected to be accepted, the step commits by a threshold instead, as `block` does. Source:
phymhan/S2D2, `generate_ssd_policy.py`, without its other routing policies and its causal caches.
With acceptance "match" it is Nemotron-Labs-Diffusion's linear speculation (SGLang,
`linear_spec.py`), for models whose logits predict their own position. Shapes: N masked positions of
the block, S those of their first run, M tokens of a verification, C clean ones of these, K cached
tokens, V vocabulary.
"""

import math
from functools import partial
from typing import Literal, NamedTuple

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
from model_wrappers.trace import Rejected, Window, commit_kinds
from model_wrappers.transfers import to_host


class S2D2Options(SampleOptions, frozen=True, kw_only=True):
    """Options of the decoder `s2d2`.

    Attributes:
        steps: steps of a block, over which its positions are spread evenly (None: its length).
        threshold: the confidence above which a draft is committed without verification.
        min_span: the shortest run of masks that is verified.
        min_expected: the least expected number of accepted drafts at which a run is verified.
        acceptance: at temperature 0, "ratio" accepts a draft with min(1, target / draft) of the
            probabilities at temperature 1, as the official code does, and "match" accepts it if it
            is the target's likeliest token. "block" is "ratio" with drafts accepted jointly
            (`sampling.block_accept`).
        stop_at_eos: whether decoding ends with a block that has EOS.
    """

    steps: Positive | None = None
    threshold: Share = 0.85
    min_span: Positive = 1
    min_expected: NotNegative = 0.0
    acceptance: Literal["ratio", "match", "block"] = "ratio"
    stop_at_eos: bool = True


def decode_s2d2(request: Request, options: S2D2Options) -> None:
    """Fill the response. Where a mask is chosen it stays, and a later step chooses again, as in the
    official sampler.

    Raises:
        ValueError: the model's logits predict the next position.
    """
    if request.backbone.reads_at:
        raise ValueError(
            "s2d2 verifies with masks, whose logits must predict their own position; this model's"
            " do not"
        )
    schedule = quotas(request.block_length, options.steps or request.block_length)
    for block in request.blocks():
        for step, quota in enumerate(schedule):
            masked_N = request.masked(block.start, block.stop)
            if not len(masked_N):
                break
            draft, cache = draft_block(request, options, masked_N)
            # A second pass pays only if enough drafts are accepted; by default it always runs.
            committed = 0
            if len(draft.at_S) >= options.min_span and draft.expected >= options.min_expected:
                token_S = draft.token_N[: len(draft.at_S)]
                logits_SV = verify(request, block.start, draft.at_S, token_S, cache)
                committed = commit_accepted(request, options, step, draft, logits_SV)
            # A step that verified too few still fills its quota, from the draft after those.
            remaining = min(quota, len(masked_N)) - committed
            if remaining > 0:
                commit_best(
                    request,
                    masked_N[committed:],
                    draft.token_N[committed:],
                    draft.confidence_N[committed:],
                    remaining,
                    options.threshold,
                )
        if options.stop_at_eos and fill_after_eos(request):
            return
        request.finish(block)


class Draft(NamedTuple):
    """A step's drafts for the N masks of the block, of which the first S are adjacent: the run.

    Attributes:
        at_S: positions of the run, on the CPU.
        token_N: the drafts of all masks, on the CPU.
        confidence_N: their probabilities, on the CPU.
        expected: the expected number of accepted drafts of the run.
        draft_S: the run's drafts, on the model's device.
        probs_SV: the probabilities that these were drawn from, on the model's device.
        logits_SV: the run's logits, on the model's device.
    """

    at_S: Tensor
    token_N: Tensor
    confidence_N: Tensor
    expected: float
    draft_S: Tensor
    probs_SV: Tensor
    logits_SV: Tensor


def draft_block(
    request: Request, options: S2D2Options, masked_N: Tensor
) -> tuple[Draft, KeyValues]:
    """Draft every mask of the block in one pass.

    Returns:
        The drafts, and the pass's keys and values.
    """
    # Masks are adjacent as long as their positions differ by 1.
    run = 1 + int((masked_N.diff() == 1).cumprod(0).sum())
    logits_1NV, cache = request.backbone.context(request.x_1L, masked_N)
    with request.sampler.timed():
        probs_NV = token_probs(logits_1NV[0], judging_temperature(request), options=options)
        draft_N = request.sampler.tokens(probs_NV) if request.temperature else likeliest(probs_NV)
    token_N, confidence_N, expected_1 = to_host(
        draft_N, probs_at(probs_NV, draft_N), expected(probs_NV[:run])
    )
    draft = Draft(
        masked_N[:run],
        token_N,
        confidence_N,
        float(expected_1),
        draft_N[:run],
        probs_NV[:run],
        logits_1NV[0, :run],
    )
    return draft, cache


def judging_temperature(request: Request) -> float:
    """The temperature of the probabilities that judge drafts: the request's, or 1 if that is 0."""
    # At temperature 0 both distributions would be one-hot, and every ratio 0 or 1.
    return request.temperature or 1.0


def commit_accepted(
    request: Request, options: S2D2Options, step: int, draft: Draft, logits_SV: Tensor
) -> int:
    """Commit the accepted drafts and the correction of the next one.

    Args:
        request: the response.
        options: `acceptance` and the truncation.
        step: number of the step in its block.
        draft: the drafts.
        logits_SV: the targets' logits.

    Returns:
        How many positions were committed.
    """
    sampler = request.sampler
    run = len(draft.at_S)
    limit_1 = torch.full((1,), run, device=logits_SV.device)
    accept_drafts = block_accept if options.acceptance == "block" else speculative_accept
    with sampler.timed():
        target_SV = token_probs(logits_SV, judging_temperature(request), options=options)
        if options.acceptance == "match" and not request.temperature:
            accepted_1, token_S = greedy_accept(likeliest(target_SV), draft.draft_S, limit_1)
        else:
            accepted_1, token_S = accept_drafts(
                target_SV, draft.probs_SV, draft.draft_S, sampler, limit_1
            )
    accepted_1, token_S, prob_S = to_host(accepted_1, token_S, probs_at(target_SV, token_S))
    accepted = int(accepted_1)
    committed = min(accepted + 1, run)
    request.commit(
        draft.at_S[:committed],
        token_S[:committed],
        prob_S[:committed],
        commit_kinds(committed, accepted, "corrected"),
    )
    if accepted < run:
        request.reject(partial(rejected, draft, accepted, logits_SV))
    window = Window(0, step, int(draft.at_S[0]) - request.start, run, accepted, committed)
    request.record(window, draft.at_S.tolist())
    return committed


def expected(draft_SV: Tensor) -> Tensor:
    """The expected number of accepted drafts, (1,) (the official `soft_entropy_negexp`).

    A draft is assumed to be accepted with probability exp(-H), H the entropy of its distribution as
    a share of the largest possible one, log V.

    Args:
        draft_SV: probabilities of the drafts.
    """
    entropy_S = torch.special.entr(draft_SV).sum(-1) / math.log(draft_SV.shape[1])
    # The n-th draft counts if the first n are all accepted; the sum of these chances is the mean.
    return torch.exp(-entropy_S).cumprod(0).sum(0, keepdim=True)


def verify(request: Request, begin: int, at_S: Tensor, token_S: Tensor, cache: KeyValues) -> Tensor:
    """The targets' logits (S, V), as at block length 1.

    Each position of the run has a mask that sees all earlier blocks, and of its own block the clean
    tokens and drafts before it.

    Args:
        request: the response.
        begin: the block's first position.
        at_S: positions of the drafts.
        token_S: the drafts.
        cache: keys and values of the draft's pass. The block with its masks is last in it; the
            verification hides that part.
    """
    x_L = request.x_1L[0]
    cached = cache.get_seq_length()
    # The block's tokens up to the run's last mask, causal among themselves; the masks come after.
    chain_C = torch.arange(begin, int(at_S[-1]))
    position_M = torch.cat([chain_C, at_S])
    ids_M = torch.cat([x_L.index_put((at_S,), token_S)[chain_C], x_L[at_S]])
    sees_MC = chain_C < position_M[:, None]
    visible_MK = torch.cat([torch.arange(cached).expand(len(ids_M), -1) < begin, sees_MC], 1)
    visible_MK = torch.nn.functional.pad(visible_MK, (0, len(at_S)))
    # Every token sees itself too.
    visible_MK[:, cached:] |= torch.eye(len(ids_M), dtype=torch.bool)
    read_S = torch.arange(len(chain_C), len(ids_M))
    logits_1SV, _ = request.backbone.extend(ids_M[None], position_M, read_S, cache, visible_MK)
    return logits_1SV[0]


def rejected(draft: Draft, accepted: int, target_SV: Tensor) -> Rejected:
    """The drafts from the first one on that was not accepted. target_SV: the targets' logits."""
    run = len(draft.at_S)
    token_R = draft.token_N[accepted:run]
    draft_R, target_R = (
        probs_at(token_probs(logits_SV[accepted:], 1.0), draft.draft_S[accepted:])
        for logits_SV in (draft.logits_SV, target_SV)
    )
    return Rejected(draft.at_S[accepted:].tolist(), token_R.tolist(), draft_R, target_R)

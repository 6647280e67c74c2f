"""S2D2: a block model drafts a block and verifies it itself, one token at a time (arXiv 2603.25702).

At block length 1 a block model is autoregressive. A step drafts every mask of the block in one pass, and a second pass
has the target of each token of the first run of masks, given the drafts before it: they are accepted as in speculative
sampling, and the first rejected one is corrected. Where too few drafts can be expected to be accepted, the step commits
by a threshold, as `block` does. Source: phymhan/S2D2, `generate_ssd_policy.py`, without its other routing policies and
its causal caches. With acceptance "match" it is the linear speculation of Nemotron-Labs-Diffusion (SGLang,
`linear_spec.py`), for models whose logits predict their own position. Shapes: N masked positions of the block, S those
of their first run, M tokens of a verification, K kept, V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import torch

from model_wrappers.backbones.key_values import KeyValues
from model_wrappers.decoders.block import commit_best
from model_wrappers.decoders.llada import Choice
from model_wrappers.options import EndOptions, NotNegative, Positive, Share
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import quotas, speculative_accept, token_probs
from model_wrappers.trace import How, Rejected, Window


class S2D2Options(EndOptions, frozen=True, kw_only=True):
    """steps: of a block, over which its positions are spread as evenly as can be (None: its length). threshold: what a
    confidence must exceed to be committed without verification. min_span: the shortest run of masks that is verified.
    min_expected: how many drafts must be expected to be accepted. acceptance: at temperature 0, "ratio" accepts a draft
    with min(1, target / draft) of the probabilities at temperature 1, as the official code does, and "match" if it is
    the target's likeliest token. stop_at_eos: once a block is done.
    """

    steps: Positive | None = None
    threshold: Share = 0.85
    min_span: Positive = 1
    min_expected: NotNegative = 0.0
    acceptance: Literal["ratio", "match"] = "ratio"
    stop_at_eos: bool = True


def decode_s2d2(request: Request, options: S2D2Options) -> None:
    """Fill the response. A mask that is chosen stays and is chosen again, as in the official sampler.

    Raises ValueError for a model whose logits predict the next position.
    """
    x_1L, backbone, choice = request.x_1L, request.backbone, Choice(request, options)
    if backbone.reads_at:
        raise ValueError("s2d2 verifies with masks, whose logits must predict their own position; this model's do not")
    temperature = request.temperature or (1.0 if options.acceptance == "ratio" else 0.0)
    schedule = quotas(request.block_length, options.steps or request.block_length)
    for end in request.block_ends:
        begin = max(0, end - request.block_length)
        for step, quota in enumerate(schedule):
            masked_N = begin + (x_1L[0, begin:end] == request.mask_id).nonzero()[:, 0]
            if not len(masked_N):
                break
            logits_1NV, cache = backbone.context(x_1L, masked_N)
            drafts = choice(logits_1NV[0])
            at_S = masked_N[: first_run(masked_N)]
            draft_SV = drafts.logits_NV[: len(at_S)]
            committed = 0
            if len(at_S) >= options.min_span and expected_accepted(draft_SV, temperature) >= options.min_expected:
                draft_S = drafts.token_N[: len(at_S)]
                target_SV = choice(verify(request, begin, at_S, draft_S, cache)).logits_NV
                tokens, accepted = speculative_accept(
                    token_probs(target_SV, temperature),
                    token_probs(draft_SV, temperature),
                    draft_S.tolist(),
                    temperature,
                    request.sampler,
                )
                committed = len(tokens)
                commit_verified(request, step, at_S, draft_S, (draft_SV, target_SV), tokens, accepted)
            least = min(quota, len(masked_N)) - committed
            if least > 0:
                left = slice(committed, None)
                proposed = (masked_N[left], drafts.token_N[left], drafts.confidence_N[left])
                commit_best(request, *proposed, least, options.threshold)
        if options.stop_at_eos and fill_after_eos(request):
            return


def first_run(masked_N: torch.Tensor) -> int:
    """How many of these positions follow each other without a gap, from the first on."""
    return 1 + int((masked_N.diff() == 1).cumprod(0).sum())


def expected_accepted(draft_SV: torch.Tensor, temperature: float) -> float:
    """How many drafts can be expected to be accepted, by their entropies (the official `soft_entropy_negexp`).

    A draft's probability to be accepted is estimated by exp(-H), H its entropy as a share of the greatest one.
    """
    log_SV = torch.log_softmax(draft_SV.double() / (temperature or 1.0), -1)
    entropy_S = torch.special.entr(log_SV.exp()).sum(-1) / torch.tensor(draft_SV.shape[1]).log()
    return float(torch.exp(-entropy_S).cumprod(0).sum())


def verify(request: Request, begin: int, at_S: torch.Tensor, draft_S: torch.Tensor, cache: KeyValues) -> torch.Tensor:
    """The targets' logits (S, V): a mask at each position sees the blocks before its own, and the tokens before itself.

    begin: of the block. cache: what the draft's pass kept, the block with its masks last, which is hidden again.
    """
    x_L, kept = request.x_1L[0], cache.get_seq_length()
    chain_C = torch.arange(begin, int(at_S[-1]), device=x_L.device)  # the block's tokens, each seeing those before it
    position_M = torch.cat([chain_C, at_S])
    ids_M = torch.cat([x_L.index_put((at_S,), draft_S)[chain_C], x_L[at_S]])
    sees_MC = chain_C < position_M[:, None]
    visible_MK = torch.cat([torch.arange(kept, device=x_L.device).expand(len(ids_M), -1) < begin, sees_MC], 1)
    itself_MM = torch.eye(len(ids_M), dtype=torch.bool, device=x_L.device)
    visible_MK = torch.nn.functional.pad(visible_MK, (0, len(at_S)))
    visible_MK[:, kept:] |= itself_MM
    read_S = torch.arange(len(chain_C), len(ids_M), device=x_L.device)
    logits_1SV, _ = request.backbone.extend(ids_M[None], position_M, read_S, cache, visible_MK)
    return logits_1SV[0]


def commit_verified(
    request: Request,
    step: int,
    at_S: torch.Tensor,
    draft_S: torch.Tensor,
    logits: tuple[torch.Tensor, torch.Tensor],
    tokens: list[int],
    accepted: int,
) -> None:
    """Commit what was accepted and corrected, and note the window. logits: of the drafts and of the targets, (S, V)."""
    draft_SV, target_SV = (token_probs(each, 1.0) for each in logits)
    token_C = torch.tensor(tokens, device=at_S.device)
    prob_C = target_SV[: len(tokens)].gather(1, token_C[:, None])[:, 0]
    how: list[How] = ["accepted" if number < accepted else "corrected" for number in range(len(tokens))]
    request.commit(at_S[: len(tokens)], token_C, prob_C, how)
    if accepted < len(at_S):
        rest = slice(accepted, None)

        def rejected() -> Rejected:
            draft_R, target_R = (of.gather(1, draft_S[:, None])[rest, 0] for of in (draft_SV, target_SV))
            return Rejected(at_S[rest].tolist(), draft_S[rest].tolist(), draft_R, target_R)

        request.reject(rejected)
    window = Window(0, step, int(at_S[0]) - request.start, len(at_S), accepted, len(tokens))
    request.record(window, at_S.tolist())

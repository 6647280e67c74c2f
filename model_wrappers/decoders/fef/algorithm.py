"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint distribution of the committed tokens is the chain product of the
targets, for every draft and window (Theorem 1). The loop has the paper's names. Shapes: W window, V
vocabulary.
"""

from collections.abc import Sequence

import torch

from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.state import Resolved, State
from model_wrappers.decoders.fef.targets import Proposal, Targets
from model_wrappers.request import Request
from model_wrappers.sampling import (
    block_accept,
    greedy_accept,
    likeliest,
    sample,
    softmax_at,
    speculative_accept,
    token_probs,
    without,
)
from model_wrappers.transfers import to_host


def decode_fef(request: Request, options: FeFOptions) -> None:
    """Fill the response of a request.

    Raises:
        ValueError: the backbone does not support the options.
    """
    state = State(request, options)
    for block in request.blocks():
        state.begin_block(block)
        for step in range(options.steps):
            state.begin_step(step)
            while state.unresolved:
                window = state.next_window()  # j_1, j_2, ...
                drafts = state.draft(window)  # z ~ rho
                targets = state.targets(window, drafts)  # pi, one for each position
                state.commit(window, accept(targets, drafts, request, options, state.unranked))
            # Set in the last step only, with stop_at_eos.
            if state.after_eos:
                request.commit(state.after_eos, request.backbone.eos_id, None, "filled")
                return
            # The last step's tokens are the response: nothing of it is corrupted again.
            if step < options.steps - 1:
                state.remask_least_confident()
        request.finish(block)


def accept(
    targets: Targets,
    drafts: Proposal,
    request: Request,
    options: FeFOptions,
    unranked: Sequence[int] = (),
) -> Resolved:
    """Accept drafts from left to right, and correct the first that is rejected.

    Draft z is accepted with probability min(1, pi(z) / rho(z)). The first position whose draft is
    rejected gets a token from norm(max(0, pi - rho)). Without drafts one token is drawn from its
    target.

    Args:
        targets: pi of the window, one for each draft; one if there are no drafts.
        drafts: the window's drafts, with rho.
        request: the response, with its temperature and sampler.
        options: top_p and top_k, which truncate pi and rho alike, and `acceptance`.
        unranked: ids that are left out of the softmax which gives confidences.
    """
    logits_WV = targets.logits_WV
    temperature = request.temperature
    sampler = request.sampler
    limit_1 = targets.limit_1
    if limit_1 is None:
        limit_1 = torch.full((1,), len(logits_WV), device=logits_WV.device)
    if not drafts.tokens:
        accepted_1 = torch.zeros_like(limit_1)
        token_W = sample(logits_WV, temperature, sampler, limit_1, options)
    # Greedy: pi and rho are one-hot, so that a draft is accepted if it is the target's token.
    elif temperature == 0:
        accepted_1, token_W = greedy_accept(likeliest(logits_WV), drafts.token_W, limit_1)
    else:
        with sampler.timed():
            target_WV = token_probs(logits_WV, temperature, options=options)  # pi
            accept_drafts = block_accept if options.acceptance == "block" else speculative_accept
            accepted_1, token_W = accept_drafts(
                target_WV, drafts.probs_WV, drafts.token_W, sampler, limit_1
            )
    # At temperature 1 whatever the request's: at temperature 0 every confidence would be 1.
    confidence_W = softmax_at(without(logits_WV, unranked), token_W)
    token_W, confidence_W, accepted_1, limit_1 = to_host(token_W, confidence_W, accepted_1, limit_1)
    accepted = int(accepted_1)
    verified = int(limit_1)
    # One token after the accepted drafts, the correction, unless its position is in doubt.
    count = min(accepted + 1, verified)
    return Resolved(token_W[:count].tolist(), confidence_W[:count].tolist(), accepted, verified)

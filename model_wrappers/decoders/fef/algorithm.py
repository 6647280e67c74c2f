"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint distribution of the committed tokens is the chain product of the
targets (Theorem 1), whatever the draft and the window. Shapes: W window, V vocabulary.
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
        ValueError: options that the backbone cannot serve.
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
            if state.after_eos:
                request.commit(state.after_eos, request.backbone.eos_id, None, "filled")
                return
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

    Draft z is accepted with probability min(1, pi(z) / rho(z)); the first other one is drawn from
    norm(max(0, pi - rho)). Without drafts one token is drawn from its target.

    Args:
        targets: as many as there are drafts; one where there are no drafts.
        drafts: of the window.
        request: its temperature and sampler.
        options: top_p and top_k, which pi and rho have alike; how drafts are accepted.
        unranked: ids without confidence.
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
    elif temperature == 0:
        accepted_1, token_W = greedy_accept(likeliest(logits_WV), drafts.token_W, limit_1)
    else:
        with sampler.timed():
            target_WV = token_probs(logits_WV, temperature, options=options)  # pi
            accept_drafts = block_accept if options.acceptance == "block" else speculative_accept
            accepted_1, token_W = accept_drafts(
                target_WV, drafts.probs_WV, drafts.token_W, sampler, limit_1
            )
    confidence_W = softmax_at(without(logits_WV, unranked), token_W)
    token_W, confidence_W, accepted_1, limit_1 = to_host(token_W, confidence_W, accepted_1, limit_1)
    accepted = int(accepted_1)
    verified = int(limit_1)
    count = min(accepted + 1, verified)
    return Resolved(token_W[:count].tolist(), confidence_W[:count].tolist(), accepted, verified)

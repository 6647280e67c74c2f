"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint distribution of the committed tokens is the chain product of the
targets (Theorem 1), whatever the draft and the window. Shapes: W window, V vocabulary.
"""

from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.state import State
from model_wrappers.decoders.fef.targets import Proposal, Targets
from model_wrappers.request import Request
from model_wrappers.sampling import draw, speculative_accept, token_probs


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
                tokens, accepted = accept(targets, drafts, request)
                state.commit(window, tokens, accepted)
            if state.after_eos:
                request.commit(state.after_eos, request.backbone.eos_id, None, "filled")
                return
            if step < options.steps - 1:
                state.remask_least_confident()
        request.finish(block)


def accept(targets: Targets, drafts: Proposal, request: Request) -> tuple[list[int], int]:
    """Accept drafts from left to right, and correct the first that is rejected.

    Draft z is accepted with probability min(1, pi(z) / rho(z)); the first other one is drawn from
    norm(max(0, pi - rho)). Without drafts one token is drawn from its target.

    Args:
        targets: as many as there are drafts, or fewer; one where there are no drafts.
        drafts: of the window.
        request: its temperature and sampler.

    Returns:
        The tokens to commit at the first positions, and how many of them are accepted drafts.
    """
    target_WV = token_probs(targets.logits_WV, request.temperature)  # pi
    count = len(target_WV)
    if count == 0:
        return [], 0
    if not drafts.tokens:
        return draw(target_WV, request.temperature, request.sampler).tolist(), 0
    return speculative_accept(
        target_WV,
        drafts.probs_WV[:count],  # rho
        drafts.tokens[:count],
        request.temperature,
        request.sampler,
    )

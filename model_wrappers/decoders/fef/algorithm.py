"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint distribution of the committed tokens is the chain product of the
targets (Theorem 1), whatever the draft and the window. Shapes: L length of prompt and response, W
window, V vocabulary.
"""

import math

from model_wrappers.decoders.fef.targets import FullVerifier, Proposal, Verified, Verifier
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.decoders.fef.windows import Commits, DraftSource, FeFOptions
from model_wrappers.diffusion import KERNELS, Kernel
from model_wrappers.request import Request
from model_wrappers.sampling import draw, lowest, speculative_accept, token_probs


def decode_fef(request: Request, options: FeFOptions) -> None:
    """Fill the response. Raises ValueError for options that the backbone cannot serve."""
    excluded, unranked = excluded_ids(request, options)
    verifier = make_verifier(request, options, excluded)
    drafts = DraftSource(request, verifier, options, excluded)
    kernel = KERNELS[options.kernel](request.backbone.vocab_size, request.mask_id)
    predicted = corrupt_response(request, options, kernel)  # J_pred
    commits = Commits(request, verifier, drafts, options, predicted, excluded, unranked)
    for block in request.blocks():
        unresolved = commits.begin_block(block)
        # 0.29 * 100 is 28.999999999999996
        n_rm = math.floor(options.remask_fraction * len(unresolved) + 1e-9)
        for step in range(options.steps):
            commits.begin_step(step)
            while unresolved:
                segment = verifier.segment(unresolved)  # j_1, j_2, ...
                proposal = drafts.propose(segment)  # z ~ rho
                verified = verifier.verify(segment, proposal)  # pi, one for each position
                tokens, accepted = accept(verified, proposal, request, excluded)
                unresolved = commits.commit(
                    unresolved, segment, proposal, verified, tokens, accepted
                )
            if commits.after_eos:
                return request.commit(commits.after_eos, request.backbone.eos_id, None, "filled")
            if step < options.steps - 1:
                unresolved = least_confident(commits.confidence, n_rm, options)
                request.remask(
                    unresolved, kernel.corrupt(request.x_1L[0, unresolved], 1.0, request.sampler)
                )
                drafts.begin_step()
        request.finish(block)


def accept(
    verified: Verified, proposal: Proposal, request: Request, excluded: list[int]
) -> tuple[list[int], int]:
    """The tokens to commit at the first positions, and how many of them are accepted drafts.

    Draft z is kept with probability min(1, pi(z) / rho(z)); the first other one is drawn from the
    residual. Without drafts one token is drawn from its target. There may be fewer targets than
    drafts, or none.
    """
    target_WV = token_probs(verified.logits_WV, request.temperature, exclude=excluded)  # pi
    wide = len(target_WV)
    if not wide:
        return [], 0
    if proposal.probs_WV is None:
        return draw(target_WV, request.temperature, request.sampler).tolist(), 0
    draft_WV = proposal.probs_WV[:wide]  # rho
    drafts = proposal.tokens[:wide]  # z
    return speculative_accept(target_WV, draft_WV, drafts, request.temperature, request.sampler)


def least_confident(confidence: dict[int, float], n_rm: int, options: FeFOptions) -> list[int]:
    """The n_rm positions of the lowest confidence, ascending; with `remask_below`, of those below
    it."""
    limit = options.remask_below
    doubtful = {at: share for at, share in confidence.items() if limit is None or share < limit}
    return sorted(lowest(doubtful, n_rm))


def make_verifier(request: Request, options: FeFOptions, excluded: list[int]) -> Verifier:
    """Where the targets come from. Raises ValueError for what the backbone cannot serve."""
    backbone = request.backbone
    if backbone.max_length is not None and options.window > backbone.max_length:
        raise ValueError(
            f"window={options.window} exceeds the model's limit of {backbone.max_length} tokens"
        )
    if options.verify == "full":
        return FullVerifier(request, options.window, options.reuse_drafts)
    if not backbone.can_extend:
        raise ValueError(
            "verify='two-stream' needs a backbone with cached attention (a method `extend`); use"
            " 'full'"
        )
    if backbone.reads_at and request.grid is not None:
        raise ValueError(
            "verify='two-stream' needs the token before a position next to its query, and here it"
            " may be of a finished block: use 'full'"
        )
    return TwoStreamVerifier(
        request,
        options.window,
        options.anchor,
        options.refresh_below,
        options.order == "confidence",
        excluded,
    )


def excluded_ids(request: Request, options: FeFOptions) -> tuple[list[int], list[int]]:
    """The ids without probability in draft and target, and those without any in the confidence that
    ranks positions.

    The mask has none in either; EOS none with logits_eos_inf; EOS and EoT no confidence with
    confidence_eos_eot_inf.
    """
    excluded = [request.mask_id, *([request.backbone.eos_id] if options.logits_eos_inf else [])]
    ends = (
        request.backbone.ends_out_of_confidence(request.temperature)
        if options.confidence_eos_eot_inf
        else []
    )
    return excluded, [*excluded, *ends]


def corrupt_response(request: Request, options: FeFOptions, kernel: Kernel) -> list[int]:
    """The predicted positions (J_pred): those that hold masks; under the uniform kernel all that
    were not given."""
    masks = request.start + (request.x_1L[0, request.start :] == request.mask_id).nonzero()[:, 0]
    noise = kernel.corrupt(request.x_1L[0, masks], 1.0, request.sampler)
    if options.kernel == "absorbing":
        return list(masks.tolist())
    # Draws do not show which positions are corrupted, as masks do.
    request.remask(masks.tolist(), noise)
    return [at for at in range(request.start, request.x_1L.shape[1]) if at not in request.given]

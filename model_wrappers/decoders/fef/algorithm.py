"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint distribution of the committed tokens is the chain product of the targets (Theorem 1),
whatever the draft and the window. Shapes: L length of prompt and response, W window, V vocabulary.
"""

import math

import torch

from model_wrappers.decoders.fef.commits import Commits
from model_wrappers.decoders.fef.drafts import DraftSource
from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.targets import FullVerifier, Proposal, Verifier
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.diffusion import Kernel, make_kernel
from model_wrappers.request import Request
from model_wrappers.sampling import draw, lowest, speculative_accept, token_probs


def decode_fef(request: Request, options: FeFOptions) -> None:
    """Fill the response. Raises ValueError for options that the backbone cannot serve."""
    never, unsure = excluded_ids(request, options)
    verifier = make_verifier(request, options, never)
    drafts = DraftSource(request, verifier, options, never)
    commits = Commits(request, options.speculative, never, unsure)
    kernel = make_kernel(options.kernel, request.backbone.vocab_size, request.mask_id)
    predicted = corrupt_response(request, options, kernel)  # J_pred
    for end in request.block_ends:
        block = [at for at in predicted if end - request.block_length <= at < end]
        unresolved, confidence = block, dict[int, float]()  # C
        drafts.begin_block()
        for step in range(options.steps):
            if options.confidence_scope == "pass":
                confidence = {}
            commits.begin_step(step)
            while unresolved:
                segment, context = verifier.segment(unresolved)  # j_1, j_2, ...
                proposal = drafts.propose(segment, context)  # z ~ rho
                verified = verifier.verify(segment, proposal)
                target_WV = token_probs(verified.logits_WV, request.temperature, exclude=never)  # pi
                tokens, accepted = accept(target_WV, proposal, request)
                committed = commits.commit(segment, proposal, verified, tokens, accepted)
                confidence |= committed
                unresolved = [at for at in unresolved if at not in committed]
                drafts.update(segment, proposal, verified, accepted)
                verifier.advance(len(committed), accepted)
                if options.stop_at_eos and step == options.steps - 1:
                    resolved_to = min(unresolved, default=end)
                    if (request.x_1L[0, request.start : resolved_to] == request.backbone.eos_id).any():
                        rest = [at for at in predicted if at >= resolved_to]
                        return request.commit(rest, request.backbone.eos_id, None, "filled")
            if step < options.steps - 1:
                unresolved = least_confident(confidence, len(block), options)
                request.remask(unresolved, kernel.corrupt(request.x_1L[0, unresolved], 1.0, request.sampler))
                drafts.begin_step()


def make_verifier(request: Request, options: FeFOptions, never: list[int]) -> Verifier:
    """Where the targets come from. never: ids without probability.

    Raises ValueError for what the backbone cannot serve.
    """
    backbone = request.backbone
    if backbone.max_length is not None and options.window > backbone.max_length:
        raise ValueError(f"window={options.window} exceeds the model's limit of {backbone.max_length} tokens")
    if options.verify == "full":
        return FullVerifier(request, options.window, options.reuse_drafts)
    if not backbone.can_extend:
        raise ValueError("verify='two-stream' needs a backbone with cached attention (a method `extend`); use 'full'")
    if backbone.reads_at and request.grid is not None:
        raise ValueError(
            "verify='two-stream' puts the token before a position beside its query, which may be of a finished block "
            "here: use 'full'"
        )
    return TwoStreamVerifier(
        request, options.window, options.anchor, options.refresh_below, options.order == "confidence", never
    )


def accept(target_WV: torch.Tensor, proposal: Proposal, request: Request) -> tuple[list[int], int]:
    """The tokens to commit, and how many of them are accepted drafts. Without drafts one is drawn from its target.

    target_WV: probs of the first W positions, of fewer than there are drafts where the verifier gave no more.
    """
    wide = len(target_WV)
    if not wide:
        return [], 0
    if proposal.probs_WV is None:
        return draw(target_WV, request.temperature, request.sampler).tolist(), 0
    drafted = (proposal.probs_WV[:wide], proposal.tokens[:wide])
    return speculative_accept(target_WV, *drafted, request.temperature, request.sampler)


def excluded_ids(request: Request, options: FeFOptions) -> tuple[list[int], list[int]]:
    """The ids without probability in draft and target, and those without any in the confidence that ranks positions.

    The mask has none in either; EOS none with logits_eos_inf; EOS and EoT no confidence with confidence_eos_eot_inf.
    """
    never = [request.mask_id, *([request.backbone.eos_id] if options.logits_eos_inf else [])]
    ends = request.backbone.ends_out_of_confidence(request.temperature) if options.confidence_eos_eot_inf else []
    return never, [*never, *ends]


def corrupt_response(request: Request, options: FeFOptions, kernel: Kernel) -> list[int]:
    """The predicted positions (J_pred): those that hold masks; under the uniform kernel all that were not given.

    Only the absorbing kernel shows which positions are corrupted. Under the uniform one masks become draws.
    """
    masks = request.start + (request.x_1L[0, request.start :] == request.mask_id).nonzero()[:, 0]
    noise = kernel.corrupt(request.x_1L[0, masks], 1.0, request.sampler)
    if options.kernel == "absorbing":
        return list(masks.tolist())
    request.remask(masks.tolist(), noise)
    return [at for at in range(request.start, request.x_1L.shape[1]) if at not in request.given]


def least_confident(confidence: dict[int, float], count: int, options: FeFOptions) -> list[int]:
    """The positions to re-mask of `count` predicted ones: n_rm = floor(fraction * count), lowest confidence first."""
    n_rm = math.floor(options.remask_fraction * count + 1e-9)  # 0.29 * 100 is 28.999999999999996
    limit = options.remask_below
    doubtful = {at: share for at, share in confidence.items() if limit is None or share < limit}
    return sorted(lowest(doubtful, n_rm))

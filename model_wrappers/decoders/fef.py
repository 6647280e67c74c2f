"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint distribution of the committed tokens is the chain product of the targets (Theorem 1),
whatever the draft and the window. Shapes: L length of prompt and response, W window, V vocabulary.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch

from model_wrappers.diffusion import Kernel, make_kernel
from model_wrappers.drafts import DraftSource
from model_wrappers.options import EndOptions, Positive, Share
from model_wrappers.request import Request
from model_wrappers.sampling import draw, lowest, speculative_accept, token_probs
from model_wrappers.trace import How, Rejected, Window
from model_wrappers.verification import PositionLogits, Proposal, Verified, make_verifier


class FeFOptions(EndOptions, frozen=True, kw_only=True):
    """steps: diffusion steps; all of a block's finish before the next block starts. window: most drafts verified at
    once. speculative: False decodes one position at a time from its target. draft: the backbone of the draft probs
    (None: the target's own). remask_fraction: share of a block's predicted positions that is re-corrupted after a step,
    the least confident first. remask_below: of these, only those less confident than this (None: all; not in the
    paper). confidence_scope: "all" ranks every position by its latest confidence, "pass" only those committed in the
    last pass (Algorithm 2 read literally). kernel: the forward kernel that positions are re-corrupted through, at its
    last time: "absorbing" masks them, "uniform" draws them anew, and a response of masks then starts from such draws.

    verify: "full" gives the paper's target; "two-stream" another one, at the cost of tokens instead of rows (see
    model_wrappers/verification.py; the backbone must have `extend`). anchor: with "two-stream", unresolved positions
    per context pass (None: all of the step's); windows do not cross its grid. refresh_below: with "two-stream", a
    position whose best token has less than this probability gets a context pass of its own, which gives it the paper's
    target, and so begins a new segment (None: never). order: in which a segment is resolved; with "two-stream" also the
    most confident position first, as its context pass has it. skip_root_row, reuse_drafts, adaptive_window: exact
    savings (see model_wrappers/drafts.py).

    The official sampler's options: logits_eos_inf takes EOS out of draft and target; confidence_eos_eot_inf takes EOS
    and EoT out of the confidence that ranks positions for re-masking. stop_at_eos: in the last step, once all before an
    EOS is resolved.
    """

    steps: Positive = 2
    window: Positive = 16
    speculative: bool = True
    draft: Any = None
    remask_fraction: Share = 0.5
    remask_below: Share | None = None
    confidence_scope: Literal["all", "pass"] = "all"
    kernel: Literal["absorbing", "uniform"] = "absorbing"
    verify: Literal["full", "two-stream"] = "full"
    anchor: Positive | None = None
    refresh_below: Share | None = None
    order: Literal["left-to-right", "confidence"] = "left-to-right"
    skip_root_row: bool = False
    reuse_drafts: bool = False
    adaptive_window: bool = False

    def check(self) -> None:
        if self.anchor is not None and self.verify != "two-stream":
            raise ValueError(f"anchor={self.anchor} needs verify='two-stream', not {self.verify!r}")
        if self.refresh_below is not None and self.verify != "two-stream":
            raise ValueError(
                f"refresh_below={self.refresh_below} needs verify='two-stream', not {self.verify!r}, whose context is "
                "always fresh"
            )
        if self.order != "left-to-right" and self.verify != "two-stream":
            raise ValueError(f"order={self.order!r} needs verify='two-stream', not {self.verify!r}")
        if not self.speculative and (self.skip_root_row or self.reuse_drafts or self.adaptive_window):
            raise ValueError("skip_root_row, reuse_drafts and adaptive_window need speculative=True: they save drafts")
        if self.reuse_drafts and self.verify != "full":
            raise ValueError(f"reuse_drafts needs verify='full', not {self.verify!r}, whose draft passes cost little")


def decode_fef(request: Request, options: FeFOptions) -> None:
    """Fill the response. Raises ValueError for options that the backbone cannot serve."""
    x_1L, temperature, sampler = request.x_1L, request.temperature, request.sampler
    never, unsure = excluded_ids(request, options)
    verifier = make_verifier(options.verify, request, options.window)
    drafts = DraftSource(request, verifier, options, never)
    kernel = make_kernel(options.kernel, request.backbone.vocab_size, request.mask_id)
    predicted = corrupt_response(request, options, kernel)  # J_pred
    for end_of_block in request.block_ends:
        block = [at for at in predicted if end_of_block - request.block_length <= at < end_of_block]
        unresolved, confidence = block, dict[int, float]()
        drafts.begin_block()
        for step in range(options.steps):
            if options.confidence_scope == "pass":
                confidence = {}
            segment, rounds = list[int](), 0
            while unresolved:
                if not segment:
                    segment = unresolved[: options.anchor]
                    context = verifier.begin(segment)
                    if options.order == "confidence":
                        segment = by_confidence(context, never)
                        verifier.arrange(segment)
                    drafts.begin_segment(context)
                proposal = drafts.propose(segment)  # z_W ~ rho
                verified = verifier.verify(segment, proposal, want_drafts=options.reuse_drafts)
                sure = drafts.before_doubt(segment, verified.logits_WV)
                if sure == 0:
                    segment = []
                    continue
                target_WV = token_probs(verified.logits_WV[:sure], temperature, exclude=never)  # pi
                if proposal.probs_WV is None:
                    tokens, accepted = draw(target_WV, temperature, sampler).tolist(), 0
                else:
                    drafted = (proposal.probs_WV[:sure], proposal.tokens[:sure])
                    tokens, accepted = speculative_accept(target_WV, *drafted, temperature, sampler)

                count, doubted = len(tokens), accepted == sure < len(verified.logits_WV)
                window, resolved = segment, segment[:count]
                unresolved = [at for at in unresolved if at not in resolved]
                segment = [] if doubted else segment[count:]
                probs_W = verified.probs_of(tokens, exclude=unsure)
                request.commit(resolved, tokens, probs_W, _how(count, accepted, proposal))
                confidence.update(zip(resolved, probs_W.tolist(), strict=True))
                drafts.update(resolved, verified, accepted, len(proposal.tokens))
                if options.speculative:
                    start, proposed = resolved[0] - request.start, min(sure, len(proposal.tokens))
                    if accepted < proposed:
                        request.reject(partial(_rejected, window, proposal, verified, range(accepted, proposed), never))
                    request.record(Window(step, rounds, start, proposed, accepted, count))
                rounds += 1
                if options.stop_at_eos and step == options.steps - 1:
                    end = min(unresolved, default=end_of_block)  # all before it is resolved
                    if bool((x_1L[0, request.start : end] == request.backbone.eos_id).any()):
                        rest = [at for at in predicted if at >= end]
                        return request.commit(rest, request.backbone.eos_id, None, "filled")
            if step < options.steps - 1:
                unresolved = least_confident(confidence, len(block), options)
                request.remask(unresolved, kernel.corrupt(x_1L[0, unresolved], 1.0, sampler))
                drafts.begin_step()


def by_confidence(context: PositionLogits, never: list[int]) -> list[int]:
    """The positions of a segment, that of the likeliest token first; ties from left to right."""
    best_N = token_probs(torch.stack(list(context.values())), 1.0, exclude=never).amax(1).tolist()
    return [at for _, at in sorted((-best, at) for best, at in zip(best_N, context, strict=True))]


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


def _how(committed: int, accepted: int, proposal: Proposal) -> list[How]:
    rest: How = "corrected" if proposal.tokens else "drawn"
    first: How = "accepted" if proposal.root_1V is None else "known"
    return [(first if number == 0 else "accepted") if number < accepted else rest for number in range(committed)]


def _rejected(window: list[int], proposal: Proposal, verified: Verified, numbers: range, never: list[int]) -> Rejected:
    """The drafts of a window with these numbers, with what draft and target give them."""
    assert proposal.logits_WV is not None
    tokens = proposal.tokens[numbers.start : numbers.stop]
    draft, target = (
        Verified(logits_WV[numbers.start : numbers.stop], {}).probs_of(tokens, exclude=never)
        for logits_WV in (proposal.logits_WV, verified.logits_WV)
    )
    return Rejected(window[numbers.start : numbers.stop], tokens, draft, target)

"""The state that FeF-DLLM's loop advances: the unresolved positions, their drafts, and confidences.

The savings do not change the output distribution. Accepting with min(1, pi / rho) and correcting
from the residual samples pi for every rho that is fixed before the drafts are drawn from it
(Theorem 1). So draft probs may come from anywhere; only the acceptance rate changes. Shapes: W
window, V vocabulary, N committed positions.
"""

import math
from heapq import nsmallest
from typing import NamedTuple

import torch
from torch import Tensor

from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.targets import FullVerifier, PositionLogits, Proposal, Targets
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.diffusion import KERNELS
from model_wrappers.request import Request
from model_wrappers.sampling import (
    best_probs,
    likeliest,
    softmax_at,
    token_probs,
    unranked_ends,
)
from model_wrappers.trace import Rejected, Window, commit_kinds
from model_wrappers.transfers import to_host

# With an adaptive window a draft is verified if, by the draft probs, all drafts before it are
# accepted with at least this probability. On dev problems 0.02 saved more forwards than 0.05.
LEAST_CHANCE = 0.02


class Resolved(NamedTuple):
    """The result of accepting a window's drafts.

    Attributes:
        tokens: the tokens of the window's first positions; none if the first position is in doubt.
        confidences: the tokens' probabilities at temperature 1.
        accepted: how many of the tokens are accepted drafts.
        verified: how many of the window's positions have a valid target; the position after them,
            if the window has one, is in doubt.
    """

    tokens: list[int]
    confidences: list[float]
    accepted: int
    verified: int


class State:
    """The state of Algorithm 2 on one response.

    Attributes:
        unresolved: the block's positions that have no token yet in this step (J_t), ascending.
        confidence: for each position of the block, the confidence of its latest token (C).
        after_eos: with stop_at_eos, the positions after an EOS, once all up to it are resolved.
        unranked: ids that are left out of the softmax which gives confidences.
    """

    def __init__(self, request: Request, options: FeFOptions) -> None:
        self._request = request
        self._options = options
        self._verifier = make_verifier(request, options)
        self._kernel = KERNELS[options.kernel](request.backbone.vocab_size, request.mask_id)
        self.unranked = unranked_ends(options, request.backbone, request.temperature)
        self._one_model = request.draft.is_model_of(request.backbone)
        self._predicted = self._corrupt_response()
        self._drafts: Proposal  # of the last window
        self._targets: Targets
        self.after_eos: list[int] = []

    def _corrupt_response(self) -> list[int]:
        """Corrupt the response, and return its predicted positions (J_pred).

        These are the positions that hold masks; under the uniform kernel all that the caller did
        not give.
        """
        request = self._request
        masked = request.masked(request.start)
        noise = self._kernel.corrupt(request.x_1L[0, masked], 1.0, request.sampler)
        if self._options.kernel == "absorbing":
            return list(masked.tolist())
        # A random token, unlike a mask, does not show that its position is corrupted, so `given`
        # decides which positions are predicted.
        request.remask(masked.tolist(), noise)
        response = range(request.start, request.x_1L.shape[1])
        return [at for at in response if at not in request.given]

    def begin_block(self, block: range) -> None:
        """Begin a block: all its predicted positions are unresolved."""
        self._block = block
        self.unresolved = [at for at in self._predicted if at in block]
        # Rounded down, but 0.29 * 100 is 28.999999999999996 in floating point and means 29.
        self._n_rm = math.floor(self._options.remask_fraction * len(self.unresolved) + 1e-9)
        self.confidence: dict[int, float] = {}
        self._draft_logits: PositionLogits = {}  # of positions to come
        self._target_logits: PositionLogits = {}  # of this step, with reuse_drafts

    def begin_step(self, step: int) -> None:
        """Begin a diffusion step (s)."""
        self._step = step
        self._round = 0
        self._segment: list[int] = []  # positions that the next windows are taken from
        # Whether the draft logits at the next position are the target's own.
        self._first_is_target = False
        if self._options.confidence_scope == "pass":
            self.confidence = {}

    def next_window(self) -> list[int]:
        """The next unresolved positions, at most `window` of them."""
        # A used-up segment is followed by one with a context pass of its own.
        if not self._segment:
            self._segment = self._verifier.segment(self.unresolved)
            if self._verifier.context and self._one_model:
                self._draft_logits = self._verifier.context
                self._first_is_target = True
        return self._segment[: self._options.window]

    def draft(self, window: list[int]) -> Proposal:
        """Draw drafts for a window (z ~ rho).

        Without speculation there are none; with an adaptive window there may be fewer than
        positions.
        """
        self._drafts = Proposal([])
        if not self._options.speculative:
            return self._drafts
        # The last verification or context pass may have left draft logits for the whole window.
        if any(at not in self._draft_logits for at in window):
            self._draft_logits = self._verifier.draft(self._segment)
            self._first_is_target = self._one_model
        logits_WV = torch.stack([self._draft_logits[at] for at in window])
        count_1 = torch.full((1,), len(window), device=logits_WV.device)
        if self._options.adaptive_window:
            count_1 = (self._chances(logits_WV) >= LEAST_CHANCE).sum(0, keepdim=True)
        temperature = self._request.temperature
        probs_WV = logits_WV[:0]
        if temperature > 0:
            sampler = self._request.sampler
            with sampler.timed():
                probs_WV = token_probs(logits_WV, temperature, options=self._options)
                token_W = sampler.tokens(probs_WV, count_1)
        else:
            token_W = likeliest(logits_WV)
        host_W, host_1 = to_host(token_W, count_1)
        count = int(host_1)
        self._drafts = Proposal(
            tokens=host_W[:count].tolist(),
            token_W=token_W[:count],
            logits_WV=logits_WV[:count],
            probs_WV=probs_WV[:count],
            first_is_target=self._options.skip_root_row and self._first_is_target,
        )
        return self._drafts

    def _chances(self, logits_WV: Tensor) -> Tensor:
        """For each position the chance, by the draft probs, that all drafts before it are accepted
        and none of their positions is in doubt, (W,)."""
        best_W = best_probs(logits_WV)
        is_doubtful_W = self._verifier.in_doubt(self._segment, best_W)
        # A draft from the target itself is accepted for certain.
        if self._first_is_target:
            best_W[:1].fill_(1)  # an item that is set would wait for the device
        accepted_W = best_W.masked_fill(is_doubtful_W, 0)
        return torch.cat([accepted_W.new_ones(1), accepted_W.cumprod(0)[:-1]])

    def targets(self, window: list[int], drafts: Proposal) -> Targets:
        """Verify a window: compute the targets (pi), each conditioned on the drafts before it."""
        self._targets = self._verifier.verify(self._segment, drafts)
        return self._targets

    def commit(self, window: list[int], resolved: Resolved) -> None:
        """Commit the tokens of the window that was verified last."""
        tokens, confidences, accepted, verified = resolved
        positions = window[: len(tokens)]
        if tokens:
            kinds = commit_kinds(
                len(tokens), accepted, "corrected" if self._drafts.tokens else "drawn"
            )
            if accepted and self._drafts.first_is_target:
                kinds[0] = "known"
            self._request.commit(positions, tokens, confidences, kinds)
            if self._options.speculative:
                self._record(window, resolved)
            self._round += 1
            self.confidence |= dict(zip(positions, confidences, strict=True))
            self._keep_draft_logits(positions, accepted)
        self._segment = self._segment[len(tokens) :]
        if accepted == verified < len(self._targets.logits_WV):
            self._segment = []  # the position in doubt begins a new one, with a fresh context
        self.unresolved = [at for at in self.unresolved if at not in positions]
        # In earlier steps a position before the EOS may still be re-masked, and the EOS itself too.
        if self._options.stop_at_eos and self._step == self._options.steps - 1:
            end = min(self.unresolved, default=self._block.stop)
            if self._request.has_eos(end):
                self.after_eos = [at for at in self._predicted if at >= end]
                self.unresolved = []

    def _record(self, window: list[int], resolved: Resolved) -> None:
        """Record the window and, before it, the drafts that were not accepted."""
        request = self._request
        drafts = self._drafts
        accepted = resolved.accepted
        committed = len(resolved.tokens)
        proposed = min(resolved.verified, len(drafts.tokens))
        not_accepted = slice(accepted, proposed)

        def rejected() -> Rejected:
            draft_N, target_N = to_host(
                softmax_at(drafts.logits_WV[not_accepted], drafts.token_W[not_accepted]),
                softmax_at(self._targets.logits_WV[not_accepted], drafts.token_W[not_accepted]),
            )
            return Rejected(window[not_accepted], drafts.tokens[not_accepted], draft_N, target_N)

        if accepted < proposed:
            request.reject(rejected)
        start = window[0] - request.start
        request.record(
            Window(self._step, self._round, start, proposed, accepted, committed),
            window[: max(proposed, committed)],
        )

    def _keep_draft_logits(self, resolved: list[int], accepted: int) -> None:
        """Keep the logits that the next window and the next step can use for drafts."""
        all_accepted = accepted == len(self._drafts.tokens)
        reuse = self._options.reuse_drafts
        if reuse:
            self._target_logits |= zip(resolved, self._targets.logits_WV, strict=False)
            self._draft_logits = self._targets.next_drafts.get(accepted, {})
        # After a correction the next window gets new draft logits: those left do not know it.
        elif not all_accepted:
            self._draft_logits = {}
        self._first_is_target = reuse and all_accepted

    def remask_least_confident(self) -> None:
        """Re-corrupt the n_rm positions of the lowest confidence, which are then unresolved again.

        With `remask_below` only positions below it count. With `reuse_drafts` the targets of this
        step give the draft probs of the next.
        """
        request = self._request
        below = math.inf if self._options.remask_below is None else self._options.remask_below
        candidates = {
            at: confidence for at, confidence in self.confidence.items() if confidence < below
        }
        # It is stable: of equal confidences the leftmost positions are taken.
        least = nsmallest(self._n_rm, sorted(candidates), key=candidates.__getitem__)
        self.unresolved = sorted(least)
        clean = request.x_1L[0, self.unresolved]
        request.remask(self.unresolved, self._kernel.corrupt(clean, 1.0, request.sampler))
        self._draft_logits = self._target_logits
        self._target_logits = {}


def make_verifier(request: Request, options: FeFOptions) -> FullVerifier:
    """Make the verifier that computes the targets, by the option `verify`.

    Raises:
        ValueError: the backbone does not support the options.
    """
    backbone = request.backbone
    if options.verify == "full":
        return FullVerifier(request, options)
    if not backbone.can_extend:
        raise ValueError(
            "verify='two-stream' needs a backbone with cached attention (a method `extend`); use"
            " 'full'"
        )
    # The token before is an extra token of the call, and finished blocks are not run again.
    if backbone.reads_at and request.grid is not None:
        raise ValueError(
            "verify='two-stream' needs the token before a position next to its query, and here it"
            " may be of a finished block: use 'full'"
        )
    return TwoStreamVerifier(request, options)

"""What FeF-DLLM does with a window: its options, where its drafts come from, and what it leaves
once it is verified.

Shapes: W window, V vocabulary, N committed positions.
"""

from typing import Annotated, Any, Literal

import torch
from msgspec import Meta

from model_wrappers.decoders.fef.targets import PositionLogits, Proposal, Verified, Verifier
from model_wrappers.options import EndOptions, Positive, Share
from model_wrappers.request import Request
from model_wrappers.sampling import draw, token_probs
from model_wrappers.trace import How, Rejected, Window

LEAST_CHANCE = (
    0.02  # adaptive window: of all drafts before one to be accepted, so that it is worth verifying
)


class FeFOptions(EndOptions, frozen=True, kw_only=True):
    """steps: diffusion steps; all of a block's finish before the next block starts. window: most
    drafts verified at once. speculative: False decodes one position at a time from its target.
    draft: the backbone of the draft probs (None: the target's). remask_fraction: share of a block's
    predicted positions that is re-corrupted after a step, the least confident first. remask_below:
    of these, only those less confident than this (None: all; not in the paper). confidence_scope:
    "all" ranks every position by its latest confidence, "pass" only those committed in the last
    pass (Algorithm 2 read literally). kernel: the forward kernel of re-corruption, at its last
    time: "absorbing" masks positions, "uniform" draws them anew, and a response of masks then
    starts from such draws.

    verify: "full" gives the paper's target; "two-stream" another one, at the cost of tokens instead
    of rows (two_stream.py; the backbone must have `extend`). With "two-stream", anchor: unresolved
    positions per context pass (None: all of the step's), which windows do not cross; refresh_below:
    a position with a best token of less probability gets a new context pass, which gives it the
    paper's target (None: never); order: "confidence" resolves a segment from its most confident
    position on. skip_root_row, reuse_drafts, adaptive_window: exact savings (see DraftSource).

    logits_eos_inf takes EOS out of draft and target; confidence_eos_eot_inf takes EOS and EoT out
    of the confidence that ranks positions for re-masking. stop_at_eos: in the last step, once all
    before an EOS is resolved.
    """

    steps: Annotated[int, Meta(ge=1, le=1000)] = 2
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
        full = self.verify == "full"
        savings = ("skip_root_row", "reuse_drafts", "adaptive_window")
        two_stream = {"anchor": None, "refresh_below": None, "order": "left-to-right"}
        alone = [name for name, usual in two_stream.items() if getattr(self, name) != usual]
        if full and alone:
            raise ValueError(
                f"{alone[0]}={getattr(self, alone[0])!r} needs verify='two-stream', not 'full'"
            )
        if not full and self.reuse_drafts:
            raise ValueError(
                f"reuse_drafts needs verify='full', not {self.verify!r}, whose draft passes cost"
                " little"
            )
        if not self.speculative and any(getattr(self, name) for name in savings):
            raise ValueError(f"{', '.join(savings)} need speculative=True: they save drafts")


class DraftSource:
    """Proposes the drafts of a window, and keeps between windows what saves a pass or a row.

    excluded: ids without probability. The savings leave the output distribution as it is: accepting
    with min(1, pi / rho) and correcting from the residual gives pi for every rho that is fixed
    before the drafts are drawn from it (Theorem 1). So draft probs may come from anywhere; only
    acceptance changes: * reuse_drafts: they come from the row of a verification in which just the
    accepted drafts were filled in or, after
      re-masking, from the step before. Two streams would compute more for that than a pass costs.
    * skip_root_row: where rho is pi itself, the draft is accepted for certain, and its row is not
    run. * adaptive_window: how many drafts are verified is a function of rho, fixed before the
    drafts are drawn.
    """

    def __init__(
        self, request: Request, verifier: Verifier, options: FeFOptions, excluded: list[int]
    ) -> None:
        self._request = request
        self._verifier = verifier
        self._options = options
        self._excluded = excluded
        self._one_model = request.draft.is_model_of(request.backbone)
        self._draft_logits: PositionLogits = {}  # of positions to come, which need no further pass
        # with reuse_drafts, the step's: the next step's draft logits
        self._target_logits: PositionLogits = {}
        self._first_is_target = False  # at the next position the draft logits are the target's

    def begin_block(self) -> None:
        """Nothing is kept of another block."""
        self._draft_logits = {}
        self._target_logits = {}
        self._first_is_target = False

    def begin_step(self) -> None:
        """After re-masking: the target logits of the step before are draft logits of this one."""
        self._draft_logits = self._target_logits
        self._target_logits = {}
        self._first_is_target = False

    def propose(self, segment: list[int]) -> Proposal:
        """Drafts of the first positions of a segment, at most a window of them; none without
        speculation."""
        if self._verifier.context and self._one_model:
            self._draft_logits = self._verifier.context
            self._first_is_target = True
        if not self._options.speculative:
            return Proposal([], None, None)
        window = segment[: self._options.window]
        if any(at not in self._draft_logits for at in window):
            self._draft_logits = self._verifier.draft(segment)
            self._first_is_target = self._one_model
        logits_WV = torch.stack([self._draft_logits[at] for at in window])
        if self._options.adaptive_window:
            logits_WV = logits_WV[self._chances(segment, logits_WV) >= LEAST_CHANCE]
        probs_WV = token_probs(logits_WV, self._request.temperature, exclude=self._excluded)
        tokens = draw(probs_WV, self._request.temperature, self._request.sampler).tolist()
        first_target_1V = (
            logits_WV[:1] if self._options.skip_root_row and self._first_is_target else None
        )
        return Proposal(tokens, probs_WV, first_target_1V, logits_WV)

    def update(
        self, segment: list[int], proposal: Proposal, verified: Verified, accepted: int
    ) -> None:
        """Keep what a verified window leaves for the next one; all stays where nothing was
        verified."""
        if not len(verified.logits_WV):
            return
        all_accepted = accepted == len(proposal.tokens)
        if self._options.reuse_drafts:
            resolved = segment[: accepted + (not all_accepted)]
            self._target_logits.update(zip(resolved, verified.logits_WV, strict=False))
            self._draft_logits = verified.next_drafts.get(accepted, {})
            self._first_is_target = all_accepted
        else:
            self._draft_logits = self._draft_logits if all_accepted else {}
            self._first_is_target = False

    def _chances(self, segment: list[int], logits_WV: torch.Tensor) -> torch.Tensor:
        """By the draft probs, the chance of each position that all before it are accepted and not
        in doubt, (W,)."""
        accepted_W = token_probs(logits_WV, 1.0, exclude=self._excluded).amax(1)
        doubtful_W = self._verifier.in_doubt(segment, accepted_W)
        if self._first_is_target:
            accepted_W[0] = 1
        accepted_W[doubtful_W] = 0
        return torch.cat([accepted_W.new_ones(1), accepted_W.cumprod(0)[:-1]])


class Commits:
    """Commits the tokens of verified windows; verifier and drafts then advance.

    predicted: the positions that the decoder fills (J_pred). excluded: ids without probability;
    unranked: ids without confidence. confidence: of the latest tokens at the block's positions (C).
    after_eos: with stop_at_eos, what is left of the response once everything up to an EOS is
    resolved.
    """

    def __init__(
        self,
        request: Request,
        verifier: Verifier,
        drafts: DraftSource,
        options: FeFOptions,
        predicted: list[int],
        excluded: list[int],
        unranked: list[int],
    ) -> None:
        self._request = request
        self._verifier = verifier
        self._drafts = drafts
        self._options = options
        self._predicted = predicted
        self._excluded = excluded
        self._unranked = unranked
        self._block = range(0)
        self._step = 0
        self._round = 0
        self.confidence: dict[int, float] = {}
        self.after_eos: list[int] = []

    def begin_block(self, block: range) -> list[int]:
        """The predicted positions of a block, all of which are unresolved."""
        self._block = block
        self.confidence = {}
        self._drafts.begin_block()
        return [at for at in self._predicted if at in block]

    def begin_step(self, step: int) -> None:
        """The next windows are of this diffusion step."""
        self._step = step
        self._round = 0
        if self._options.confidence_scope == "pass":
            self.confidence = {}

    def commit(
        self,
        unresolved: list[int],
        segment: list[int],
        proposal: Proposal,
        verified: Verified,
        tokens: list[int],
        accepted: int,
    ) -> list[int]:
        """Put tokens, the first `accepted` of them drafts, at the first positions of the segment;
        there may be none.

        Returns the positions that are still unresolved; none once an EOS ends the response.
        """
        resolved = segment[: len(tokens)]
        if tokens:
            # pi(token) at temperature 1
            probs_N = verified.probs_of(tokens, exclude=self._unranked)
            rest: How = "corrected" if proposal.tokens else "drawn"
            how: list[How] = [
                "accepted" if number < accepted else rest for number in range(len(tokens))
            ]
            if accepted and proposal.first_target_1V is not None:
                how[0] = "known"
            self._request.commit(resolved, tokens, probs_N, how)
            if self._options.speculative:
                self._record(segment, proposal, verified, len(tokens), accepted)
            self._round += 1
            self.confidence |= dict(zip(resolved, probs_N.tolist(), strict=True))
        self._drafts.update(segment, proposal, verified, accepted)
        self._verifier.advance(len(tokens), accepted)
        left = [at for at in unresolved if at not in resolved]
        if self._options.stop_at_eos and self._step == self._options.steps - 1:
            end = min(left, default=self._block.stop)
            if self._request.has_eos(end):
                self.after_eos = [at for at in self._predicted if at >= end]
                return []
        return left

    def _record(
        self,
        segment: list[int],
        proposal: Proposal,
        verified: Verified,
        committed: int,
        accepted: int,
    ) -> None:
        """Note the window, and before it the drafts that it rejected."""
        request = self._request
        proposed = min(len(verified.logits_WV), len(proposal.tokens))
        drafts = slice(accepted, proposed)

        def rejected() -> Rejected:
            tokens = proposal.tokens[drafts]
            assert proposal.logits_WV is not None
            of_draft = Verified(proposal.logits_WV[drafts], {})
            of_target = Verified(verified.logits_WV[drafts], {})
            probs = (
                each.probs_of(tokens, exclude=self._excluded) for each in (of_draft, of_target)
            )
            return Rejected(segment[drafts], tokens, *probs)

        if accepted < proposed:
            request.reject(rejected)
        window = Window(
            self._step, self._round, segment[0] - request.start, proposed, accepted, committed
        )
        request.record(window, segment[: max(proposed, committed)])

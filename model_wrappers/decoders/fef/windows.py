"""Where FeF-DLLM's drafts come from, and the exact savings: draft probs that need no pass, rows that need not run.

Shapes: W window, V vocabulary.
"""

import torch

from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.targets import PositionLogits, Proposal, Verified, Verifier
from model_wrappers.request import Request
from model_wrappers.sampling import draw, token_probs

LEAST_CHANCE = 0.02  # adaptive window: of all drafts before one to be accepted, so that it is worth verifying


class DraftSource:
    """Proposes the drafts of a window, and keeps between windows what saves a pass or a row.

    draft_logits: those of positions to come, which need no further pass. first_is_target: at the next position they are
    the target's own. target_logits: with reuse_drafts, the step's, which serve the next step as draft logits.
    excluded: ids without probability.

    Why the output distribution stays the same: accepting with min(1, pi / rho) and correcting from the residual gives
    pi for every rho that is fixed before the drafts are drawn from it (Theorem 1). So draft probs may come from
    anywhere, only acceptance changes:
    * reuse_drafts: from the row of a verification in which just the accepted drafts were filled in, or, after
      re-masking, from the step before. With full verification alone: two streams would compute more to that end than a
      pass costs.
    * skip_root_row: where rho is pi itself, the draft is accepted for certain, and its row is not run.
    * adaptive_window: how many drafts are verified is a function of rho, fixed before the drafts are drawn.
    """

    def __init__(self, request: Request, verifier: Verifier, options: FeFOptions, excluded: list[int]) -> None:
        self._request, self._verifier, self._options, self._excluded = request, verifier, options, excluded
        self._one_model = request.draft.is_model_of(request.backbone)
        self._draft_logits: PositionLogits = {}
        self._target_logits: PositionLogits = {}
        self._first_is_target = False

    def begin_block(self) -> None:
        """Nothing is kept of another block."""
        self._draft_logits, self._target_logits, self._first_is_target = {}, {}, False

    def begin_step(self) -> None:
        """After re-masking: the target logits of the step before are draft logits of this one."""
        self._draft_logits, self._target_logits, self._first_is_target = self._target_logits, {}, False

    def propose(self, segment: list[int]) -> Proposal:
        """Drafts of the first positions of a segment, at most a window of them; none without speculation."""
        if self._verifier.context and self._one_model:
            self._draft_logits, self._first_is_target = self._verifier.context, True
        if not self._options.speculative:
            return Proposal([], None, None)
        window = segment[: self._options.window]
        if any(at not in self._draft_logits for at in window):
            self._draft_logits, self._first_is_target = self._verifier.draft(segment), self._one_model
        logits_WV = torch.stack([self._draft_logits[at] for at in window])
        if self._options.adaptive_window:
            logits_WV = logits_WV[self._chances(segment, logits_WV) >= LEAST_CHANCE]
        probs_WV = token_probs(logits_WV, self._request.temperature, exclude=self._excluded)
        tokens = draw(probs_WV, self._request.temperature, self._request.sampler).tolist()
        first_target_1V = logits_WV[:1] if self._options.skip_root_row and self._first_is_target else None
        return Proposal(tokens, probs_WV, first_target_1V, logits_WV)

    def update(self, segment: list[int], proposal: Proposal, verified: Verified, accepted: int) -> None:
        """Keep what a verified window leaves for the next one; all stays where nothing was verified.

        accepted: how many drafts were.
        """
        if not len(verified.logits_WV):
            return
        all_accepted = accepted == len(proposal.tokens)
        if self._options.reuse_drafts:
            resolved = segment[: accepted + (not all_accepted)]
            self._target_logits.update(zip(resolved, verified.logits_WV, strict=False))
            self._draft_logits, self._first_is_target = verified.next_drafts.get(accepted, {}), all_accepted
        else:
            self._draft_logits, self._first_is_target = self._draft_logits if all_accepted else {}, False

    def _chances(self, segment: list[int], logits_WV: torch.Tensor) -> torch.Tensor:
        """By the draft probs, the chance of each position that all before it are accepted and not in doubt, (W,)."""
        accepted_W = token_probs(logits_WV, 1.0, exclude=self._excluded).amax(1)
        doubtful_W = self._verifier.in_doubt(segment, accepted_W)
        if self._first_is_target:
            accepted_W[0] = 1
        accepted_W[doubtful_W] = 0
        return torch.cat([accepted_W.new_ones(1), accepted_W.cumprod(0)[:-1]])

"""What a verified window leaves: committed tokens and their confidences, the window, its rejected drafts."""

from functools import partial

from model_wrappers.decoders.fef.drafts import DraftSource
from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.decoders.fef.targets import Proposal, Verified, Verifier
from model_wrappers.request import Request
from model_wrappers.trace import How, Rejected, Window


class Commits:
    """Commits the tokens of verified windows, and tells verifier and drafts what became of them.

    predicted: the positions of the response that the decoder fills (J_pred). excluded: ids without probability;
    unranked: ids without confidence. confidence: of the block's positions, of their latest tokens (C). after_eos: with
    stop_at_eos, what is left of the response once everything up to an EOS is resolved.
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
        self._request, self._verifier, self._drafts, self._options = request, verifier, drafts, options
        self._predicted, self._excluded, self._unranked = predicted, excluded, unranked
        self._block, self._step, self._round = range(0), 0, 0
        self.confidence: dict[int, float] = {}
        self.after_eos: list[int] = []

    def begin_block(self, block: range) -> list[int]:
        """The predicted positions of a block, all of which are unresolved."""
        self._block, self.confidence = block, {}
        self._drafts.begin_block()
        return [at for at in self._predicted if at in block]

    def begin_step(self, step: int) -> None:
        """The next windows are of this diffusion step."""
        self._step, self._round = step, 0
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
        """Put tokens at the first positions of the segment; what is unresolved after it, nothing once an EOS ends all.

        accepted: how many of the tokens are drafts. There may be no tokens.
        """
        resolved = segment[: len(tokens)]
        if tokens:
            probs_N = verified.probs_of(tokens, exclude=self._unranked)  # pi(token) at temperature 1
            self._request.commit(resolved, tokens, probs_N, _how(len(tokens), accepted, proposal))
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
        self, segment: list[int], proposal: Proposal, verified: Verified, committed: int, accepted: int
    ) -> None:
        """Note the window, and before it the drafts that it rejected."""
        request, proposed = self._request, min(len(verified.logits_WV), len(proposal.tokens))
        if accepted < proposed:
            request.reject(partial(_rejected, segment, proposal, verified, slice(accepted, proposed), self._excluded))
        window = Window(self._step, self._round, segment[0] - request.start, proposed, accepted, committed)
        request.record(window, segment[: max(proposed, committed)])


def _how(committed: int, accepted: int, proposal: Proposal) -> list[How]:
    rest: How = "corrected" if proposal.tokens else "drawn"
    first: How = "accepted" if proposal.first_target_1V is None else "known"
    return [(first if number == 0 else "accepted") if number < accepted else rest for number in range(committed)]


def _rejected(
    segment: list[int], proposal: Proposal, verified: Verified, drafts: slice, excluded: list[int]
) -> Rejected:
    """These drafts of a window, with what draft and target give them."""
    assert proposal.logits_WV is not None
    tokens = proposal.tokens[drafts]
    draft, target = (
        Verified(logits_WV[drafts], {}).probs_of(tokens, exclude=excluded)
        for logits_WV in (proposal.logits_WV, verified.logits_WV)
    )
    return Rejected(segment[drafts], tokens, draft, target)

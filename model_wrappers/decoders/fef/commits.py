"""What a verified window leaves behind: committed tokens, their confidences, the window and its rejected drafts."""

from functools import partial

from model_wrappers.decoders.fef.targets import Proposal, Verified
from model_wrappers.request import Request
from model_wrappers.trace import How, Rejected, Window


class Commits:
    """Commits the tokens of verified windows and notes the windows.

    speculative: whether there are windows to note. never: ids without probability; unsure: those without confidence.
    """

    def __init__(self, request: Request, speculative: bool, never: list[int], unsure: list[int]) -> None:
        self._request, self._speculative, self._never, self._unsure = request, speculative, never, unsure
        self._step = self._round = 0

    def begin_step(self, step: int) -> None:
        """The diffusion step that the next windows are of."""
        self._step, self._round = step, 0

    def commit(
        self, segment: list[int], proposal: Proposal, verified: Verified, tokens: list[int], accepted: int
    ) -> dict[int, float]:
        """Put tokens at the first positions of the segment; returns their confidence, pi(token) at temperature 1.

        accepted: how many of them are drafts. Without tokens nothing happens.
        """
        if not tokens:
            return {}
        request, resolved = self._request, segment[: len(tokens)]
        probs_N = verified.probs_of(tokens, exclude=self._unsure)
        request.commit(resolved, tokens, probs_N, _how(len(tokens), accepted, proposal))
        if self._speculative:
            proposed = min(len(verified.logits_WV), len(proposal.tokens))
            if accepted < proposed:
                numbers = range(accepted, proposed)
                request.reject(partial(_rejected, segment, proposal, verified, numbers, self._never))
            start = resolved[0] - request.start
            window = Window(self._step, self._round, start, proposed, accepted, len(tokens))
            request.record(window, segment[: max(proposed, len(tokens))])
        self._round += 1
        return dict(zip(resolved, probs_N.tolist(), strict=True))


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

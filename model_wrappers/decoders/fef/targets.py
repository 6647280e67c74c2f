"""FeF-DLLM's targets by the paper's verification, one row a draft.

The target at each of a window's positions j_1, j_2, ... is its distribution given the drafts before
it; it does not depend on the drafts at and after it. two_stream.py has another verification, on
cached keys and values. Shapes: L length of prompt and response, W window, V vocabulary, R rows, N
positions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.request import Request
from model_wrappers.sampling import hold_ends_back, without

PositionLogits = dict[int, Tensor]  # position in the sequence -> logits (V,)


class Proposal(NamedTuple):
    """The drafts of a window; none without speculation.

    Attributes:
        tokens: the W drafts.
        token_W: the same, LongTensor on the model's device.
        logits_WV: the logits that they were drawn from.
        probs_WV: the distributions that they were drawn from, rho; empty at temperature 0.
        first_is_target: whether the first position's logits are the target's own, so that its
            verification can be left out.
    """

    tokens: list[int]
    token_W: Tensor = torch.empty(0)
    logits_WV: Tensor = torch.empty(0)
    probs_WV: Tensor = torch.empty(0)
    first_is_target: bool = False


class Targets(NamedTuple):
    """The targets of a window, and draft logits for later positions.

    Attributes:
        logits_WV: logits of the targets, pi, one for each position.
        next_drafts: n -> draft logits of the positions after the first n drafts, given just these.
        limit_1: LongTensor (1,), the number of positions before the first that needs a new context
            pass (None: no position ever does).
    """

    logits_WV: Tensor
    next_drafts: dict[int, PositionLogits]
    limit_1: Tensor | None = None


class FullVerifier:
    """The paper's verification: row m of a batch has the drafts before position m filled in.

    With `reuse_drafts` a verification also returns draft logits of later positions. All logits are
    -inf at ids that neither draft nor target may have: the mask and, by option, EOS.

    Attributes:
        context: logits at a segment's positions from the context pass of `segment`, at the first
            one the target's own; {} if there is no such pass.
    """

    def __init__(self, request: Request, options: FeFOptions) -> None:
        self._backbone = request.backbone
        self._draft = request.draft
        self._x_1L = request.x_1L
        self._options = options
        self.context: PositionLogits = {}

    def segment(self, unresolved: list[int]) -> list[int]:
        """The positions that the next windows are taken from, in their order.

        Here these are all unresolved positions, as every pass runs the whole sequence.
        """
        return unresolved

    def in_doubt(self, segment: list[int], best_W: Tensor) -> Tensor:
        """Which positions need a new context pass first, bool (W,).

        Here none does: every target is conditioned on all resolved tokens.

        Args:
            segment: the unresolved positions of the segment.
            best_W: the probability of the likeliest token at each position.
        """
        return torch.zeros_like(best_W, dtype=torch.bool)

    def draft(self, segment: list[int]) -> PositionLogits:
        """Draft logits of the next window, from one forward of the present sequence."""
        window = segment[: self._options.window]
        logits_1WV = self._draft.logits(self._x_1L, positions=torch.tensor(window))
        return dict(zip(window, self._restricted(logits_1WV[0]), strict=True))

    def _restricted(self, logits: Tensor) -> Tensor:
        """Logits (..., V) with -inf at the mask, and with EOS and EoT lowered as by the options."""
        logits = without(logits, [self._backbone.mask_id])
        return hold_ends_back(logits, self._options, self._backbone)

    def verify(self, segment: list[int], drafts: Proposal) -> Targets:
        """Compute the targets of a window in one batch.

        Args:
            segment: the unresolved positions of the segment; the first ones are the window.
            drafts: the window's drafts.

        Returns:
            One target for each draft; one if there are no drafts.
        """
        width = max(1, len(drafts.tokens))
        first = int(drafts.first_is_target)
        reuse = self._options.reuse_drafts
        # reuse_drafts: whichever drafts will be accepted, the row with just these filled in has the
        # next draft logits. So each row is read a window further, and one more row has all drafts.
        rows = range(first, width + (reuse and width < len(segment)))
        if not rows:
            return Targets(drafts.logits_WV[:1], {})
        inputs_RL = self._x_1L.repeat(len(rows), 1)
        for m, input_L in zip(rows, inputs_RL, strict=True):
            input_L[segment[:m]] = torch.tensor(drafts.tokens[:m], dtype=torch.long)
        # Row m is read at position m, its target, and with reuse_drafts at a window after it. Near
        # the segment's end the last position is repeated, as rows must be read at equally many.
        ahead = self._options.window if reuse else 0
        reads = [segment[m : m + 1 + ahead] for m in rows]
        count = max(map(len, reads))
        padded = [read + read[-1:] * (count - len(read)) for read in reads]
        read_RN = torch.tensor(padded)
        logits_RNV = self._restricted(self._backbone.logits(inputs_RL, positions=read_RN))
        next_drafts = {}
        if reuse:
            for m, read, logits_NV in zip(rows, reads, logits_RNV, strict=True):
                next_drafts[m] = dict(zip(read, logits_NV, strict=False))
        return Targets(with_first(drafts, logits_RNV[: width - first, 0]), next_drafts)


def with_first(drafts: Proposal, logits_NV: Tensor) -> Tensor:
    """Logits of all the window's targets: verified ones, preceded by the first position's if this
    was left out of the verification."""
    if not drafts.first_is_target:
        return logits_NV
    return torch.cat([drafts.logits_WV[:1], logits_NV])

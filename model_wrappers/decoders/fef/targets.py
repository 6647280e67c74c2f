"""FeF-DLLM's targets by the paper's verification, with one row of a batch for each draft.

The target at each of a window's positions j_1, j_2, ... is the model's distribution there, given
the drafts before it; it does not depend on the drafts at and after it. two_stream.py has another
verification, on cached keys and values. Shapes: L length of prompt and response, W window, V
vocabulary, R rows, N positions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from model_wrappers.decoders.fef.options import FeFOptions
from model_wrappers.request import Request
from model_wrappers.sampling import hold_ends_back, without

PositionLogits = dict[int, Tensor]  # position in the sequence -> logits (V,)


class Proposal(NamedTuple):
    """The drafts of a window; without speculation there are none.

    Attributes:
        tokens: the W drafts.
        token_W: the same as a LongTensor on the model's device.
        logits_WV: the logits that they were drawn from; if first_is_target, row 0 is there even
            without drafts.
        probs_WV: rho, the distributions that they were drawn from; empty at temperature 0.
        first_is_target: whether row 0 of logits_WV is the target's, so that the first position
            needs no verification.
    """

    tokens: list[int]
    token_W: Tensor = torch.empty(0)
    logits_WV: Tensor = torch.empty(0)
    probs_WV: Tensor = torch.empty(0)
    first_is_target: bool = False


class Targets(NamedTuple):
    """The targets of a window, and draft logits for later positions.

    Attributes:
        logits_WV: the logits of the targets, pi, one row for each of the window's positions.
        next_drafts: n -> draft logits of the following positions, if exactly the first n drafts are
            accepted; {} without reuse_drafts.
        limit_1: LongTensor (1,), how many of the window's positions can be resolved before one
            needs a new context pass (None: all).
    """

    logits_WV: Tensor
    next_drafts: dict[int, PositionLogits]
    limit_1: Tensor | None = None


class FullVerifier:
    """The paper's verification: row m of a batch has the drafts before position m filled in.

    With `reuse_drafts` a verification also returns draft logits of later positions. All logits are
    -inf at the mask, which is never drawn, and held back at EOS and EoT by option.

    Attributes:
        context: position -> draft logits (V,) from the last context pass, the forward with which a
            verifier of another kind begins a segment; at the segment's first position they are the
            target's. Always {} here, where no such pass is needed.
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
        """Logits (..., V), -inf at the mask, with EOS and EoT held back as the options say."""
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
        # Row m has the first m drafts filled in. With reuse_drafts its logits after position m are
        # the next drafts if just these are accepted. So each row is read a window further, and one
        # more row has all drafts, if positions remain.
        rows = range(first, width + int(reuse and width < len(segment)))
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
                # Not strict: a row's logits go on with the repeated last position.
                next_drafts[m] = dict(zip(read, logits_NV, strict=False))
        return Targets(with_first_target(drafts, logits_RNV[: width - first, 0]), next_drafts)


def with_first_target(drafts: Proposal, logits_NV: Tensor) -> Tensor:
    """The logits (W, V) of all targets of a window: the verified ones, after the first position's
    if the verification left it out."""
    if not drafts.first_is_target:
        return logits_NV
    return torch.cat([drafts.logits_WV[:1], logits_NV])

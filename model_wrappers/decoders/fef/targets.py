"""Where FeF-DLLM's targets come from: the paper's verification, one row a draft.

Targets are, for the positions j_1, j_2, ... of a window, the distribution of each given the drafts
before it and nothing of those after it. two_stream.py has another verification, on top of cached
keys and values. Shapes: L length of prompt and response, W window, V vocabulary, R rows, N
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
        tokens: W drafts.
        token_W: the same, where the model is.
        logits_WV: what they were drawn from.
        probs_WV: their distributions, rho; empty at temperature 0.
        first_is_target: the first position's logits are the target's own, so that the verification
            leaves it out.
    """

    tokens: list[int]
    token_W: Tensor = torch.empty(0)
    logits_WV: Tensor = torch.empty(0)
    probs_WV: Tensor = torch.empty(0)
    first_is_target: bool = False


class Targets(NamedTuple):
    """The targets of a window, and draft logits of positions to come.

    Attributes:
        logits_WV: logits of the targets, pi, one for each position.
        next_drafts: by the number of accepted drafts, the logits of the positions after these given
            these alone.
        limit_1: LongTensor (1,), how many of the positions come before one that needs another
            context first; None where none does.
    """

    logits_WV: Tensor
    next_drafts: dict[int, PositionLogits]
    limit_1: Tensor | None = None


class FullVerifier:
    """The paper's: input m of a batch is the sequence with the drafts before position m filled in.

    With `reuse_drafts` a verification gives draft logits of the positions to come, too. All logits
    have -inf at ids without probability in draft and target: the mask and, if it is to be, EOS.

    Attributes:
        context: logits at a segment's positions from the pass that `segment` has made, the target's
            own at the first one; {} where it makes none.
    """

    def __init__(self, request: Request, options: FeFOptions) -> None:
        self._backbone = request.backbone
        self._draft = request.draft
        self._x_1L = request.x_1L
        self._options = options
        self.context: PositionLogits = {}

    def segment(self, unresolved: list[int]) -> list[int]:
        """The positions that windows are taken of next, in their order.

        Here these are all: every pass runs the whole sequence.
        """
        return unresolved

    def in_doubt(self, segment: list[int], best_W: Tensor) -> Tensor:
        """Which positions need another context first, bool (W,).

        Here none does: every target is conditioned on all that is resolved.

        Args:
            segment: what is unresolved of it.
            best_W: the probability of each position's best token.
        """
        return torch.zeros_like(best_W, dtype=torch.bool)

    def draft(self, segment: list[int]) -> PositionLogits:
        """Draft logits of the next window, from one forward of the sequence as it is."""
        window = segment[: self._options.window]
        logits_1WV = self._draft.logits(self._x_1L, positions=torch.tensor(window))
        return dict(zip(window, self._restricted(logits_1WV[0]), strict=True))

    def _restricted(self, logits: Tensor) -> Tensor:
        """Logits (..., V) without the mask, and with ends as the options have them."""
        logits = without(logits, [self._backbone.mask_id])
        return hold_ends_back(logits, self._options, self._backbone)

    def verify(self, segment: list[int], drafts: Proposal) -> Targets:
        """The targets of a window's positions, from one batch.

        Args:
            segment: what is unresolved of it, the window first.
            drafts: of the window.

        Returns:
            As many targets as there are drafts, one if there are none.
        """
        width = max(1, len(drafts.tokens))
        first = int(drafts.first_is_target)
        reuse = self._options.reuse_drafts
        # For the next drafts one more row has all drafts, and every row is read a window further.
        rows = range(first, width + (reuse and width < len(segment)))
        if not rows:
            return Targets(drafts.logits_WV[:1], {})
        inputs_RL = self._x_1L.repeat(len(rows), 1)
        for m, input_L in zip(rows, inputs_RL, strict=True):
            input_L[segment[:m]] = torch.tensor(drafts.tokens[:m], dtype=torch.long)
        ahead = self._options.window if reuse else 0
        reads = [segment[m : m + 1 + ahead] for m in rows]
        longest = max(map(len, reads))
        filled = [read + read[-1:] * (longest - len(read)) for read in reads]
        read_RN = torch.tensor(filled)
        logits_RNV = self._restricted(self._backbone.logits(inputs_RL, positions=read_RN))
        next_drafts = {}
        if reuse:
            for m, read, logits_NV in zip(rows, reads, logits_RNV, strict=True):
                next_drafts[m] = dict(zip(read, logits_NV, strict=False))
        return Targets(with_first(drafts, logits_RNV[: width - first, 0]), next_drafts)


def with_first(drafts: Proposal, logits_NV: Tensor) -> Tensor:
    """Verified logits, after those of the first position where these are known."""
    if not drafts.first_is_target:
        return logits_NV
    return torch.cat([drafts.logits_WV[:1], logits_NV])

"""KLASS: commit every position that is confident and stable (Kim et al., arXiv 2511.05664).

A position is committed when its confidence exceeds one threshold and, for `history` steps in a row,
the KL divergence of its distribution from that of the step before was below another. If there is
none, the most confident position is committed. A step also reads the next block, so that the first
step there can be compared with the last one here. Shapes: M positions whose logits are read, V
vocabulary.
"""

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Candidates, Choice, UnmaskOptions, unmask
from model_wrappers.options import NotNegative, Positive, Share
from model_wrappers.request import Request
from model_wrappers.transfers import to_device, to_host

EPSILON = 1e-12  # the official code's, in the logarithms of the divergence


class KLASSOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options of the decoder `klass`.

    Attributes:
        conf_threshold: the confidence above which a position may be committed.
        kl_threshold: the KL divergence, in nats, below which a position is stable.
        history: number of successive steps at which it must be stable.
    """

    conf_threshold: Share = 0.9
    kl_threshold: NotNegative = 0.01
    history: Positive = 2


def decode_klass(request: Request, options: KLASSOptions) -> None:
    """Fill the response."""
    stability = Stability(request, options)
    unmask(stability.choice, stability, stability.propose, block_only=True)


class Stability:
    """KLASS's rule (`llada.Rule`), with each position's last distribution and stable steps."""

    def __init__(self, request: Request, options: KLASSOptions) -> None:
        self.choice = Choice(request, options, exact=True)
        self._request = request
        self._options = options
        length = request.x_1L.shape[1]
        # Each position's row in _probs_MV, the latest probs; -1 if it was not read then.
        self._row_L = torch.full((length,), -1)
        self._probs_MV = torch.empty(0)
        # How many steps in a row each position was stable.
        self._stable_L = torch.zeros(length, dtype=torch.long)

    def propose(self, x_1L: Tensor, position_N: Tensor) -> Candidates:
        """The candidates of a step, from a forward that also reads the masks of the next block."""
        block = self._request.block_length
        end = self._request.block_end(int(position_N[0]))
        next_block = range(end, min(end + block, self.choice.cache.readable.stop))
        ahead_A = position_N[:0]
        if next_block:
            ahead_A = self._request.masked(end, next_block.stop)
        read_M = torch.cat([position_N, ahead_A])
        logits_MV = self.choice.cache.logits(x_1L, read_M)
        candidates = self.choice(logits_MV)
        self._compare(read_M, candidates.logits_NV)
        return Candidates(*(part[: len(position_N)] for part in candidates))

    def _compare(self, read_M: Tensor, logits_MV: Tensor) -> None:
        """Compare distributions with those of the step before, and count stable steps."""
        probs_MV = torch.softmax(logits_MV, -1, dtype=torch.float32)
        row_M = self._row_L[read_M]
        is_known_M = row_M >= 0
        is_calm_M = torch.zeros_like(is_known_M)
        if bool(is_known_M.any()):
            # Unknown positions take row 0, so that shapes agree; their result is not used.
            (row_before_M,) = to_device(probs_MV.device, row_M.clamp(min=0))
            before_MV = self._probs_MV.index_select(0, row_before_M)
            ratio_MV = (probs_MV + EPSILON).log() - (before_MV + EPSILON).log()
            (divergence_M,) = to_host((probs_MV * ratio_MV).sum(-1))
            is_calm_M = is_known_M & (divergence_M < self._options.kl_threshold)
        self._stable_L[read_M] = torch.where(is_calm_M, self._stable_L[read_M] + 1, 0)
        self._probs_MV = probs_MV
        # A distribution counts only at the very next step: with a dual cache the next block is read
        # at the first step of this block and then not again.
        self._row_L.fill_(-1)
        self._row_L[read_M] = torch.arange(len(read_M))

    def steps(self, masked: int) -> int:
        return masked

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        """Select all confident and stable candidates, or else the most confident one."""
        confidence_N = candidates.confidence_N
        history = self._options.history
        ready_N = (self._stable_L[position_N] >= history) & (
            confidence_N > self._options.conf_threshold
        )
        # In a block's first steps the official code commits by confidence alone, whatever was
        # stable before.
        if step < history - 1 or not bool(ready_N.any()):
            return confidence_N, 1
        return confidence_N.masked_fill(~ready_N, -torch.inf), int(ready_N.sum())

"""Commit all positions of a step that are confident enough: by threshold, by factor, by entropy
budget.

LLaDA's loop with another commit rule; at least one position is committed a step. `threshold` and
`factor`: Fast-dLLM (Wu et al., arXiv 2505.22618). `entropy`: EB-Sampler (Ben-Hamu et al., arXiv
2505.24857). Outside the FeF-DLLM paper. Shapes: N candidates, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Candidates, Choice, UnmaskOptions, unmask
from model_wrappers.options import AboveZero, NotNegative, Share
from model_wrappers.request import Request
from model_wrappers.transfers import to_host


class ThresholdOptions(UnmaskOptions, frozen=True, kw_only=True):
    """tau: least confidence of a committed position."""

    tau: Share = 0.9


class FactorOptions(UnmaskOptions, frozen=True, kw_only=True):
    """f: bound on (n + 1)(1 - c_(n)), c_(n) the n-th highest confidence."""

    f: AboveZero = 1.0


class EntropyOptions(UnmaskOptions, frozen=True, kw_only=True):
    """gamma: nats a step."""

    gamma: NotNegative = 0.1


class Sure:
    """As many candidates as a rule ranks sure enough, and at least one.

    Args:
        rank: gives scores (N,) of candidates, the highest to be committed first, and how many are
            sure.
    """

    def __init__(self, rank: Callable[[Candidates], tuple[Tensor, int]]) -> None:
        self._rank = rank

    def steps(self, masked: int) -> int:
        return masked

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        score_N, count = self._rank(candidates)
        return score_N, max(1, count)


def decode_threshold(request: Request, options: ThresholdOptions) -> None:
    """Fill the response, committing all positions of confidence tau or more."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        return candidates.confidence_N, int((candidates.confidence_N >= options.tau).sum())

    unmask(choice_of(request, options), Sure(rank))


def decode_factor(request: Request, options: FactorOptions) -> None:
    """Fill the response, committing the largest n with (n + 1)(1 - c_(n)) < f, c_(n) the n-th
    highest confidence."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        ranked_N = candidates.confidence_N.sort(descending=True).values
        n_N = torch.arange(1, len(ranked_N) + 1)
        return candidates.confidence_N, last_true((n_N + 1) * (1 - ranked_N) < options.f)

    unmask(choice_of(request, options), Sure(rank))


def decode_entropy(request: Request, options: EntropyOptions) -> None:
    """Fill the response within an entropy budget of gamma nats a step: the largest set, lowest
    entropy first, whose summed entropy less its maximum is at most gamma."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        probs_NV = torch.softmax(candidates.logits_NV, -1, dtype=torch.float32)
        (entropy_N,) = to_host(torch.special.entr(probs_NV).sum(-1))
        ranked_N = entropy_N.sort().values
        return -entropy_N, last_true(ranked_N.cumsum(0) - ranked_N <= options.gamma)

    unmask(choice_of(request, options), Sure(rank))


def last_true(fits_N: Tensor) -> int:
    """How many candidates there are up to the last one that fits."""
    places = fits_N.nonzero()
    return int(places[-1]) + 1 if len(places) else 0


def choice_of(request: Request, options: UnmaskOptions) -> Choice:
    """LLaDA's choice with confidences as exact as in the official code: at 0.99999999 float32 knows
    no order any more."""
    return Choice(request, options, exact=True)

"""Commit all positions of a step that are confident enough: by threshold, by factor, by entropy
budget.

LLaDA's loop with another commit rule; at least one position is committed a step. `threshold` and
`factor`: Fast-dLLM (Wu et al., arXiv 2505.22618). `entropy`: EB-Sampler (Ben-Hamu et al., arXiv
2505.24857). With fallback="leftmost" they are Fork-dLLM's (arXiv 2609.39859). Outside the FeF-DLLM
paper. Shapes: N candidates, V vocabulary.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Candidates, Choice, UnmaskOptions, unmask
from model_wrappers.options import AboveZero, NotNegative, Share
from model_wrappers.request import Request
from model_wrappers.transfers import to_host


class SureOptions(UnmaskOptions, frozen=True, kw_only=True):
    """What the three decoders share.

    Attributes:
        fallback: what a step commits where no position is sure enough: the surest one, or the
            leftmost one, so that a choice that forks the text is made in its order.
    """

    fallback: Literal["surest", "leftmost"] = "surest"


class ThresholdOptions(SureOptions, frozen=True, kw_only=True):
    """tau: least confidence of a committed position."""

    tau: Share = 0.9


class FactorOptions(SureOptions, frozen=True, kw_only=True):
    """f: bound on (n + 1)(1 - c_(n)), c_(n) the n-th highest confidence."""

    f: AboveZero = 1.0


class EntropyOptions(SureOptions, frozen=True, kw_only=True):
    """gamma: nats a step."""

    gamma: NotNegative = 0.1


class Sure:
    """As many candidates as a rule ranks sure enough, and at least one.

    Args:
        rank: gives scores (N,) of candidates, the highest to be committed first, and how many are
            sure.
        options: what is committed where none is.
    """

    def __init__(
        self, rank: Callable[[Candidates], tuple[Tensor, int]], options: SureOptions
    ) -> None:
        self._rank = rank
        self._fallback = options.fallback

    def steps(self, masked: int) -> int:
        return masked

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        score_N, count = self._rank(candidates)
        if count == 0 and self._fallback == "leftmost":
            score_N = -position_N.to(score_N)
        return score_N, max(1, count)


def decode_threshold(request: Request, options: ThresholdOptions) -> None:
    """Fill the response, committing all positions of confidence tau or more."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        return candidates.confidence_N, int((candidates.confidence_N >= options.tau).sum())

    unmask(choice_of(request, options), Sure(rank, options))


def decode_factor(request: Request, options: FactorOptions) -> None:
    """Fill the response, committing the largest n with (n + 1)(1 - c_(n)) < f, c_(n) the n-th
    highest confidence."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        ranked_N = candidates.confidence_N.sort(descending=True).values
        n_N = torch.arange(1, len(ranked_N) + 1)
        return candidates.confidence_N, last_true((n_N + 1) * (1 - ranked_N) < options.f)

    unmask(choice_of(request, options), Sure(rank, options))


def decode_entropy(request: Request, options: EntropyOptions) -> None:
    """Fill the response within an entropy budget of gamma nats a step: the largest set, lowest
    entropy first, whose summed entropy less its maximum is at most gamma."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        probs_NV = torch.softmax(candidates.logits_NV, -1, dtype=torch.float32)
        (entropy_N,) = to_host(torch.special.entr(probs_NV).sum(-1))
        ranked_N = entropy_N.sort().values
        count = last_true(ranked_N.cumsum(0) - ranked_N <= options.gamma)
        # One alone is within the budget whatever its entropy: that is the fallback.
        if float(ranked_N[0]) > options.gamma:
            count = 0
        return -entropy_N, count

    unmask(choice_of(request, options), Sure(rank, options))


def last_true(fits_N: Tensor) -> int:
    """How many candidates there are up to the last one that fits."""
    places = fits_N.nonzero()
    return int(places[-1]) + 1 if len(places) else 0


def choice_of(request: Request, options: UnmaskOptions) -> Choice:
    """LLaDA's choice with confidences as exact as in the official code: at 0.99999999 float32 knows
    no order any more."""
    return Choice(request, options, exact=True)

"""Commit every position that is confident enough: by a threshold, a factor, or an entropy budget.

They are LLaDA's loop with another commit rule, by which each step commits at least one position.
`threshold` and `factor` are Fast-dLLM's (Wu et al., arXiv 2505.22618), `entropy` is EB-Sampler
(Ben-Hamu et al., arXiv 2505.24857); with fallback="leftmost" they are Fork-dLLM's (arXiv
2609.39859). The FeF-DLLM paper has none of them. Shapes: N candidates, V vocabulary.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Candidates, Choice, UnmaskOptions, unmask
from model_wrappers.options import AboveZero, NotNegative, Share
from model_wrappers.request import Request
from model_wrappers.transfers import to_host


class FallbackOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options that the three decoders share.

    Attributes:
        fallback: the one position that a step commits if none is confident enough: the most
            confident ("surest") or the leftmost. By the leftmost, a token that decides how the text
            goes on is chosen before the text after it.
    """

    fallback: Literal["surest", "leftmost"] = "surest"


class ThresholdOptions(FallbackOptions, frozen=True, kw_only=True):
    """Options of the decoder `threshold`.

    Attributes:
        tau: the least confidence at which a position is committed.
    """

    tau: Share = 0.9


class FactorOptions(FallbackOptions, frozen=True, kw_only=True):
    """Options of the decoder `factor`.

    Attributes:
        f: a step commits the largest n with (n + 1)(1 - c_(n)) < f, c_(n) being the n-th highest
            confidence.
    """

    f: AboveZero = 1.0


class EntropyOptions(FallbackOptions, frozen=True, kw_only=True):
    """Options of the decoder `entropy`.

    Attributes:
        gamma: the entropy budget of a step, in nats.
    """

    gamma: NotNegative = 0.1


class ConfidentRule:
    """The commit rule (`llada.Rule`) that takes all confident candidates, and at least one.

    Args:
        rank: returns the candidates' scores (N,), of which the highest are committed first, and the
            number of candidates that are confident enough (0 to N).
        options: what to commit if that number is 0.
    """

    def __init__(
        self, rank: Callable[[Candidates], tuple[Tensor, int]], options: FallbackOptions
    ) -> None:
        self._rank = rank
        self._fallback = options.fallback

    # A step commits at least one position, so that a block takes at most a step for each mask.
    def steps(self, masked: int) -> int:
        return masked

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        score_N, count = self._rank(candidates)
        if count == 0 and self._fallback == "leftmost":
            score_N = -position_N.to(score_N)
        return score_N, max(1, count)


def unmask_confident(
    request: Request,
    options: FallbackOptions,
    rank: Callable[[Candidates], tuple[Tensor, int]],
) -> None:
    """LLaDA's loop by a `ConfidentRule`.

    Confidences are as exact as in the official code, which has float64: near 0.99999999 float32
    confidences are all equal, and no longer rank positions.
    """
    unmask(Choice(request, options, exact=True), ConfidentRule(rank, options))


def decode_threshold(request: Request, options: ThresholdOptions) -> None:
    """Fill the response; a step commits all positions of confidence tau or more."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        return candidates.confidence_N, int((candidates.confidence_N >= options.tau).sum())

    unmask_confident(request, options, rank)


def decode_factor(request: Request, options: FactorOptions) -> None:
    """Fill the response; a step commits the largest n with (n + 1)(1 - c_(n)) < f, where c_(n) is
    the n-th highest confidence (Fast-dLLM)."""

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        ranked_N = candidates.confidence_N.sort(descending=True).values
        n_N = torch.arange(1, len(ranked_N) + 1)
        # The paper's rule. PC-Sampler's code also commits the lowest confidence if that alone is
        # too low (docs/parity.md).
        return candidates.confidence_N, last_true((n_N + 1) * (1 - ranked_N) < options.f)

    unmask_confident(request, options, rank)


def decode_entropy(request: Request, options: EntropyOptions) -> None:
    """Fill the response within an entropy budget of gamma nats a step.

    A step commits the largest set of lowest entropies whose sum without its maximum is at most
    gamma (EB-Sampler).
    """

    def rank(candidates: Candidates) -> tuple[Tensor, int]:
        probs_NV = torch.softmax(candidates.logits_NV, -1, dtype=torch.float32)
        (entropy_N,) = to_host(torch.special.entr(probs_NV).sum(-1))
        ranked_N = entropy_N.sort().values
        # The maximum of the first n is the n-th: the sum without it is the sum of those before.
        count = last_true(ranked_N.cumsum(0) - ranked_N <= options.gamma)
        # A single position is within the budget whatever its entropy (its sum without the maximum
        # is 0). Above gamma it counts as none, so that the fallback decides which one it is.
        if float(ranked_N[0]) > options.gamma:
            count = 0
        return -entropy_N, count

    unmask_confident(request, options, rank)


def last_true(fits_N: Tensor) -> int:
    """The number of candidates up to and including the last one that fits; 0 if none does."""
    indices = fits_N.nonzero()
    return int(indices[-1]) + 1 if len(indices) else 0

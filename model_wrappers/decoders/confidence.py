"""Commit all positions of a step that are confident enough: by threshold, by factor, by entropy
budget.

LLaDA's loop with another commit rule; at least one position is committed a step. `threshold` and
`factor`: Fast-dLLM (Wu et al., arXiv 2505.22618). `entropy`: EB-Sampler (Ben-Hamu et al., arXiv
2505.24857). Outside the FeF-DLLM paper. Shapes: N candidates, V vocabulary.
"""

import torch

from model_wrappers.decoders.llada import Candidates, Choice, Rule, UnmaskOptions, unmask
from model_wrappers.options import AboveZero, NotNegative, Share
from model_wrappers.request import Request


class ThresholdOptions(UnmaskOptions, frozen=True, kw_only=True):
    """tau: least confidence of a committed position."""

    tau: Share = 0.9


class FactorOptions(UnmaskOptions, frozen=True, kw_only=True):
    """f: bound on (n + 1)(1 - c_(n)), c_(n) the n-th highest confidence."""

    f: AboveZero = 1.0


class EntropyOptions(UnmaskOptions, frozen=True, kw_only=True):
    """gamma: nats a step."""

    gamma: NotNegative = 0.1


class Threshold:
    """All positions with a confidence of at least tau."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def steps(self, masked: int) -> int:
        return masked

    def select(
        self, step: int, position_N: torch.Tensor, candidates: Candidates
    ) -> tuple[torch.Tensor, int]:
        return candidates.confidence_N, max(1, int((candidates.confidence_N >= self._limit).sum()))


class Factor(Threshold):
    """The largest n with (n + 1)(1 - c_(n)) < f, c_(n) the n-th highest confidence."""

    def select(
        self, step: int, position_N: torch.Tensor, candidates: Candidates
    ) -> tuple[torch.Tensor, int]:
        ranked_N = candidates.confidence_N.double().sort(descending=True).values
        n_N = torch.arange(1, len(ranked_N) + 1, device=ranked_N.device)
        fits = ((n_N + 1) * (1 - ranked_N) < self._limit).nonzero()
        return candidates.confidence_N, int(fits[-1]) + 1 if len(fits) else 1


class Entropy(Threshold):
    """The largest set, lowest entropy first, whose summed entropy less its maximum is at most
    gamma."""

    def select(
        self, step: int, position_N: torch.Tensor, candidates: Candidates
    ) -> tuple[torch.Tensor, int]:
        entropy_N = torch.distributions.Categorical(logits=candidates.logits_NV.double()).entropy()
        ranked_N = entropy_N.sort().values
        fits = (ranked_N.cumsum(0) - ranked_N <= self._limit).nonzero()
        return -entropy_N, int(fits[-1]) + 1 if len(fits) else 1


def decode_threshold(request: Request, options: ThresholdOptions) -> None:
    """Fill the response, committing all positions of confidence tau or more."""
    _decode(request, options, Threshold(options.tau))


def decode_factor(request: Request, options: FactorOptions) -> None:
    """Fill the response, committing the largest n with (n + 1)(1 - c_(n)) < f."""
    _decode(request, options, Factor(options.f))


def decode_entropy(request: Request, options: EntropyOptions) -> None:
    """Fill the response within an entropy budget of gamma nats a step."""
    _decode(request, options, Entropy(options.gamma))


def _decode(request: Request, options: UnmaskOptions, rule: Rule) -> None:
    # Confidences in float64, as in the official code: at 0.99999999 float32 knows no order any
    # more.
    unmask(Choice(request, options, torch.float64), rule)

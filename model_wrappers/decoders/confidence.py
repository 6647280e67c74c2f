"""Commit as many positions a step as the model is sure of: by threshold, by factor, by entropy budget.

LLaDA's loop with another commit rule. `threshold` and `factor`: Fast-dLLM (Wu et al., arXiv 2505.22618). `entropy`:
EB-Sampler (Ben-Hamu et al., arXiv 2505.24857). At least one position is committed a step. Outside the FeF-DLLM paper;
they are what a user would pick instead. Shapes: L length, N candidates, V vocabulary.
"""

from __future__ import annotations

import torch

from model_wrappers.decoders.llada import Choice, unmask
from model_wrappers.request import Request
from model_wrappers.trace import Window


class Threshold:
    """All positions whose confidence is at least tau."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def steps(self, masked: int) -> int:
        return masked

    def select(self, step: int, logits_NV: torch.Tensor, confidence_N: torch.Tensor) -> tuple[torch.Tensor, int]:
        return confidence_N, max(1, int((confidence_N >= self._limit).sum()))


class Factor(Threshold):
    """The largest n with (n + 1)(1 - c_(n)) < f, c_(n) the n-th highest confidence."""

    def select(self, step: int, logits_NV: torch.Tensor, confidence_N: torch.Tensor) -> tuple[torch.Tensor, int]:
        ranked_N = confidence_N.double().sort(descending=True).values
        n_N = torch.arange(1, len(ranked_N) + 1, device=ranked_N.device)
        fits = ((n_N + 1) * (1 - ranked_N) < self._limit).nonzero()
        return confidence_N, int(fits[-1]) + 1 if len(fits) else 1


class Entropy(Threshold):
    """The largest set, lowest entropy first, whose summed entropy less its maximum is at most gamma."""

    def select(self, step: int, logits_NV: torch.Tensor, confidence_N: torch.Tensor) -> tuple[torch.Tensor, int]:
        entropy_N = torch.distributions.Categorical(logits=logits_NV.double()).entropy()
        ranked_N = entropy_N.sort().values
        fits = (ranked_N.cumsum(0) - ranked_N <= self._limit).nonzero()
        return -entropy_N, int(fits[-1]) + 1 if len(fits) else 1


def threshold(
    request: Request,
    *,
    tau: float = 0.9,
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place, committing all positions of confidence tau or more.

    The EOS options are LLaDA's. Raises ValueError for bad tau.
    """
    if not 0 <= tau <= 1:
        raise ValueError(f"tau={tau} must lie in [0, 1]")
    choice = Choice(request, logits_eos_inf, confidence_eos_eot_inf)
    unmask(request, choice.propose, Threshold(tau), stop_at_eos)
    return []


def factor(
    request: Request,
    *,
    f: float = 1.0,
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place, committing the largest n with (n + 1)(1 - c_(n)) < f.

    The EOS options are LLaDA's. Raises ValueError for bad f.
    """
    if not 0 < f < float("inf"):
        raise ValueError(f"f={f} must be positive and finite")
    choice = Choice(request, logits_eos_inf, confidence_eos_eot_inf)
    unmask(request, choice.propose, Factor(f), stop_at_eos)
    return []


def entropy(
    request: Request,
    *,
    gamma: float = 0.1,
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place within an entropy budget of gamma nats a step.

    The EOS options are LLaDA's. Raises ValueError for bad gamma.
    """
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"gamma={gamma} must be finite and not negative")
    choice = Choice(request, logits_eos_inf, confidence_eos_eot_inf)
    unmask(request, choice.propose, Entropy(gamma), stop_at_eos)
    return []

"""Discrete diffusion: forward kernels, the posterior, the reverse step (Austin et al., D3PM; the paper's Section 2).

Time runs from 0 (clean) to 1. A kernel gives Qbar(t), an (S, S) matrix whose row x_0 is the distribution of x_t
given x_0, and Q(s, t) with Qbar(s) Q(s, t) = Qbar(t). Corruption is independent across positions. Shapes: S states (the
vocabulary, the mask included), N positions. Probs are float64.
"""

from __future__ import annotations

from typing import Protocol

import torch

from model_wrappers.sampling import Sampler

KERNELS = ("absorbing", "uniform", "nearest")
MAX_RATE = 20.0  # at t = 1 the nearest-neighbour chain has run this long: near its uniform limit on a connected graph


class Kernel(Protocol):
    """A forward corruption process."""

    states: int

    def cumulative(self, t: float) -> torch.Tensor:
        """Qbar(t), (S, S): row x_0 is the distribution of x_t. Raises ValueError for t outside [0, 1]."""
        ...

    def between(self, s: float, t: float) -> torch.Tensor:
        """Q(s, t), (S, S): row x_s is the distribution of x_t. Raises ValueError unless 0 <= s <= t <= 1."""
        ...

    def corrupt(self, clean_N: torch.Tensor, t: float, sampler: Sampler) -> torch.Tensor:
        """x_t ~ q(x_t | x_0), each position on its own: LongTensor (N,). Raises ValueError for t outside [0, 1]."""
        ...


class Mixture:
    """A token stays with probability 1 - t; else it is drawn from a limit distribution (S,), whatever it was."""

    def __init__(self, limit_S: torch.Tensor) -> None:
        self.states = len(limit_S)
        self._limit_S = limit_S.double()

    def cumulative(self, t: float) -> torch.Tensor:
        return self._matrix(1 - _time(t))

    def between(self, s: float, t: float) -> torch.Tensor:
        return self._matrix(_kept(s, t))

    def corrupt(self, clean_N: torch.Tensor, t: float, sampler: Sampler) -> torch.Tensor:
        # The matrix is not built: it has as many entries as the square of the vocabulary's size.
        stays_N2 = torch.tensor([_time(t), 1 - _time(t)], dtype=torch.float64).expand(len(clean_N), 2)
        moved_N = (sampler.tokens(stays_N2) == 0).nonzero()[:, 0].to(clean_N.device)
        return clean_N.index_put((moved_N,), self._anew(len(moved_N), sampler).to(clean_N))

    def _anew(self, count: int, sampler: Sampler) -> torch.Tensor:
        """Draws from the limit distribution, (count,)."""
        return sampler.tokens(self._limit_S.expand(count, self.states))

    def _matrix(self, kept: float) -> torch.Tensor:
        return kept * torch.eye(self.states, dtype=torch.float64) + (1 - kept) * self._limit_S[None]


class Absorbing(Mixture):
    """A token stays with probability 1 - t and becomes the mask with probability t."""

    def __init__(self, states: int, mask_id: int) -> None:
        if not 0 <= mask_id < states:
            raise ValueError(f"mask_id={mask_id} is not one of the {states} states")
        super().__init__(torch.arange(states) == mask_id)
        self._mask_id = mask_id

    def _anew(self, count: int, sampler: Sampler) -> torch.Tensor:
        return torch.full((count,), self._mask_id)


class Uniform(Mixture):
    """A token stays with probability 1 - t and is drawn anew from all tokens, the mask not being one, with t."""

    def __init__(self, states: int, mask_id: int | None = None) -> None:
        limit_S = torch.ones(states, dtype=torch.float64)
        if mask_id is not None:
            limit_S[mask_id] = 0
        super().__init__(limit_S / limit_S.sum())


class Nearest:
    """A token walks to its nearest neighbours in embedding space (D3PM, Appendix A.2.4): Qbar(t) = exp(r(t) R).

    R is the rate matrix of the symmetrised k-nearest-neighbour graph, its rows summing to 0, and r(t) = -log(1 - t), at
    most MAX_RATE.
    """

    def __init__(self, embeddings_SD: torch.Tensor, neighbours: int = 5) -> None:
        self.states = len(embeddings_SD)
        if not 1 <= neighbours < self.states:
            raise ValueError(f"neighbours={neighbours} must lie between 1 and {self.states - 1}")
        distance_SS = torch.cdist(embeddings_SD.double(), embeddings_SD.double()).fill_diagonal_(torch.inf)
        near_SS = torch.zeros_like(distance_SS).scatter_(1, distance_SS.topk(neighbours, largest=False).indices, 1.0)
        rate_SS = (near_SS + near_SS.T) / (2 * neighbours)
        self._rate_SS = rate_SS - torch.diag(rate_SS.sum(1))

    def cumulative(self, t: float) -> torch.Tensor:
        return torch.linalg.matrix_exp(_rate(_time(t)) * self._rate_SS)

    def between(self, s: float, t: float) -> torch.Tensor:
        if not 0 <= s <= t <= 1:
            raise ValueError(f"times s={s} and t={t} must satisfy 0 <= s <= t <= 1")
        return torch.linalg.matrix_exp((_rate(t) - _rate(s)) * self._rate_SS)

    def corrupt(self, clean_N: torch.Tensor, t: float, sampler: Sampler) -> torch.Tensor:
        return sampler.tokens(self.cumulative(t)[clean_N.cpu()]).to(clean_N)


class Chain:
    """Any chain, given by its matrices Q_1 .. Q_T (T, S, S), rows summing to 1; a time is rounded to a step of it."""

    def __init__(self, steps_TSS: torch.Tensor) -> None:
        steps_TSS = steps_TSS.double()
        if steps_TSS.dim() != 3 or bool((steps_TSS < 0).any()) or bool(((steps_TSS.sum(2) - 1).abs() > 1e-9).any()):
            raise ValueError("a chain needs matrices of shape (T, S, S) whose rows are distributions")
        self._steps_TSS = steps_TSS
        self.states = steps_TSS.shape[2]

    def cumulative(self, t: float) -> torch.Tensor:
        return self.between(0.0, _time(t))

    def between(self, s: float, t: float) -> torch.Tensor:
        if not 0 <= s <= t <= 1:
            raise ValueError(f"times s={s} and t={t} must satisfy 0 <= s <= t <= 1")
        first, last = (round(time * len(self._steps_TSS)) for time in (s, t))
        product_SS = torch.eye(self.states, dtype=torch.float64)
        for step_SS in self._steps_TSS[first:last]:
            product_SS = product_SS @ step_SS
        return product_SS

    def corrupt(self, clean_N: torch.Tensor, t: float, sampler: Sampler) -> torch.Tensor:
        return sampler.tokens(self.cumulative(t)[clean_N.cpu()]).to(clean_N)


def make_kernel(
    name: str, states: int, mask_id: int | None = None, embeddings_SD: torch.Tensor | None = None
) -> Kernel:
    """A kernel by name. Raises ValueError for an unknown name, or where what the kernel needs is missing."""
    if name == "absorbing" and mask_id is not None:
        return Absorbing(states, mask_id)
    if name == "uniform":
        return Uniform(states, mask_id)
    if name == "nearest" and embeddings_SD is not None:
        return Nearest(embeddings_SD)
    if name in KERNELS:
        raise ValueError(f"kernel {name!r} needs {'mask_id' if name == 'absorbing' else 'embeddings'}")
    raise ValueError(f"unknown kernel {name!r}; valid: {', '.join(KERNELS)}")


def posterior(kernel: Kernel, x_t_N: torch.Tensor, x_0_N: torch.Tensor, s: float, t: float) -> torch.Tensor:
    """q(x_s | x_t, x_0), (N, S): x_t Q(s, t)^T * x_0 Qbar(s) / (x_0 Qbar(t) x_t^T).

    Raises ValueError where x_t has probability 0 given x_0.
    """
    evidence_N1 = kernel.cumulative(t)[x_0_N].gather(1, x_t_N[:, None])
    if bool((evidence_N1 <= 0).any()):
        raise ValueError("x_t has probability 0 given x_0 under this kernel")
    return kernel.between(s, t)[:, x_t_N].T * kernel.cumulative(s)[x_0_N] / evidence_N1


def reverse(kernel: Kernel, x_t_N: torch.Tensor, predicted_NS: torch.Tensor, s: float, t: float) -> torch.Tensor:
    """p(x_s | x_t), (N, S): the posterior averaged over predicted probs of x_0, (N, S), given x_t.

    The average is over those x_0 from which x_t is possible; the prediction is renormalised to them.
    """
    likelihood_NS = kernel.cumulative(t)[:, x_t_N].T  # q(x_t | x_0) for each x_0
    weight_NS = torch.where(likelihood_NS > 0, predicted_NS.double(), 0.0)
    weight_NS = weight_NS / weight_NS.sum(1, keepdim=True)
    ratio_NS = torch.where(likelihood_NS > 0, weight_NS / likelihood_NS, 0.0)
    return (ratio_NS @ kernel.cumulative(s)) * kernel.between(s, t)[:, x_t_N].T


def _time(t: float) -> float:
    if not 0 <= t <= 1:
        raise ValueError(f"time t={t} must lie in [0, 1]")
    return float(t)


def _kept(s: float, t: float) -> float:
    """The share of what is left at s that is left at t."""
    if not 0 <= s <= t <= 1:
        raise ValueError(f"times s={s} and t={t} must satisfy 0 <= s <= t <= 1")
    return 1.0 if s == t else (1 - t) / (1 - s)


def _rate(t: float) -> float:
    return min(MAX_RATE, float(-torch.log1p(torch.tensor(-t, dtype=torch.float64)))) if t < 1 else MAX_RATE

"""Discrete diffusion: the forward kernels (Austin et al., D3PM; the paper's Section 2).

Time t runs from 0 (clean) to 1. A kernel is a matrix Qbar(t), (S, S), whose row x_0 is the
distribution of x_t given x_0. Each position is corrupted independently. Shapes: S states (the
vocabulary with the mask), N positions. Probs are float64.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from model_wrappers.sampling import Sampler


class Kernel:
    """A forward process: a token stays with probability 1 - t, and is otherwise drawn from a limit
    distribution (S,)."""

    def __init__(self, limit_S: Tensor) -> None:
        self.states = len(limit_S)
        self._limit_S = limit_S.double()

    def cumulative(self, t: float) -> Tensor:
        """Qbar(t), (S, S): row x_0 is the distribution of x_t."""
        return (1 - t) * torch.eye(self.states, dtype=torch.float64) + t * self._limit_S[None]

    def corrupt(self, clean_N: Tensor, t: float, sampler: Sampler) -> Tensor:
        """Draw x_t ~ q(x_t | x_0), each position on its own.

        Args:
            clean_N: LongTensor (N,), x_0.
            t: time, 0 to 1.
            sampler: draws which positions change, and their new tokens.

        Returns:
            LongTensor (N,).
        """
        # Without the matrix Qbar, which has as many entries as the vocabulary squared.
        stays_2 = torch.tensor([t, 1 - t], dtype=torch.float64)
        stays_N = sampler.tokens(stays_2.expand(len(clean_N), 2))
        moved_N = (stays_N == 0).nonzero()[:, 0].to(clean_N.device)
        return clean_N.index_put((moved_N,), self._from_limit(len(moved_N), sampler).to(clean_N))

    def _from_limit(self, count: int, sampler: Sampler) -> Tensor:
        """Draws from the limit distribution, (count,)."""
        return sampler.tokens(self._limit_S.expand(count, self.states))


class Absorbing(Kernel):
    """A token stays with probability 1 - t and becomes the mask with probability t."""

    def __init__(self, states: int, mask_id: int) -> None:
        super().__init__(torch.arange(states) == mask_id)
        self._mask_id = mask_id

    def _from_limit(self, count: int, sampler: Sampler) -> Tensor:
        return torch.full((count,), self._mask_id)


class Uniform(Kernel):
    """A token stays with probability 1 - t and is drawn from all tokens but the mask with
    probability t."""

    def __init__(self, states: int, mask_id: int | None = None) -> None:
        limit_S = torch.ones(states, dtype=torch.float64)
        if mask_id is not None:
            limit_S[mask_id] = 0
        super().__init__(limit_S / limit_S.sum())


# Kernels by name; each is made from the number of states and the mask's id.
KERNELS: dict[str, Callable[[int, int], Kernel]] = {"absorbing": Absorbing, "uniform": Uniform}

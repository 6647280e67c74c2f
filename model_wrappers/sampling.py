"""Rules that decoders share, as pure functions, and the one object that all their randomness goes through.

Shapes: N positions, V vocabulary. A law is a float64 probability vector: at that precision two different confidences
near 1 stay different, so which positions are re-masked does not depend on the shape of a batch.
"""

from __future__ import annotations

import torch


class Sampler:
    """Draws for a decoder. A test or an audit replaces it by one that walks through every branch."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def tokens(self, law_NV: torch.Tensor) -> torch.Tensor:
        """One token from each of N laws: LongTensor (N,) on the laws' device."""
        # On the CPU, whatever the device of the laws: the same seed then gives the same draws everywhere.
        drawn_N = torch.multinomial(law_NV.cpu(), 1, generator=self._generator)[:, 0]
        return drawn_N.to(law_NV.device)

    def accept(self, probability: float) -> bool:
        """True with this probability: u < probability for a uniform u in [0, 1)."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64)) < probability

    def order(self, count: int) -> torch.Tensor:
        """A uniformly random permutation of 0 .. count - 1."""
        return torch.randperm(count, generator=self._generator)


def law(logits_NV: torch.Tensor, temperature: float, exclude: int | None = None) -> torch.Tensor:
    """softmax(logits / T) in float64, (N, V); at T = 0 the point mass on the argmax. `exclude` gets probability 0."""
    logits_NV = logits_NV.double()
    if exclude is not None:
        logits_NV = logits_NV.index_fill(-1, torch.tensor([exclude], device=logits_NV.device), -torch.inf)
    if temperature > 0:
        return torch.softmax(logits_NV / temperature, -1)
    return torch.zeros_like(logits_NV).scatter_(-1, logits_NV.argmax(-1, keepdim=True), 1.0)


def draw(law_NV: torch.Tensor, temperature: float, sampler: Sampler) -> torch.Tensor:
    """One token from each law, LongTensor (N,); a point mass (T = 0) needs no draw."""
    return sampler.tokens(law_NV) if temperature > 0 else law_NV.argmax(-1)


def residual(target_V: torch.Tensor, draft_V: torch.Tensor) -> torch.Tensor:
    """norm(max(0, pi - rho)), the law of a corrected token (the paper's residual distribution), (V,)."""
    excess_V = (target_V - draft_V).clamp_min(0)
    return excess_V / excess_V.sum()


def quotas(count: int, steps: int) -> list[int]:
    """How many of `count` positions each of `steps` steps commits: even, the first ones take the remainder."""
    base, extra = divmod(count, steps)
    return [base + (step < extra) for step in range(steps)]


def lowest(confidence: dict[int, float], count: int) -> list[int]:
    """The `count` keys of lowest value, ties to the lowest key."""
    return sorted(sorted(confidence), key=confidence.__getitem__)[:count]

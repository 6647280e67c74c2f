"""Rules that decoders share, as pure functions, and the one object that all their randomness goes
through.

Shapes: N positions, W window, V vocabulary. Probs are float64: at that precision two different
confidences near 1 stay different, so which positions are re-masked does not depend on the shape of
a batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class Sampler:
    """Draws for a decoder. A test or an audit replaces it by one that walks through every branch.

    Raises ValueError for a seed that torch does not take.
    """

    def __init__(self, seed: int) -> None:
        try:
            self._generator = torch.Generator().manual_seed(seed)
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"seed={seed!r} must be a whole number of 64 bits") from error

    def tokens(self, probs_NV: Tensor) -> Tensor:
        """One token from each of N distributions: LongTensor (N,) on their device."""
        # On the CPU, whatever the device of the probs: the same seed then gives the same draws
        # everywhere.
        drawn_N = torch.multinomial(probs_NV.cpu(), 1, generator=self._generator)[:, 0]
        return drawn_N.to(probs_NV.device)

    def noise(self, count: int, vocab_size: int) -> Tensor:
        """Tokens that are uniform over the vocabulary: LongTensor (count,), on the CPU."""
        return torch.randint(vocab_size, (count,), generator=self._generator)

    def accept(self, probability: float) -> bool:
        """True with this probability: u < probability for a uniform u in [0, 1)."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64)) < probability

    def order(self, count: int) -> Tensor:
        """A uniformly random permutation of 0 .. count - 1."""
        return torch.randperm(count, generator=self._generator)


def token_probs(
    logits_NV: Tensor, temperature: float, exclude: int | Sequence[int] | None = None
) -> Tensor:
    """softmax(logits / T) in float64, (N, V); at T = 0 the point mass on the argmax. `exclude` gets
    probability 0."""
    if exclude is not None:
        several = [exclude] if isinstance(exclude, int) else exclude
        excluded = torch.tensor(several, dtype=torch.long, device=logits_NV.device)
        logits_NV = logits_NV.index_fill(-1, excluded, -torch.inf)
    if temperature > 0:
        return torch.softmax(logits_NV.double() / temperature, -1)
    return torch.zeros_like(logits_NV, dtype=torch.float64).scatter_(
        -1, likeliest(logits_NV)[..., None], 1.0
    )


def likeliest(values_NV: Tensor) -> Tensor:
    """The token of the highest value in each row, the first of equal ones: LongTensor (N,)."""
    return values_NV.max(-1).indices  # on a CPU in half the time that argmax takes


def draw(probs_NV: Tensor, temperature: float, sampler: Sampler) -> Tensor:
    """One token from each distribution, LongTensor (N,); a point mass (T = 0) needs no draw."""
    return sampler.tokens(probs_NV) if temperature > 0 else likeliest(probs_NV)


def probs_at(probs_NV: Tensor, token_N: Tensor) -> Tensor:
    """The probability of one token in each row, (N,)."""
    return probs_NV.gather(1, token_N[:, None])[:, 0]


def residual(target_V: Tensor, draft_V: Tensor) -> Tensor:
    """norm(max(0, pi - rho)), (V,), which a corrected token is drawn from; the target where nothing
    exceeds rho."""
    excess_V = (target_V - draft_V).clamp_min(0)
    total = excess_V.sum()
    return excess_V / total if total > 0 else target_V


def speculative_accept(
    target_WV: Tensor,
    draft_WV: Tensor,
    drafts: list[int],
    temperature: float,
    sampler: Sampler,
) -> tuple[list[int], int]:
    """Accept drafts left to right with min(1, pi / rho) and correct the first rejected one (the
    paper's Algorithm 2).

    target_WV, draft_WV: probs pi and rho of the window; drafts: its W tokens, drawn from rho.
    Returns the tokens to commit, and how many of them are accepted drafts; if that is fewer than W,
    the last token is the correction.
    """
    draft_W = torch.tensor(drafts, device=target_WV.device)
    ratio_W = probs_at(target_WV, draft_W) / probs_at(draft_WV, draft_W)
    for m, ratio in enumerate(ratio_W.tolist()):
        if not sampler.accept(min(1.0, ratio)):
            corrected = draw(residual(target_WV[m], draft_WV[m])[None], temperature, sampler)
            return [*drafts[:m], int(corrected)], m
    return drafts, len(drafts)


def in_doubt(best_W: Tensor, below: float | None, fresh: bool) -> Tensor:
    """Which positions of a window need a new context pass first, bool (W,).

    best_W: the probability of the best token, at temperature 1. below: what is too little (None:
    nothing). fresh: the context of the first position is up to date.
    """
    doubtful_W = torch.zeros_like(best_W, dtype=torch.bool) if below is None else best_W < below
    if fresh:
        doubtful_W[0] = False
    return doubtful_W


def quotas(count: int, steps: int) -> list[int]:
    """How many of `count` positions each of `steps` steps commits: even, the first ones take the
    remainder."""
    base, extra = divmod(count, steps)
    return [base + (step < extra) for step in range(steps)]


def lowest(confidence: dict[int, float], count: int) -> list[int]:
    """The `count` keys of lowest value, ties to the lowest key."""
    return sorted(sorted(confidence), key=confidence.__getitem__)[:count]

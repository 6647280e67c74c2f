"""The lemma section of the audit: Lemma 1 in numbers, and FeF-DLLM on the posterior that it is about.

Under the uniform kernel a row does not show which tokens are clean, the hardest case. Everything is summed over the
whole joint p(x_0, x_t); nothing of the lemma's proof is used.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd
import torch

from harness.audit.exact import EXACT, LEVEL, PROMPT, Budget, measure
from harness.audit.oracle import PrefixOracle, posterior_table, random_table, table_law, total_variation
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.decoders.fef import FeFOptions, decode_fef
from model_wrappers.diffusion import Kernel, Uniform
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler
from model_wrappers.trace import Decoded, Trace

TABLES = 4
TIMES = (0.1, 0.5, 0.9)


def joint_of(table: torch.Tensor, kernel: Kernel, t: float) -> torch.Tensor:
    """p(x_0, x_t), shape (R,) * 2d: the clean tokens' axes, then the corrupted ones'."""
    length = table.dim()
    joint = (table / table.sum()).reshape(table.shape + (1,) * length)
    for position in range(length):
        shape = [1] * (2 * length)
        shape[position] = shape[length + position] = table.shape[0]
        joint = joint * kernel.cumulative(t).reshape(shape)
    return joint


def lemma_errors(table: torch.Tensor, kernel: Kernel, t: float) -> tuple[float, float]:
    """The largest errors of Lemma 1's two identities, over all positions, x_t, prefixes and tokens.

    First p(x_0^i | x_t, x_0^{<i}) = p(x_0^i | x_t^{>=i}, x_0^{<i}), then the same against the normalised
    p(x_0^i | x_t) p(x_0^i | x_t^{>i}, x_0^{<i}) / p(x_0^i | x_t^{-i}).
    """
    joint, length = joint_of(table, kernel, t), table.dim()
    errors = [0.0, 0.0]
    for i in range(length):
        before, corrupted = range(i), range(length, 2 * length)

        def given(*axes: int, position: int = i) -> torch.Tensor:
            """p(x_0^i | those axes), the others summed out and kept as axes of size 1."""
            summed = [axis for axis in range(2 * length) if axis != position and axis not in axes]
            marginal = joint.sum(summed, keepdim=True) if summed else joint
            return marginal / marginal.sum(position, keepdim=True)

        posterior = given(*before, *corrupted)
        suffix = given(*before, *corrupted[i:])
        product = given(*corrupted) * given(*before, *corrupted[i + 1 :])
        product = product / given(*corrupted[:i], *corrupted[i + 1 :])
        product = product / product.sum(i, keepdim=True)
        errors = [max(errors[0], _gap(posterior, suffix)), max(errors[1], _gap(posterior, product))]
    return errors[0], errors[1]


def _gap(probs: torch.Tensor, other: torch.Tensor) -> float:
    return float((probs - other).abs().max())


def posterior_distance(
    table: torch.Tensor, t: float, window: int, draft: PrefixOracle | None, budget: Budget
) -> tuple[float, float]:
    """Total variation between FeF's law at one diffusion step, given some x_t, and p(x_0 | x_t); and its bound.

    The target is the exact position-conditioned oracle, and the draft too where it is None. The decoder is called on
    x_t directly, because `decode` takes every token that is not the mask for given.
    """
    kernel, sampler = Uniform(table.shape[0]), Sampler(budget.seed)
    flat = int(sampler.tokens(table.reshape(1, -1)))
    x_0 = torch.tensor([int(axis) for axis in torch.unravel_index(torch.tensor(flat), table.shape)])
    x_t = sampler.tokens(kernel.cumulative(t)[x_0])
    oracle = PrefixOracle(table, kernel, t)

    def run(sampler: Sampler) -> Decoded:
        x_1L = torch.cat([PROMPT, x_t])[None]
        target, drafts = Ledger(oracle), Ledger(oracle if draft is None else draft)
        options = FeFOptions(steps=1, window=window, kernel="uniform")
        decode_fef(Request(target, drafts, x_1L, len(PROMPT), len(x_t), 1.0, sampler), options)
        return Decoded(x_1L[0, len(PROMPT) :], Trace(forwards=target.calls + drafts.calls))

    measured = measure(run, table.numel(), budget)
    truth = table_law(posterior_table(table, kernel, t, x_t.tolist()))
    return total_variation(measured.law, truth), measured.bound(LEVEL / (2 * len(TIMES)))


def audit_lemma(
    tokens: int, positions: int, budget: Budget, progress: Callable[[list[tuple[int, float]]], Any] = iter
) -> pd.DataFrame:
    """Both identities and FeF's law, on random tables of `tokens`^`positions` (seeds from budget.seed on)."""
    kernel = Uniform(tokens)
    grid = [(budget.seed + number, t) for number in range(TABLES) for t in TIMES]
    pairs = [lemma_errors(random_table(tokens, positions, seed), kernel, t) for seed, t in progress(grid)]
    distances = []
    for t in TIMES:
        table, other = (random_table(tokens, positions, budget.seed + number) for number in (0, TABLES))
        distances.append(posterior_distance(table, t, positions, None, budget))
        distances.append(posterior_distance(table, t, 2, PrefixOracle(other, kernel, t), budget))
    worst, bound = max(distances, key=lambda each: each[0] - each[1])
    return pd.DataFrame(
        {
            "claim": [
                "p(x_0^i | x_t, x_0^<i) = p(x_0^i | x_t^>=i, x_0^<i)",
                "... proportional to p(x_0^i | x_t) p(x_0^i | x_t^>i, x_0^<i) / p(x_0^i | x_t^-i)",
                "law of FeF, 1 step, given x_t = p(x_0 | x_t) (total variation)",
            ],
            "cases": [len(pairs), len(pairs), len(distances)],
            "largest error": [max(first for first, _ in pairs), max(second for _, second in pairs), worst],
            "bound": [0.0, 0.0, bound],
        }
    )


def lemma_failures(table: pd.DataFrame) -> list[str]:
    """The claims that do not hold, one line each."""
    wrong = table[table["largest error"] > EXACT + table["bound"]]
    return [f"{claim}: error {error:.3g}" for claim, error in zip(wrong["claim"], wrong["largest error"], strict=True)]

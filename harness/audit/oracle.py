"""What the audit knows exactly: joint laws as tables, backbones with these laws, and samplers that
walk every branch of a decoder's randomness.

A table is a joint law of d tokens, shape (R,) * d for R real tokens. Shapes: B batch, L length, V
vocabulary (the real tokens, the mask and EOS), n positions whose logits are read.
"""

import itertools
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from model_wrappers.diffusion import Kernel
from model_wrappers.options import SampleOptions
from model_wrappers.sampling import Sampler, token_probs

Law = dict[tuple[int, ...], float]
T = TypeVar("T")


class RowBackbone(ABC):
    """A backbone defined by the logits of a single row in float64, `row_logits`, with only the
    members that every backbone must have."""

    def __init__(self, vocab_size: int, mask_id: int, eos_id: int) -> None:
        self.vocab_size = vocab_size
        self.mask_id = mask_id
        self.eos_id = eos_id
        self._known: dict[tuple[tuple[int, ...], bool], torch.Tensor] = {}

    @abstractmethod
    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        """Logits (L, V) of one row."""

    def logits(
        self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        """Logits (B, L, V), or (B, n, V) at positions (n,) of every row or (B, n) of each row's
        own."""
        rows = []
        # Branches of a decoder come back to the same few rows thousands of times.
        for row in map(tuple, ids_BL.tolist()):
            if (row, causal) not in self._known:
                self._known[row, causal] = self.row_logits(row, causal)
            rows.append(self._known[row, causal])
        logits_BLV = torch.stack(rows)
        if positions is None:
            return logits_BLV
        return logits_BLV[torch.arange(len(rows))[:, None], positions.expand(len(rows), -1)]


class TableBackbone(RowBackbone):
    """An oracle: its logits are the logs of the exact marginals of a joint table p(x) over R^d,
    given the response tokens that are not masked.

    The response is the d positions after the prompt. The mask is id R; EOS is R + 1 unless eos_id
    names a real token. Probs are uniform in the prompt, and where the tokens have probability 0.
    With causal=True only the tokens up to a position are evidence for it.
    """

    def __init__(
        self, table: torch.Tensor, prompt_length: int = 1, eos_id: int | None = None
    ) -> None:
        real = table.shape[0]
        super().__init__(real + 1 + (eos_id is None), real, real + 1 if eos_id is None else eos_id)
        self.table = (table / table.sum()).double()
        self._prompt_length = prompt_length

    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        real = self.table.shape[0]
        length = self.table.dim()
        response = row[self._prompt_length :]
        probs_LV = torch.zeros(len(row), self.vocab_size, dtype=torch.float64)
        probs_LV[:, :real] = 1 / real
        for position in range(length):
            # Bayes' rule: the joint times the likelihood of every token seen, then a marginal.
            evidence = self.table
            for other, token in enumerate(response[: position + 1] if causal else response):
                if token != self.mask_id:
                    likelihood_R = self._likelihood(token, other, position)
                    evidence = evidence * likelihood_R.reshape(
                        [-1 if axis == other else 1 for axis in range(length)]
                    )
            if evidence.sum() > 0:
                marginal_R = evidence.movedim(position, 0).reshape(real, -1).sum(1)
                probs_LV[self._prompt_length + position, :real] = marginal_R / marginal_R.sum()
        return probs_LV.log()

    def _likelihood(self, token: int, other: int, position: int) -> torch.Tensor:
        """Probability of seeing `token` at position `other`, given each real token there, (R,)."""
        return (torch.arange(self.table.shape[0]) == token).double()


class PrefixOracle(TableBackbone):
    """The exact position-conditioned target of a corrupted table.

    At position i it is log p(x_0^i | x_0^{<i}, x_t^{>=i}). Tokens before a position are taken as
    clean, those from it on as corrupted at level t, and masks as unobserved. Algorithm 1 trains
    this distribution; Lemma 1 says that it is p(x_0^i | x_t, x_0^{<i}).
    """

    def __init__(
        self, table: torch.Tensor, kernel: Kernel, t: float, prompt_length: int = 1
    ) -> None:
        super().__init__(table, prompt_length)
        self._corruption_RR = kernel.cumulative(t)

    def _likelihood(self, token: int, other: int, position: int) -> torch.Tensor:
        return (
            super()._likelihood(token, other, position)
            if other < position
            else self._corruption_RR[:, token]
        )


class ChoiceSampler(Sampler, ABC):
    """A Sampler whose every draw is a choice among finitely many, made by `_choose`.

    quota: how many of the top ranks of a random `order` the decoder reads, as a set (None: it reads
    the whole order).
    """

    def __init__(self, quota: int | None = None) -> None:
        self._quota = quota

    def tokens(self, probs_NV: torch.Tensor, needed_1: torch.Tensor | None = None) -> torch.Tensor:
        # Tokens that the decoder drops must not branch: each would multiply the number of leaves.
        needed = len(probs_NV) if needed_1 is None else int(needed_1)
        drawn = [self._choose(probs_V) for probs_V in probs_NV[:needed].tolist()]
        return torch.tensor(drawn + [0] * (len(probs_NV) - needed))

    def accepted(self, ratio_W: torch.Tensor) -> torch.Tensor:
        for count, ratio in enumerate(ratio_W.tolist()):
            if not self._choose([1 - min(1.0, ratio), min(1.0, ratio)]):
                return torch.tensor([count])
        return torch.tensor([len(ratio_W)])

    def order(self, count: int) -> torch.Tensor:
        if self._quota is None:
            orders = list(itertools.permutations(range(count)))
            return torch.tensor(orders[self._choose([1 / len(orders)] * len(orders))])
        # Orders with the same set on top decode alike: one branch for all of them.
        tops = list(itertools.combinations(range(count), min(self._quota, count)))
        return torch.zeros(count).index_fill(
            0, torch.tensor(tops[self._choose([1 / len(tops)] * len(tops))]), 1.0
        )

    @abstractmethod
    def _choose(self, probs: Sequence[float]) -> int:
        """An index of positive probability."""


class BranchSampler(ChoiceSampler):
    """Follows a script of choices, then takes the first possible choice everywhere.

    Attributes:
        probability: of the branch taken so far.
        untaken: scripts that lead into all other branches seen after the script.
    """

    def __init__(self, script: tuple[int, ...] = (), quota: int | None = None) -> None:
        super().__init__(quota)
        self._script = script
        self._taken: tuple[int, ...] = ()
        self.probability = 1.0
        self.untaken: list[tuple[int, ...]] = []

    def _choose(self, probs: Sequence[float]) -> int:
        depth = len(self._taken)
        if depth < len(self._script):
            choice = self._script[depth]
        else:
            choice, *others = [index for index, probability in enumerate(probs) if probability > 0]
            self.untaken += [(*self._taken, other) for other in others]
        self._taken = (*self._taken, choice)
        self.probability *= probs[choice]
        return choice


class ProbeSampler(ChoiceSampler):
    """Takes every choice of positive probability equally often; leaves: the product of the numbers
    of choices along its path."""

    def __init__(self, rng: random.Random, quota: int | None = None) -> None:
        super().__init__(quota)
        self._rng = rng
        self.leaves = 1

    def _choose(self, probs: Sequence[float]) -> int:
        support = [index for index, probability in enumerate(probs) if probability > 0]
        self.leaves *= len(support)
        return self._rng.choice(support)


def branches(run: Callable[[Any], T], quota: int | None = None) -> Iterator[tuple[T, float]]:
    """Run a decoder once on every branch of its randomness (depth first).

    Args:
        run: the decoder; all its randomness comes from the sampler that it gets.
        quota: of `ChoiceSampler`.

    Yields:
        The result of run(sampler) and the probability of its branch.

    Raises:
        ArithmeticError: the probabilities do not add up to 1.
    """
    pending: list[tuple[int, ...]] = [()]
    total = 0.0
    while pending:
        sampler = BranchSampler(pending.pop(), quota)
        result = run(sampler)
        total += sampler.probability
        yield result, sampler.probability
        pending += sampler.untaken
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        raise ArithmeticError(f"the branches have probability {total} in all, not 1")


def count_branches(
    run: Callable[[Any], object], probes: int, seed: int = 0, quota: int | None = None
) -> float:
    """An unbiased estimate of how many branches run(sampler) has.

    It is the product of the branching factors along a random path, averaged over `probes` paths.
    Source: Knuth (1975), "Estimating the efficiency of backtrack programs", Mathematics of
    Computation 29, 122-136.
    """
    rng = random.Random(seed)
    total = 0
    for _ in range(probes):
        sampler = ProbeSampler(rng, quota)
        run(sampler)
        total += sampler.leaves
    return total / probes


def total_variation(law: Law, other: Law) -> float:
    """Total variation between two laws: half the sum of the absolute differences."""
    return sum(abs(law.get(x, 0.0) - other.get(x, 0.0)) for x in law.keys() | other.keys()) / 2


def kl(law: Law, other: Law) -> float:
    """KL(law || other) in nats; infinite if `law` has an outcome that `other` has not."""
    terms = [(probability, other.get(x, 0.0)) for x, probability in law.items() if probability > 0]
    if any(q <= 0 for _, q in terms):
        return math.inf
    # For equal laws rounding may give less than 0.
    return max(0.0, sum(p * math.log(p / q) for p, q in terms))


def random_table(real: int, length: int, seed: int = 0) -> torch.Tensor:
    """A joint law of full support over real^length in which the positions depend on one another."""
    # A logit of its own for every sequence makes each position depend on all others.
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn((real,) * length, generator=generator, dtype=torch.float64)
    return torch.softmax(logits.flatten(), 0).reshape(logits.shape)


def table_law(table: torch.Tensor) -> Law:
    """A table, normalised, as a law over tuples of tokens."""
    return {x: float(table[x] / table.sum()) for x in itertools.product(*map(range, table.shape))}


def truncated_table(table: torch.Tensor, options: SampleOptions) -> torch.Tensor:
    """The joint law of tokens drawn from left to right, each from its truncated conditional.

    Args:
        table: the joint before truncation, (R,) * d.
        options: top_p and top_k.

    Returns:
        The product of the truncated p(x_i | x_<i), (R,) * d.
    """
    length = table.dim()
    joint = torch.ones_like(table)
    for position in range(length):
        prefix = table.flatten(position + 1).sum(-1) if position + 1 < length else table
        conditional = token_probs(prefix.log(), 1.0, options=options)
        joint = joint * conditional.reshape(conditional.shape + (1,) * (length - position - 1))
    return joint


def posterior_table(
    table: torch.Tensor, kernel: Kernel, t: float, x_t: Sequence[int]
) -> torch.Tensor:
    """p(x_0 | x_t), shape (R,) * d, of a table whose tokens a kernel corrupted independently.

    Args:
        table: p(x_0), (R,) * d.
        kernel: of the corruption.
        t: its level.
        x_t: the d corrupted tokens.
    """
    joint = table.double()
    for position, token in enumerate(x_t):
        likelihood_R = kernel.cumulative(t)[:, token]
        joint = joint * likelihood_R.reshape(
            [-1 if axis == position else 1 for axis in range(table.dim())]
        )
    return joint / joint.sum()


def information_profile(table: torch.Tensor) -> np.ndarray:
    """h(i), shape (d,): the entropy in nats of a position given i others, a mean over all positions
    and all sets of i others.

    With H_i the mean joint entropy of i positions, h(i) = H_{i+1} - H_i by the chain rule.
    """
    length = table.dim()
    mean = np.zeros(length + 1)
    for size in range(1, length + 1):
        entropies = []
        for axes in itertools.combinations(range(length), size):
            summed = [axis for axis in range(length) if axis not in axes]
            marginal = (table / table.sum()).double()
            marginal = marginal.sum(summed) if summed else marginal
            entropies.append(float(-torch.special.xlogy(marginal, marginal).sum()))
        mean[size] = np.mean(entropies)
    return np.diff(mean)

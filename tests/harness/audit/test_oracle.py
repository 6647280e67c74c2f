"""Oracles, laws and branch walking against brute force."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from enumerated import enumerate_law

from harness.audit.oracle import (
    BranchSampler,
    PrefixOracle,
    TableBackbone,
    branches,
    count_branches,
    information_profile,
    kl,
    posterior_table,
    random_table,
    table_law,
    total_variation,
)
from model_wrappers import decode
from model_wrappers.diffusion import Kernel, Uniform
from model_wrappers.sampling import Sampler

PROMPT = torch.tensor([0])
KERNELS = [Uniform(3), Kernel(torch.tensor([0.5, 0.3, 0.2]))]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)


def likelihood(
    kernel: Kernel, t: float, x_0: tuple[int, ...], x_t: tuple[int, ...], first: int = 0
) -> float:
    """q(x_t | x_0) of the positions from `first` on."""
    q = kernel.cumulative(t)
    return math.prod(float(q[a, b]) for a, b in zip(x_0[first:], x_t[first:], strict=True))


@every_kernel
@pytest.mark.parametrize("t", [0.2, 0.7])
def test_prefix_oracle_is_bayes_rule_on_the_joint(kernel: Kernel, t: float) -> None:
    table, length = random_table(3, 3), 3
    oracle = PrefixOracle(table, kernel, t)
    for row in itertools.product(range(3), repeat=length):
        logits_LV = oracle.logits(torch.tensor([[0, *row]]))[0, 1:]
        for position in range(length):
            weights = [0.0] * 3
            for x_0, probability in table_law(table).items():
                if x_0[:position] == row[:position]:
                    weights[x_0[position]] += probability * likelihood(
                        kernel, t, x_0, row, position
                    )
            expected = [weight / sum(weights) for weight in weights] + [0.0, 0.0]
            assert logits_LV[position].exp().tolist() == pytest.approx(expected, abs=1e-12)


def test_prefix_oracle_reads_a_mask_as_nothing_seen() -> None:
    table, mask = random_table(3, 3), 3
    oracle, clean = PrefixOracle(table, Uniform(3), 0.5), TableBackbone(table)
    row = torch.tensor([[0, 1, mask, mask]])
    torch.testing.assert_close(oracle.logits(row)[0, 2:], clean.logits(row)[0, 2:])


@every_kernel
def test_posterior_is_bayes_rule_on_the_joint(kernel: Kernel) -> None:
    table, x_t = random_table(3, 3), (2, 0, 1)
    weights = {x_0: p * likelihood(kernel, 0.6, x_0, x_t) for x_0, p in table_law(table).items()}
    expected = {x_0: weight / sum(weights.values()) for x_0, weight in weights.items()}
    assert total_variation(table_law(posterior_table(table, kernel, 0.6, x_t)), expected) < 1e-12


def test_posterior_at_the_last_time_is_the_table() -> None:
    table = random_table(2, 3)
    assert (
        total_variation(
            table_law(posterior_table(table, Uniform(2), 1.0, (1, 1, 0))), table_law(table)
        )
        < 1e-12
    )


def test_total_variation_and_divergence_of_known_laws() -> None:
    fair, bent = {(0,): 0.5, (1,): 0.5}, {(0,): 0.9, (1,): 0.1}
    assert total_variation(fair, bent) == pytest.approx(0.4)
    assert kl(fair, bent) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert total_variation(fair, fair) == kl(fair, fair) == 0


def test_laws_without_a_common_outcome_are_farthest_apart() -> None:
    assert total_variation({(0,): 1.0}, {(1,): 1.0}) == 1
    assert kl({(0,): 0.5, (1,): 0.5}, {(0,): 1.0}) == math.inf
    assert kl({(0,): 1.0, (1,): 0.0}, {(0,): 1.0}) == 0


def uneven(sampler: Sampler) -> torch.Tensor:
    """A tree of 1 + 2 + 6 leaves: a three-way choice, then none, one of two, or one of two and one
    of three."""
    (first,) = sampler.tokens(torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)).tolist()
    more = [int(sampler.accepted(torch.tensor([0.5])))] if first else []
    more += (
        sampler.tokens(torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)).tolist()
        if first == 2
        else []
    )
    return torch.tensor([first, *more])


def test_every_branch_is_walked_once() -> None:
    walked = [tuple(tokens.tolist()) for tokens, _ in branches(uneven)]
    assert len(walked) == len(set(walked)) == 9
    assert enumerate_law(uneven)[2, 1, 0] == pytest.approx(0.25 * 0.5 * 0.2)


def test_the_estimate_of_the_branches_is_unbiased() -> None:
    # A probe gives 3, 6 or 18 with probability 1/3 each: mean 9, standard deviation 6.5; six
    # standard errors.
    assert abs(count_branches(uneven, probes=10_000) - 9) < 6 * 6.5 / 100
    assert count_branches(uneven, 10, seed=3) == count_branches(uneven, 10, seed=3)


def test_the_estimate_is_the_count_where_all_branches_are_alike() -> None:
    assert count_branches(lambda sampler: sampler.order(4), probes=1) == 24
    assert count_branches(lambda sampler: sampler.order(4), probes=1, quota=2) == 6


def test_branches_that_do_not_add_up_are_reported() -> None:
    with pytest.raises(ArithmeticError, match="not 1"):
        enumerate_law(lambda sampler: sampler.tokens(torch.tensor([[0.5, 0.4]])))


def test_an_order_with_a_quota_ranks_one_subset_first() -> None:
    orders = [
        order.topk(2).indices.sort().values.tolist()
        for order, _ in branches(lambda s: s.order(3), quota=2)
    ]
    assert sorted(orders) == [[0, 1], [0, 2], [1, 2]]
    assert BranchSampler(quota=5).order(3).tolist() == [1, 1, 1]


@pytest.mark.parametrize("quota", [1, 3])
def test_the_law_of_llada_in_random_order_is_the_same_with_a_quota(quota: int) -> None:
    backbone = TableBackbone(random_table(2, 3))
    options = {"gen_length": 3, "steps": 3 // quota, "temperature": 1.0, "remasking": "random"}
    run = partial(decode, backbone, PROMPT, "llada", **options)
    laws = [
        enumerate_law(lambda sampler: run(sampler=sampler).tokens, top) for top in (None, quota)
    ]
    assert total_variation(*laws) < 1e-12


def test_the_profile_of_independent_positions_is_flat_and_of_copies_falls_to_zero() -> None:
    fair = torch.full((2, 2, 2), 1 / 8)
    assert information_profile(fair) == pytest.approx([math.log(2)] * 3)
    copies = torch.zeros(2, 2, 2)
    copies[0, 0, 0] = copies[1, 1, 1] = 0.5
    assert information_profile(copies) == pytest.approx([math.log(2), 0, 0])


def test_the_profile_is_the_mean_conditional_entropy() -> None:
    table = random_table(3, 3)
    backbone, law = TableBackbone(table), table_law(table)
    found = []
    for size in range(3):
        losses = []
        for shown in itertools.combinations(range(3), size):
            for position in set(range(3)) - set(shown):
                loss = 0.0
                for x, probability in law.items():
                    row = [x[other] if other in shown else backbone.mask_id for other in range(3)]
                    logits_1V = backbone.logits(torch.tensor([[0, *row]]))[0, 1 + position]
                    loss -= probability * float(logits_1V[x[position]])
                losses.append(loss)
        found.append(np.mean(losses))
    assert information_profile(table) == pytest.approx(found)

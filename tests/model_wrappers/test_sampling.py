"""Probs, residuals, quotas, rankings and the seeded sampler; forward kernels, and corruption
through them."""

import pytest
import torch
from scipy.stats import chisquare

from model_wrappers.diffusion import Absorbing, Kernel, Uniform
from model_wrappers.sampling import Sampler, draw, likeliest, quotas, residual, token_probs

LOGITS_NV = torch.tensor([[1.0, 3.0, 2.0, 0.5], [0.0, -1.0, 4.0, 4.5]])
PI_V = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
RHO_V = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_token_probs_is_softmax_of_logits_over_temperature(temperature: float) -> None:
    weights_NV = torch.exp(LOGITS_NV.double() / temperature)
    torch.testing.assert_close(
        token_probs(LOGITS_NV, temperature), weights_NV / weights_NV.sum(-1, keepdim=True)
    )


def test_token_probs_at_temperature_zero_is_the_point_mass_on_the_argmax() -> None:
    assert token_probs(LOGITS_NV, 0.0).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_token_probs_excludes_a_token_and_stays_normalised(temperature: float) -> None:
    probs_NV = token_probs(LOGITS_NV, temperature, exclude=1)
    assert probs_NV[:, 1].tolist() == [0, 0]
    torch.testing.assert_close(probs_NV.sum(-1), torch.ones(2, dtype=torch.float64))


def test_token_probs_tells_confidences_near_one_apart() -> None:
    first, second = token_probs(
        torch.tensor([[30.0, 0.0], [20.0, 0.0]], dtype=torch.bfloat16), 1.0
    )[:, 0].tolist()
    assert 1 > first > second


def test_the_residual_of_laws_that_differ_by_rounding_is_the_target() -> None:
    rounded_V = PI_V * (1 + 1e-15)
    assert residual(PI_V, rounded_V).equal(PI_V)


def test_accepting_and_correcting_gives_the_target() -> None:
    kept_V = torch.minimum(PI_V, RHO_V)
    torch.testing.assert_close(kept_V + (1 - kept_V.sum()) * residual(PI_V, RHO_V), PI_V)


@pytest.mark.parametrize(
    ("count", "steps", "expected"), [(10, 4, [3, 3, 2, 2]), (8, 4, [2] * 4), (2, 3, [1, 1, 0])]
)
def test_quotas_are_even_and_the_first_take_the_remainder(
    count: int, steps: int, expected: list[int]
) -> None:
    assert quotas(count, steps) == expected


def test_draw_at_temperature_zero_is_the_argmax_and_uses_no_randomness() -> None:
    sampler = Sampler(0)
    assert draw(token_probs(LOGITS_NV, 0.0), 0.0, sampler).tolist() == [1, 3]
    assert float(torch.rand((), generator=sampler._generator)) == float(
        torch.rand((), generator=Sampler(0)._generator)
    )


def draws(seed: int) -> tuple[list[int], list[bool], list[int]]:
    sampler = Sampler(seed)
    tokens = sampler.tokens(PI_V.expand(30, -1)).tolist()
    return tokens, [sampler.accept(0.5) for _ in range(30)], sampler.order(30).tolist()


def test_sampler_repeats_itself_for_the_same_seed_and_no_other() -> None:
    assert draws(1) == draws(1)
    assert all(mine != other for mine, other in zip(draws(1), draws(2), strict=True))


def test_sampler_is_untouched_by_the_global_seed() -> None:
    torch.manual_seed(0)
    first = draws(1)
    torch.manual_seed(99)
    assert draws(1) == first


def test_sampler_draws_tokens_with_their_probabilities() -> None:
    drawn = Sampler(0).tokens(PI_V.expand(3000, -1))
    assert (
        chisquare(torch.bincount(drawn, minlength=3).numpy(), (3000 * PI_V).numpy()).pvalue > 1e-3
    )


def test_sampler_accepts_with_the_probability_given() -> None:
    sampler = Sampler(0)
    accepted = sum(sampler.accept(0.3) for _ in range(3000))
    assert chisquare([accepted, 3000 - accepted], [900, 2100]).pvalue > 1e-3
    assert all(sampler.accept(1.0) and not sampler.accept(0.0) for _ in range(100))


def test_sampler_orders_are_uniform_permutations() -> None:
    sampler = Sampler(0)
    orders = [tuple(sampler.order(3).tolist()) for _ in range(1200)]
    counts = [orders.count(order) for order in set(orders)]
    assert all(sorted(order) == [0, 1, 2] for order in orders) and len(counts) == 6
    assert chisquare(counts).pvalue > 1e-3


def test_of_equal_values_the_first_is_the_likeliest() -> None:
    values_NV = torch.tensor(
        [[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-torch.inf, -2.0, -torch.inf, -2.0]]
    )
    assert likeliest(values_NV).tolist() == [1, 0, 1]


# Forward kernels
STATES = 5
TIMES = (0.0, 0.2, 0.5, 0.9)


def kernels() -> list[Kernel]:
    return [Absorbing(STATES, 4), Uniform(STATES), Kernel(torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0]))]


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: type(k).__name__)
def test_rows_are_distributions_and_time_zero_changes_nothing(kernel: Kernel) -> None:
    torch.testing.assert_close(kernel.cumulative(0.0), torch.eye(STATES, dtype=torch.float64))
    for t in (*TIMES, 1.0):
        q = kernel.cumulative(t)
        assert (q >= -1e-15).all()
        torch.testing.assert_close(q.sum(1), torch.ones(STATES, dtype=torch.float64))


@pytest.mark.parametrize(
    "kernel", [*kernels(), Uniform(STATES, mask_id=4)], ids=lambda k: type(k).__name__
)
def test_corruption_follows_the_kernel(kernel: Kernel) -> None:
    draws, t = 20_000, 0.6
    counts = torch.bincount(
        kernel.corrupt(torch.full((draws,), 2), t, Sampler(0)), minlength=STATES
    )
    expected = draws * kernel.cumulative(t)[2]
    # Six standard deviations of a binomial, for each of five counts.
    assert ((counts - expected).abs() <= 6 * expected.sqrt()).all()


def test_the_uniform_kernel_draws_no_mask() -> None:
    assert (Uniform(STATES, mask_id=4).cumulative(0.7)[:4, 4] == 0).all()


def test_corruption_needs_no_matrix_of_the_vocabulary() -> None:
    many = 10**6  # its square would not fit in memory
    assert (Absorbing(many, 7).corrupt(torch.arange(5), 1.0, Sampler(0)) == 7).all()
    assert Uniform(many, 7).corrupt(torch.arange(5), 1.0, Sampler(0)).shape == (5,)

"""Probs, residuals, quotas, rankings and the seeded sampler; forward kernels, and corruption
through them."""

from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from model_wrappers.diffusion import Absorbing, Kernel, Uniform
from model_wrappers.options import SampleOptions
from model_wrappers.sampling import (
    Sampler,
    greedy_accept,
    inverse_cdf,
    likeliest,
    quotas,
    residual,
    sample,
    softmax_at,
    speculative_accept,
    token_probs,
    without,
)

LOGITS_NV = torch.tensor([[1.0, 3.0, 2.0, 0.5], [0.0, -1.0, 4.0, 4.5]])
CPU = torch.device("cpu")
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
    assert residual(PI_V[None], rounded_V[None]).equal(PI_V[None])


def test_accepting_and_correcting_gives_the_target() -> None:
    kept_V = torch.minimum(PI_V, RHO_V)
    residual_V = residual(PI_V[None], RHO_V[None])[0]
    torch.testing.assert_close(kept_V + (1 - kept_V.sum()) * residual_V, PI_V)


@pytest.mark.parametrize(
    ("count", "steps", "expected"), [(10, 4, [3, 3, 2, 2]), (8, 4, [2] * 4), (2, 3, [1, 1, 0])]
)
def test_quotas_are_even_and_the_first_take_the_remainder(
    count: int, steps: int, expected: list[int]
) -> None:
    assert quotas(count, steps) == expected


def test_a_sample_at_temperature_zero_is_the_argmax_and_uses_no_randomness() -> None:
    sampler = Sampler(0)
    assert sample(LOGITS_NV, 0.0, sampler).tolist() == [1, 3]
    assert torch.equal(sampler.uniforms(3, CPU), Sampler(0).uniforms(3, CPU))


def draws(seed: int) -> tuple[list[int], list[int], list[int]]:
    sampler = Sampler(seed)
    tokens = sampler.tokens(PI_V.expand(30, -1)).tolist()
    accepted = [int(sampler.accepted(torch.full((9,), 0.7))) for _ in range(30)]
    return tokens, accepted, sampler.order(30).tolist()


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
    ratio_W = torch.tensor([0.3, 2.0])
    counts = [int(sampler.accepted(ratio_W)) for _ in range(3000)]
    assert chisquare([counts.count(0), counts.count(2)], [2100, 900]).pvalue > 1e-3
    assert all(int(sampler.accepted(torch.tensor([1.0, 0.0]))) == 1 for _ in range(100))


def test_uniforms_are_the_same_however_many_are_taken_at_once() -> None:
    sampler = Sampler(3)
    apart = torch.cat([sampler.uniforms(count, CPU) for count in (1, 5, 2)])
    assert torch.equal(apart, Sampler(3).uniforms(8, CPU))


def test_a_uniform_picks_the_token_whose_share_it_falls_into() -> None:
    uniform_N = torch.tensor([0.0, 0.499, 0.5, 0.699, 0.7, 1 - 2**-53], dtype=torch.float64)
    assert inverse_cdf(PI_V.expand(6, -1), uniform_N).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_token_without_probability_is_never_drawn() -> None:
    probs_NV = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]], dtype=torch.float64).expand(2, -1)
    ends_N = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert inverse_cdf(probs_NV, ends_N).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_p": 0.4}, [0]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.6}, [0, 2]),
        ({"top_p": 0.85}, [0, 1, 2]),
        ({"top_p": 1.0}, [0, 1, 2, 3]),
        ({"top_k": 1}, [0]),
        ({"top_k": 2}, [0, 1, 2]),
        ({"top_k": 9}, [0, 1, 2, 3]),
        ({"top_p": 0.6, "top_k": 1}, [0]),
        ({"top_p": 0.4, "top_k": 2}, [0]),
    ],
)
def test_truncation_keeps_the_likeliest_tokens_in_proportion(
    options: dict[str, Any], kept: list[int]
) -> None:
    """The second and the third token are equally likely: top_k=2 cannot part them, and top_p takes
    the one of the lower id."""
    probs_V = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
    order = [2, 0, 3, 1]  # whatever the ids
    logits_NV = (probs_V[order].log() + 3.0)[None].float()
    left_V = torch.zeros(4, dtype=torch.float64)
    left_V[kept] = probs_V[kept] / probs_V[kept].sum()
    truncated_NV = token_probs(logits_NV, 1.0, options=SampleOptions(**options))
    torch.testing.assert_close(truncated_NV[0], left_V[order], atol=1e-7, rtol=0)


def test_truncation_is_of_the_distribution_at_the_temperature() -> None:
    logits_NV = torch.tensor([[2.0, 1.0, 0.0]])  # the first has 0.67 at temperature 1
    options = SampleOptions(top_p=0.8)
    assert (token_probs(logits_NV, 1.0, options=options) > 0).sum() == 2
    assert (token_probs(logits_NV, 0.5, options=options) > 0).sum() == 1


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_no_more_than_the_limit_is_accepted_and_what_follows_is_corrected(limit: int) -> None:
    limit_1 = torch.tensor([limit])
    draft_W = torch.tensor([0, 1])
    same_WV = PI_V.expand(2, -1)
    accepted_1, token_W = speculative_accept(same_WV, same_WV, draft_W, Sampler(0), limit_1)
    assert int(accepted_1) == limit and token_W[:limit].equal(draft_W[:limit])
    greedy_1, best_W = greedy_accept(draft_W, draft_W, limit_1)
    assert int(greedy_1) == limit and best_W.equal(draft_W)


def test_windows_of_two_have_the_law_of_the_target() -> None:
    target_WV = torch.stack([PI_V, RHO_V])
    draft_WV = torch.stack([RHO_V, PI_V])
    sampler = Sampler(5)
    counts = torch.zeros(3, 3)
    for _ in range(4000):
        draft_W = sampler.tokens(draft_WV)
        accepted_1, token_W = speculative_accept(
            target_WV, draft_WV, draft_W, sampler, torch.tensor([2])
        )
        if int(accepted_1) == 0:  # the second token comes from the next window
            token_W[1] = sampler.tokens(RHO_V[None])[0]
        counts[token_W[0], token_W[1]] += 1
    expected = 4000 * PI_V[:, None] * RHO_V
    assert chisquare(counts.flatten().numpy(), expected.flatten().numpy()).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_at_a_token_is_that_of_float64_and_tells_confidences_near_one_apart(
    dtype: torch.dtype,
) -> None:
    logits_NV = torch.tensor([[30.0, 0.0], [20.0, 0.0], [0.0, 5.0], [-torch.inf, 1.0]], dtype=dtype)
    token_N = torch.tensor([0, 0, 0, 0])
    probs_N = softmax_at(logits_NV, token_N)
    torch.testing.assert_close(
        probs_N, torch.softmax(logits_NV.double(), -1)[:, 0], rtol=1e-6, atol=0
    )
    others_N = torch.softmax(logits_NV.double(), -1)[:2, 1]
    torch.testing.assert_close(1 - probs_N[:2], others_N, rtol=1e-2, atol=0)


def test_ids_without_probability_leave_the_logits_of_the_model_as_they_are() -> None:
    before_NV = LOGITS_NV.clone()
    assert without(LOGITS_NV, [1, 3])[:, [1, 3]].isneginf().all()
    assert LOGITS_NV.equal(before_NV)


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

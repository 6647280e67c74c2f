"""Kernels and posterior against brute-force matrix products, and the reverse process against the data distribution."""

from __future__ import annotations

import itertools

import pytest
import torch

from model_wrappers.diffusion import Absorbing, Chain, Kernel, Nearest, Uniform, make_kernel, posterior, reverse
from model_wrappers.sampling import Sampler

STATES = 5
TIMES = (0.0, 0.2, 0.5, 0.9)


def random_steps(seed: int, steps: int = 10) -> torch.Tensor:
    """Matrices of a chain (T, S, S) with every row a random distribution."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, STATES, STATES, generator=generator, dtype=torch.float64).pow(3).log_softmax(2).exp()


def kernels() -> list[Kernel]:
    embeddings = torch.randn(STATES, 3, generator=torch.Generator().manual_seed(0))
    return [Absorbing(STATES, 4), Uniform(STATES), Nearest(embeddings, neighbours=2), Chain(random_steps(0))]


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: type(k).__name__)
def test_rows_are_distributions_and_time_zero_changes_nothing(kernel: Kernel) -> None:
    torch.testing.assert_close(kernel.cumulative(0.0), torch.eye(STATES, dtype=torch.float64))
    for t in (*TIMES, 1.0):
        q = kernel.cumulative(t)
        assert (q >= -1e-15).all()
        torch.testing.assert_close(q.sum(1), torch.ones(STATES, dtype=torch.float64))


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: type(k).__name__)
def test_the_cumulative_kernel_is_the_product_of_its_steps(kernel: Kernel) -> None:
    product = torch.eye(STATES, dtype=torch.float64)
    for s, t in zip((0.0, *TIMES), (*TIMES, 1.0), strict=False):
        product = product @ kernel.between(s, t)
        torch.testing.assert_close(product, kernel.cumulative(t))


@pytest.mark.parametrize("seed", range(20))
def test_random_chains_have_the_papers_posterior(seed: int) -> None:
    """By matrix products, as the paper writes it: x_t Q_t^T * x_0 Qbar_{t-1} / (x_0 Qbar_t x_t^T)."""
    steps_TSS = random_steps(seed)
    kernel, k = Chain(steps_TSS), seed % 9 + 1  # from step k to step k + 1
    before, after = (torch.linalg.multi_dot([torch.eye(STATES).double(), *steps_TSS[:n]]) for n in (k, k + 1))
    one_hot = torch.eye(STATES, dtype=torch.float64)
    for x_0 in range(STATES):
        for x_t in range(STATES):
            numerator = (one_hot[x_t] @ steps_TSS[k].T) * (one_hot[x_0] @ before)
            expected = numerator / (one_hot[x_0] @ after @ one_hot[x_t])
            got = posterior(kernel, torch.tensor([x_t]), torch.tensor([x_0]), k / 10, (k + 1) / 10)[0]
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("bad", [torch.ones(2, 3, 3), torch.eye(3), -torch.eye(3)[None]])
def test_matrices_that_are_no_chain_are_refused(bad: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="rows are distributions"):
        Chain(bad)


def test_the_absorbing_kernel_masks_everything_at_the_end() -> None:
    assert (Absorbing(STATES, 4).cumulative(1.0)[:, 4] == 1).all()


def test_the_nearest_kernel_prefers_neighbours() -> None:
    line = torch.arange(STATES, dtype=torch.float64)[:, None]
    q = Nearest(line, neighbours=1).cumulative(0.3)
    assert q[0, 1] > q[0, 2] > q[0, 4]
    torch.testing.assert_close(q, q.T)


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: type(k).__name__)
def test_the_posterior_is_bayes_rule_on_the_joint(kernel: Kernel) -> None:
    s, t = 0.3, 0.7
    joint = kernel.cumulative(s)[:, :, None] * kernel.between(s, t)[None]  # x_0, x_s, x_t
    for x_0 in range(STATES):
        for x_t in range(STATES):
            if joint[x_0, :, x_t].sum() == 0:
                with pytest.raises(ValueError, match="probability 0"):
                    posterior(kernel, torch.tensor([x_t]), torch.tensor([x_0]), s, t)
                continue
            expected = joint[x_0, :, x_t] / joint[x_0, :, x_t].sum()
            torch.testing.assert_close(posterior(kernel, torch.tensor([x_t]), torch.tensor([x_0]), s, t)[0], expected)


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: type(k).__name__)
def test_the_reverse_process_of_the_exact_posterior_reproduces_the_data(kernel: Kernel) -> None:
    data = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0], dtype=torch.float64)
    times = (0.0, 0.25, 0.6, 1.0)
    probs_S = data @ kernel.cumulative(1.0)
    x_t = torch.arange(STATES)
    for s, t in reversed(list(itertools.pairwise(times))):
        joint = data[:, None] * kernel.cumulative(t)
        possible = joint.sum(0) > 0
        predicted = torch.where(possible, joint / joint.sum(0).clamp_min(1e-300), torch.full_like(joint, 1 / STATES)).T
        step = reverse(kernel, x_t[possible], predicted[possible], s, t)
        probs_S = probs_S[possible] @ step
    torch.testing.assert_close(probs_S, data)


@pytest.mark.parametrize("kernel", [*kernels(), Uniform(STATES, mask_id=4)], ids=lambda k: type(k).__name__)
def test_corruption_follows_the_kernel(kernel: Kernel) -> None:
    draws, t = 20_000, 0.6
    counts = torch.bincount(kernel.corrupt(torch.full((draws,), 2), t, Sampler(0)), minlength=STATES)
    expected = draws * kernel.cumulative(t)[2]
    # Six standard deviations of a binomial, for each of five counts.
    assert ((counts - expected).abs() <= 6 * expected.sqrt()).all()


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: type(k).__name__)
def test_time_zero_corrupts_nothing(kernel: Kernel) -> None:
    clean = torch.arange(STATES)
    assert torch.equal(kernel.corrupt(clean, 0.0, Sampler(0)), clean)


def test_the_uniform_kernel_draws_no_mask() -> None:
    assert (Uniform(STATES, mask_id=4).cumulative(0.7)[:4, 4] == 0).all()


def test_corruption_needs_no_matrix_of_the_vocabulary() -> None:
    many = 10**6  # its square would not fit in memory
    assert (Absorbing(many, 7).corrupt(torch.arange(5), 1.0, Sampler(0)) == 7).all()
    assert Uniform(many, 7).corrupt(torch.arange(5), 1.0, Sampler(0)).shape == (5,)


@pytest.mark.parametrize("t", [-0.1, 1.1, float("nan")])
def test_a_time_outside_zero_and_one_is_refused(t: float) -> None:
    for kernel in kernels():
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            kernel.cumulative(t)
        with pytest.raises(ValueError, match="0 <= s <= t <= 1"):
            kernel.between(0.5, t)


def test_kernels_are_made_by_name() -> None:
    assert isinstance(make_kernel("absorbing", 5, mask_id=4), Absorbing)
    assert isinstance(make_kernel("nearest", 6, embeddings_SD=torch.randn(6, 2)), Nearest)
    with pytest.raises(ValueError, match="absorbing, uniform, nearest"):
        make_kernel("gaussian", 5)
    with pytest.raises(ValueError, match="mask_id"):
        make_kernel("absorbing", 5)

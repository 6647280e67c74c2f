"""Forward kernels: their matrices, and corruption through them."""

from __future__ import annotations

import pytest
import torch

from model_wrappers.diffusion import Absorbing, Kernel, Uniform
from model_wrappers.sampling import Sampler

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


def test_the_absorbing_kernel_masks_everything_at_the_end() -> None:
    assert (Absorbing(STATES, 4).cumulative(1.0)[:, 4] == 1).all()


@pytest.mark.parametrize("kernel", [*kernels(), Uniform(STATES, mask_id=4)], ids=lambda k: type(k).__name__)
def test_corruption_follows_the_kernel(kernel: Kernel) -> None:
    draws, t = 20_000, 0.6
    counts = torch.bincount(kernel.corrupt(torch.full((draws,), 2), t, Sampler(0)), minlength=STATES)
    expected = draws * kernel.cumulative(t)[2]
    # Six standard deviations of a binomial, for each of five counts.
    assert ((counts - expected).abs() <= 6 * expected.sqrt()).all()


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

"""DDOSP's schedule: the dynamic program against brute force, and the profile against a law that is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from fakes import tiny_llada

from harness.schedule import estimate_profile, monotone, optimal_schedule, schedule_error
from model_wrappers.sampling import quotas


def falling_profile(length: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).exponential(size=length))[::-1].copy()


@pytest.mark.parametrize("length", range(1, 11))
def test_the_schedule_is_the_best_of_all(length: int) -> None:
    profile = falling_profile(length, seed=length)
    for steps in range(1, length + 1):
        counts = optimal_schedule(profile, steps)
        assert len(counts) == steps and sum(counts) == length and min(counts) >= 1
        cuts = itertools.combinations(range(1, length), steps - 1)
        everything = [np.diff([0, *cut, length]).tolist() for cut in cuts]
        assert schedule_error(profile, counts) == pytest.approx(min(schedule_error(profile, c) for c in everything))


@pytest.mark.parametrize("seed", range(5))
def test_the_schedule_is_never_worse_than_uniform(seed: int) -> None:
    profile = falling_profile(48, seed)
    for steps in (1, 5, 24, 48):
        assert (
            schedule_error(profile, optimal_schedule(profile, steps))
            <= schedule_error(profile, quotas(48, steps)) + 1e-9
        )


def test_the_error_is_the_sum_in_the_paper() -> None:
    profile = falling_profile(7, 0)
    f = profile[0] - profile
    expected = sum(f[i] - f[a] for a, b in ((0, 3), (3, 4), (4, 7)) for i in range(a, b))
    assert schedule_error(profile, [3, 1, 3]) == pytest.approx(expected)


def test_one_token_a_step_has_no_error() -> None:
    assert schedule_error(falling_profile(9, 1), [1] * 9) == pytest.approx(0, abs=1e-12)


def test_the_corrected_profile_never_increases() -> None:
    noisy = falling_profile(30, 2) + np.random.default_rng(0).normal(size=30)
    assert (np.diff(monotone(noisy)) <= 1e-12).all()


def test_more_steps_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="between 1 and the 5"):
        optimal_schedule(falling_profile(5, 0), 6)


def test_the_profile_is_the_mean_loss_over_masked_tokens() -> None:
    backbone = tiny_llada()
    prompt, response = [1, 2, 3], [4, 5, 6, 7]
    profile = estimate_profile(backbone, [(prompt, response)], block=4, subsets=1, batch=2, seed=0)
    masked = torch.tensor([prompt + [backbone.mask_id] * 4])
    log_law = backbone.logits(masked)[0, 3:].double().log_softmax(-1)
    assert profile[0] == pytest.approx(-float(log_law[range(4), response].mean()), rel=1e-5)

"""Statistics with known answers: by hand, by scipy, by enumeration, and by what their papers prove
of them."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import optimize, stats

from harness.stats import (
    Flips,
    holm,
    holm_levels,
    linear_fit,
    mcnemar,
    mean_difference_enough,
    mean_difference_interval,
    mean_difference_p_value,
    mean_difference_p_values,
    mean_interval,
    paired_interval,
    paired_lower_limit,
    paired_score,
    speedup_interval,
    wilson,
)

Z = float(stats.norm.ppf(0.95))


@pytest.mark.parametrize(("right", "trials"), [(0, 10), (7, 80), (80, 80), (1, 1)])
def test_wilson_is_scipys_on_whole_numbers(right: int, trials: int) -> None:
    for level in (0.9, 0.95):
        expected = stats.binomtest(right, trials).proportion_ci(
            confidence_level=level, method="wilson"
        )
        assert wilson(right / trials, trials, level) == pytest.approx((expected.low, expected.high))


def test_wilson_lies_between_its_neighbours_for_a_broken_number_of_trials() -> None:
    lows = [wilson(0.3, trials)[0] for trials in (40, 40.5, 41)]
    assert lows == sorted(lows) and len(set(lows)) == 3


def test_wilson_contains_its_share() -> None:
    for trials in range(1, 300):
        for share in (0.0, 1 / trials, 1.0):
            low, high = wilson(share, trials)
            assert 0 <= low <= share <= high <= 1


def test_an_interval_of_what_is_not_known_is_nan_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = mean_interval(np.array([1.0, math.nan]))
    assert math.isnan(low) and math.isnan(high)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (0, 5), (1, 8), (3, 3), (10, 2)])
def test_mcnemar_is_twice_the_smaller_tail_of_fair_coins(lost: int, gained: int) -> None:
    n = lost + gained
    tail = sum(math.comb(n, heads) for heads in range(min(lost, gained) + 1)) / 2**n
    assert mcnemar(lost, gained) == pytest.approx(min(1.0, 2 * tail)) == mcnemar(gained, lost)


def test_holm_is_the_worked_example() -> None:
    # 4 x 0.005, 3 x 0.01, then 2 x 0.03 = 0.06, and 0.04 x 1, which may not fall below the one
    # before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_what_was_not_tested_and_never_exceeds_one() -> None:
    assert holm([0.6, math.nan, 0.7, math.nan]) == pytest.approx(
        [1.0, math.nan, 1.0, math.nan], nan_ok=True
    )
    assert (
        holm([0.02, math.nan]) == pytest.approx([0.02, math.nan], nan_ok=True)
        and len(holm([])) == 0
    )


def test_holm_keeps_the_family_wise_error_under_the_null() -> None:
    draws, family = 4000, 5
    p_values = np.random.default_rng(0).random((draws, family))
    wrong = np.mean([(holm(row.tolist()) <= 0.05).any() for row in p_values])
    # Of independent uniform p-values Holm rejects one with probability 1 - 0.99^5; Hoeffding, one
    # seed in a million.
    bound = math.sqrt(math.log(2e6) / (2 * draws))
    assert abs(wrong - (1 - 0.99**family)) < bound


def test_the_interval_of_a_speedup_pairs_items() -> None:
    seconds = np.random.default_rng(0).uniform(1, 9, 40)
    # A method that halves every item's time is twice as fast in any sample: pairing leaves no
    # spread.
    assert speedup_interval([np.stack([seconds, seconds / 2], axis=1)] * 2) == pytest.approx((2, 2))


def test_the_interval_of_a_speedup_is_around_the_mean_ratio_and_the_same_twice() -> None:
    seconds = np.random.default_rng(0).uniform(1, 9, 40)
    noisy = np.stack([seconds, np.random.default_rng(1).uniform(1, 9, 40)], axis=1)
    low, high = speedup_interval([noisy, noisy[:1]])
    assert low < (noisy[:, 0].sum() / noisy[:, 1].sum() + noisy[0, 0] / noisy[0, 1]) / 2 < high
    assert speedup_interval([noisy]) == speedup_interval([noisy])
    assert np.isnan(speedup_interval([noisy[:1]])).all()


def test_the_interval_of_a_speedup_covers_the_truth_as_often_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.stats.RESAMPLES", 300)
    level, trials, items = 0.5, 400, 60
    draws = np.random.default_rng(0)
    covered = 0
    for _ in range(trials):
        reference = draws.uniform(2, 4, items)
        pair = np.stack([reference, reference * draws.uniform(0.2, 0.8, items)], axis=1)
        low, high = speedup_interval([pair], level)
        covered += low <= 2.0 <= high  # 3 s over 1.5 s in expectation
    # Hoeffding, one seed in a million; 0.05 for percentiles of 300 draws over 60 items. At a level
    # of 1/2 an interval
    # that is too wide fails as one that is too narrow does.
    bound = math.sqrt(math.log(2e6) / (2 * trials)) + 0.05
    assert abs(covered / trials - level) < bound


def restricted_share_lost(lost: int, gained: int, n: int, difference: float) -> float:
    """The likeliest share of lost items if the share gained is larger by `difference`, by
    maximizing numerically."""

    def loss(share: float) -> float:
        shares = (share, share + difference, 1 - 2 * share - difference)
        return -sum(
            count * math.log(max(each, 1e-300))
            for count, each in zip((lost, gained, n - lost - gained), shares, strict=True)
        )

    ends = (max(0.0, -difference), (1 - difference) / 2)
    return float(
        optimize.minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
    )


@pytest.mark.parametrize(
    ("lost", "gained", "n"), [(3, 5, 40), (7, 1, 50), (12, 12, 100), (1, 0, 30)]
)
def test_tangos_limit_is_where_the_score_test_stops_rejecting(
    lost: int, gained: int, n: int
) -> None:
    limit = paired_lower_limit(lost, gained, n)
    share = restricted_share_lost(lost, gained, n, limit)
    # of gained - lost, a difference of multinomial counts
    variance = n * (2 * share + limit - limit**2)
    score = (gained - lost - n * limit) / math.sqrt(variance)
    assert score == pytest.approx(Z, abs=1e-4) and paired_score(
        lost, gained, n, limit
    ) == pytest.approx(Z)
    assert limit < (gained - lost) / n


@pytest.mark.parametrize("n", [1, 10, 164, 100_000])
def test_tangos_limit_without_a_discordant_pair_is_the_closed_form(n: int) -> None:
    assert paired_lower_limit(0, 0, n) == pytest.approx(-(Z**2) / (n + Z**2), rel=1e-8)


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_tangos_limit_where_all_pairs_are_discordant_is_the_closed_form(n: int) -> None:
    # All gained: the restricted share is (1 - d) / 2, and the score sqrt(n (1 - d) / (1 + d)).
    assert paired_lower_limit(0, n, n) == pytest.approx((n - Z**2) / (n + Z**2), rel=1e-8)
    assert paired_lower_limit(n, 0, n) == -1.0


def test_tangos_limit_rises_with_what_is_gained_and_falls_with_the_level() -> None:
    limits = [paired_lower_limit(4, gained, 60) for gained in range(20)]
    assert limits == sorted(limits) and len(set(limits)) == 20
    assert paired_lower_limit(4, 6, 60, 0.99) < paired_lower_limit(4, 6, 60, 0.9)


def test_the_paired_interval_is_both_one_sided_limits_and_turns_with_the_methods() -> None:
    low, high = paired_interval(4, 9, 60)
    assert low == paired_lower_limit(4, 9, 60, 0.975) and low < 5 / 60 < high
    assert paired_interval(9, 4, 60) == pytest.approx((-high, -low))
    z = float(stats.norm.ppf(0.975))
    assert paired_interval(0, 0, 96)[1] == pytest.approx(z**2 / (96 + z**2))


@pytest.mark.parametrize(
    ("lost", "gained", "n"), [(0, 0, 20), (0, 5, 40), (1, 8, 100), (30, 50, 300)]
)
def test_a_mean_over_one_suite_is_that_suite(lost: int, gained: int, n: int) -> None:
    one = [(lost, gained, n)]
    assert mean_difference_interval(one, 0.9) == pytest.approx(
        paired_interval(lost, gained, n, 0.9)
    )
    assert mean_difference_p_value(one) == pytest.approx(mcnemar(lost, gained))


def test_the_exact_test_of_a_mean_over_suites_enumerates_fair_coins() -> None:
    suites = [(1, 4, 30), (3, 2, 60), (0, 3, 30)]  # weights 1, 1/2, 1
    seen, up, down = (4 - 1) + (2 - 3) / 2 + 3, 0, 0
    for coins in itertools.product((-1, 1), repeat=13):
        drawn = sum(coins[:5]) + sum(coins[5:10]) / 2 + sum(coins[10:])
        up, down = up + (drawn >= seen), down + (drawn <= seen)
    assert mean_difference_p_values(suites) == pytest.approx((up / 2**13, down / 2**13))


def test_broken_counts_of_several_seeds_are_tested_as_whole_ones() -> None:
    assert mean_difference_p_value([(1.5, 2.5, 20.0)]) == pytest.approx(mcnemar(2, 2))
    assert mean_difference_p_value([(0.4, 7.6, 20.0)]) == pytest.approx(mcnemar(0, 8))


def test_the_interval_of_a_mean_over_suites_of_unequal_sizes_covers_at_its_level() -> None:
    """600 draws of two suites with 40 and 400 problems: the share that covers is binomial."""
    draw, sizes, shares = np.random.default_rng(0), (40, 400), ((0.1, 0.2, 0.7), (0.15, 0.05, 0.8))
    true, covered = np.mean([gained - lost for lost, gained, _ in shares]), 0
    for _ in range(600):
        counts = [draw.multinomial(n, share) for n, share in zip(sizes, shares, strict=True)]
        low, high = mean_difference_interval(
            [(each[0], each[1], n) for each, n in zip(counts, sizes, strict=True)]
        )
        covered += low <= true <= high
    least, most = stats.binom.interval(0.999, 600, 0.95)
    assert least <= covered <= most


def test_a_small_suite_weighs_as_much_as_a_large_one() -> None:
    low, high = mean_difference_interval([(0, 4, 10), (40, 0, 1000)])
    assert low < (0.4 - 0.04) / 2 < high
    assert mean_difference_interval([(0, 4, 10)] * 2)[0] > mean_difference_interval([(0, 4, 10)])[0]


@pytest.mark.parametrize(
    "suites", [[(5, 8, 100), (3, 6, 50)], [(0, 5, 300)], [(0, 6, 6)], [(40, 60, 400)]]
)
def test_as_many_problems_show_a_mean_difference_by_both_of_its_tests(suites: list[Flips]) -> None:
    """(0, 5, 300): p = 1/16 asks for a sixth one that is gained, though the normal law asks for
    fewer problems."""

    def shown(count: float) -> bool:
        grown = [(count * lost, count * gained, count * n) for lost, gained, n in suites]
        return mean_difference_interval(grown)[0] > 0 and mean_difference_p_value(grown) < 0.05

    items = sum(n for *_, n in suites)
    enough = mean_difference_enough(suites, 0.95, items) / items
    assert shown(enough) and not any(shown(share * enough) for share in (0.5, 0.75, 0.9))
    assert shown(1) == (enough <= 1)


def test_no_difference_is_never_shown() -> None:
    assert mean_difference_enough([(8, 8, 100)], 0.95, 100) == math.inf
    assert math.isnan(mean_difference_enough([(5, 8, 100)], math.nan, 100))


def test_one_comparison_has_the_usual_level_and_one_that_was_not_made_has_none() -> None:
    assert holm_levels([0.3, math.nan]) == pytest.approx([0.95, math.nan], nan_ok=True)


def test_after_the_first_that_is_not_rejected_all_have_its_level() -> None:
    assert holm_levels([0.9, 0.001, 0.2]) == pytest.approx(
        [1 - 0.05 / 2, 1 - 0.05 / 3, 1 - 0.05 / 2]
    )


def test_the_fit_recovers_the_line_that_timings_lie_on() -> None:
    fit = linear_fit({rows: 0.25 + 0.5 * rows for rows in (1, 2, 4, 8)})
    assert fit == pytest.approx((0.25, 0.5, 0.0))


def test_the_residual_is_the_root_mean_square_of_what_is_off_the_line() -> None:
    off = {1: 0.1, 2: -0.1, 3: -0.1, 4: 0.1}  # no line fits these better than 0
    fit = linear_fit({rows: 2.0 + 3.0 * rows + off[rows] for rows in off})
    assert fit == pytest.approx((2.0, 3.0, 0.1))

"""The statistics of comparisons on paired items: intervals and tests of shares and of ratios of
totals.

Pure functions of counts and numbers. `lost` counts items that only the reference has right,
`gained` those that only the method has right. Levels are two-sided unless a function says
otherwise.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, signal, special, stats

Floats = npt.NDArray[np.float64]
Mean = Callable[..., Any]  # of values, along an axis
LEVEL = 0.95
RESAMPLES = 4000
SEED = 0
BATCH = 200  # resamples drawn at a time
MOST_DRAWN = 2_000_000  # items drawn at a time, which bounds the memory that large suites take


def wilson(share: float, trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval of a share in [0, 1] seen in `trials` trials, which need not be a whole
    number.

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22, 209-212.
    """
    z = float(stats.norm.ppf((1 + level) / 2))
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = (
        z * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2) / (1 + z**2 / trials)
    )
    # At shares of 0 and 1 rounding may put an end on the wrong side of the share.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def effective_trials(values: Floats, clusters: Floats) -> float:
    """The effective sample size of values in clusters: the number of independent values whose mean
    is as certain.

    It is n over the design effect, which is the (linearised) variance of the mean under clustering
    over that of n independent values; at least the number of clusters, at most n. Source: Kish
    (1965), "Survey Sampling"; with Wilson's interval as in Korn and Graubard (1998), "Confidence
    intervals for proportions with small expected number of positive counts estimated from survey
    data", Survey Methodology 24, 193-201.

    Args:
        values: (n,).
        clusters: the number of each value's cluster, (n,).
    """
    n = len(values)
    _, numbers = np.unique(clusters, return_inverse=True)
    count = int(numbers.max()) + 1
    sums = np.bincount(numbers, values - values.mean())
    clustered = count / (count - 1) * float((sums**2).sum()) if count > 1 else math.inf
    # Without variance between clusters the lower bound holds.
    return float(np.clip(n**2 * values.var() / clustered if clustered else 0, count, n))


def mcnemar(lost: int, gained: int) -> float:
    """Exact two-sided p-value that a method is right as often as the reference, from their
    discordant items.

    Under equality each discordant item falls to either side with probability 1/2; without any, p is
    1. Source: McNemar (1947), "Note on the sampling error of the difference between correlated
    proportions or percentages", Psychometrika 12, 153-157, in its exact (binomial) form.
    """
    return float(stats.binomtest(lost, lost + gained, 0.5).pvalue) if lost + gained else 1.0


def holm(p_values: Sequence[float]) -> Floats:
    """p-values adjusted for a family of tests, in their order, by Holm's step-down procedure.

    NaN means not tested: it stays NaN and does not count. Source: Holm (1979), "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 65-70.
    """
    p = np.asarray(p_values, dtype=float)
    order = _order(p)
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full(p.shape, math.nan)
    # Adjusted p-values must not fall along the order: the running maximum makes them monotone.
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted


def _order(p: Floats) -> npt.NDArray[np.intp]:
    """The indexes of the p-values that are not NaN, the smallest first."""
    tested = np.flatnonzero(~np.isnan(p))
    return tested[np.argsort(p[tested], kind="stable")]


def holm_levels(p_values: Sequence[float]) -> Floats:
    """Confidence levels of intervals that agree with Holm's procedure over a family of tests, in
    the order of p_values.

    The k-th smallest of m p-values has the level 1 - (1 - LEVEL) / (m - k + 1); from the first that
    is not rejected on, all have that one's. So the interval of a difference excludes 0 where Holm
    rejects it, and nowhere else. NaN stays NaN and does not count.
    """
    adjusted = holm(p_values)
    order = _order(np.asarray(p_values, dtype=float))
    levels = np.full(adjusted.shape, math.nan)
    rejected = int((adjusted[order] < 1 - LEVEL).sum())
    for rank, number in enumerate(order):
        levels[number] = 1 - (1 - LEVEL) / (len(order) - min(rank, rejected))
    return levels


def speedup_interval(
    pairs: Sequence[Floats], level: float = LEVEL, mean: Mean = np.mean
) -> tuple[float, float]:
    """Bootstrap interval of the mean over suites of total LLaDA seconds / total method seconds.

    Items are drawn anew within their suite, both seconds together; percentiles of RESAMPLES draws
    at a fixed seed. Source: Efron (1979), "Bootstrap methods: another look at the jackknife",
    Annals of Statistics 7, 1-26; percentile intervals of scipy.stats.bootstrap.

    Args:
        pairs: per suite an array (items, 2) of LLaDA's seconds and the method's; one suite gives
            its ratio.
        level: of the interval.
        mean: of the suites' ratios, along axis 0.

    Returns:
        Its ends; NaN if no suite has two items.
    """
    low, high = speedup_intervals(pairs, level, mean)[:, 0, 1]
    return float(low), float(high)


def speedup_intervals(
    seconds: Sequence[Floats], level: float = LEVEL, mean: Mean = np.mean
) -> Floats:
    """`speedup_interval` of every two of M methods.

    Args:
        seconds: per suite an array (items, M).
        level: of the intervals.
        mean: of the suites' ratios, along axis 0.

    Returns:
        low and high of the row's seconds / the column's, (2, M, M); NaN for a method that lacks the
        seconds of an item.
    """
    if max(len(items) for items in seconds) < 2:
        return np.full((2, seconds[0].shape[1], seconds[0].shape[1]), math.nan)

    def mean_ratios(*drawn: npt.NDArray[np.int64], axis: int = -1) -> Floats:
        totals = [
            np.stack([method.take(indices).sum(-1) for method in suite])
            for suite, indices in zip(by_method, drawn, strict=True)
        ]
        return mean([total[:, None] / total[None] for total in totals], axis=0)

    # Seconds of one method are contiguous, so that sums over its items are fastest.
    by_method = [np.ascontiguousarray(items.T) for items in seconds]
    # Resampling one item always gives the same ratio, and scipy needs two: the item is repeated.
    all_indices = [
        np.arange(len(items)) if len(items) > 1 else np.zeros(2, dtype=np.int64)
        for items in seconds
    ]
    batch = max(1, min(BATCH, MOST_DRAWN // max(len(items) for items in seconds)))
    # Indices are resampled, not seconds: all methods then have the same items in a resample.
    return np.stack(_bootstrap(all_indices, mean_ratios, level, batch=batch))


def _bootstrap(
    parts: Sequence[npt.NDArray[Any]],
    statistic: Callable[..., Any],
    level: float = LEVEL,
    **options: Any,
) -> Any:
    """Percentile bootstrap interval of a vectorised statistic at a fixed seed, by scipy."""
    # It is NaN where a number is not known, and a table shows "-": scipy's warning says no more.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        return stats.bootstrap(
            parts,
            statistic,
            n_resamples=RESAMPLES,
            vectorized=True,
            confidence_level=level,
            method="percentile",
            rng=np.random.default_rng(SEED),
            **options,
        ).confidence_interval


def paired_score(lost: float, gained: float, n: float, difference: float) -> float:
    """Tango's score statistic of the hypothesis that the share gained minus the share lost is
    `difference`.

    n: paired items, `lost` and `gained` among them. difference: in (-1, 1). About standard normal
    under the hypothesis; positive where the items show more than `difference`. The variance is that
    at the maximum of the likelihood under the hypothesis. Source: Tango (1998), see
    `paired_lower_limit`.
    """
    spare = n * difference - (gained - lost)
    if spare == 0:
        return 0.0
    linear = (2 * n - gained + lost) * difference - lost - gained
    root = math.sqrt(max(0.0, linear**2 + 8 * n * lost * difference * (1 - difference)))
    share_lost = (root - linear) / (4 * n)
    return -spare / math.sqrt(n * (2 * share_lost + difference * (1 - difference)))


def paired_lower_limit(lost: float, gained: float, n: float, level: float = LEVEL) -> float:
    """One-sided lower confidence limit of (gained - lost) / n, a paired difference of shares; for
    non-inferiority.

    n: paired items, `lost` and `gained` among them. level: above 1/2. The difference that the score
    test just does not reject; without a discordant pair -z^2 / (n + z^2), z the quantile of
    `level`. Source: Tango (1998), "Equivalence test and confidence interval for the difference in
    proportions for the paired-sample design", Statistics in Medicine 17, 891-908.
    """
    if lost == n:
        return -1.0
    z = float(stats.norm.ppf(level))
    lowest = -1 + 1e-12  # at -1 itself the statistic is infinite
    # The score falls from there to 0 at the estimate, so that it crosses z once in between.
    return float(
        optimize.brentq(
            lambda limit: paired_score(lost, gained, n, limit) - z, lowest, (gained - lost) / n
        )
    )


def paired_interval(
    lost: float, gained: float, n: float, level: float = LEVEL
) -> tuple[float, float]:
    """Interval of (gained - lost) / n, a paired difference of shares: Tango's limits at (1 + level)
    / 2 each."""
    side = (1 + level) / 2
    return paired_lower_limit(lost, gained, n, side), -paired_lower_limit(gained, lost, n, side)


Flips = tuple[float, float, float]  # of a suite: items lost, items gained, and all the paired items
MANY = 2000  # discordant items of which the normal law is as good as the exact one
GRAIN = 100  # the exact test's weights are whole numbers, the largest this one


def mean_difference(suites: Sequence[Flips]) -> float:
    """The mean over suites of (gained - lost) / n, each suite with the same weight."""
    return float(np.mean([(gained - lost) / n for lost, gained, n in suites]))


def mean_difference_interval(suites: Sequence[Flips], level: float = LEVEL) -> tuple[float, float]:
    """Interval of `mean_difference`: Tango's limits of the suites, put together by their distances
    from the estimates.

    Of one suite it is `paired_interval`. Source: Zou and Donner (2008), "Construction of confidence
    limits about effect measures: a general approach", Statistics in Medicine 27, 1693-1702.
    """
    middle = mean_difference(suites)
    below = 0.0
    above = 0.0
    for lost, gained, n in suites:
        low, high = paired_interval(lost, gained, n, level)
        below += (((gained - lost) / n - low) / len(suites)) ** 2
        above += ((high - (gained - lost) / n) / len(suites)) ** 2
    return middle - math.sqrt(below), middle + math.sqrt(above)


def mean_difference_p_values(suites: Sequence[Flips]) -> tuple[float, float]:
    """Exact one-sided p-values of `mean_difference`: of no gain (small if there is one), and of no
    loss.

    Under equality each discordant item falls to either side with probability 1/2, so that the
    statistic is a sum of shifted binomials, one for each suite, each weighted by 1 / n. Weights are
    rounded to hundredths of the largest, and counts that are no whole numbers (of several seeds) to
    whole ones. Of one suite twice the smaller is `mcnemar`.
    """
    most = max(1 / n for _, _, n in suites)
    law = np.ones(1)
    lowest = 0
    observed = 0
    for lost, gained, n in suites:
        weight = max(1, round(GRAIN / n / most))
        losses = round(lost)
        gains = round(gained)
        discordant = losses + gains
        # The law of weight * (gained - lost), from -weight * discordant on. One more item gained is
        # one fewer lost, hence steps of twice the weight.
        suite_law = np.zeros(2 * weight * discordant + 1)
        suite_law[:: 2 * weight] = stats.binom.pmf(np.arange(discordant + 1), discordant, 0.5)
        law = signal.fftconvolve(law, suite_law)
        lowest -= weight * discordant
        observed += weight * (gains - losses)
    index = observed - lowest
    # Rounded, because the Fourier transform leaves errors of about 1e-16 in sums that are equal.
    tails = (law[index:], law[: index + 1])
    more, less = (round(float(np.clip(tail.sum(), 0, 1)), 12) for tail in tails)
    return more, less


def mean_difference_p_value(suites: Sequence[Flips]) -> float:
    """Exact two-sided p-value of `mean_difference`: twice the smaller one-sided one, at most 1."""
    return min(1.0, 2 * min(mean_difference_p_values(suites)))


def mean_difference_enough(suites: Sequence[Flips], level: float, items: float) -> float:
    """How many items it would take to show a `mean_difference` like this one, by its interval and
    by its exact test.

    The search begins with the number by the normal law, whose statistic grows with the root of the
    items, and goes up in steps of a percent. Beyond MANY discordant items the normal law is exact
    enough, and its number is returned.

    Args:
        suites: today's counts, which are scaled.
        level: of interval and test; NaN gives NaN.
        items: today's number of items.

    Returns:
        The number in the unit of `items`; infinite if there is no difference.
    """
    if math.isnan(level):
        return math.nan
    variance = sum((lost + gained) / n**2 for lost, gained, n in suites) / len(suites) ** 2
    score = mean_difference(suites) / math.sqrt(variance) if variance else 0.0
    if not score:
        return math.inf
    count = math.ceil(items * float(stats.norm.ppf((1 + level) / 2) / score) ** 2)
    while sum(lost + gained for lost, gained, _ in suites) * count / items < MANY:
        enlarged = [
            (count * lost / items, count * gained / items, count * n / items)
            for lost, gained, n in suites
        ]
        low, high = mean_difference_interval(enlarged, level)
        if (low > 0 or high < 0) and mean_difference_p_value(enlarged) < 1 - level:
            break
        count += max(1, count // 100)
    return count


class Fit(NamedTuple):
    """seconds = fixed + each * size.

    Attributes:
        fixed: seconds at size 0.
        each: seconds per unit of size.
        residual: root mean square of measured - fitted seconds.
    """

    fixed: float
    each: float
    residual: float


def linear_fit(seconds: Mapping[int, float]) -> Fit:
    """Least squares over seconds by size; at least two sizes."""
    sizes = np.array(list(seconds))
    measured = np.array(list(seconds.values()))
    line = stats.linregress(sizes, measured)
    off = measured - (line.intercept + line.slope * sizes)
    return Fit(float(line.intercept), float(line.slope), float(np.sqrt(np.mean(off**2))))


def mean_interval(values: Floats) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean; of one value alone that value twice."""
    if len(values) < 2:
        return float(values[0]), float(values[0])
    low, high = _bootstrap([values], np.mean)
    return float(low), float(high)


def chance_of_all(count: Floats, samples: Floats, k: int) -> Floats:
    """For each of P problems, the chance that k samples, drawn without replacement from `samples`
    (P,), are all among `count` (P,) of them.

    With the right ones it is pass^k (Yao et al. 2024, tau-bench, arXiv 2406.12045); with the wrong
    ones 1 - pass@k, estimated without bias (Chen et al. 2021, arXiv 2107.03374).
    """
    return special.comb(count, k) / special.comb(samples, k)


def sampling_bound(outcomes: int, samples: int, level: float) -> float:
    """A bound on the total variation between a distribution over K outcomes and the frequencies of
    n samples of it.

    Its mean is at most sqrt(K / n) / 2, for E|f_k - p_k| <= sqrt(p_k (1 - p_k) / n) and
    Cauchy-Schwarz. One sample moves it by at most 1 / n, so by McDiarmid it exceeds its mean by
    sqrt(ln(1 / level) / (2 n)) with probability at most `level`. By the triangle inequality it also
    bounds the error of a distance to a third distribution.
    """
    return math.sqrt(outcomes / samples) / 2 + math.sqrt(math.log(1 / level) / (2 * samples))


def hoeffding(samples: int, level: float) -> float:
    """A bound, except with probability `level`, on the error of the mean of independent values in
    [0, 1]."""
    return math.sqrt(math.log(2 / level) / (2 * samples))


def total_ratio_interval(parts: Sequence[Floats]) -> tuple[float, float, float]:
    """A ratio of totals over paired items and its bootstrap interval: value, low, high.

    Of a single item all three are its ratio.

    Args:
        parts: numerator and denominator, each (items,); four of them are a ratio of two ratios.
    """

    def ratio(*drawn: Floats, axis: int = -1) -> Any:
        sums = [part.sum(axis=axis) for part in drawn]
        return sums[0] / sums[1] if len(sums) == 2 else (sums[0] / sums[1]) / (sums[2] / sums[3])

    value = float(ratio(*parts))
    if len(parts[0]) < 2:
        return value, value, value
    low, high = _bootstrap(parts, ratio, paired=True)
    return value, float(low), float(high)

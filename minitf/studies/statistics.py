"""Few seeds, counted honestly: plain functions over differences that are paired by seed; SciPy does the mathematics.

What n seeds can say at all (two-sided, 5 %; coverage for normal values, by simulation):

    n    least p of the sign-flip test    coverage of the bootstrap interval    effect found with 80 % power
    3    0.25                             75 %                                  3.26 standard deviations
    4    0.125                            80 %                                  2.13
    5    0.0625                           84 %                                  1.68
    6    0.03125                          86 %                                  1.43
    10   0.002                            90 %                                  1.00

So with 3 to 5 seeds p cannot reach 5 %, and with 6 not after a correction; intervals are too short: conditions that do
not overlap decide (`apart`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

LEVEL = 0.95
N_RESAMPLES = 9999
MOST_EXACT = 12  # differences whose 2^n signs are all tried
ROUNDING = 1e-12  # a difference below this share of its numbers, or a spread of the largest difference, is none
NAN = float("nan")


def differences(
    a: Mapping[int, float], b: Mapping[int, float], scale: Mapping[int, float] | None = None
) -> dict[int, float]:
    """a minus b for every seed that both have; 0 where that is only the rounding of these numbers.

    Args:
        a, b: seed -> value.
        scale: seed -> the largest number that a and b were computed from, where they are differences themselves.
    """
    found = {}
    for seed in sorted(a.keys() & b.keys()):
        difference = a[seed] - b[seed]
        size = max(abs(a[seed]), abs(b[seed]), (scale or {}).get(seed, 0.0))
        found[seed] = 0.0 if abs(difference) < ROUNDING * size else difference
    return found


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean: quantiles of the means of samples drawn with replacement.

    Percentile and not BCa: BCa has no answer for equal values, and for 3 values its correction rests on 3 points. With
    few values the interval is too short (see the table above): for 3 it is just their range, which holds the middle of
    a symmetric distribution in 3 of 4 cases. Efron and Tibshirani 1993, chapter 13; `scipy.stats.bootstrap`.

    Args:
        values: finite; the draws have a fixed seed, so the same values give the same interval.
        level: nominal coverage.

    Returns:
        low, high; NaN, NaN for fewer than two values.
    """
    from scipy.stats import bootstrap

    if len(values) < 2:
        return NAN, NAN
    if len(set(values)) == 1:
        return float(values[0]), float(values[0])
    found = bootstrap(
        (np.asarray(values, float),),
        np.mean,
        confidence_level=level,
        n_resamples=N_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def mean_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's t interval of the mean: mean +- t sd / sqrt(n), t the central quantile with n-1 degrees of freedom.

    Args:
        values: finite.
        level: nominal coverage, exact for normal values.

    Returns:
        low, high; NaN, NaN for fewer than two values.
    """
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return NAN, NAN
    mean, half = float(np.mean(values)), float(t.ppf((1 + level) / 2, n - 1)) * _spread(values) / math.sqrt(n)
    return mean - half, mean + half


def sign_flip_p(values: Sequence[float]) -> float:
    """Two-sided p of "the differences lie evenly around 0": the share of sign patterns with as large a mean.

    p = min(1, 2 min(P(mean >= seen), P(mean <= seen))) over all 2^n patterns, each as likely: exact up to n = 12, from
    9999 random patterns above. Fisher 1935; `scipy.stats.permutation_test` with one sample.

    Args:
        values: finite differences.

    Returns:
        p; NaN without differences.
    """
    from scipy.stats import permutation_test

    if not len(values):
        return NAN
    if len(values) == 1:
        return 1.0
    exact = len(values) <= MOST_EXACT
    found = permutation_test(
        (np.asarray(values, float),),
        lambda sample, axis: np.mean(sample, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if exact else N_RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def least_p(n: int) -> float:
    """The smallest p that `sign_flip_p` can give for n differences: 2 of 2^n patterns.

    Args:
        n: how many.
    """
    return min(1.0, 2.0 ** (1 - n))


def holm(ps: Sequence[float]) -> list[float]:
    """p values of one study, corrected for their number: in rising order p_i becomes max over j <= i of (m-j+1) p_j.

    Keeps the chance of any false rejection at the level, whatever their dependence. Holm 1979.

    Args:
        ps: NaN stays NaN and is not counted.
    """
    corrected = [NAN] * len(ps)
    order = sorted((i for i, p in enumerate(ps) if not math.isnan(p)), key=lambda i: ps[i])
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def effect_size(values: Sequence[float]) -> float:
    """Hedges' g of paired differences: J(n-1) * mean / standard deviation, in standard deviations of the differences.

    J(m) = Gamma(m/2) / (sqrt(m/2) Gamma((m-1)/2)) takes the bias of d_z = mean / sd away (3 seeds: J = 0.56). It is the
    spread of the *differences* that counts here, so pairing is used; g of unpaired samples is smaller. Hedges 1981.

    Args:
        values: finite differences.

    Returns:
        g; 0 where all are 0, plus or minus infinity where all are equal, NaN for fewer than three (J is 0 for two).
    """
    n = len(values)
    if n < 3:
        return NAN
    mean, spread = float(np.mean(values)), _spread(values)
    if not spread:
        return math.copysign(math.inf, mean) if mean else 0.0
    m = n - 1
    correction = math.exp(math.lgamma(m / 2) - math.lgamma((m - 1) / 2)) / math.sqrt(m / 2)
    return correction * mean / spread


def detectable(values: Sequence[float], power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true mean difference that this many seeds with this spread would find, in the unit of the metric.

    Args:
        values: finite differences; their standard deviation stands for the true one.
        power, alpha: see `detectable_effect`.

    Returns:
        the difference; 0 without any spread, NaN for fewer than two values.
    """
    return _spread(values) * detectable_effect(len(values), power, alpha) if len(values) > 1 else NAN


def detectable_effect(n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The effect d, in standard deviations, that a two-sided paired t test with n differences finds with this power.

    Solves P(|T| > t) = power, T noncentral t with n-1 degrees of freedom and noncentrality d sqrt(n), t its central
    1 - alpha/2 quantile. Cohen 1988, chapter 2; `scipy.stats.nct`.

    Args:
        n: how many differences.
        power: chance to find it.
        alpha: chance to find something where nothing is.

    Returns:
        d; NaN for fewer than two.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if n < 2:
        return NAN
    bound = t.ppf(1 - alpha / 2, n - 1)

    def lacks(noncentrality: float) -> float:
        upper, lower = nct.sf(bound, n - 1, noncentrality), nct.cdf(-bound, n - 1, noncentrality)
        return float(upper + np.nan_to_num(lower)) - power  # where it is next to 0, SciPy's lower tail may be NaN

    high = 1.0
    while lacks(high) < 0:  # far beyond the answer nct is NaN, so its bracket grows from below
        high *= 1.5
    return float(brentq(lacks, 0.0, high)) / math.sqrt(n)


def apart(a: Sequence[float], b: Sequence[float]) -> int:
    """Whether two conditions do not overlap: 1 if every a is above every b, -1 if below, else 0.

    By chance alone this happens, for n values each, in 2 of (2n choose n) cases: 10 % for 3, 0.8 % for 5.

    Args:
        a, b: values of the conditions.
    """
    if not len(a) or not len(b):
        return 0
    return int(min(a) > max(b)) - int(max(a) < min(b))


def _spread(values: Sequence[float]) -> float:
    """Standard deviation (n-1); 0 where only rounding is left."""
    spread = float(np.std(values, ddof=1))
    return spread if spread > ROUNDING * float(np.max(np.abs(values))) else 0.0

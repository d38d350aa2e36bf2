"""Statistics of few seeds against numbers by hand and closed forms."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from minitf.studies import statistics as s


def test_differences_are_paired_by_seed():
    assert s.differences({2: 5.0, 0: 3.0, 1: 1.0}, {0: 1.0, 2: 7.0, 9: 0.0}) == {0: 2.0, 2: -2.0}


def test_a_difference_that_is_rounding_is_none():
    a, b = {0: 0.1 + 0.2, 1: 1.0, 2: 1e9, 3: math.inf}, {0: 0.3, 1: 1.0 - 1e-9, 2: 1e9 - 1e-4, 3: 1.0}
    assert a[0] != b[0]
    assert s.differences(a, b) == {0: 0.0, 1: a[1] - b[1], 2: 0.0, 3: math.inf}
    assert s.differences({0: 3e-5, 1: 3e-5}, {0: 2e-5, 1: 2e-5}, {0: 1e8}) == {0: 0.0, 1: 3e-5 - 2e-5}


def test_interval_of_three_is_their_range_and_is_the_same_each_time():
    # the mean of three draws is the least value with chance 1/27, which is more than 2.5 %
    assert s.interval([3.0, 1.0, 2.0]) == pytest.approx((1.0, 3.0))
    values = [0.3, 0.1, 0.25, 0.9, 0.4, 0.6]
    assert s.interval(values) == s.interval(values)


def test_interval_of_five_against_every_sample_there_is():
    values = np.array([0.1, 0.4, 0.5, 0.7, 1.5])
    means = [np.mean(draw) for draw in itertools.product(values, repeat=5)]
    assert s.interval(values) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.03)


def test_interval_of_one_or_equal_values():
    assert all(map(math.isnan, s.interval([1.0])))
    assert s.interval([0.5, 0.5, 0.5]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1.0, 2.0, 3.0], 2 / 8),  # only +++ and --- are as far out
        ([1.0, -2.0, 3.0], 6 / 8),  # means 2, -2, and 4, 6, 0 ...: sums >= 2 are +++, -++ (4), +-+ (2)
        ([0.1] * 6, 2 / 64),
        ([0.0, 0.0, 0.0], 1.0),
        ([5.0], 1.0),
    ],
)
def test_sign_flips_by_hand(values, p):
    assert s.sign_flip_p(values) == pytest.approx(p)


def test_sign_flips_against_every_pattern():
    values = np.random.default_rng(3).normal(0.5, size=8)
    sums = np.array([np.dot(signs, values) for signs in itertools.product((1, -1), repeat=8)])
    assert s.sign_flip_p(values) == pytest.approx((np.abs(sums) >= values.sum() - 1e-12).mean())
    assert s.sign_flip_p(np.abs(values)) == s.least_p(8) == 2 / 256


def test_many_values_are_tested_by_chance_patterns_the_same_each_time():
    values = np.random.default_rng(3).normal(0.3, size=40)
    assert (
        s.sign_flip_p(values) == s.sign_flip_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01)
    )


def test_holm_by_hand():
    assert s.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert s.holm([0.6, 0.7]) == [1.0, 1.0]
    with_gap = s.holm([0.02, s.NAN, 0.03])
    assert with_gap[0] == 0.04
    assert math.isnan(with_gap[1])
    assert s.holm([]) == []


def test_effect_size_by_hand():
    # mean 2, standard deviation 1; J(2) = Gamma(1) / (sqrt(1) Gamma(1/2)) = 1 / sqrt(pi)
    assert s.effect_size([1.0, 2.0, 3.0]) == pytest.approx(2 / math.sqrt(math.pi))
    assert s.effect_size([-1.0, -2.0, -3.0]) == pytest.approx(-2 / math.sqrt(math.pi))
    many = np.random.default_rng(0).normal(1, 2, 50)
    assert s.effect_size(many) == pytest.approx(np.mean(many) / np.std(many, ddof=1) * (1 - 3 / (4 * 49 - 1)), rel=1e-4)


def test_effect_size_without_spread():
    assert s.effect_size([0.0, 0.0, 0.0]) == 0.0
    assert s.effect_size([0.1, 0.1, 0.1]) == math.inf
    assert s.effect_size([0.3 - 0.2, 0.1, 0.4 - 0.3]) == math.inf  # equal but for rounding
    assert s.effect_size([-0.1, -0.1, -0.1]) == -math.inf
    assert math.isnan(s.effect_size([1.0, 2.0]))


def test_effect_size_has_no_bias():
    draws = np.random.default_rng(1).normal(1.0, 1.0, (20_000, 4))
    assert np.mean([s.effect_size(d) for d in draws]) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(("n", "d"), [(3, 3.264), (10, 0.9960), (34, 0.4950)])
def test_detectable_effect_against_tables_of_power(n, d):
    # G*Power: 34 pairs find d = 0.5, 10 pairs d = 1
    assert s.detectable_effect(n) == pytest.approx(d, abs=1e-3)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_detectable_effect_is_found_in_80_of_100_t_tests(n):
    draws = np.random.default_rng(2).normal(s.detectable_effect(n), 1.0, (20_000, n))
    assert np.mean(stats.ttest_1samp(draws, 0.0, axis=1).pvalue <= 0.05) == pytest.approx(0.8, abs=0.012)


def test_detectable_difference_has_the_unit_of_the_metric():
    assert s.detectable([10.0, 20.0, 30.0]) == pytest.approx(10 * s.detectable_effect(3))
    assert s.detectable([0.1, 0.1, 0.1]) == 0.0
    assert math.isnan(s.detectable([1.0]))
    assert math.isnan(s.detectable_effect(1))


def test_apart():
    assert s.apart([3, 4], [1, 2]) == 1
    assert s.apart([1, 2], [3, 4]) == -1
    assert s.apart([1, 3], [2, 4]) == s.apart([2, 3], [1, 2]) == s.apart([], [1]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("n", "coverage"), [(3, 0.75), (4, 0.80), (5, 0.84), (6, 0.86)])
def test_coverage_of_the_interval_as_the_table_says(n, coverage):
    draws = np.random.default_rng(n).normal(size=(600, n))
    hits = [low <= 0 <= high for low, high in map(s.interval, draws)]
    assert np.mean(hits) == pytest.approx(coverage, abs=0.05)


def test_mean_interval_is_that_of_scipys_t_test():
    values = [0.3, 0.9, 0.4, 0.8, 0.35, 0.5, 0.7]
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert s.mean_interval(values) == pytest.approx((theirs.low, theirs.high))
    assert s.mean_interval([0.1] * 9) == pytest.approx((0.1, 0.1))
    assert all(math.isnan(v) for v in s.mean_interval([1.0]))

import math

import numpy as np
import pytest
from scipy import stats

from fedfisher_core.engine.errors import InputError
from fedfisher_core.reporting.measure import Measure, WelchDifference, of_most_runs, paired_difference, with_most_seeds


def test_a_paired_difference_by_hand() -> None:
    # Differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1; t(0.975, 2) = 4.3027.
    difference = paired_difference({0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.5, 2: 0.6})
    assert difference is not None
    assert (difference.mean, difference.deviation, difference.n) == (pytest.approx(0.2), pytest.approx(0.1), 3)
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert difference.interval == pytest.approx((0.2 - half, 0.2 + half))
    # t = 0.2 / (0.1 / sqrt(3)) = 3.4641 with two degrees of freedom.
    assert difference.p_value == pytest.approx(2 * stats.t.sf(2 * math.sqrt(3), 2))
    assert (-difference).interval == pytest.approx((-0.2 - half, -0.2 + half))
    assert (-difference).p_value == difference.p_value


def test_an_interval_excludes_0_exactly_where_the_test_rejects() -> None:
    difference = paired_difference({0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.5, 2: 0.6})
    assert difference is not None
    assert difference.p_value is not None
    for level, excludes in ((difference.p_value * 1.01, True), (difference.p_value * 0.99, False)):
        bounds = difference.interval_at(level)
        assert bounds is not None
        assert (bounds[0] > 0) == excludes


def test_one_seed_gives_neither_an_interval_nor_a_p_value() -> None:
    difference = paired_difference({0: 0.5}, {0: 0.4})
    assert difference is not None
    assert difference.interval is None
    assert difference.interval_at(0.5) is None
    assert difference.p_value is None


def test_methods_that_are_the_same_are_not_told_apart() -> None:
    same = paired_difference({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    assert same is not None
    assert same.p_value == 1.0
    assert same.interval == (0.0, 0.0)


def test_a_difference_that_is_the_same_in_every_seed_says_nothing_of_others() -> None:
    # In floating point, the differences are 0.01 but for their last bits.
    same = paired_difference({0: 0.6, 1: 0.5, 2: 0.3}, {0: 0.59, 1: 0.49, 2: 0.29})
    assert same is not None
    assert (same.mean, same.n) == (0.01, 3)
    assert same.interval is None
    assert same.p_value is None


def test_what_differs_in_the_last_bit_is_no_difference() -> None:
    tie = paired_difference({0: 0.1, 1: 0.2}, {0: 0.15, 1: 0.15})
    assert tie is not None
    assert tie.mean == 0


def test_those_with_the_most_seeds_are_compared() -> None:
    assert with_most_seeds({"a": 2, "b": 3, "c": 3, "d": 1}) == ["b", "c"]
    assert with_most_seeds({}) == []


FIRST, SECOND = np.random.default_rng(0).normal(0.5, 0.02, 6), np.random.default_rng(1).normal(0.51, 0.05, 4)


def measured() -> WelchDifference:
    return WelchDifference.of(Measure.of(FIRST.tolist()), Measure.of(SECOND.tolist()))


def test_the_interval_is_welchs() -> None:
    expected = stats.ttest_ind(FIRST, SECOND, equal_var=False).confidence_interval(0.9)
    assert measured().interval(0.1) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("margin", [0.01, 0.05, 0.2])
def test_two_one_sided_tests_are_those_of_the_shifted_samples(margin: float) -> None:
    below = stats.ttest_ind(FIRST + margin, SECOND, equal_var=False, alternative="greater").pvalue
    above = stats.ttest_ind(FIRST - margin, SECOND, equal_var=False, alternative="less").pvalue
    assert measured().p_equivalent(margin) == pytest.approx(max(below, above))


def test_equivalence_is_the_interval_within_the_margin() -> None:
    low, high = measured().interval(0.1)
    widest = max(abs(low), abs(high))
    assert measured().p_equivalent(1.001 * widest) < 0.05 < measured().p_equivalent(0.999 * widest)


def test_beyond_the_margin_is_the_interval_outside_of_it() -> None:
    far = WelchDifference(mean=-0.3, error=0.05, degrees=4)
    low, high = far.interval(0.1)
    assert low < high < 0
    # The other side has its share of the probability, however small.
    assert far.p_beyond(0.98 * -high) < 0.05 < far.p_beyond(-high)
    # No difference is shown to be within a margin and beyond it.
    for margin in (0.01, 0.3, 0.9):
        assert far.p_beyond(margin) + far.p_equivalent(margin) >= 1 - 1e-12


def test_means_that_do_not_vary_are_compared_exactly() -> None:
    exact = WelchDifference.of(Measure(0.5, 0.0, 3), Measure(0.52, 0.0, 2))
    assert exact.error == 0
    assert (exact.p_equivalent(0.05), exact.p_equivalent(0.01)) == (0.0, 1.0)
    assert (exact.p_beyond(0.05), exact.p_beyond(0.01)) == (1.0, 0.0)


def test_degrees_of_freedom_by_hand() -> None:
    # Terms 0.03^2 / 2 = 0.00045 and 0.02^2 / 5 = 0.00008: (0.00053)^2 / (0.00045^2 / 1 + 0.00008^2 / 4).
    found = WelchDifference.of(Measure(0.6, 0.03, 2), Measure(0.5, 0.02, 5))
    assert found.degrees == pytest.approx(0.00053**2 / (0.00045**2 + 0.00008**2 / 4))
    assert found.error == pytest.approx(math.sqrt(0.00053))


def test_a_mean_without_a_deviation_is_refused() -> None:
    with pytest.raises(InputError, match="at least two repetitions"):
        WelchDifference.of(Measure(0.5, None, 1), Measure(0.5, 0.1, 2))


def test_of_means_whose_difference_is_the_margin_one_in_twenty_is_said_to_lie_beyond() -> None:
    draw = np.random.default_rng(0).standard_t(2, size=20_000)
    errors = [WelchDifference(mean=1.0 + one, error=1.0, degrees=2).p_beyond(1.0) for one in draw]
    assert 0.045 < np.mean(np.array(errors) < 0.05) < 0.0535


@pytest.mark.parametrize(
    ("seeds", "places"),
    [
        # Three settings of three seeds are nine runs, where two of four are eight.
        (["0124", "0123", "01234"], [0, 1, 2]),
        # Two seeds in three settings, where each alone has three.
        (["012", "013", "014"], [0, 1, 2]),
        # Of as many runs, those of more seeds.
        (["0123", "01"], [0]),
        # Several seeds come before one.
        (["01", "02", "03"], [0]),
        (["0", "0"], [0, 1]),
        ([], []),
    ],
)
def test_settings_and_seeds_with_most_runs_are_chosen(seeds: list[str], places: list[int]) -> None:
    pairs = [(dict.fromkeys(one, 0.5), dict.fromkeys(one + "9", 0.4)) for one in seeds]
    assert of_most_runs(pairs) == places

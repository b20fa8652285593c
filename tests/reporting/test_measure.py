import math

import pytest
from scipy import stats

from fedfisher_core.reporting.measure import paired_difference, with_most_seeds


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

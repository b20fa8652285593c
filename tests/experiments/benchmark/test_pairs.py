import math

import pytest
from scipy import stats

from fedfisher_core.experiments.benchmark.answer import Pair, compare_pairs, decided
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import summarise
from tests.experiments.benchmark.samples import make_row


def rows_of(accuracies: dict[str, list[float]], **changes: object) -> list[Row]:
    return [
        make_row(method, seed=seed, accuracy=accuracy, **changes)
        for method, own in accuracies.items()
        for seed, accuracy in enumerate(own)
    ]


def by_names(rows: list[Row]) -> dict[tuple[str, str], Pair]:
    return {(pair.higher, pair.lower): pair for pair in compare_pairs(summarise(rows))}


THREE = {"a": [0.90, 0.91, 0.92], "b": [0.61, 0.60, 0.63], "c": [0.60, 0.62, 0.61]}


def test_pairs_are_corrected_for_all_tests_by_hand() -> None:
    pairs = by_names(rows_of(THREE))
    assert set(pairs) == {("a", "b"), ("a", "c"), ("b", "c")}
    # Differences of a to c: 0.30, 0.29, 0.31; of a to b: 0.29, 0.31, 0.29; of b to c: 0.01, -0.02, 0.02.
    first = 2 * stats.t.sf(0.3 / (0.01 / math.sqrt(3)), 2)
    second = 2 * stats.t.sf(0.89 / 3 / (stats.tstd([0.29, 0.31, 0.29]) / math.sqrt(3)), 2)
    third = 2 * stats.t.sf(0.01 / 3 / (stats.tstd([0.01, -0.02, 0.02]) / math.sqrt(3)), 2)
    assert 3 * first > 2 * second
    # The second is no smaller than the first.
    for names, corrected in ((("a", "c"), 3 * first), (("a", "b"), 3 * first), (("b", "c"), third)):
        assert pairs[names].p_value == pytest.approx(corrected)
        assert pairs[names].differs == (names[0] == "a")


def test_more_settings_are_more_tests() -> None:
    one = by_names(rows_of(THREE))["a", "c"]
    both = compare_pairs(summarise([*rows_of(THREE), *rows_of(THREE, alpha=0.5)]))
    assert len(both) == 6
    twice = [pair.p_value for pair in both if (pair.higher, pair.lower) == ("a", "c")]
    assert one.p_value is not None
    # The two share the smallest p-value of six: the first is multiplied by 6, and the second may not be below it.
    assert twice == pytest.approx([2 * one.p_value] * 2)


def test_one_seed_gives_no_test_and_no_claim() -> None:
    (pair,) = compare_pairs(summarise([make_row("a", accuracy=0.9), make_row("b", accuracy=0.1)]))
    assert pair.difference.mean == pytest.approx(0.8)
    assert pair.p_value is None
    assert not pair.differs


def test_what_is_not_tested_does_not_count() -> None:
    alone = make_row("dense", accuracy=0.1)
    with_dense, without = by_names([*rows_of(THREE), alone]), by_names(rows_of(THREE))
    assert with_dense["a", "dense"].p_value is None
    assert with_dense["a", "b"].p_value == without["a", "b"].p_value


def test_without_a_common_seed_there_is_no_pair() -> None:
    assert not compare_pairs(summarise([make_row("a", seed=0), make_row("b", seed=1)]))


def test_methods_that_tie_are_no_discovery() -> None:
    assert by_names(rows_of({"a": [0.5, 0.6], "b": [0.5, 0.6]}))["a", "b"].p_value == 1.0


def test_ensembles_and_references_are_not_compared() -> None:
    apart = [
        *rows_of({"ensemble": [0.9, 0.9], "local_mean": [0.1, 0.2]}, reference=True),
        *rows_of({"fedavg": [0.5, 0.4]}),
    ]
    assert not compare_pairs(summarise(apart))


def test_what_is_decided_is_gathered_by_setting_and_method() -> None:
    rows = [*rows_of(THREE), *rows_of({"a": [0.5, 0.6], "b": [0.5, 0.6]}, alpha=0.5), make_row("dense")]
    (found,) = decided(compare_pairs(summarise(rows)))
    assert found.setting.alpha == 0.1
    assert found.above == {"a": ("b", "c")}
    assert found.tests == 3


def test_a_difference_that_is_the_same_in_every_seed_is_not_tested() -> None:
    # In floating point, the differences are 0.01 but for their last bits.
    pairs = by_names(rows_of({"a": [0.6, 0.5, 0.3], "b": [0.59, 0.49, 0.29], "c": [0.1, 0.2, 0.1]}))
    assert pairs["a", "b"].difference.mean == 0.01
    assert pairs["a", "b"].p_value is None
    without = by_names(rows_of({"a": [0.6, 0.5, 0.3], "c": [0.1, 0.2, 0.1]}))["a", "c"].p_value
    assert without is not None
    # It is one of two tests, and not of three.
    assert pairs["a", "c"].p_value == pytest.approx(2 * without)

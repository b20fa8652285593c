import itertools

import numpy as np
import pytest

from fedfisher_core.reporting.ranks import holm
from fedfisher_core.reporting.signed_ranks import LEAST_SETTINGS, beside_others, signed_rank_p_value


def test_the_signed_rank_test_is_that_of_all_signs() -> None:
    differences = np.array([0.4, -0.1, 0.3, 0.2, 0.7, 0.5, -0.05])
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    signs = np.array(list(itertools.product([-1, 1], repeat=len(ranks))))
    observed = abs((np.sign(differences) * ranks).sum())
    exact = np.mean(np.abs(signs @ ranks) >= observed)
    assert signed_rank_p_value(differences) == pytest.approx(exact)


def test_methods_that_never_differ_are_no_discovery() -> None:
    assert signed_rank_p_value(np.zeros(8)) == 1.0


def test_settings_without_a_difference_count_for_both_sides() -> None:
    whole = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert signed_rank_p_value(whole) < signed_rank_p_value(np.where(whole < 0.35, 0, whole))


def test_the_first_beside_each_other_by_hand() -> None:
    first = np.array([0.9, 0.8, 0.7, 0.9, 0.8, 0.7, 0.9, 0.8])
    scores = np.stack([first, first - np.linspace(0.01, 0.08, 8), first + np.array([0.1, *([-0.02] * 6), 0])], axis=1)
    near, mixed = beside_others(scores, ["a", "b", "c"])
    assert (near.other, near.wins, near.losses) == ("b", 8, 0)
    assert (near.mean, near.lowest) == pytest.approx((0.045, 0.01))
    assert (mixed.other, mixed.wins, mixed.losses) == ("c", 6, 1)
    assert mixed.lowest == pytest.approx(-0.1)
    # All three pairs are corrected for, the one without the first as well.
    pairs = [signed_rank_p_value(scores[:, one] - scores[:, other]) for one, other in [(0, 1), (0, 2), (1, 2)]]
    assert [near.p_value, mixed.p_value] == pytest.approx(holm(pairs)[:2])
    assert near.p_value == pytest.approx(3 * 2 / 2**8)


def test_too_few_settings_are_not_tested() -> None:
    scores = np.stack([np.ones(LEAST_SETTINGS), np.linspace(0.1, 0.6, LEAST_SETTINGS)], axis=1)
    (tested,), (fewer,) = beside_others(scores, ["a", "b"]), beside_others(scores[1:], ["a", "b"])
    assert tested.p_value is not None
    assert tested.p_value <= 0.05
    assert (fewer.wins, fewer.p_value) == (LEAST_SETTINGS - 1, None)
    assert signed_rank_p_value(scores[1:, 0] - scores[1:, 1]) > 0.05

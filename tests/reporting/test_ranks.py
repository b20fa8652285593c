import numpy as np
import pytest

from fedfisher_core.reporting.ranks import holm, mean_ranks, ranks


def test_the_best_has_rank_1_and_ties_share() -> None:
    assert ranks([0.5, 0.9, 0.5, 0.1]).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_mean_ranks_are_those_of_the_settings() -> None:
    scores = np.array([[0.9, 0.8, 0.1], [0.5, 0.6, 0.4]])
    assert mean_ranks(scores).tolist() == [1.5, 1.5, 3.0]


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    # Sorted: 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1, which may not fall below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []

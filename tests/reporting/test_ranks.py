import itertools

import numpy as np
import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.reporting.ranks import (
    critical_difference,
    friedman_p_value,
    holm,
    holm_levels,
    mean_ranks,
    ranks,
)


def test_the_best_has_rank_1_and_ties_share() -> None:
    assert ranks([0.5, 0.9, 0.5, 0.1]).tolist() == [2.5, 1.0, 2.5, 4.0]


def test_mean_ranks_are_those_of_the_settings() -> None:
    scores = np.array([[0.9, 0.8, 0.1], [0.5, 0.6, 0.4]])
    assert mean_ranks(scores).tolist() == [1.5, 1.5, 3.0]


# Demsar 2006, table 5 (a): q at 0.05 for two-tailed Nemenyi tests.
@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_the_published_quantiles(methods: int, quantile: float) -> None:
    found = critical_difference(methods, 14)
    assert found == pytest.approx(quantile * (methods * (methods + 1) / (6 * 14)) ** 0.5, abs=2e-3)
    assert critical_difference(methods, 14, level=0.1) < found


def test_friedmans_test_is_that_of_all_permutations() -> None:
    scores = np.array([[0.9, 0.5, 0.1], [0.8, 0.6, 0.2], [0.9, 0.2, 0.1], [0.7, 0.6, 0.5]])

    def spread(order: np.ndarray) -> float:
        return float(np.var(order.mean(0)))

    rows = np.array(list(itertools.permutations([1, 2, 3])))
    all_ranks = (np.array(choice) for choice in itertools.product(rows, repeat=len(scores)))
    observed = spread(np.array([ranks(row) for row in scores]))
    exact = np.mean([spread(choice) >= observed - 1e-12 for choice in all_ranks])
    # Chi-squared with two degrees of freedom is near to the exact distribution of so few settings, no more.
    assert friedman_p_value(scores) == pytest.approx(exact, abs=0.02)


def test_methods_that_do_not_differ_at_all_are_no_discovery() -> None:
    assert friedman_p_value(np.full((4, 3), 0.5)) == 1.0


def test_too_few_to_test_are_refused() -> None:
    with pytest.raises(InputError, match="1 settings and 3 methods"):
        friedman_p_value(np.zeros((1, 3)))


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    # Sorted: 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1, which may not fall below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_holms_levels_are_those_at_which_it_rejects() -> None:
    # Sorted: 0.001 at 0.05 / 4, 0.02 at 0.05 / 3, which is not rejected; the others share that level.
    levels = holm_levels([0.02, 0.001, 0.6, 0.03])
    assert levels == pytest.approx([0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3])
    assert holm_levels([]) == []


def test_holms_levels_and_its_corrected_values_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        p_values = (rng.uniform(size=6) ** 4).tolist()
        rejected = [corrected <= 0.05 for corrected in holm(p_values)]
        assert [p <= level for p, level in zip(p_values, holm_levels(p_values), strict=True)] == rejected

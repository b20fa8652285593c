import numpy as np
import pytest

from fedfisher_core.fisher.pivoted_cholesky import Matrix, pivoted_cholesky


def of_rank(rank: int, size: int = 12) -> Matrix:
    rows = np.random.default_rng(rank).normal(size=(rank, size))
    return rows.T @ rows


@pytest.mark.parametrize("rank", [0, 1, 5, 12])
def test_the_factor_has_as_many_columns_as_the_matrix_has_directions(rank: int) -> None:
    matrix = of_rank(rank)
    factor = pivoted_cholesky(matrix, tolerance=1e-10)
    assert factor.shape == (12, rank)
    assert np.allclose(factor @ factor.T, matrix)


def test_no_pivot_that_is_left_out_is_above_the_tolerance() -> None:
    matrix = of_rank(3) + 0.01 * np.eye(12)
    factor = pivoted_cholesky(matrix, tolerance=0.02)
    assert factor.shape[1] < 12
    left, before = (matrix - part @ part.T for part in (factor, factor[:, :-1]))
    assert left.diagonal().max() <= 0.02 < before.diagonal().max()


def test_only_the_lower_triangle_is_read() -> None:
    matrix = of_rank(4)
    assert np.array_equal(pivoted_cholesky(np.tril(matrix), tolerance=1e-10), pivoted_cholesky(matrix, tolerance=1e-10))

"""Factors of matrices of few directions, at the cost of the directions that they have."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

Matrix = NDArray[np.float64]


def pivoted_cholesky(matrix: Matrix, *, tolerance: float) -> Matrix:
    """Factor a symmetric positive semi-definite matrix as L L^T, the largest pivot first (LAPACK's pstrf).

    It takes n r^2 multiplications for rank r.

    Args:
        matrix: shape (n, n), n at least 1; its lower triangle is read.
        tolerance: no pivot that is left out is larger.

    Returns:
        L, shape (n, r). A matrix that is not positive semi-definite has some L too: compare L L^T with it.
    """
    factored, pivots, rank, _ = dpstrf(matrix, tol=tolerance, lower=1)
    factor = np.zeros((len(matrix), rank))
    factor[pivots - 1] = np.tril(factored[:, :rank])
    return factor

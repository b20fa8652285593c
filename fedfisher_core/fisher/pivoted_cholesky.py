"""Factors of low-rank matrices, at a cost that grows with their rank."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

Matrix = NDArray[np.float64]


def pivoted_cholesky(matrix: Matrix, *, tolerance: float) -> Matrix:
    """Factor a symmetric positive semi-definite matrix as L L^T, the largest pivot first (LAPACK's pstrf).

    It takes n r^2 multiplications for rank r. A matrix that is not positive semi-definite has some L too, so compare
    L L^T with it.

    Args:
        matrix: shape (n, n), n at least 1; its lower triangle is read.
        tolerance: the largest pivot that may be left out.

    Returns:
        L, shape (n, r).
    """
    factored, pivots, rank, _ = dpstrf(matrix, tol=tolerance, lower=1)
    factor = np.zeros((len(matrix), rank))
    factor[pivots - 1] = np.tril(factored[:, :rank])
    return factor

"""Orthonormal columns as Householder reflectors: as many numbers as they have degrees of freedom."""

import numpy as np
import torch
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def to_reflectors(columns: Matrix) -> Matrix:
    """Write orthonormal columns as a product of reflections.

    Up to its sign, column k is H_1 ... H_k e_k with H_k = I - t_k v_k v_k^T, where v_k is 0 above row k, 1 in
    row k, and t_k = 2 / |v_k|^2. Whatever the entries below row k are, the product is orthonormal, so errors
    in them turn eigenvectors but never make them dependent or of another length.

    Args:
        columns: shape (..., n, r), r <= n, with orthonormal columns.

    Returns:
        The entries below the diagonal, 0 elsewhere, by reflector: row k of shape (..., r, n) holds v_k.
    """
    factored, _ = torch.geqrf(torch.from_numpy(columns))
    return torch.tril(factored, -1).mT.contiguous().numpy()


def from_reflectors(reflectors: Matrix) -> Matrix:
    """Undo `to_reflectors` up to the sign of each column.

    Args:
        reflectors: shape (..., r, n), 0 on and above the diagonal.

    Returns:
        Orthonormal columns, shape (..., n, r).
    """
    lower = torch.from_numpy(reflectors).mT
    return torch.linalg.householder_product(lower, torch.from_numpy(reflector_scales(reflectors))).numpy()


def reflector_scales(reflectors: Matrix) -> Matrix:
    """The t_k = 2 / (1 + the squared entries' sum), shape (..., r)."""
    return 2 / (1 + np.square(reflectors).sum(axis=-1))


def below_diagonal(rank: int, size: int) -> NDArray[np.bool_]:
    """Which entries of `to_reflectors`' result are free, shape (rank, size)."""
    return np.arange(size)[None, :] > np.arange(rank)[:, None]

"""Mean and leading directions of rows of numbers."""

from dataclasses import dataclass

import torch
from scipy.linalg import eigh
from torch import Tensor

_BATCH_SIZE = 1000


@dataclass(frozen=True)
class Principal:
    """A mean and a covariance, in double precision.

    Args:
        mean: of the rows, shape (numbers,).
        variances: of every number, shape (numbers,).
        directions: eigenvectors of the covariance, each as long as the standard deviation along it, the longest first,
            shape (directions, numbers); 0 where the rows have no such direction.
    """

    mean: Tensor
    variances: Tensor
    directions: Tensor


def principal(rows: Tensor, directions: int) -> Principal:
    """Find mean, variances and leading directions; sums are kept in double precision.

    Args:
        rows: at least one, shape (rows, numbers).
        directions: most that are kept.

    Returns:
        With as many directions as were asked for, or as there are numbers.
    """
    mean = rows.mean(0, dtype=torch.float64)
    if len(rows) < len(mean):
        centred = rows - mean
        return Principal(mean, centred.square().mean(0), _leading_of_few(centred, directions))
    covariance = mean.new_zeros(len(mean), len(mean))
    for batch in rows.split(_BATCH_SIZE):
        centred = batch - mean.float()
        covariance += (centred.T @ centred).double()
    covariance /= len(rows)
    return Principal(mean, covariance.diagonal(), leading(covariance, directions))


def leading(covariance: Tensor, directions: int) -> Tensor:
    """Find eigenvectors of the largest eigenvalues, each as long as its eigenvalue's root, the longest first.

    Args:
        covariance: symmetric, shape (numbers, numbers); an eigenvalue below 0 counts as 0.
        directions: most that are kept.

    Returns:
        Shape (directions, numbers), or (numbers, numbers) where that is less, on the covariance's device.
    """
    size = len(covariance)
    first = max(0, size - directions)
    values, vectors = eigh(covariance.cpu().numpy(), subset_by_index=[first, size - 1])
    # Rounding, and the noise of a release, leave negative eigenvalues where the data has no extent.
    scaled = torch.from_numpy(vectors) * torch.from_numpy(values).clamp(min=0).sqrt()
    return scaled.T.flip(0).contiguous().to(covariance.device)


def _leading_of_few(centred: Tensor, directions: int) -> Tensor:
    """`leading` of the covariance of fewer rows than it has itself, by way of their inner products.

    Where v is an eigenvector of X X^T / n for the eigenvalue lambda, X^T v / sqrt(n) is one of X^T X / n, and its
    length is sqrt(lambda).

    Args:
        centred: X, the rows less their mean, shape (n, numbers), double precision.
        directions: most that are kept.

    Returns:
        Shape (directions, numbers), or (numbers, numbers) where that is less; 0 in rows beyond the n.
    """
    count, size = centred.shape
    first = max(0, count - directions)
    products = (centred @ centred.T / count).cpu().numpy()
    _, vectors = eigh(products, subset_by_index=[first, count - 1])
    found = torch.from_numpy(vectors).to(centred).T.flip(0) @ centred / count**0.5
    return torch.cat([found, centred.new_zeros(min(directions, size) - len(found), size)])

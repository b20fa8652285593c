"""Mean and leading directions of rows of numbers, and the low frequencies of images."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.linalg import eigh
from torch import Tensor

_BATCH_SIZE = 1000


@dataclass(frozen=True)
class Principal:
    """Mean, variances and leading directions of rows of numbers, in double precision.

    Args:
        mean: shape (numbers,).
        variances: shape (numbers,).
        directions: eigenvectors of the covariance, each as long as the standard deviation along it, the longest first,
            shape (directions, numbers); 0 if the rows have fewer directions.
    """

    mean: Tensor
    variances: Tensor
    directions: Tensor


def principal(rows: Tensor, directions: int) -> Principal:
    """Find mean, variances and leading directions; sums are kept in double precision.

    Args:
        rows: at least one, shape (rows, numbers).
        directions: how many to keep, or all if there are fewer numbers.
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
    """Find the leading eigenvectors, each as long as the root of its eigenvalue, the longest first.

    Args:
        covariance: symmetric, shape (numbers, numbers); an eigenvalue below 0 counts as 0.
        directions: most that are kept.

    Returns:
        Shape (min(directions, numbers), numbers), on the covariance's device.
    """
    size = len(covariance)
    first = max(0, size - directions)
    values, vectors = eigh(covariance.cpu().numpy(), subset_by_index=[first, size - 1])
    # Where the data has no variance, rounding and the noise of a release give negative eigenvalues.
    scaled = torch.from_numpy(vectors) * torch.from_numpy(values).clamp(min=0).sqrt()
    return scaled.T.flip(0).contiguous().to(covariance.device)


def _leading_of_few(centred: Tensor, directions: int) -> Tensor:
    """`leading` of the covariance of rows that are fewer than their numbers, computed from their inner products.

    If v is an eigenvector of X X^T / n for the eigenvalue lambda, X^T v / sqrt(n) is one of X^T X / n, and its length
    is sqrt(lambda).

    Args:
        centred: X, the rows less their mean, shape (n, numbers), double precision.
        directions: most that are kept.

    Returns:
        Shape (min(directions, numbers), numbers); rows after the n-th are 0.
    """
    count, size = centred.shape
    first = max(0, count - directions)
    products = (centred @ centred.T / count).cpu().numpy()
    _, vectors = eigh(products, subset_by_index=[first, count - 1])
    found = torch.from_numpy(vectors).to(centred).T.flip(0) @ centred / count**0.5
    return torch.cat([found, centred.new_zeros(min(directions, size) - len(found), size)])


@dataclass(frozen=True)
class LowFrequencies:
    """The lowest frequencies of a two-dimensional cosine transform of each channel (DCT-II, orthonormal).

    Of inputs that are not images it keeps every number.

    Args:
        shape: of one input, (channels, height, width) for images.
        most: frequencies kept along each side, at most as many as the shorter side has pixels.
    """

    shape: tuple[int, ...]
    most: int

    @classmethod
    def of_size(cls, shape: Sequence[int], size: int) -> "LowFrequencies":
        """The transform of inputs of a shape that keeps `size` numbers of each."""
        return cls(tuple(shape), math.isqrt(size // shape[0]))

    @property
    def size(self) -> int:
        """Numbers that are kept of an input."""
        return self.shape[0] * self._kept**2 if self._images else math.prod(self.shape)

    def keep(self, inputs: Tensor) -> Tensor:
        """Transform flat inputs, shape (count, inputs), to their low frequencies, shape (count, size)."""
        if not self._images:
            return inputs
        down, across = self._bases(inputs)
        return (down @ inputs.reshape(-1, *self.shape) @ across.T).flatten(1)

    def fill(self, kept: Tensor) -> Tensor:
        """Make the flat inputs that have these low frequencies and no others; the reverse of `keep`."""
        if not self._images:
            return kept
        down, across = self._bases(kept)
        return (down.T @ kept.reshape(-1, self.shape[0], self._kept, self._kept) @ across).flatten(1)

    @property
    def _images(self) -> bool:
        return len(self.shape) == 3

    @property
    def _kept(self) -> int:
        return min(self.most, *self.shape[1:])

    def _bases(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest cosines along height and width, as rows."""
        down, across = (_cosines(self._kept, length).to(like) for length in self.shape[1:])
        return down, across


@functools.cache
def _cosines(count: int, length: int) -> Tensor:
    """The first rows of the orthonormal DCT-II of a length."""
    positions = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(torch.pi / length * torch.arange(count, dtype=torch.float64)[:, None] * positions)
    rows *= (2 / length) ** 0.5
    rows[0] *= 0.5**0.5
    return rows

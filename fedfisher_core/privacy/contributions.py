"""What each example adds to a sum, held so that its norm and a weighted sum are cheap.

Clipping needs the Frobenius norm of every example's own matrix, and then the sum of the matrices, each scaled down to
its clip. Where a matrix is a product, neither forms it.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Contributions(ABC):
    """The matrices of a chunk of examples."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Squared Frobenius norms in double precision, shape (examples,)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Add the matrices up.

        Args:
            weights: one an example, not negative. A matrix of weight 0 adds nothing, even if it is not finite.
        """


class Matrices(Contributions):
    """The matrices themselves, shape (examples, rows, columns)."""

    def __init__(self, matrices: Tensor) -> None:
        self._matrices = matrices

    def squared_norms(self) -> Tensor:
        """See `Contributions`."""
        return _squared_lengths(self._matrices)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See `Contributions`."""
        return _scaled(self._matrices, weights).sum(0)


class Outer(Contributions):
    """Outer products a b^T.

    Args:
        left: a, shape (examples, rows).
        right: b, shape (examples, columns).
    """

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self._left = left
        self._right = right

    def squared_norms(self) -> Tensor:
        """See `Contributions`."""
        return _squared_lengths(self._left) * _squared_lengths(self._right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See `Contributions`."""
        # Each factor takes the root of the weight, so that neither grows larger than the product.
        root = weights.sqrt()
        return _scaled(self._left, root).T @ _scaled(self._right, root)


class Gram(Contributions):
    """Second moments V^T V.

    Args:
        vectors: V, shape (examples, vectors, elements).
    """

    def __init__(self, vectors: Tensor) -> None:
        self._vectors = vectors

    def squared_norms(self) -> Tensor:
        """See `Contributions`; V V^T has the same norm, and is the smaller one where vectors are few."""
        return _squared_lengths(self._vectors @ self._vectors.transpose(1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See `Contributions`."""
        vectors = _scaled(self._vectors, weights.sqrt()).flatten(0, 1)
        return vectors.T @ vectors


def second_moments(vectors: Tensor) -> Contributions:
    """Hold V^T V of every example, shape (elements, elements), in the form that takes less memory.

    Args:
        vectors: V, shape (examples, vectors, elements).
    """
    if vectors.shape[1] < vectors.shape[2]:
        return Gram(vectors)
    return Matrices(vectors.transpose(1, 2) @ vectors)


def clip_factors(squared_norms: Tensor, clip: float) -> Tensor:
    """Factors min(1, clip / norm) that bring each example's norm down to a clip, shape (examples,).

    A factor is 0 where the norm is not finite, as the bound must hold there as well.
    """
    factors = (clip / squared_norms.sqrt()).clamp(max=1.0)
    return torch.where(squared_norms.isfinite(), factors, 0.0)


def _squared_lengths(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor.flatten(1), dim=1, dtype=torch.float64).square()


def _scaled(tensor: Tensor, weights: Tensor) -> Tensor:
    """Multiply each example's elements by its weight, where 0 times anything is 0."""
    weights = weights.to(tensor).view(-1, *[1] * (tensor.ndim - 1))
    return torch.where(weights > 0, tensor * weights, 0)

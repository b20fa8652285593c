"""What each example adds to a sum, how it is clipped, and the noise with which sums are released."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.settings import PrivacySettings


@dataclass(frozen=True)
class Release:
    """How clients released their statistics; all of it is public.

    Args:
        settings: the clips.
        multiplier: deviation of the noise of each mechanism, as a multiple of its clip.
        num_examples: n_i of the clients, the attacked one first.
    """

    settings: PrivacySettings
    multiplier: float
    num_examples: tuple[int, ...]


def moment_clips(settings: PrivacySettings, *, windows: int, columns: int) -> tuple[float, float]:
    """Find the clips of what an example adds to the sums that become a layer's Kronecker factors.

    Args:
        windows: positions of one example that the layer looks at; 1 for a linear layer.
        columns: of the layer's matrix, its inputs with that of a bias.

    Returns:
        Largest Frobenius norms of an example's sum of x x^T, and of its sum of g g^T.
    """
    return settings.input_clip * windows * columns, settings.output_clip


def input_moments_clips(settings: PrivacySettings, *, inputs: int) -> tuple[float, float]:
    """Find the clips of what an example adds to the sums that become input moments.

    Args:
        inputs: numbers of one example.

    Returns:
        R = sqrt(`input_moments_clip` inputs), the largest norm of an example x, and R^2, the largest of x x^T.
    """
    square = settings.input_moments_clip * inputs
    return square**0.5, square


def moment_deviation(clip: float, *, sums: int, multiplier: float) -> float:
    """Find the deviation of the noise on one of several sums that are released together.

    Divided by their clips, all of them together change by at most sqrt(sums) with an example.

    Args:
        sums: how many there are: two a layer for Kronecker factors, and two for input moments.
        multiplier: of the mechanism that releases all of them.

    Returns:
        The deviation on a vector, or on the diagonal of a symmetric matrix; elsewhere it is 1 / sqrt(2) of that.
    """
    return multiplier * clip * sums**0.5


def add_noise(tensor: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Add independent normal noise, drawn on the CPU, to every element of a tensor in double precision."""
    noise = torch.randn(tensor.shape, dtype=tensor.dtype, generator=generator)
    return tensor + deviation * noise.to(tensor.device)


def add_symmetric_noise(matrix: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Add normal noise to a symmetric matrix, of the given deviation on the diagonal and 1 / sqrt(2) of it elsewhere.

    The vector of its diagonal and of sqrt(2) times the elements above holds all of the matrix, and its L2 norm is the
    matrix's Frobenius norm: this is the Gaussian mechanism on that vector. The result is symmetric to the last bit.

    Args:
        matrix: in double precision, on any device.
        generator: draws the noise, on the CPU.
    """
    noise = add_noise(torch.zeros_like(matrix), deviation, generator)
    above = noise.triu(1) / 2**0.5
    return matrix + above + above.T + noise.diagonal().diag()


def nearest_semidefinite(matrix: Tensor) -> Tensor:
    """Set a symmetric matrix's negative eigenvalues to 0; no semi-definite matrix is nearer in Frobenius norm.

    The result is symmetric to the last bit.
    """
    values, vectors = torch.linalg.eigh(matrix)
    kept = vectors * values.clamp(min=0).sqrt()
    return kept @ kept.T


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

"""How statistics are released: the clips of their parts, and normal noise on sums."""

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

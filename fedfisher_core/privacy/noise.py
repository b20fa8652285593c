"""Normal noise on sums, and what may be done to them afterwards at no cost."""

import torch
from torch import Tensor


def add_noise(tensor: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Add independent normal noise to every element.

    Args:
        tensor: in double precision, on any device.
        deviation: of the noise.
        generator: draws it, on the CPU.

    Returns:
        The noisy tensor.
    """
    noise = torch.randn(tensor.shape, dtype=tensor.dtype, generator=generator)
    return tensor + deviation * noise.to(tensor.device)


def add_symmetric_noise(matrix: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Add normal noise to the upper triangle of a symmetric matrix, and mirror it.

    The triangle tells all that the matrix does, and an example changes it no more than the matrix, in Frobenius norm
    (Dwork, Talwar, Thakurta and Zhang 2014, "Analyze Gauss").

    Args:
        matrix: symmetric, in double precision, on any device.
        deviation: of the noise.
        generator: draws it, on the CPU.

    Returns:
        The noisy matrix, symmetric to the last bit.
    """
    upper = add_noise(matrix, deviation, generator).triu()
    return upper + upper.triu(1).T


def nearest_semidefinite(matrix: Tensor) -> Tensor:
    """Find the positive semi-definite matrix that is nearest in Frobenius norm.

    Args:
        matrix: symmetric.

    Returns:
        The matrix with its negative eigenvalues set to 0, symmetric to the last bit.
    """
    values, vectors = torch.linalg.eigh(matrix)
    kept = vectors * values.clamp(min=0).sqrt()
    return kept @ kept.T

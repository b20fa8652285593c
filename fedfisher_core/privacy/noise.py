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
    """Add normal noise to a symmetric matrix, of the given deviation on the diagonal and 1 / sqrt(2) of it elsewhere.

    Its diagonal together with sqrt(2) times what is above tells all of the matrix, and has its Frobenius norm as L2
    norm: this is the Gaussian mechanism on that vector.

    Args:
        matrix: symmetric, in double precision, on any device.
        deviation: of the noise on the vector.
        generator: draws it, on the CPU.

    Returns:
        The noisy matrix, symmetric to the last bit.
    """
    noise = add_noise(torch.zeros_like(matrix), deviation, generator)
    above = noise.triu(1) / 2**0.5
    return matrix + above + above.T + noise.diagonal().diag()


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

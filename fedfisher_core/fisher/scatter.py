"""How much a Fisher scatters because directions are drawn, at the network's outputs and in closed form.

A direction v = sqrt(t) (q - e_y) stands for R = t (diag(q) - q q^T), where the class y is drawn from q, and t is the
mass of the classes that it may be. With s_k = sum q_i^k,

    E |v v^T - R|_F^2 = E |v|^4 - |R|_F^2 = t^2 (1 - 3 s_2 - 4 s_2^2 + 6 s_3).
"""

import torch
from torch import Tensor

from fedfisher_core.fisher.estimators import falling


class Scatter:
    """The error of a mean over examples of H, as it is expected of the directions that are drawn.

    Args:
        classes: number of the network's outputs.
        device: where they are.
    """

    def __init__(self, classes: int, device: torch.device) -> None:
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        self._total = torch.zeros(classes, classes, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, *, kept: int, samples: int) -> None:
        """Add a chunk of examples.

        Args:
            outputs: their outputs z, shape (examples, classes).
            kept: directions of each that are not drawn; the leading ones.
            samples: directions of each that are drawn for the others and averaged; 0 for none.
        """
        probabilities = outputs.double().softmax(dim=1)
        self._total += probabilities.sum(0).diag() - probabilities.T @ probabilities
        if samples:
            self._squares += variances(probabilities, kept).sum() / samples

    def relative(self) -> float:
        """Root of the expected squared error of the sum of H, relative to its Frobenius norm; 0 where that is 0."""
        norm = float(torch.linalg.matrix_norm(self._total))
        return float(self._squares.sqrt()) / norm if norm > 0 else 0.0


def variances(probabilities: Tensor, kept: int) -> Tensor:
    """The expected squared error of one drawn direction, in the Frobenius norm.

    Args:
        probabilities: p, shape (examples, classes).
        kept: directions of each that are not drawn; the leading ones.

    Returns:
        E |v v^T - R|^2, shape (examples,).
    """
    behind = falling(probabilities)[0][:, kept:]
    mass = behind.sum(1)
    among = torch.where(mass[:, None] > 0, behind / mass[:, None], 0)
    squares, cubes = among.square().sum(1), among.pow(3).sum(1)
    # Of an example that is sure of a class, rounding may leave less than 0.
    return mass.square() * (1 - 3 * squares - 4 * squares.square() + 6 * cubes).clamp(min=0)

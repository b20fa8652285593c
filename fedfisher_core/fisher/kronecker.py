"""One layer's Fisher block as a Kronecker product (K-FAC; Martens and Grosse 2015, Grosse and Martens 2016)."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Kronecker:
    """The block A (x) G of one layer, which maps the layer's matrix W to G W A.

    Args:
        inputs: A, second moment of the layer's inputs, shape (a, a); a counts the column of ones of a bias.
        outputs: G, second moment of the gradients at the layer's outputs, shape (g, g).
    """

    inputs: Tensor
    outputs: Tensor

    def product(self, matrix: Tensor) -> Tensor:
        """Multiply the block by a vector.

        Args:
            matrix: the vector, as the layer's matrix of shape (g, a).

        Returns:
            G W A, shape (g, a).
        """
        return self.outputs @ matrix @ self.inputs

    def diagonal(self) -> Tensor:
        """Diagonal of the block, as a matrix of shape (g, a)."""
        return self.outputs.diagonal()[:, None] * self.inputs.diagonal()[None, :]

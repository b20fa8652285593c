"""One layer's Fisher block as a Kronecker product (K-FAC; Martens and Grosse 2015, Grosse and Martens 2016)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedfisher_core.errors import InputError


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

    def damped(self, damping: float) -> "Kronecker":
        """Add to both factors what brings the block near A (x) G + damping I (Martens and Grosse 2015, section 6.3).

        With pi^2 the ratio of the factors' mean eigenvalues, the damped block is A (x) G + damping I and cross terms,
        sqrt(damping) (A (x) I / pi + pi I (x) G): where G has nothing to say, the inputs still have.

        Args:
            damping: not negative.

        Returns:
            (A + pi sqrt(damping) I) (x) (G + sqrt(damping) / pi I); pi is 1 where a factor is 0.
        """
        if damping == 0:
            return self
        means = [factor.diagonal().mean(dtype=torch.float64).item() for factor in (self.inputs, self.outputs)]
        ratio = math.sqrt(means[0] / means[1]) if min(means) > 0 else 1.0
        root = math.sqrt(damping)
        return Kronecker(_raised(self.inputs, ratio * root), _raised(self.outputs, root / ratio))


def _raised(factor: Tensor, value: float) -> Tensor:
    return factor + value * torch.eye(len(factor), dtype=factor.dtype, device=factor.device)


@dataclass(frozen=True)
class KroneckerSum:
    """Weighted sum of several clients' blocks of one layer, as an operator; it doesn't factor again.

    Two products over all clients at once apply it: the first gives every p_i G_i W side by side, the second multiplies
    them by the stacked A_i, which also adds them up.

    Args:
        inputs: the A_i below one another, shape (clients a, a).
        outputs: p_i G_i with the clients interleaved, row g clients + i, shape (g clients, g).
    """

    inputs: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, blocks: Sequence[Kronecker], weights: Sequence[float]) -> Self:
        """Stack clients' blocks.

        Args:
            blocks: the blocks of one layer, of equal shapes.
            weights: p_i, one a block.

        Returns:
            The operator sum_i p_i A_i (x) G_i.

        Raises:
            InputError: there are no blocks, or not as many weights.
        """
        if not blocks or len(blocks) != len(weights):
            raise InputError(f"{len(weights)} weights for {len(blocks)} blocks; allowed: one a block, at least one")
        scaled = [weight * block.outputs for block, weight in zip(blocks, weights, strict=True)]
        return cls(
            inputs=torch.cat([block.inputs for block in blocks]),
            outputs=torch.stack(scaled, dim=1).flatten(0, 1),
        )

    def product(self, matrix: Tensor) -> Tensor:
        """Multiply the operator by a vector.

        Args:
            matrix: the vector, as the layer's matrix of shape (g, a).

        Returns:
            sum_i p_i G_i W A_i, shape (g, a).
        """
        return (self.outputs @ matrix).view(len(matrix), -1) @ self.inputs

    def products(self, matrices: Tensor) -> Tensor:
        """Multiply a vector for each client by the client's own block.

        Args:
            matrices: the vectors, shape (clients, g, a).

        Returns:
            p_i G_i W_i A_i, shape (clients, g, a).
        """
        clients, rows, columns = matrices.shape
        outputs = self.outputs.view(rows, clients, rows).transpose(0, 1)
        return outputs @ matrices @ self.inputs.view(clients, columns, columns)

    def diagonal(self) -> Tensor:
        """Diagonal of the operator, as a matrix of shape (g, a)."""
        rows, columns = self.outputs.shape[1], self.inputs.shape[1]
        outputs = self.outputs.view(rows, -1, rows).diagonal(dim1=0, dim2=2)
        inputs = self.inputs.view(-1, columns, columns).diagonal(dim1=1, dim2=2)
        return outputs.T @ inputs


@dataclass(frozen=True)
class GroupedKroneckerSum:
    """A `KroneckerSum` for each group of a layer's rows, as one operator: there may be a thousand small ones.

    Args:
        inputs: the A_i, shape (groups, clients, a, a).
        outputs: the p_i G_i, shape (groups, clients, g, g).
    """

    inputs: Tensor
    outputs: Tensor

    def product(self, matrices: Tensor) -> Tensor:
        """Multiply the operator by a vector.

        Args:
            matrices: the vector, a matrix for each group, shape (groups, g, a).

        Returns:
            sum_i p_i G_i W A_i of each group, shape (groups, g, a).
        """
        return self.products(matrices[:, None]).sum(1)

    def products(self, matrices: Tensor) -> Tensor:
        """Multiply a vector for each client by the client's own blocks.

        Args:
            matrices: the vectors, shape (groups, clients, g, a), or one for all clients, shape (groups, 1, g, a).

        Returns:
            p_i G_i W_i A_i, shape (groups, clients, g, a).
        """
        return self.outputs @ matrices @ self.inputs

    def diagonal(self) -> Tensor:
        """Diagonal of the operator, shape (groups, g, a)."""
        outputs, inputs = (factors.diagonal(dim1=2, dim2=3) for factors in (self.outputs, self.inputs))
        return outputs.transpose(1, 2) @ inputs

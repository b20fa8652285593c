"""One layer's Fisher block as a Kronecker product (K-FAC; Martens and Grosse 2015, Grosse and Martens 2016)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError


@dataclass(frozen=True)
class Kronecker:
    """The block A (x) G of one layer, which maps the layer's matrix W to G W A.

    A may be diagonal. It is a vector then, and W has a column for each token of an embedding, or is the only row of a
    parameter that no layer holds.

    Args:
        inputs: A, second moment of the layer's inputs, shape (a, a), or (a,) for its diagonal; a counts the column of
            ones of a bias.
        outputs: G, second moment of the gradients at the layer's outputs, shape (g, g).
    """

    inputs: Tensor
    outputs: Tensor

    @property
    def trace(self) -> float:
        """Its trace, tr A tr G, added up in double precision."""
        inputs, outputs = (_diagonal(factor).sum(dtype=torch.float64).item() for factor in (self.inputs, self.outputs))
        return inputs * outputs

    def product(self, matrix: Tensor) -> Tensor:
        """Multiply the block by a vector, given as the layer's matrix W of shape (g, a): G W A."""
        if self.inputs.ndim == 1:
            return self.outputs @ matrix * self.inputs
        return self.outputs @ matrix @ self.inputs

    def times(self, factor: float) -> "Kronecker":
        """Multiply the block by a number."""
        return Kronecker(self.inputs, factor * self.outputs)

    def damped(self, damping: float) -> "Kronecker":
        """Add to both factors, which approximates A (x) G + damping I (Martens and Grosse 2015, section 6.3).

        Let pi^2 be the ratio of the factors' mean eigenvalues, or 1 if a factor is 0. The result is
        (A + pi sqrt(damping) I) (x) (G + sqrt(damping) / pi I). It is A (x) G + damping I plus the cross terms
        sqrt(damping) (A (x) I / pi + pi I (x) G). So the inputs still count in directions in which G is zero.
        """
        if damping == 0:
            return self
        factors = self.inputs, self.outputs
        means = [_diagonal(factor).mean(dtype=torch.float64).item() for factor in factors]
        ratio = math.sqrt(means[0] / means[1]) if min(means) > 0 else 1.0
        root = math.sqrt(damping)
        return Kronecker(_raised(self.inputs, ratio * root), _raised(self.outputs, root / ratio))


def _diagonal(factor: Tensor) -> Tensor:
    return factor if factor.ndim == 1 else factor.diagonal()


def _raised(factor: Tensor, value: float) -> Tensor:
    if factor.ndim == 1:
        return factor + value
    return factor + value * torch.eye(len(factor), dtype=factor.dtype, device=factor.device)


@dataclass(frozen=True)
class KroneckerSum:
    """The weighted sum of several clients' blocks of one layer, as an operator that is not factored again.

    Two products over all clients apply it. The first gives every p_i G_i W side by side. The second multiplies them by
    the stacked A_i, which also adds them up.

    Args:
        inputs: the A_i below one another, shape (clients a, a).
        outputs: p_i G_i with the clients interleaved, row g clients + i, shape (g clients, g).
    """

    inputs: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, blocks: Sequence[Kronecker], weights: Sequence[float]) -> Self:
        """Stack clients' blocks of equal shapes, with weights p_i, to the operator sum_i p_i A_i (x) G_i.

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
        """Multiply the operator by a vector, given as the layer's matrix W of shape (g, a): sum_i p_i G_i W A_i."""
        return (self.outputs @ matrix).view(len(matrix), -1) @ self.inputs

    def products(self, matrices: Tensor) -> Tensor:
        """Multiply a vector W_i, shape (clients, g, a), for each client by the client's own block: p_i G_i W_i A_i."""
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
    """A `KroneckerSum` for each group of a layer's rows, as one operator: there may be a thousand small groups.

    Args:
        inputs: the A_i, shape (groups, clients, a, a).
        outputs: the p_i G_i, shape (groups, clients, g, g).
    """

    inputs: Tensor
    outputs: Tensor

    def product(self, matrices: Tensor) -> Tensor:
        """Multiply the operator by a vector W of shape (groups, g, a): sum_i p_i G_i W A_i of each group."""
        return self.products(matrices[:, None]).sum(1)

    def products(self, matrices: Tensor) -> Tensor:
        """Multiply a vector W_i for each client by the client's own blocks: p_i G_i W_i A_i.

        Args:
            matrices: the W_i, shape (groups, clients, g, a), or one for all clients, shape (groups, 1, g, a).
        """
        return self.outputs @ matrices @ self.inputs

    def diagonal(self) -> Tensor:
        """Diagonal of the operator, shape (groups, g, a)."""
        outputs, inputs = (factors.diagonal(dim1=2, dim2=3) for factors in (self.outputs, self.inputs))
        return outputs.transpose(1, 2) @ inputs


@dataclass(frozen=True)
class DiagonalInputsSum:
    """The weighted sum of several clients' blocks of one layer whose A_i are diagonal.

    Args:
        inputs: the diagonals of A_i, shape (clients, a).
        outputs: p_i G_i, shape (clients, g, g).
    """

    inputs: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, blocks: Sequence[Kronecker], weights: Sequence[float]) -> Self:
        """Stack clients' blocks of equal shapes, with weights p_i."""
        scaled = [weight * block.outputs for block, weight in zip(blocks, weights, strict=True)]
        return cls(inputs=torch.stack([block.inputs for block in blocks]), outputs=torch.stack(scaled))

    def product(self, matrix: Tensor) -> Tensor:
        """Multiply the operator by a vector, given as the layer's matrix W of shape (g, a): sum_i p_i G_i W A_i."""
        return self.products(matrix[None]).sum(0)

    def products(self, matrices: Tensor) -> Tensor:
        """Multiply a vector W_i, shape (clients, g, a), for each client by the client's own block: p_i G_i W_i A_i."""
        return self.outputs @ matrices * self.inputs[:, None, :]

    def diagonal(self) -> Tensor:
        """Diagonal of the operator, as a matrix of shape (g, a)."""
        return self.outputs.diagonal(dim1=1, dim2=2).T @ self.inputs

"""The blocks of sum_i p_i F_i: which parameters one couples, and how it multiplies them.

A block holds the weighted sum of the clients' Fishers for some of the parameters. It sees these as one tensor, the
block's vector. The whole operator is block-diagonal, so solvers work block by block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import DiagonalInputsSum, GroupedKroneckerSum, KroneckerSum
from fedfisher_core.fisher.layers import from_matrix, to_matrix
from fedfisher_core.fisher.low_rank import LowRankSum


class Block(Protocol):
    """What a solver may ask of a block."""

    @property
    def parts(self) -> int:
        """How many of the vector's leading dimensions count matrices that the block does not couple."""
        ...

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Form the block's vector from named parameters."""
        ...

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Undo `gather`: the block's named parameters, or the rows of them that it has, shaped as in `like`."""
        ...

    def product(self, vector: Tensor) -> Tensor:
        """Multiply one vector by the sum: (sum_i p_i F_i) v."""
        ...

    def mean_eigenvalue(self) -> Tensor:
        """Trace of sum_i p_i F_i divided by its dimension, for each part; broadcasts against the vector."""
        ...


@dataclass(frozen=True)
class DiagonalBlock:
    """Diagonal Fishers of one parameter.

    Args:
        total: sum_i p_i F_i, in the shape of the parameter.
    """

    parts: ClassVar[int] = 0

    name: str
    total: Tensor

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """See `Block`."""
        return parameters[self.name]

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Block`."""
        return {self.name: vector}

    def product(self, vector: Tensor) -> Tensor:
        """See `Block`."""
        return self.total * vector

    def mean_eigenvalue(self) -> Tensor:
        """See `Block`."""
        return self.total.mean(dtype=torch.float64)


@dataclass(frozen=True)
class KroneckerBlock:
    """Kronecker-factored Fishers A_i (x) G_i of one matrix, which is the vector, shape (g, a).

    Args:
        total: sum_i p_i A_i (x) G_i.
    """

    parts: ClassVar[int] = 0

    matrix: str
    total: KroneckerSum | LowRankSum

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """See `Block`."""
        return to_matrix(parameters, self.matrix)

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Block`."""
        return from_matrix(vector, self.matrix, like)

    def product(self, vector: Tensor) -> Tensor:
        """See `Block`."""
        return self.total.product(vector)

    def mean_eigenvalue(self) -> Tensor:
        """See `Block`."""
        return self.total.diagonal().mean(dtype=torch.float64)


@dataclass(frozen=True)
class GroupedKroneckerBlock:
    """Kronecker-factored Fishers of a layer whose groups of rows have a matrix each.

    The vector has shape (groups, g, a).

    Args:
        total: sum_i p_i A_i (x) G_i of each group.
    """

    parts: ClassVar[int] = 1

    layer: str
    total: GroupedKroneckerSum

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """See `Block`."""
        return to_matrix(parameters, self.layer).unflatten(0, (len(self.total.inputs), -1))

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Block`."""
        return from_matrix(vector.flatten(0, 1), self.layer, like)

    def product(self, vector: Tensor) -> Tensor:
        """See `Block`."""
        return self.total.product(vector)

    def mean_eigenvalue(self) -> Tensor:
        """See `Block`."""
        return self.total.diagonal().mean(dim=(1, 2), keepdim=True, dtype=torch.float64)


@dataclass(frozen=True)
class DiagonalInputsBlock:
    """Kronecker-factored Fishers A_i (x) G_i with diagonal A_i, of an embedding or of a parameter that no layer holds.

    The vector has shape (g, a): a column for each token, or a single row.

    Args:
        parameter: its name; it has as many numbers as the vector, a row of the parameter being a column of the vector.
        total: sum_i p_i A_i (x) G_i.
    """

    parts: ClassVar[int] = 0

    parameter: str
    total: DiagonalInputsSum

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """See `Block`."""
        return columns_of(parameters[self.parameter], self.total.inputs.shape[1])

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Block`."""
        return {self.parameter: vector.T.reshape(like[self.parameter].shape)}

    def product(self, vector: Tensor) -> Tensor:
        """See `Block`."""
        return self.total.product(vector)

    def mean_eigenvalue(self) -> Tensor:
        """See `Block`."""
        return self.total.diagonal().mean(dtype=torch.float64)


def columns_of(parameter: Tensor, count: int) -> Tensor:
    """A parameter as a matrix of `count` columns, whose rows become the columns."""
    return parameter.reshape(count, -1).T


@dataclass(frozen=True)
class DenseBlock:
    """Full Fishers of all parameters, whose vector is their concatenation; for small networks.

    Args:
        names: of the parameters, in the order of the Fishers' rows.
        total: sum_i p_i F_i, shape (d, d).
    """

    parts: ClassVar[int] = 0

    names: tuple[str, ...]
    total: Tensor

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """See `Block`."""
        return torch.cat([parameters[name].flatten() for name in self.names])

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Block`."""
        pieces = vector.split([like[name].numel() for name in self.names])
        return {name: piece.reshape(like[name].shape) for name, piece in zip(self.names, pieces, strict=True)}

    def product(self, vector: Tensor) -> Tensor:
        """See `Block`."""
        return self.total @ vector

    def mean_eigenvalue(self) -> Tensor:
        """See `Block`."""
        return self.total.diagonal().mean(dtype=torch.float64)


@dataclass(frozen=True)
class ShiftedBlock:
    """The sum factor * block + shift * identity."""

    block: Block
    factor: float
    shift: float

    @property
    def parts(self) -> int:
        """See `Block`."""
        return self.block.parts

    def gather(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """See `Block`."""
        return self.block.gather(parameters)

    def scatter(self, vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Block`."""
        return self.block.scatter(vector, like)

    def product(self, vector: Tensor) -> Tensor:
        """See `Block`."""
        return self.factor * self.block.product(vector) + self.shift * vector

    def mean_eigenvalue(self) -> Tensor:
        """See `Block`."""
        return self.factor * self.block.mean_eigenvalue() + self.shift

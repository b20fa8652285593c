"""What each layer sums over the examples for its block of the Fisher.

A layer's gradients are vectors at its outputs, one a direction and example. Together with its inputs they give its
block in every approximation. Sums over directions are taken before the large products wherever the algebra allows.
"""

from abc import ABC, abstractmethod
from collections.abc import Set
from enum import StrEnum

from torch import Tensor

from fedfisher_core.fisher.accumulation import RunningSum, mirror
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.matrix_names import matrix_names


class Approximation(StrEnum):
    """What a Fisher is stored as."""

    DIAGONAL = "diagonal"
    """One number a parameter."""

    KFAC = "kfac"
    """One Kronecker product a layer (Martens and Grosse 2015; Grosse and Martens 2016 for convolutions)."""

    DENSE = "dense"
    """The whole matrix."""


class Block(ABC):
    """The running sums of one layer. A chunk of examples is begun, given each direction, and finished.

    Args:
        rows: rows of the layer's matrix.
        columns: columns of the layer's matrix, with that of a bias.
        windows: places of one example that the layer looks at.
        approximations: what to sum.
        groups: of equally many rows, each with a Kronecker product of its own.
        like: a tensor of the type and device to compute in.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        windows: int,
        approximations: Set[Approximation],
        *,
        groups: int = 1,
        like: Tensor,
    ) -> None:
        self._rows, self._groups, self._group_rows = rows, groups, rows // groups
        self._windows = windows
        self._like = like
        self._squares = RunningSum((rows, columns), like=like) if Approximation.DIAGONAL in approximations else None
        moments = (groups, self._group_rows, self._group_rows)
        self._outputs = RunningSum(moments, like=like) if Approximation.KFAC in approximations else None

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return sum(s.size_in_bytes for s in (self._squares, self._outputs) if s is not None)

    def workspace_in_bytes(self, directions: int) -> int:
        """Memory that `finish` needs beside the sums and the chunk.

        Args:
            directions: how many a chunk has.
        """
        return 0

    @abstractmethod
    def begin(self, inputs: Tensor, directions: int) -> None:
        """Begin a chunk.

        Args:
            inputs: the layer's inputs, examples first.
            directions: how many will be added.
        """

    @abstractmethod
    def add_direction(self, index: int, gradients: Tensor) -> None:
        """Add the chunk's gradients at the layer's outputs for one direction.

        Args:
            index: which direction.
            gradients: shaped like the layer's outputs.
        """

    @abstractmethod
    def finish(self) -> None:
        """Add what needs all the chunk's directions, and let go of the chunk."""

    @abstractmethod
    def per_example(self, gradients: Tensor) -> Tensor:
        """The gradient of the layer's matrix, for each of the chunk's examples.

        Args:
            gradients: shaped like the layer's outputs, for one direction.

        Returns:
            Matrices of shape (examples, rows, columns).
        """

    @abstractmethod
    def _input_moment(self, scale: float) -> Tensor:
        """The scaled sum of x x^T over examples and windows, of shape (groups, columns, columns); takes it."""

    def flush(self) -> None:
        """Move the partial sums into the double-precision totals."""
        for running in (self._squares, self._outputs):
            if running is not None:
                running.flush()

    def diagonal(self, examples: int) -> Tensor:
        """The diagonal, in the shape of the layer's matrix; takes the sums."""
        assert self._squares is not None
        return self._squares.take().div_(examples).to(self._like)

    def kronecker(self, layer: str, examples: int, nominal_directions: int) -> dict[str, Kronecker]:
        """The K-FAC blocks of the layer's groups; takes the sums.

        Args:
            layer: its qualified name.
            examples: how many were added.
            nominal_directions: C', which the factors' scales (and not their product) depend on.

        Returns:
            By the names of the layer's matrices A = sqrt(C') / N sum x x^T and G = 1 / (sqrt(C') N S) sum g g^T, with S
            windows an example.
        """
        assert self._outputs is not None
        scale = nominal_directions**0.5
        outputs = self._outputs.take().div_(scale * examples * self._windows).to(self._like)
        inputs = self._input_moment(scale / examples)
        return {
            name: Kronecker(inputs=one, outputs=mirror(other))
            for name, one, other in zip(matrix_names(layer, self._groups), inputs, outputs, strict=True)
        }

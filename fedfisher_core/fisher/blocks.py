"""The sums over examples that each layer keeps for its block of the Fisher, and the memory that they take."""

import math
from abc import ABC, abstractmethod
from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import matrix_names


class Scratch:
    """Memory that is used again and again, because new pages cost as much as filling them."""

    def __init__(self, like: Tensor) -> None:
        self._memory = like.new_empty(0)

    def take(self, *shape: int) -> Tensor:
        """A tensor of undefined content, which reuses the memory of the tensor taken before."""
        size = math.prod(shape)
        if self._memory.numel() < size:
            self._memory = self._memory.new_empty(size)
        return self._memory[:size].view(shape)

    def release(self) -> None:
        """Give the memory back."""
        self._memory = self._memory.new_empty(0)


FLUSH_EVERY = 16
"""Chunks summed in the model's precision before they join the double-precision total."""

GRAM_COLUMNS = 128
"""Width of the column blocks of a Gram matrix; with narrower ones, slow small products cost more than they save."""


class RunningSum:
    """A sum in two parts: a partial sum that takes products, and a total in double precision."""

    def __init__(self, shape: tuple[int, ...], *, like: Tensor) -> None:
        self.partial = like.new_zeros(shape)
        self._total: Tensor | None = None

    def flush(self) -> None:
        """Move the partial sum into the total."""
        if self._total is None:
            self._total = self.value()
        else:
            self._total += self.partial
        self.partial.zero_()

    def value(self) -> Tensor:
        """The sum of both parts, a new tensor in double precision."""
        if self._total is None:
            return self.partial.to(torch.float64, copy=True)
        return self._total + self.partial

    def take(self) -> Tensor:
        """The sum of both parts in double precision; it hands its memory over, and nothing can be added afterwards."""
        total = self.partial.to(torch.float64) if self._total is None else self._total.add_(self.partial)
        self.partial, self._total = self.partial.new_empty(0), None
        return total

    @property
    def size_in_bytes(self) -> int:
        """Memory of both parts."""
        return self.partial.nbytes + self.partial.numel() * torch.float64.itemsize


def add_gram(upper: Tensor, rows: Tensor) -> None:
    """Add X^T X to the upper triangle of a matrix, in place; most of the lower triangle is not computed.

    Args:
        upper: shape (n, n).
        rows: X, shape (rows, n).
    """
    for start in range(0, rows.shape[1], GRAM_COLUMNS):
        stop = start + GRAM_COLUMNS
        upper[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:])


def mirror(upper: Tensor) -> Tensor:
    """Copy the upper triangle of a square matrix to the lower one, in place, and return the matrix."""
    for start in range(0, len(upper), GRAM_COLUMNS):
        stop = start + GRAM_COLUMNS
        block = upper[start:stop, start:stop]
        block.copy_(block.triu() + block.triu(1).T)
        upper[stop:, start:stop] = upper[start:stop, stop:].T
    return upper


WORKSPACE = 8 * 2**20
"""Bytes of patches and per-example gradients that a layer holds at a time on a CPU: about the size of a cache."""

_OUTPUTS = 6 * 2**20


@dataclass(frozen=True)
class Portions:
    """Most bytes that a pass holds at a time.

    Args:
        outputs: for one layer's outputs in a chunk of examples.
        workspace: for the patches and per-example gradients of one layer.
    """

    outputs: int
    workspace: int

    @classmethod
    def on(cls, device: torch.device, *, memory: int) -> "Portions":
        """The portions that suit a device with that many bytes of memory for both.

        A CPU that holds more than its cache waits for memory. A GPU waits for the next kernel instead, so that few
        kernels over many examples are fast.
        """
        if device.type == "cpu":
            return cls(_OUTPUTS, WORKSPACE)
        return cls(memory, memory // 4)


class Approximation(StrEnum):
    """The form in which a Fisher is stored."""

    DIAGONAL = "diagonal"
    """One number a parameter."""

    KFAC = "kfac"
    """One Kronecker product a layer (Martens and Grosse 2015; Grosse and Martens 2016 for convolutions)."""

    DENSE = "dense"
    """The whole matrix."""


class Block(ABC):
    """The running sums of one layer. A chunk of examples is begun, is given each direction, and is finished.

    Args:
        rows: rows of the layer's matrix.
        columns: columns of the layer's matrix, including that of a bias.
        windows: positions of one example at which the layer is applied.
        groups: groups of equally many rows, each with a Kronecker product of its own.
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
        self._windows = self._summed_windows = windows
        self._like = like
        self._squares = RunningSum((rows, columns), like=like) if Approximation.DIAGONAL in approximations else None
        moments = (groups, self._group_rows, self._group_rows)
        self._outputs = RunningSum(moments, like=like) if Approximation.KFAC in approximations else None

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return sum(s.size_in_bytes for s in (self._squares, self._outputs) if s is not None)

    def workspace_in_bytes(self, directions: int) -> int:
        """Memory that `finish` needs in addition to the sums and the chunk, for a chunk of that many directions."""
        return 0

    @abstractmethod
    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
        """Begin a chunk.

        Args:
            inputs: of the layer, examples first.
            directions: how many will be added.
            counted: which positions K-FAC counts, shape (examples, positions); None for all.
        """

    @abstractmethod
    def add_direction(self, index: int, gradients: Tensor) -> None:
        """Add the chunk's gradients for one direction, shaped like the layer's outputs."""

    @abstractmethod
    def finish(self) -> None:
        """Add the terms that need all directions of the chunk, and release the chunk."""

    @abstractmethod
    def per_example(self, gradients: Tensor) -> Tensor:
        """The gradient of the layer's matrix for each of the chunk's examples, shape (examples, rows, columns).

        Args:
            gradients: shaped like the layer's outputs, for one direction.
        """

    @abstractmethod
    def _input_moment(self, scale: float) -> Tensor:
        """The scaled sum of x x^T over examples and windows, shape (groups, columns, columns); it takes the sum."""

    def flush(self) -> None:
        """Move the partial sums into the double-precision totals."""
        for running in (self._squares, self._outputs):
            if running is not None:
                running.flush()

    def diagonal(self, examples: int) -> Tensor:
        """The diagonal, in the shape of the layer's matrix; it takes the sums."""
        assert self._squares is not None
        return self._squares.take().div_(examples).to(self._like)

    def kronecker(self, layer: str, examples: int, nominal_directions: int) -> dict[str, Kronecker]:
        """The K-FAC blocks of the layer's groups; it takes the sums.

        Args:
            layer: its qualified name.
            nominal_directions: C', on which the factors' scales depend, and their product does not.

        Returns:
            By the names of the layer's matrices, A = sqrt(C') / N sum x x^T and G = 1 / (sqrt(C') N S) sum g g^T, with
            N examples. The sums are over S windows of each example, or over one that stands for them all.
        """
        assert self._outputs is not None
        scale = nominal_directions**0.5
        outputs = self._outputs.take().div_(scale * examples * self._summed_windows).to(self._like)
        inputs = self._input_moment(scale / examples)
        return {
            name: Kronecker(inputs=one, outputs=mirror(other))
            for name, one, other in zip(matrix_names(layer, self._groups), inputs, outputs, strict=True)
        }

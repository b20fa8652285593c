"""Sums over very many examples, in single precision where the work is and in double precision where it would drift."""

import torch
from torch import Tensor

FLUSH_EVERY = 16
"""Chunks summed in the model's precision before they join the double-precision total."""

GRAM_COLUMNS = 128
"""Width of the column blocks of a Gram matrix; below it, halving the work no longer pays for the smaller products."""


class RunningSum:
    """A sum in two parts: a partial one that products accumulate into, and a total in double precision.

    Args:
        shape: shape of the sum.
        like: a tensor whose type and device the partial sum shares.
    """

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
        """The sum of both parts in double precision, for the last time: its memory is given away, none is added."""
        total = self.partial.to(torch.float64) if self._total is None else self._total.add_(self.partial)
        self.partial, self._total = self.partial.new_empty(0), None
        return total

    @property
    def size_in_bytes(self) -> int:
        """Memory of both parts."""
        return self.partial.nbytes + self.partial.numel() * torch.float64.itemsize


def add_gram(upper: Tensor, rows: Tensor) -> None:
    """Add X^T X to the upper triangle of a matrix; what lies far below it isn't computed.

    Args:
        upper: shape (n, n), changed in place.
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

"""Sums over very many examples, in single precision where the work is and in double precision where it would drift."""

import torch
from torch import Tensor

FLUSH_EVERY = 1024
"""Examples summed in the model's precision before they join the double-precision total."""

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
        self.total = like.new_zeros(shape, dtype=torch.float64)

    def flush(self) -> None:
        """Move the partial sum into the total."""
        self.total += self.partial
        self.partial.zero_()

    @property
    def size_in_bytes(self) -> int:
        """Memory of both parts."""
        return self.partial.nbytes + self.total.nbytes


def add_gram(upper: Tensor, rows: Tensor) -> None:
    """Add X^T X to the upper triangle of a matrix; what lies far below it isn't computed.

    Args:
        upper: shape (n, n), changed in place.
        rows: X, shape (rows, n).
    """
    for start in range(0, rows.shape[1], GRAM_COLUMNS):
        stop = start + GRAM_COLUMNS
        upper[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:])


def symmetric(upper: Tensor) -> Tensor:
    """The symmetric matrix with the given upper triangle."""
    return upper.triu() + upper.triu(1).T

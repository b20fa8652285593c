"""The low frequencies of images: what most of them are, in a fraction of their numbers."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LowFrequencies:
    """The lowest frequencies of a two-dimensional cosine transform of each channel (DCT-II, orthonormal).

    Of inputs that are no images it keeps every number.

    Args:
        shape: of one input, (channels, height, width) for images.
        most: frequencies along each side that are kept, at most as many as the shorter side has pixels.
    """

    shape: tuple[int, ...]
    most: int

    @classmethod
    def of_size(cls, shape: Sequence[int], size: int) -> "LowFrequencies":
        """Find out how many frequencies were kept.

        Args:
            shape: of one input.
            size: numbers that are kept of it.

        Returns:
            The transform with this size.
        """
        return cls(tuple(shape), math.isqrt(size // shape[0]))

    @property
    def size(self) -> int:
        """Numbers that are kept of an input."""
        return self.shape[0] * self._kept**2 if self._images else math.prod(self.shape)

    def keep(self, inputs: Tensor) -> Tensor:
        """Keep the low frequencies.

        Args:
            inputs: shape (count, inputs), flat.

        Returns:
            Shape (count, size).
        """
        if not self._images:
            return inputs
        down, across = self._bases(inputs)
        return (down @ inputs.reshape(-1, *self.shape) @ across.T).flatten(1)

    def fill(self, kept: Tensor) -> Tensor:
        """Make the inputs that have these low frequencies and no others.

        Args:
            kept: shape (count, size).

        Returns:
            Shape (count, inputs), flat.
        """
        if not self._images:
            return kept
        down, across = self._bases(kept)
        return (down.T @ kept.reshape(-1, self.shape[0], self._kept, self._kept) @ across).flatten(1)

    @property
    def _images(self) -> bool:
        return len(self.shape) == 3

    @property
    def _kept(self) -> int:
        return min(self.most, *self.shape[1:])

    def _bases(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest cosines along height and width, as rows."""
        down, across = (_cosines(self._kept, length).to(like) for length in self.shape[1:])
        return down, across


@functools.cache
def _cosines(count: int, length: int) -> Tensor:
    """Rows of the orthonormal DCT-II of a length."""
    positions = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(torch.pi / length * torch.arange(count, dtype=torch.float64)[:, None] * positions)
    rows *= (2 / length) ** 0.5
    rows[0] *= 0.5**0.5
    return rows

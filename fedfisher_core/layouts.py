"""What one example looks like to a network: an image, a row of numbers or a sequence of tokens."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from fedfisher_core.errors import InputError

if TYPE_CHECKING:
    # Data sets can be listed without torch, which takes seconds to load.
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class _Arranged(ABC):
    """What all layouts have in common."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InputError(
                    f"{type(self).__name__} with {field.name}={getattr(self, field.name)}; allowed: 1 or more"
                )

    @property
    @abstractmethod
    def stored(self) -> "torch.dtype":
        """Type of examples as they are decoded."""

    @property
    def taken(self) -> "torch.dtype":
        """Type of examples as networks take them."""
        import torch

        return torch.float32

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""

    @property
    def size(self) -> int:
        """Numbers of one example."""
        return math.prod(self.shape)

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of one decoded example."""

    def zeros(self, count: int) -> "Tensor":
        """Make examples that are zero everywhere.

        Args:
            count: how many.

        Returns:
            As networks take them, shape (count, ...).
        """
        import torch

        return torch.zeros(count, *self.shape, dtype=self.taken)

    def drawn(self, count: int, generator: "torch.Generator") -> "Tensor":
        """Draw examples: normal noise, or tokens that are all equally likely.

        Args:
            count: how many.
            generator: draws them, on the CPU.

        Returns:
            As networks take them, shape (count, ...).
        """
        import torch

        return torch.randn(count, *self.shape, generator=generator)


@dataclass(frozen=True)
class Images(_Arranged):
    """Images of one size, decoded to pixels from 0 to 255.

    Args:
        channels: of colour.
        height: in pixels.
        width: in pixels.

    Raises:
        InputError: one of them is not positive.
    """

    channels: int
    height: int
    width: int

    @property
    def stored(self) -> "torch.dtype":
        """Bytes."""
        import torch

        return torch.uint8

    def __str__(self) -> str:
        return f"{self.channels} x {self.height} x {self.width}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width."""
        return (self.channels, self.height, self.width)

    @property
    def bits(self) -> int:
        """One byte a pixel and channel."""
        return 8 * self.size


@dataclass(frozen=True)
class Vectors(_Arranged):
    """Rows of numbers, such as those of a table.

    Args:
        features: numbers of a row.

    Raises:
        InputError: there is none.
    """

    features: int

    @property
    def stored(self) -> "torch.dtype":
        """Single precision."""
        import torch

        return torch.float32

    def __str__(self) -> str:
        return "1 number" if self.features == 1 else f"{self.features} numbers"

    @property
    def shape(self) -> tuple[int, ...]:
        """One dimension."""
        return (self.features,)

    @property
    def bits(self) -> int:
        """A number in single precision each."""
        return 32 * self.features


@dataclass(frozen=True)
class Tokens(_Arranged):
    """Sequences of one length, which networks take as they are decoded.

    Args:
        length: tokens of a sequence.
        vocabulary: how many tokens there are; they are the numbers from 0 to vocabulary - 1.

    Raises:
        InputError: one of them is not positive.
    """

    length: int
    vocabulary: int

    @property
    def stored(self) -> "torch.dtype":
        """Whole numbers."""
        import torch

        return torch.int64

    @property
    def taken(self) -> "torch.dtype":
        """Whole numbers, as embeddings take them."""
        import torch

        return torch.int64

    def __str__(self) -> str:
        return f"{self.length} tokens of {self.vocabulary}"

    @property
    def shape(self) -> tuple[int, ...]:
        """One dimension."""
        return (self.length,)

    @property
    def bits(self) -> int:
        """As few a token as tell all of them apart."""
        return self.length * (self.vocabulary - 1).bit_length()

    def drawn(self, count: int, generator: "torch.Generator") -> "Tensor":
        """Draw tokens that are all equally likely; see the base class."""
        import torch

        return torch.randint(self.vocabulary, (count, self.length), generator=generator)


Layout = Images | Vectors | Tokens


def require_images(layout: Layout, who: str) -> Images:
    """Make sure that examples are images.

    Args:
        layout: of the examples.
        who: what can take nothing else, for the message.

    Returns:
        The same layout.

    Raises:
        InputError: they are something else.
    """
    if not isinstance(layout, Images):
        raise InputError(f"{who} takes images; the data has {layout}; allowed: data of images")
    return layout


def require_tokens(layout: Layout, who: str) -> Tokens:
    """Make sure that examples are sequences of tokens.

    Args:
        layout: of the examples.
        who: what can take nothing else, for the message.

    Returns:
        The same layout.

    Raises:
        InputError: they are something else.
    """
    if not isinstance(layout, Tokens):
        raise InputError(f"{who} takes tokens; the data has {layout}; allowed: data of tokens")
    return layout

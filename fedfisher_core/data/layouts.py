"""The layout of one example: an image, a row of numbers or a sequence of tokens."""

import math
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import InputError

# Settings, rows and pages are read without torch, which takes seconds.
if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class _Arranged(ABC):
    def __post_init__(self) -> None:
        for field in fields(self):
            if field.default is MISSING and getattr(self, field.name) < 1:
                raise InputError(
                    f"{type(self).__name__} with {field.name}={getattr(self, field.name)}; allowed: 1 or more"
                )

    @property
    @abstractmethod
    def stored(self) -> "torch.dtype":
        """Type of decoded examples."""

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
        """Number of elements of one example."""
        return math.prod(self.shape)

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of one decoded example."""

    def zeros(self, count: int) -> "Tensor":
        """Examples of zeros as networks take them, shape (count, ...)."""
        import torch

        return torch.zeros(count, *self.shape, dtype=self.taken)

    def drawn(self, count: int, generator: "torch.Generator") -> "Tensor":
        """Draw examples as networks take them, shape (count, ...): normal noise, or uniformly distributed tokens."""
        import torch

        return torch.randn(count, *self.shape, generator=generator)


@dataclass(frozen=True)
class Images(_Arranged):
    """Images of one size, decoded to pixels from 0 to 255; InputError if a field is not positive."""

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
    """Rows of numbers, such as those of a table; InputError if a row has none."""

    features: int

    @property
    def stored(self) -> "torch.dtype":
        """Double precision, until the numbers are scaled."""
        import torch

        return torch.float64

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
    """Sequences of one length, which networks take as they are decoded; InputError if a field is not positive.

    Args:
        vocabulary: number of tokens, which are 0 to vocabulary - 1.
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
        """For each token the fewest bits that number all of them."""
        return self.length * (self.vocabulary - 1).bit_length()

    def drawn(self, count: int, generator: "torch.Generator") -> "Tensor":
        """Draw uniformly distributed tokens; see the base class."""
        import torch

        return torch.randint(self.vocabulary, (count, self.length), generator=generator)


@dataclass(frozen=True)
class Texts(Tokens):
    """Texts as sequences of tokens: a text ends with tokens of padding if it has fewer tokens than the length.

    Args:
        tokenizer: its name, or the path of its `tokenizer.json`.
        digest: SHA-256 of the tokenizer's file; empty where it has not been read.
        words: SHA-256 of its words with their tokens, and of nothing else in the file; empty where it has not been
            read.
    """

    tokenizer: str = "minilm"
    padding: int = 0
    digest: str = ""
    words: str = ""

    def __str__(self) -> str:
        return f"texts of {super().__str__()}"


Layout = Images | Vectors | Tokens


def require_images(layout: Layout, who: str) -> Images:
    """Refuse examples that are not images, by an InputError."""
    if not isinstance(layout, Images):
        raise InputError(f"{who} takes images; the data has {layout}; allowed: data of images")
    return layout


def require_texts(layout: Layout, who: str) -> Texts:
    """Refuse examples that are not texts, by an InputError."""
    if not isinstance(layout, Texts):
        raise InputError(f"{who} takes texts; the data has {layout}; allowed: data of texts")
    return layout


def require_tokens(layout: Layout, who: str) -> Tokens:
    """Refuse examples that are not sequences of tokens, by an InputError."""
    if not isinstance(layout, Tokens):
        raise InputError(f"{who} takes tokens; the data has {layout}; allowed: data of tokens")
    return layout

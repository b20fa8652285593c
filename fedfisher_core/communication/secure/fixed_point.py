"""Real tensors as whole numbers modulo 2^bits, and pseudo-random masks that hide them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.communication.secure.keys import derive, stream
from fedfisher_core.engine.errors import InputError

Vector: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Numbers modulo 2^32 or 2^64: the arithmetic of the type wraps as the ring does."""

Tensors = Mapping[str, NDArray[np.float64]]
Layout = Mapping[str, tuple[int, ...]]
"""Shapes by name, in the order of the vector."""


def ring_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The type of numbers modulo 2^bits, little-endian on every machine; bits are 32 or 64."""
    return np.dtype(f"<u{bits // 8}")


def mask(seed: bytes, size: int, *, bits: int, session: bytes) -> Vector:
    """Expand a seed of 32 bytes to a mask (HKDF, then ChaCha20).

    Args:
        bits: of a number, 32 or 64.
        session: names the aggregation; the same seed gives another mask in another one.

    Returns:
        Shape (size,); without the seed, the numbers can't be distinguished from uniform ones.
    """
    kind = ring_type(bits)
    return np.frombuffer(stream(derive(seed, purpose=b"mask" + session))(size * kind.itemsize), dtype=kind)


@dataclass(frozen=True)
class FixedPoint:
    """A code that all clients share: entry x of a tensor with exponent e is round(x 2^(places - e)).

    Exponents are agreed on before any client looks at a tensor, so that they tell nothing of one. An entry beyond 2^e
    is cut off there. The vector's last numbers count the entries that were cut off, so that their sum over clients is
    known.

    Args:
        exponents: one a tensor.
        clients: how many of them may be added.
        bits: of a number, 32 or 64.
    """

    layout: Layout
    exponents: tuple[int, ...]
    clients: int
    bits: int

    @property
    def numbers(self) -> int:
        """Entries of all tensors."""
        return sum(math.prod(shape) for shape in self.layout.values())

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return self.numbers + len(self._counter_places)

    @property
    def _digit_bits(self) -> int:
        """Bits of a digit of the count, whose sum over all clients does not wrap."""
        return self.bits - self.clients.bit_length()

    @property
    def _counter_places(self) -> range:
        """The shift of each digit of the count in bits, the highest first: as many digits as count all numbers."""
        digits = -(-self.numbers.bit_length() // self._digit_bits)
        return range((digits - 1) * self._digit_bits, -1, -self._digit_bits)

    @property
    def places(self) -> int:
        """Binary places of a number of size 1: the most that keep the sum of all clients within the ring."""
        return self.bits - 1 - self.clients.bit_length()

    def steps(self) -> dict[str, float]:
        """The quantisation step of each tensor; an entry that is not cut off is off by at most half of it."""
        return {
            name: math.ldexp(1.0, exponent - self.places)
            for name, exponent in zip(self.layout, self.exponents, strict=True)
        }

    def encode(self, tensors: Tensors) -> Vector:
        """Write a client's tensors, in double precision, as one vector of shape (size,).

        Raises an InputError where names or shapes don't fit the layout, or an entry is not finite.
        """
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if list(shapes.items()) != list(self.layout.items()):
            raise InputError(f"tensors are {shapes}; allowed: {dict(self.layout)}")
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                raise InputError(f"tensor {name!r} of a secure sum is not finite")
        kind, ring = np.dtype(f"<i{self.bits // 8}"), ring_type(self.bits)
        codes, clipped = [], 0
        for tensor, exponent in zip(tensors.values(), self.exponents, strict=True):
            limit = math.ldexp(1.0, exponent)
            clipped += int(np.count_nonzero(np.abs(tensor) > limit))
            within = np.clip(tensor, -limit, limit)
            codes.append(np.rint(np.ldexp(within, self.places - exponent)).astype(kind).ravel())
        digits = [clipped >> place & (1 << self._digit_bits) - 1 for place in self._counter_places]
        return np.concatenate([*(code.view(ring) for code in codes), np.array(digits, dtype=ring)])

    def decode(self, total: Vector) -> dict[str, NDArray[np.float64]]:
        """Read tensors in double precision from the sum of up to `clients` vectors, shape (size,)."""
        signed = total.view(f"<i{self.bits // 8}")
        tensors = {}
        begin = 0
        for (name, shape), exponent in zip(self.layout.items(), self.exponents, strict=True):
            end = begin + math.prod(shape)
            tensors[name] = np.ldexp(signed[begin:end].astype(np.float64), exponent - self.places).reshape(shape)
            begin = end
        return tensors

    def clipped(self, total: Vector) -> int:
        """Read how many numbers of all clients were cut off, from the sum of their vectors, shape (size,)."""
        places = self._counter_places
        return sum(int(digit) << place for digit, place in zip(total[-len(places) :], places, strict=True))

"""Real tensors as whole numbers modulo 2^bits, so that the sum over clients is exact and does not wrap."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.secure.masking import Vector, ring_type

Tensors = Mapping[str, NDArray[np.float64]]
Layout = Mapping[str, tuple[int, ...]]
"""Shapes by name, in the order of the vector."""

# Below it, a tensor counts as 0: the product of two float32 numbers is at least 2^-298.
_LEAST_EXPONENT = -300


def exponents_of(tensors: Tensors) -> tuple[int, ...]:
    """The least e of each tensor with all entries below 2^e in size.

    Raises:
        InputError: names a tensor that is not finite.
    """
    found = []
    for name, tensor in tensors.items():
        largest = float(np.abs(tensor).max(initial=0.0))
        if not math.isfinite(largest):
            raise InputError(f"tensor {name!r} of a secure sum is not finite")
        found.append(max(math.frexp(largest)[1], _LEAST_EXPONENT) if largest else _LEAST_EXPONENT)
    return tuple(found)


@dataclass(frozen=True)
class FixedPoint:
    """A code that all clients share: entry x of a tensor with exponent e is round(x 2^(places - e)).

    `places` is the most that keeps the sum of all clients within the ring.

    Args:
        layout: of the tensors.
        exponents: one a tensor, at least those of every client.
        clients: how many of them may be added.
        bits: of a number, 32 or 64.
    """

    layout: Layout
    exponents: tuple[int, ...]
    clients: int
    bits: int

    @staticmethod
    def fit(layout: Layout, exponents: Sequence[tuple[int, ...]], *, bits: int) -> "FixedPoint":
        """Choose the finest code that holds the sum of all clients.

        Args:
            layout: of the tensors.
            exponents: those of each client.
            bits: of a number, 32 or 64.

        Returns:
            The code.
        """
        largest = tuple(max(column) for column in zip(*exponents, strict=True))
        return FixedPoint(layout=layout, exponents=largest, clients=len(exponents), bits=bits)

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return sum(math.prod(shape) for shape in self.layout.values())

    @property
    def places(self) -> int:
        """Binary places of a number of size below 1."""
        return self.bits - 1 - self.clients.bit_length()

    def steps(self) -> dict[str, float]:
        """The quantisation step of each tensor; an entry is off by at most half of it."""
        return {
            name: math.ldexp(1.0, exponent - self.places)
            for name, exponent in zip(self.layout, self.exponents, strict=True)
        }

    def encode(self, tensors: Tensors) -> Vector:
        """Write a client's tensors as one vector.

        Args:
            tensors: in double precision, with the names and shapes of the layout.

        Returns:
            Shape (size,).

        Raises:
            InputError: names, shapes or the size of an entry don't fit the code.
        """
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if list(shapes.items()) != list(self.layout.items()):
            raise InputError(f"tensors are {shapes}; allowed: {dict(self.layout)}")
        for name, own, agreed in zip(tensors, exponents_of(tensors), self.exponents, strict=True):
            if own > agreed:
                raise InputError(f"tensor {name!r} has an entry of 2^{own - 1} or more; allowed: below 2^{agreed}")
        codes = [
            np.rint(np.ldexp(tensor, self.places - exponent)).astype(f"<i{self.bits // 8}").ravel()
            for tensor, exponent in zip(tensors.values(), self.exponents, strict=True)
        ]
        return np.concatenate(codes).view(ring_type(self.bits))

    def decode(self, total: Vector) -> dict[str, NDArray[np.float64]]:
        """Read the sum of up to `clients` vectors.

        Args:
            total: shape (size,).

        Returns:
            Tensors in double precision by name.
        """
        signed = total.view(f"<i{self.bits // 8}")
        tensors = {}
        begin = 0
        for (name, shape), exponent in zip(self.layout.items(), self.exponents, strict=True):
            end = begin + math.prod(shape)
            tensors[name] = np.ldexp(signed[begin:end].astype(np.float64), exponent - self.places).reshape(shape)
            begin = end
        return tensors

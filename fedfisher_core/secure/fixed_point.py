"""Real tensors as whole numbers modulo 2^bits, so that the sum over clients is exact and does not wrap."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.secure.masking import Vector, ring_type

Tensors = Mapping[str, NDArray[np.float64]]
Layout = Mapping[str, tuple[int, ...]]
"""Shapes by name, in the order of the vector."""


@dataclass(frozen=True)
class FixedPoint:
    """A code that all clients share: entry x of a tensor with exponent e is round(x 2^(places - e)).

    Exponents are agreed on before anybody looks at a tensor, so that they tell nothing of one. An entry beyond 2^e is
    cut off there. The vector's last number says how many were, so that their sum over clients is known as well.

    Args:
        layout: of the tensors.
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
        return self.numbers + 1

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
        """Write a client's tensors as one vector.

        Args:
            tensors: in double precision, with the names and shapes of the layout.

        Returns:
            Shape (size,).

        Raises:
            InputError: names or shapes don't fit the layout, or an entry is not finite.
        """
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if list(shapes.items()) != list(self.layout.items()):
            raise InputError(f"tensors are {shapes}; allowed: {dict(self.layout)}")
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                raise InputError(f"tensor {name!r} of a secure sum is not finite")
        kind = np.dtype(f"<i{self.bits // 8}")
        codes, clipped = [], 0
        for tensor, exponent in zip(tensors.values(), self.exponents, strict=True):
            limit = math.ldexp(1.0, exponent)
            clipped += int(np.count_nonzero(np.abs(tensor) > limit))
            within = np.clip(tensor, -limit, limit)
            codes.append(np.rint(np.ldexp(within, self.places - exponent)).astype(kind).ravel())
        return np.concatenate([*codes, np.array([clipped], dtype=kind)]).view(ring_type(self.bits))

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

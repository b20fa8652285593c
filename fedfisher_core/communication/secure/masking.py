"""Masks: pseudo-random vectors that two clients, or a client and the server, can cancel."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.communication.secure.keys import derive, stream

Vector: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Numbers modulo 2^32 or 2^64: the arithmetic of the type wraps as the ring does."""


def ring_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The type of numbers modulo 2^bits, little-endian on every machine; bits are 32 or 64."""
    return np.dtype(f"<u{bits // 8}")


def mask(seed: bytes, size: int, *, bits: int, session: bytes) -> Vector:
    """Expand a seed of 32 bytes to a mask (HKDF, then ChaCha20).

    Args:
        size: length of the mask.
        bits: of a number, 32 or 64.
        session: names the aggregation; the same seed gives another mask in another one.

    Returns:
        Shape (size,); without the seed, the numbers can't be distinguished from uniform ones.
    """
    kind = ring_type(bits)
    return np.frombuffer(stream(derive(seed, purpose=b"mask" + session))(size * kind.itemsize), dtype=kind)

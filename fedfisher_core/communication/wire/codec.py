"""Codecs, which turn named tensors of known shapes into bits and back, and streams of integers of any width."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.engine.errors import CorruptArtifactError

Codes = NDArray[np.uint32]
Words = NDArray[np.uint64]

WORD_BITS = 64
MAX_WIDTH = 32
# 8192 of the widest codes and the words made from them fit into a second-level cache together.
_CHUNK = 8192

Array = NDArray[np.float32]


def pack(codes: Codes, width: int) -> Words:
    """Lay codes end to end.

    Args:
        codes: shape (n,), each below 2**width.
        width: bits a code, 1 to 32.

    Returns:
        ceil(n * width / 64) words, which may be the memory of the codes; the bits after the last code are 0.
    """
    if width == MAX_WIDTH:
        # In memory, a word is two codes.
        whole = np.ascontiguousarray(codes, dtype="<u4")
        if codes.size % 2:
            whole = np.append(whole, np.zeros(1, dtype="<u4"))
        return whole.view("<u8").astype(np.uint64, copy=False)
    words = np.empty(-(-codes.size * width // WORD_BITS), dtype=np.uint64)
    for start in range(0, codes.size, _CHUNK):
        packed = _pack_chunk(codes[start : start + _CHUNK], width)
        first = start * width // WORD_BITS
        words[first : first + packed.size] = packed
    return words


def unpack(words: Words, count: int, width: int) -> Codes:
    """Undo `pack` for `count` codes of `width` bits, 1 to 32."""
    if width == MAX_WIDTH:
        return words.astype("<u8", copy=False).view("<u4")[:count].astype(np.uint32)
    codes = np.empty(count, dtype=np.uint32)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        first = start * width // WORD_BITS
        last = first + -(-size * width // WORD_BITS)
        codes[start : start + size] = _unpack_chunk(words[first:last], size, width)
    return codes


def _pairings(width: int) -> int:
    """How many times two neighbours can be joined and still fit a word."""
    return (WORD_BITS // width).bit_length() - 1


def _pack_chunk(codes: Codes, width: int) -> Words:
    pairings = _pairings(width)
    joined_width = width << pairings
    period = WORD_BITS // math.gcd(joined_width, WORD_BITS)
    values = np.zeros(-(-codes.size // (period << pairings)) * (period << pairings), dtype=np.uint64)
    values[: codes.size] = codes
    for level in range(pairings):
        values = values[0::2] | (values[1::2] << np.uint64(width << level))
    groups = values.reshape(-1, period)
    words = np.zeros((len(groups), period * joined_width // WORD_BITS), dtype=np.uint64)
    for index in range(period):
        word, shift = divmod(index * joined_width, WORD_BITS)
        words[:, word] |= groups[:, index] << np.uint64(shift)
        if shift + joined_width > WORD_BITS:
            words[:, word + 1] |= groups[:, index] >> np.uint64(WORD_BITS - shift)
    return words.reshape(-1)[: -(-codes.size * width // WORD_BITS)]


def _unpack_chunk(words: Words, count: int, width: int) -> Codes:
    pairings = _pairings(width)
    joined_width = width << pairings
    period = WORD_BITS // math.gcd(joined_width, WORD_BITS)
    per_group = period * joined_width // WORD_BITS
    groups = -(-count // (period << pairings))
    padded = np.zeros((groups, per_group), dtype=np.uint64)
    padded.reshape(-1)[: words.size] = words
    values = np.empty((groups, period), dtype=np.uint64)
    mask = np.uint64((1 << joined_width) - 1)
    for index in range(period):
        word, shift = divmod(index * joined_width, WORD_BITS)
        value = padded[:, word] >> np.uint64(shift)
        if shift + joined_width > WORD_BITS:
            value = value | (padded[:, word + 1] << np.uint64(WORD_BITS - shift))
        values[:, index] = value & mask
    flat = values.reshape(-1)
    for level in reversed(range(pairings)):
        half = np.uint64(width << level)
        split = np.empty(flat.size * 2, dtype=np.uint64)
        split[0::2] = flat & np.uint64((1 << int(half)) - 1)
        split[1::2] = flat >> half
        flat = split
    return flat[:count].astype(np.uint32)


class BitWriter:
    """Collects codes of changing width without a gap between them."""

    def __init__(self) -> None:
        self._words: list[Words] = []
        self._partial = np.uint64(0)
        self.bits = 0

    def write(self, codes: Codes, width: int) -> None:
        """Append codes of `width` bits each, which must not change before `to_bytes`."""
        if codes.size == 0:
            return
        words = pack(codes, width)
        offset = self.bits % WORD_BITS
        total = codes.size * width
        if offset:
            shifted = np.zeros(-(-(offset + total) // WORD_BITS), dtype=np.uint64)
            low = words << np.uint64(offset)
            shifted[: words.size] = low
            carry = words >> np.uint64(WORD_BITS - offset)
            shifted[1:] |= carry[: shifted.size - 1]
            shifted[0] |= self._partial
            words = shifted
        self.bits += total
        if self.bits % WORD_BITS:
            self._partial = words[-1]
            words = words[:-1]
        self._words.append(words)

    def to_bytes(self) -> bytes:
        """The stream, padded with zero bits to whole bytes."""
        tail = np.array([self._partial], dtype="<u8").tobytes()[: -(-(self.bits % WORD_BITS) // 8)]
        return b"".join([*(words.astype("<u8", copy=False).data for words in self._words), tail])


class BitReader:
    """Reads codes back in the order and the widths in which they were written."""

    def __init__(self, stream: bytes | memoryview) -> None:
        padded = b"".join((stream, bytes(-len(stream) % 8))) if len(stream) % 8 else stream
        self._words = np.frombuffer(padded, dtype="<u8").astype(np.uint64, copy=False)
        self._available = len(stream) * 8
        self._position = 0

    def read(self, count: int, width: int) -> Codes:
        """Take the next `count` codes of `width` bits, 1 to 32; a CorruptArtifactError where fewer bits are left."""
        total = count * width
        if total > self._available - self._position:
            raise CorruptArtifactError(
                f"payload ends early: {total} bits are due at bit {self._position} of {self._available}"
            )
        first, offset = divmod(self._position, WORD_BITS)
        last = -(-(self._position + total) // WORD_BITS)
        words = self._words[first:last]
        if offset:
            joined = words >> np.uint64(offset)
            joined[:-1] |= words[1:] << np.uint64(WORD_BITS - offset)
            words = joined
        self._position += total
        return unpack(words[: -(-total // WORD_BITS)], count, width)

    def finish(self) -> None:
        """Raise CorruptArtifactError where a whole byte or a set bit is left, which is no padding."""
        left = self._available - self._position
        if left >= 8:
            raise CorruptArtifactError(f"payload holds {left} bits more than its schema")
        if left and self.read(1, left)[0]:
            raise CorruptArtifactError("payload has bits set in its padding")


@dataclass(frozen=True)
class TensorSpec:
    """Name and shape of a tensor; both ends know them, so they never travel."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


class Codec(Protocol):
    """Encodes the tensors of one section; a frozen data class, as its fields are part of the schema."""

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """Most bits that tensors of these shapes take; exact unless the codec says otherwise."""
        ...

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the tensors, all finite, in their order."""
        ...

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the tensors back, in their order."""
        ...

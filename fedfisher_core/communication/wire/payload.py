"""The frame in which a client's statistics cross the network; its length is what an upload costs."""

import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

MAGIC = b"FFW"
VERSION = 2
# Magic, version, schema digest, number of examples, length of the payload; then comes the check sum of all.
_HEADER = struct.Struct("<3sB8sQQ")
_CHECKSUM = struct.Struct("<I")
_FLOAT_BYTES = 4
HEADER_BITS = 8 * (_HEADER.size + _CHECKSUM.size)


@dataclass(frozen=True)
class Section:
    """One statistic's tensors, in the order in which they travel, and how they are encoded."""

    statistic: str
    tensors: tuple[TensorSpec, ...]
    codec: Codec

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) < len(names):
            raise InputError(f"statistic {self.statistic!r} has tensors {names}; allowed: each name once")

    @property
    def bits(self) -> int:
        """Most bits that the section takes; exact unless its codec is `Spectral`."""
        return self.codec.bits(self.tensors)


@dataclass(frozen=True)
class Schema:
    """What both ends know of a payload before it is sent: its sections, in the order in which they travel."""

    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        names = [section.statistic for section in self.sections]
        if len(set(names)) < len(names):
            raise InputError(f"statistics are {names}; allowed: each once")

    @property
    def bits(self) -> int:
        """Most bits that a payload takes, header and padding to a byte included."""
        content = sum(section.bits for section in self.sections)
        return HEADER_BITS + 8 * -(-content // 8)

    @property
    def decoded_bytes(self) -> int:
        """Memory that the tensors of a payload take once they are decoded."""
        numbers = sum(math.prod(tensor.shape) for section in self.sections for tensor in section.tensors)
        return _FLOAT_BYTES * numbers

    def digest(self) -> bytes:
        """8 bytes that change with any name, shape, order or codec setting."""
        return hashlib.blake2b(repr(self).encode(), digest_size=8).digest()


@dataclass(frozen=True)
class Message:
    """A decoded payload: float32 tensors on the CPU by statistic and name, and the client's number of examples."""

    num_examples: int
    statistics: Mapping[str, Mapping[str, Tensor]]


def encode(schema: Schema, statistics: Mapping[str, Mapping[str, Tensor]], *, num_examples: int) -> bytes:
    """Encode a client's statistics; 8 * len of the payload is the cost in bits.

    Args:
        statistics: real tensors by statistic and name, exactly those of the schema; they travel as float32.
        num_examples: of the client, 0 to 2**64 - 1.

    Raises:
        InputError: a statistic or tensor is missing, unexpected, of another shape, not finite in float32, or
            not what its codec is made for; or a codec writes more than it announced, by which budgets are kept.
    """
    if not 0 <= num_examples < 1 << 64:
        raise InputError(f"num_examples is {num_examples}; allowed: 0 to 2**64 - 1")
    _check_names("statistics", statistics, [section.statistic for section in schema.sections])
    writer = BitWriter()
    for section in schema.sections:
        begun = writer.bits
        section.codec.encode(_arrays(section, statistics[section.statistic]), writer)
        if writer.bits - begun > section.bits:
            raise InputError(
                f"statistic {section.statistic!r} took {writer.bits - begun} bits by {section.codec}; "
                f"allowed: the {section.bits} that it announced"
            )
    content = writer.to_bytes()
    length = HEADER_BITS // 8 + len(content)
    header = _HEADER.pack(MAGIC, VERSION, schema.digest(), num_examples, length)
    return header + _CHECKSUM.pack(zlib.crc32(content, zlib.crc32(header))) + content


def decode(payload: bytes, schema: Schema) -> Message:
    """Decode what `encode` made under the same schema.

    Raises:
        CorruptArtifactError: the payload is cut, extended, altered, of another version or another schema.
    """
    if len(payload) < HEADER_BITS // 8:
        raise CorruptArtifactError(f"payload has {len(payload)} bytes; its header alone has {HEADER_BITS // 8}")
    header, content = payload[: _HEADER.size], memoryview(payload)[HEADER_BITS // 8 :]
    magic, version, digest, num_examples, length = _HEADER.unpack(header)
    if magic != MAGIC:
        raise CorruptArtifactError(f"payload starts with {magic!r}; expected {MAGIC!r}")
    if version != VERSION:
        raise CorruptArtifactError(f"payload has format version {version}; expected {VERSION}")
    if length != len(payload):
        raise CorruptArtifactError(f"payload has {len(payload)} bytes; its header says {length}")
    (checksum,) = _CHECKSUM.unpack_from(payload, _HEADER.size)
    if checksum != zlib.crc32(content, zlib.crc32(header)):
        raise CorruptArtifactError("payload does not match its check sum")
    if digest != schema.digest():
        raise CorruptArtifactError(
            f"payload has schema {digest.hex()}; expected {schema.digest().hex()} "
            f"({', '.join(section.statistic for section in schema.sections)})"
        )
    reader = BitReader(content)
    # `_tensors` refuses what is not finite, with the tensor's name.
    with np.errstate(over="ignore", invalid="ignore"):
        statistics = {
            section.statistic: _tensors(section, section.codec.decode(section.tensors, reader))
            for section in schema.sections
        }
    reader.finish()
    return Message(num_examples, statistics)


def _check_names(what: str, given: Mapping[str, object], expected: list[str]) -> None:
    if set(given) != set(expected):
        raise InputError(f"{what} are {sorted(given)}; allowed: exactly {sorted(expected)}")


def _arrays(section: Section, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    expected = [tensor.name for tensor in section.tensors]
    _check_names(f"tensors of statistic {section.statistic!r}", tensors, expected)
    arrays = {}
    for spec in section.tensors:
        where = f"tensor {spec.name!r} of statistic {section.statistic!r}"
        tensor = tensors[spec.name].detach()
        if tuple(tensor.shape) != spec.shape:
            raise InputError(f"{where} has shape {tuple(tensor.shape)}; allowed: {spec.shape}")
        if tensor.is_complex():
            raise InputError(f"{where} is {tensor.dtype}; allowed: real numbers")
        array = tensor.to(device="cpu", dtype=torch.float32).contiguous().numpy()
        if not np.isfinite(array).all():
            worst = array[~np.isfinite(array)][0]
            raise InputError(f"{where} holds {worst}; allowed: numbers that are finite in float32")
        arrays[spec.name] = array
    return arrays


def _tensors(section: Section, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise CorruptArtifactError(
                f"tensor {name!r} of statistic {section.statistic!r} decodes to numbers that are not finite"
            )
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def uncompressed(name: str, tensors: Mapping[str, Tensor]) -> Section:
    """Make the section of a payload that carries tensors as they are."""
    return Section(name, tuple(TensorSpec(key, tuple(one.shape)) for key, one in tensors.items()), Float32())


def bits_of(tensors: Mapping[str, Tensor]) -> int:
    """Count the bits of the payload of tensors alone; none for no tensors."""
    return Schema((uncompressed("tensors", tensors),)).bits if tensors else 0

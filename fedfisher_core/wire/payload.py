"""One client's upload as bytes: a header of 32 bytes and the numbers, in an order that both ends know."""

import hashlib
import struct
import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Size, Tensor

from fedfisher_core.errors import CorruptArtifactError

_MAGIC = b"FFUP"
_VERSION = 1
# magic, version, digest of names and shapes, number of examples, checksum of all that follows it and precedes it
_HEADER = struct.Struct("<4sI12sQI")

Shapes = Mapping[str, Mapping[str, Size]]


def encode(statistics: Mapping[str, Mapping[str, Tensor]], *, num_examples: int) -> bytes:
    """Write an upload.

    Args:
        statistics: named float32 tensors by statistic.
        num_examples: how many examples the client holds.

    Returns:
        The header, then every number in 32 bits.
    """
    shapes = {name: {key: tensor.shape for key, tensor in tensors.items()} for name, tensors in statistics.items()}
    body = b"".join(
        tensor.detach().cpu().contiguous().numpy().astype("<f4", copy=False).tobytes()
        for tensors in statistics.values()
        for tensor in tensors.values()
    )
    return _header(shapes, num_examples, body) + body


def decode(payload: bytes, shapes: Shapes) -> tuple[dict[str, dict[str, Tensor]], int]:
    """Read an upload.

    Args:
        payload: what `encode` wrote.
        shapes: shapes of the tensors by statistic and name, in the order of encoding.

    Returns:
        The tensors by statistic and name, and the number of examples.

    Raises:
        CorruptArtifactError: the payload is cut, changed, or of other statistics.
    """
    if len(payload) < _HEADER.size:
        raise CorruptArtifactError(f"upload of {len(payload)} bytes is shorter than its header")
    magic, version, _, num_examples, _ = _HEADER.unpack_from(payload)
    if (magic, version) != (_MAGIC, _VERSION):
        raise CorruptArtifactError("upload was written in another format")
    body = payload[_HEADER.size :]
    numbers = sum(shape.numel() for tensors in shapes.values() for shape in tensors.values())
    if len(body) != 4 * numbers:
        raise CorruptArtifactError(f"upload holds {len(body)} bytes of numbers; {4 * numbers} were expected")
    if payload[: _HEADER.size] != _header(shapes, num_examples, body):
        raise CorruptArtifactError("upload was changed, or holds other statistics than expected")
    flat = torch.from_numpy(np.frombuffer(body, dtype="<f4").astype(np.float32))
    decoded: dict[str, dict[str, Tensor]] = {}
    position = 0
    for statistic, tensors in shapes.items():
        decoded[statistic] = {}
        for key, shape in tensors.items():
            decoded[statistic][key] = flat[position : position + shape.numel()].reshape(shape)
            position += shape.numel()
    return decoded, num_examples


def _header(shapes: Shapes, num_examples: int, body: bytes) -> bytes:
    listing = repr([(name, key, tuple(shape)) for name, tensors in shapes.items() for key, shape in tensors.items()])
    schema = hashlib.sha256(listing.encode()).digest()[:12]
    checksum = zlib.crc32(body, zlib.crc32(schema + num_examples.to_bytes(8, "little")))
    return _HEADER.pack(_MAGIC, _VERSION, schema, num_examples, checksum)

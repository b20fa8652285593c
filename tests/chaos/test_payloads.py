"""Payloads at random: each is decoded to what its statistic can be, or refused."""

import struct
import time
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from random import Random

import pytest
import torch

from fedfisher_core.communication.wire.codec import Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32, Root, Uniform
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.payload import Schema, Section, decode, encode
from fedfisher_core.communication.wire.spectral import Spectral
from fedfisher_core.engine.errors import CorruptArtifactError
from tests.chaos.scale import SEED, scaled
from tests.communication.wire.samples import psd

_LIMIT_SECONDS = 60
"""Of processor time; only what grows without bound takes so long."""
_LIMIT_BYTES = 2**24
_HEADER, _CHECKSUM = 28, 4
VECTOR = (TensorSpec("w", (13, 7)), TensorSpec("b", (13,)))
MATRIX = (TensorSpec("a", (24, 24)),)
CODECS: dict[str, tuple[tuple[TensorSpec, ...], Codec]] = {
    "float32": (VECTOR, Float32()),
    "uniform": (VECTOR, Uniform(9)),
    "root": (VECTOR, Root((5, 9))),
    "low_rank": (MATRIX, LowRank(4)),
    "spectral": (MATRIX, Spectral(3000)),
}


def flip(payload: bytearray, random: Random) -> None:
    for _ in range(random.randint(1, 8)):
        payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)


def overwrite(payload: bytearray, random: Random) -> None:
    start = random.randrange(len(payload))
    end = min(len(payload), start + random.randint(1, 40))
    payload[start:end] = bytes(random.choice((0, 0x7F, 0x80, 0xFF, random.randrange(256))) for _ in range(end - start))


def cut(payload: bytearray, random: Random) -> None:
    del payload[random.randrange(len(payload)) :]


def extend(payload: bytearray, random: Random) -> None:
    payload += random.randbytes(random.randint(1, 64))


def splice(payload: bytearray, random: Random) -> None:
    start, other = random.randrange(len(payload)), random.randrange(len(payload))
    payload[start:start] = payload[other : other + random.randint(1, 40)]


MUTATIONS: tuple[Callable[[bytearray, Random], None], ...] = (flip, overwrite, cut, extend, splice)


def sealed(content: bytes, payload: bytes) -> bytes:
    """A payload with this content, whose length and check sum fit it."""
    header = payload[: _HEADER - 8] + struct.pack("<Q", _HEADER + _CHECKSUM + len(content))
    return header + struct.pack("<I", zlib.crc32(content, zlib.crc32(header))) + content


def sample(codec: str) -> tuple[Schema, bytes]:
    tensors, chosen = CODECS[codec]
    generator = torch.Generator().manual_seed(0)
    if tensors is MATRIX:
        values = {"a": psd(24, decay=1.0, generator=generator)}
    else:
        values = {one.name: torch.randn(one.shape, generator=generator).abs() for one in tensors}
    schema = Schema((Section("s", tensors, chosen),))
    return schema, encode(schema, {"s": values}, num_examples=9)


@pytest.mark.parametrize("codec", CODECS)
def test_mutated_payloads_are_decoded_to_what_they_can_be_or_refused(codec: str) -> None:
    random, (schema, payload) = Random(f"{SEED} {codec}"), sample(codec)
    header = _HEADER + _CHECKSUM
    decoded = 0
    tracemalloc.start()
    for _ in range(scaled(test=60, chaos=10_000)):
        sealed_again = random.random() < 0.8
        altered = bytearray(payload[header:] if sealed_again else payload)
        random.choice(MUTATIONS)(altered, random)
        arrived = sealed(bytes(altered), payload) if sealed_again else bytes(altered)
        tracemalloc.reset_peak()
        begun = time.process_time()
        try:
            with warnings.catch_warnings(action="error"):
                tensors = decode(arrived, schema).statistics["s"]
        except CorruptArtifactError:
            continue
        finally:
            assert time.process_time() - begun < _LIMIT_SECONDS
            assert tracemalloc.get_traced_memory()[1] < _LIMIT_BYTES
        decoded += 1
        assert {name: tensor.shape for name, tensor in tensors.items()} == {
            one.name: one.shape for one in schema.sections[0].tensors
        }
        assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
        if codec == "root":
            assert all((tensor >= 0).all() for tensor in tensors.values()), arrived.hex()
        if codec == "spectral":
            assert torch.equal(tensors["a"], tensors["a"].T)
    tracemalloc.stop()
    assert decoded > 0

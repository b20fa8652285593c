import dataclasses
import struct
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32, Root, Uniform
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.payload import HEADER_BITS, Schema, Section, decode, encode
from fedfisher_core.communication.wire.spectral import Spectral
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

from .samples import psd

VECTOR = (TensorSpec("w", (3, 2)), TensorSpec("b", (3,)))
MATRIX = (TensorSpec("a", (4, 4)),)
SCHEMA = Schema(
    (
        Section("weights", VECTOR, Uniform(15)),
        Section("diagonal", VECTOR, Root((5, 9))),
        Section("kfac", MATRIX, Spectral(300)),
        Section("gram", MATRIX, LowRank(2)),
        Section("counts", (TensorSpec("n", (3,)),), Float32()),
    )
)


def statistics(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    vector = {spec.name: torch.randn(spec.shape, generator=generator) for spec in VECTOR}
    matrix = {"a": psd(4, decay=1.0, generator=generator)}
    return {
        "weights": vector,
        "diagonal": {name: tensor.square() for name, tensor in vector.items()},
        "kfac": matrix,
        "gram": matrix,
        "counts": {"n": torch.tensor([5, 0, 7])},
    }


PAYLOAD = encode(SCHEMA, statistics(), num_examples=2**63 + 1)


def test_what_was_sent_comes_back() -> None:
    message = decode(PAYLOAD, SCHEMA)
    sent = statistics()
    assert message.num_examples == 2**63 + 1
    assert {name: set(tensors) for name, tensors in message.statistics.items()} == {
        name: set(tensors) for name, tensors in sent.items()
    }
    assert torch.equal(message.statistics["counts"]["n"], torch.tensor([5.0, 0.0, 7.0]))
    torch.testing.assert_close(message.statistics["weights"]["w"], sent["weights"]["w"], atol=1e-4, rtol=0)
    assert message.statistics["weights"]["w"].shape == (3, 2)


def test_the_length_is_that_of_the_codecs_after_a_header_of_32_bytes() -> None:
    without_spectral = Schema(tuple(s for s in SCHEMA.sections if s.statistic != "kfac"))
    sent = {name: tensors for name, tensors in statistics().items() if name != "kfac"}
    payload = encode(without_spectral, sent, num_examples=1)
    content = sum(section.bits for section in without_spectral.sections)
    assert HEADER_BITS == 256
    assert len(payload) * 8 == 256 + 8 * -(-content // 8) == without_spectral.bits
    assert len(PAYLOAD) * 8 <= SCHEMA.bits


def test_the_same_input_makes_the_same_bytes() -> None:
    assert encode(SCHEMA, statistics(), num_examples=2**63 + 1) == PAYLOAD
    assert encode(SCHEMA, statistics(seed=1), num_examples=2**63 + 1) != PAYLOAD


def test_every_flipped_bit_is_refused() -> None:
    for position in range(len(PAYLOAD) * 8):
        altered = bytearray(PAYLOAD)
        altered[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptArtifactError):
            decode(bytes(altered), SCHEMA)


def test_every_cut_and_any_extension_is_refused() -> None:
    for length in range(len(PAYLOAD)):
        with pytest.raises(CorruptArtifactError, match="bytes; its header"):
            decode(PAYLOAD[:length], SCHEMA)
    for extra in (b"\x00", b"\xff" * 9, PAYLOAD):
        with pytest.raises(CorruptArtifactError, match="its header says"):
            decode(PAYLOAD + extra, SCHEMA)


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_foreign_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptArtifactError):
        decode(payload, SCHEMA)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_replaced_stretch_is_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(PAYLOAD) - 1))
    stretch = data.draw(st.binary(min_size=1, max_size=len(PAYLOAD) - start))
    altered = PAYLOAD[:start] + stretch + PAYLOAD[start + len(stretch) :]
    if altered == PAYLOAD:
        return
    with pytest.raises(CorruptArtifactError):
        decode(altered, SCHEMA)


def replace(index: int, **changes: object) -> Schema:
    sections = list(SCHEMA.sections)
    sections[index] = dataclasses.replace(sections[index], **changes)
    return Schema(tuple(sections))


@pytest.mark.parametrize(
    "schema",
    [
        replace(0, statistic="models"),
        replace(0, tensors=VECTOR[::-1]),
        replace(0, tensors=(TensorSpec("w", (2, 3)), VECTOR[1])),
        replace(0, tensors=(TensorSpec("v", (3, 2)), VECTOR[1])),
        replace(0, codec=Uniform(14)),
        replace(2, codec=Spectral(301)),
        Schema(SCHEMA.sections[::-1]),
        Schema(SCHEMA.sections[:-1]),
    ],
    ids=["statistic", "order", "shape", "name", "codec", "budget", "sections", "fewer"],
)
def test_another_schema_is_refused(schema: Schema) -> None:
    with pytest.raises(CorruptArtifactError, match="schema"):
        decode(PAYLOAD, schema)


def resealed(payload: bytes) -> bytes:
    """The payload with a check sum that fits it."""
    return payload[:28] + struct.pack("<I", zlib.crc32(payload[32:], zlib.crc32(payload[:28]))) + payload[32:]


def test_another_version_is_refused_even_if_its_check_sum_fits() -> None:
    assert resealed(PAYLOAD) == PAYLOAD
    with pytest.raises(CorruptArtifactError, match="version 1; expected 2"):
        decode(resealed(PAYLOAD[:3] + b"\x01" + PAYLOAD[4:]), SCHEMA)


def test_numbers_that_are_not_finite_are_refused_on_arrival() -> None:
    schema = Schema((Section("weights", (TensorSpec("w", (1,)),), Float32()),))
    payload = encode(schema, {"weights": {"w": torch.ones(1)}}, num_examples=1)
    with pytest.raises(CorruptArtifactError, match="'w' of statistic 'weights'"):
        decode(resealed(payload[:32] + struct.pack("<f", float("nan"))), schema)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
@pytest.mark.parametrize("statistic", ["weights", "diagonal", "kfac", "gram", "counts"])
def test_numbers_that_are_not_finite_are_refused_by_name(statistic: str, value: float) -> None:
    sent = statistics()
    name, tensor = next(iter(sent[statistic].items()))
    broken = tensor.double().clone()
    broken.view(-1)[0] = value
    sent[statistic] = {**sent[statistic], name: broken}
    with pytest.raises(InputError, match=f"tensor '{name}' of statistic '{statistic}' holds -?(nan|inf)"):
        encode(SCHEMA, sent, num_examples=1)


def test_wrong_names_shapes_and_counts_are_refused() -> None:
    sent = statistics()
    with pytest.raises(InputError, match="statistics are"):
        encode(SCHEMA, {**sent, "more": {}}, num_examples=1)
    with pytest.raises(InputError, match="tensors of statistic 'counts' are \\['m'\\]"):
        encode(SCHEMA, {**sent, "counts": {"m": torch.ones(3)}}, num_examples=1)
    with pytest.raises(InputError, match="'n' of statistic 'counts' has shape \\(4,\\); allowed: \\(3,\\)"):
        encode(SCHEMA, {**sent, "counts": {"n": torch.ones(4)}}, num_examples=1)
    with pytest.raises(InputError, match="complex64"):
        encode(SCHEMA, {**sent, "counts": {"n": torch.ones(3, dtype=torch.complex64)}}, num_examples=1)
    with pytest.raises(InputError, match="num_examples is -1"):
        encode(SCHEMA, sent, num_examples=-1)
    with pytest.raises(InputError, match="each once"):
        Schema(SCHEMA.sections[:1] * 2)
    with pytest.raises(InputError, match="each name once"):
        Section("weights", VECTOR[:1] * 2, Float32())

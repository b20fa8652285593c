import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfisher_core.communication.wire.codec import BitReader, BitWriter
from fedfisher_core.engine.errors import CorruptArtifactError

RUNS = st.lists(
    st.integers(1, 32).flatmap(
        lambda width: st.tuples(st.just(width), st.lists(st.integers(0, 2**width - 1), max_size=40))
    ),
    max_size=6,
)


def reference(runs: list[tuple[int, list[int]]]) -> bytes:
    """The stream as one large integer, least significant bit first."""
    stream, position = 0, 0
    for width, codes in runs:
        for code in codes:
            stream |= code << position
            position += width
    return stream.to_bytes(-(-position // 8), "little")


@given(RUNS)
@settings(max_examples=100, deadline=None)
def test_stream_is_that_of_a_slow_reference_and_reads_back(runs: list[tuple[int, list[int]]]) -> None:
    writer = BitWriter()
    for width, codes in runs:
        writer.write(np.array(codes, dtype=np.uint32), width)
    assert writer.bits == sum(width * len(codes) for width, codes in runs)
    assert writer.to_bytes() == reference(runs)
    reader = BitReader(writer.to_bytes())
    for width, codes in runs:
        assert reader.read(len(codes), width).tolist() == codes
    reader.finish()


@pytest.mark.drawn(10)
@pytest.mark.parametrize("width", range(1, 33))
def test_long_runs_cross_chunks_without_a_gap(width: int) -> None:
    generator = np.random.default_rng(width)
    codes = generator.integers(0, 2**width, 20_001, dtype=np.uint64).astype(np.uint32)
    writer = BitWriter()
    writer.write(np.array([1], dtype=np.uint32), 3)
    writer.write(codes, width)
    bits = (codes[:, None].astype(np.uint64) >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    stream = np.concatenate([[1, 0, 0], bits.reshape(-1)]).astype(np.uint8)
    assert writer.to_bytes() == np.packbits(stream, bitorder="little").tobytes()
    reader = BitReader(writer.to_bytes())
    reader.read(1, 3)
    assert np.array_equal(reader.read(codes.size, width), codes)


def test_reading_past_the_end_is_refused() -> None:
    with pytest.raises(CorruptArtifactError, match="ends early"):
        BitReader(b"\x01").read(3, 3)


def test_a_whole_byte_or_a_set_bit_left_over_is_refused() -> None:
    with pytest.raises(CorruptArtifactError, match="more than its schema"):
        BitReader(b"\x00").finish()
    reader = BitReader(b"\x08")
    reader.read(1, 3)
    with pytest.raises(CorruptArtifactError, match="padding"):
        reader.finish()

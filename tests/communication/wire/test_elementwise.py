from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32, Root, Uniform, write_scale
from fedfisher_core.communication.wire.leading import Truncated
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=0, width=32, allow_nan=False, allow_infinity=False)


def vectors(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Array]:
    return arrays(np.float32, st.integers(1, 50), elements=elements)


def through(codec: Codec, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Encode, check that the length is the promised one, decode."""
    specs = [TensorSpec(name, array.shape) for name, array in tensors.items()]
    writer = BitWriter()
    codec.encode(tensors, writer)
    assert writer.bits == codec.bits(specs)
    reader = BitReader(writer.to_bytes())
    decoded = codec.decode(specs, reader)
    reader.finish()
    return decoded


@given(arrays(np.float32, (3, 4), elements=FINITE))
@settings(max_examples=50, deadline=None)
def test_float32_loses_nothing(values: Array) -> None:
    assert through(Float32(), {"x": values})["x"].tobytes() == values.tobytes()


@given(vectors(FINITE), st.integers(1, 23))
@settings(max_examples=200, deadline=None)
def test_uniform_error_is_at_most_half_a_step(values: Array, levels_log2: int) -> None:
    largest = float(np.abs(values).max())
    decoded = through(Uniform(levels_log2), {"x": values})["x"]
    error = np.abs(decoded.astype(np.float64) - values).max()
    rounding = largest * 2**-21 + 2**-149
    assert error <= largest / (2 * (2**levels_log2 - 1)) + rounding


def test_uniform_is_the_papers_formula() -> None:
    values = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    largest, levels = np.abs(values.astype(np.float64)).max(), 2**8 - 1
    expected = largest * np.round(levels * values.astype(np.float64) / largest) / levels
    np.testing.assert_allclose(through(Uniform(8), {"x": values})["x"], expected, rtol=1e-6)


@pytest.mark.parametrize("codec", [Uniform(15), Root((16,))])
@pytest.mark.parametrize("values", [np.zeros(9), np.full(3, 1e-44), np.full(1, 3e38)], ids=["zeros", "tiny", "huge"])
def test_extreme_scales_survive(codec: Codec, values: Array) -> None:
    values = values.astype(np.float32)
    np.testing.assert_array_equal(through(codec, {"x": values})["x"], values)


@given(vectors(POSITIVE), st.integers(1, 24))
@settings(max_examples=200, deadline=None)
def test_root_is_off_by_half_a_step_of_the_fourth_root(values: Array, width: int) -> None:
    largest = float(values.max())
    decoded = through(Root((width,)), {"x": values})["x"].astype(np.float64)
    assert decoded.min() >= 0
    if largest < 1e-30:  # the fourth powers of the steps are below what float32 holds
        return
    error = np.abs((decoded / largest) ** 0.25 - (values.astype(np.float64) / largest) ** 0.25).max()
    assert error <= 0.5 / (2**width - 1) + 1e-6


def test_root_keeps_ratios_that_equal_steps_lose() -> None:
    values = np.logspace(-8, 0, 500, dtype=np.float32)
    root = through(Root((16,)), {"x": values})["x"]
    uniform = through(Uniform(15), {"x": values})["x"]
    assert np.abs(root / values - 1).max() < 0.01
    assert np.abs(uniform / values - 1).max() == 1


def test_root_sends_each_tensor_at_its_own_width() -> None:
    values = np.linspace(0, 1, 100, dtype=np.float32) ** 4
    decoded = through(Root((3, 12)), {"coarse": values, "fine": values})
    assert len(np.unique(decoded["coarse"])) == 8
    assert np.abs(decoded["fine"] - values).max() < 1e-3


def test_root_refuses_a_negative_entry_by_name() -> None:
    with pytest.raises(InputError, match="'fisher' has the entry -1"):
        Root((8,)).encode({"fisher": np.array([1, -1], dtype=np.float32)}, BitWriter())


@pytest.mark.parametrize("scale", [-1.0, -1e-44, float("nan"), float("inf")])
@pytest.mark.parametrize("codec", [Root((16,)), Uniform(15)])
def test_a_scale_that_no_sender_has_is_refused(codec: Codec, scale: float) -> None:
    writer = BitWriter()
    writer.write(np.array([scale], dtype=np.float32).view(np.uint32), 32)
    writer.write(np.array([1, 2, 3], dtype=np.uint32), 16)
    with pytest.raises(CorruptArtifactError, match="payload has the scale"):
        codec.decode([TensorSpec("fisher", (3,))], BitReader(writer.to_bytes()))


@pytest.mark.parametrize("levels_log2", [0, 24])
def test_levels_out_of_range_are_refused(levels_log2: int) -> None:
    with pytest.raises(InputError, match=f"levels_log2 is {levels_log2}"):
        Uniform(levels_log2)
    with pytest.raises(InputError, match="widths are"):
        Root((8, levels_log2 + 1 if levels_log2 else 0))


def test_a_code_that_no_encoder_writes_is_refused() -> None:
    writer = BitWriter()
    write_scale(writer, np.float32(1))
    writer.write(np.array([3, 2, 1, 0], dtype=np.uint32), 2)
    reader = BitReader(writer.to_bytes())
    with pytest.raises(CorruptArtifactError, match="payload has the code 3; expected 0 to 2"):
        Uniform(1).decode([TensorSpec("a", (4,))], reader)


def test_a_number_that_single_precision_can_not_hold_is_refused_where_it_is_sent() -> None:
    for codec, tensors in (
        (LowRank(2, 8), {"a": np.full((3, 3), 3e38, dtype=np.float32)}),
        (
            Truncated(1, 8),
            {
                "mean": np.zeros(3, dtype=np.float32),
                "directions": np.full((2, 3), 3e38, dtype=np.float32),
                "deviations": np.full(3, 3e38, dtype=np.float32),
            },
        ),
    ):
        with pytest.raises(InputError, match="largest number is inf in single precision"), np.errstate(over="ignore"):
            codec.encode(tensors, BitWriter())

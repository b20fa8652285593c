import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfisher_core.communication.wire.codec import Array, TensorSpec
from fedfisher_core.communication.wire.leading import FIRST, LEADING, WIDTH, First, Truncated
from fedfisher_core.communication.wire.tensors import PAPER_WIDTH
from fedfisher_core.engine.errors import InputError

from .test_elementwise import through

SIZE, ROWS = 12, 5


def specs(rows: int = ROWS, size: int = SIZE) -> list[TensorSpec]:
    return [TensorSpec("mean", (size,)), TensorSpec("directions", (rows, size)), TensorSpec("deviations", (size,))]


def moments(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    lengths = 2.0 ** -np.arange(ROWS)[:, None]
    found = {
        "mean": rng.normal(size=SIZE),
        "directions": lengths * rng.normal(size=(ROWS, SIZE)),
        "deviations": rng.exponential(size=SIZE),
    }
    return {name: array.astype(np.float32) for name, array in found.items()}


def variances(tensors: dict[str, Array]) -> Array:
    return np.square(tensors["directions"]).sum(axis=0) + np.square(tensors["deviations"])


@given(st.integers(0, ROWS), st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_directions_that_are_not_sent_leave_their_variances(rows: int, seed: int) -> None:
    sent = moments(seed)
    received = through(Truncated(rows, 24), sent)
    np.testing.assert_allclose(received["mean"], sent["mean"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(received["directions"][:rows], sent["directions"][:rows], rtol=1e-3, atol=1e-6)
    assert not received["directions"][rows:].any()
    np.testing.assert_allclose(variances(received), variances(sent), rtol=1e-4)


@pytest.mark.parametrize("width", [2, 4, 8, 12])
def test_every_direction_is_rounded_by_its_own_largest_entry(width: int) -> None:
    sent = moments()
    received = through(Truncated(ROWS, width), sent)
    steps = 2 ** (width - 1) - 1
    for row, vector in zip(received["directions"], sent["directions"], strict=True):
        assert np.abs(row - vector).max() <= np.abs(vector).max() / (2 * steps) * 1.0001
    # The mean and the deviations are worth 8 bits at least.
    finer = 2 ** (max(width, 8) - 1) - 1
    for name in ("mean", "deviations"):
        assert np.abs(received[name] - sent[name]).max() <= np.abs(sent[name]).max() / (2 * finer) * 1.0001
    assert received["deviations"].min() >= 0


@given(st.integers(0, 20_000))
@settings(max_examples=200, deadline=None)
def test_a_share_is_not_exceeded_and_buys_directions_before_digits(bits: int) -> None:
    chosen = LEADING.shorten(specs(), bits)
    least = Truncated(1, WIDTH)
    if chosen is None:
        assert bits < least.bits(specs())
        return
    assert isinstance(chosen, Truncated)
    assert chosen.bits(specs()) <= bits
    if chosen.rows < ROWS:
        assert chosen.width == WIDTH
        assert Truncated(chosen.rows + 1, WIDTH).bits(specs()) > bits
    elif chosen.width < 24:
        assert Truncated(ROWS, chosen.width + 1).bits(specs()) > bits


def test_in_the_papers_format_entries_have_the_papers_width_at_most() -> None:
    chosen = [LEADING.shorten(specs(), 20_000), LEADING.shorten_as_paper(specs(), 20_000, factor_bits=9)]
    assert chosen == [Truncated(ROWS, 24), Truncated(ROWS, PAPER_WIDTH)]


@pytest.mark.parametrize(
    "shapes",
    [
        [(3,), (2, 3)],
        [(3,), (2, 3), (4,)],
        [(3,), (2, 4), (3,)],
        [(3,), (3,), (3,)],
        [(), (2, 3), (3,)],
        [(3,), (), (3,)],
    ],
)
def test_other_tensors_are_refused(shapes: list[tuple[int, ...]]) -> None:
    tensors = [TensorSpec(str(i), shape) for i, shape in enumerate(shapes)]
    with pytest.raises(InputError, match=r"statistic 'x' has tensors of shapes .*; allowed: \(n,\), \(r, n\)"):
        LEADING.require("x", tensors)


ALONE = [TensorSpec("directions", (ROWS, SIZE))]


@pytest.mark.parametrize("rows", [1, 3, ROWS])
def test_the_first_directions_arrive_alone_and_the_others_are_0(rows: int) -> None:
    sent = {"directions": moments()["directions"]}
    codec = First(rows, 24)
    received = through(codec, sent)["directions"]
    assert np.allclose(received[:rows], sent["directions"][:rows], rtol=0, atol=1e-6)
    assert not received[rows:].any()
    # Each direction has a scale of its own.
    assert codec.bits(ALONE) == rows * (24 * SIZE + 32)


@given(st.integers(0, 3_000))
@settings(max_examples=100, deadline=None)
def test_directions_alone_share_bits_like_those_with_a_mean(bits: int) -> None:
    chosen = FIRST.shorten(ALONE, bits)
    if chosen is None:
        assert bits < First(1, WIDTH).bits(ALONE)
        return
    assert isinstance(chosen, First)
    assert chosen.bits(ALONE) <= bits
    if chosen.rows < ROWS:
        assert chosen.width == WIDTH
        assert First(chosen.rows + 1, WIDTH).bits(ALONE) > bits
    elif chosen.width < 24:
        assert First(ROWS, chosen.width + 1).bits(ALONE) > bits


@pytest.mark.parametrize("shapes", [[(3,)], [(2, 3), (2, 3)], [(1, 2, 3)], [()]])
def test_other_tensors_than_one_matrix_are_refused(shapes: list[tuple[int, ...]]) -> None:
    tensors = [TensorSpec(str(i), shape) for i, shape in enumerate(shapes)]
    with pytest.raises(InputError, match=r"statistic 'x' has tensors of shapes .*; allowed: \(r, n\)"):
        FIRST.require("x", tensors)

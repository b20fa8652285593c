import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, TensorSpec
from fedfisher_core.communication.wire.leading import MIXTURE, WIDTH, Owned, Truncated
from fedfisher_core.communication.wire.tensors import PAPER_WIDTH
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

from .test_elementwise import through

CLASSES, SIZE, ROWS, INPUTS = 3, 12, 5, 20
SHAPES = {
    "shares": (CLASSES,),
    "means": (CLASSES, SIZE),
    "directions": (ROWS, SIZE),
    "owners": (ROWS,),
    "deviations": (SIZE,),
    "residuals": (INPUTS,),
}
SPECS = [TensorSpec(name, shape) for name, shape in SHAPES.items()]


def moments(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    found = {
        "shares": rng.dirichlet(np.ones(CLASSES)),
        "means": rng.normal(size=(CLASSES, SIZE)) * [[1], [100], [0]],
        "directions": 2.0 ** -np.arange(ROWS)[:, None] * rng.normal(size=(ROWS, SIZE)),
        "owners": rng.integers(CLASSES, size=ROWS),
        "deviations": rng.exponential(size=SIZE),
        "residuals": rng.exponential(size=INPUTS),
    }
    return {name: array.astype(np.float32) for name, array in found.items()}


def variances(tensors: dict[str, Array]) -> Array:
    return np.square(tensors["directions"]).sum(axis=0) + np.square(tensors["deviations"])


@given(st.integers(0, ROWS), st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_directions_that_are_not_sent_leave_their_variances(rows: int, seed: int) -> None:
    sent = moments(seed)
    received = through(Owned.of(rows, 24), sent)
    assert np.array_equal(received["shares"], sent["shares"])
    assert np.array_equal(received["owners"][:rows], sent["owners"][:rows])
    np.testing.assert_allclose(received["directions"][:rows], sent["directions"][:rows], rtol=1e-3, atol=1e-6)
    assert not received["directions"][rows:].any()
    assert not received["owners"][rows:].any()
    np.testing.assert_allclose(variances(received), variances(sent), rtol=1e-4)
    np.testing.assert_allclose(received["residuals"], sent["residuals"], rtol=1e-3, atol=1e-6)


def test_every_mean_is_rounded_by_its_own_largest_entry() -> None:
    sent = moments()
    received = through(Owned.of(ROWS, WIDTH), sent)
    for row, mean in zip(received["means"], sent["means"], strict=True):
        assert np.abs(row - mean).max() <= np.abs(mean).max() / (2 * (2**7 - 1)) * 1.0001


@given(st.integers(0, 20_000))
@settings(max_examples=200, deadline=None)
def test_a_share_is_not_exceeded_and_buys_directions_before_digits(bits: int) -> None:
    chosen = MIXTURE.shorten(SPECS, bits)
    if chosen is None:
        assert bits < Owned.of(1, WIDTH).bits(SPECS)
        return
    assert isinstance(chosen, Owned)
    assert chosen.bits(SPECS) <= bits
    rows, width = chosen.moments.rows, chosen.moments.width
    if rows < ROWS:
        assert width == WIDTH
        assert Owned.of(rows + 1, WIDTH).bits(SPECS) > bits
    elif width < 24:
        assert Owned.of(ROWS, width + 1).bits(SPECS) > bits


def test_in_the_papers_format_entries_have_the_papers_width_at_most() -> None:
    chosen = [MIXTURE.shorten(SPECS, 20_000), MIXTURE.shorten_as_paper(SPECS, 20_000, factor_bits=9)]
    assert chosen == [Owned.of(ROWS, 24), Owned.of(ROWS, PAPER_WIDTH)]


def test_an_owner_takes_the_bits_that_tell_classes_apart() -> None:
    around = [SPECS[1], SPECS[2], SPECS[4]]
    residuals = 8 * INPUTS + 32
    assert Owned.of(4, 8).bits(SPECS) == 32 * CLASSES + 4 * 2 + Truncated(4, 8).bits(around) + residuals


@pytest.mark.parametrize("owner", [-1, 0.5, CLASSES, np.nan])
def test_owners_that_are_no_classes_are_not_sent(owner: float) -> None:
    sent = moments()
    sent["owners"][1] = owner
    with pytest.raises(InputError, match=rf"owners are .*{owner}.*; allowed: whole numbers from 0 to {CLASSES - 1}"):
        Owned.of(ROWS, 8).encode(sent, BitWriter())


def test_owners_that_are_no_classes_are_not_received() -> None:
    writer = BitWriter()
    writer.write(np.zeros(CLASSES, dtype=np.uint32), 32)
    # Two bits have room for a fourth class.
    writer.write(np.full(ROWS, 3, dtype=np.uint32), 2)
    with pytest.raises(CorruptArtifactError, match="direction of class 3; expected below 3"):
        Owned.of(ROWS, 8).decode(SPECS, BitReader(writer.to_bytes()))


@pytest.mark.parametrize(
    "shapes",
    [
        [(3,), (2, 3), (3,)],
        [(2,), (2, 3), (4, 3), (4,), (4,), (9,)],
        [(2,), (2, 3), (4, 3), (3,), (3,), (9,)],
        [(2,), (2, 3), (4, 2), (4,), (3,), (9,)],
        [(3,), (2, 3), (4, 3), (4,), (3,), (9,)],
        [(2,), (6,), (4, 3), (4,), (3,), (9,)],
        [(2,), (2, 3), (), (), (3,), (9,)],
        [(2,), (2, 3), (4, 3), (4,), (3,), ()],
    ],
)
def test_other_tensors_are_refused(shapes: list[tuple[int, ...]]) -> None:
    tensors = [TensorSpec(str(i), shape) for i, shape in enumerate(shapes)]
    with pytest.raises(
        InputError, match=r"statistic 'x' has tensors of shapes .*; allowed: \(c,\), \(c, m\), \(r, m\)"
    ):
        MIXTURE.require("x", tensors)


@pytest.mark.parametrize(("classes", "width"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (10, 4), (16, 4)])
def test_an_owner_takes_as_many_bits_as_tell_classes_apart(classes: int, width: int) -> None:
    shapes = [(classes,), (classes, 5), (7, 5), (7,), (5,), (2,)]
    tensors = [TensorSpec(str(i), shape) for i, shape in enumerate(shapes)]
    # A direction of 5 entries at 4 bits and its scale.
    assert Owned.of(3, 4).bits(tensors) - Owned.of(2, 4).bits(tensors) == 5 * 4 + 32 + width

"""Real tensors as numbers modulo 2^bits."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfisher_core.communication.secure.fixed_point import FixedPoint, Tensors
from fedfisher_core.engine.errors import InputError

LAYOUT = {"wide": (3, 4), "scalar": (), "tiny": (5,), "zero": (2,)}
EXPONENTS = (10, 0, -131, 0)


def tensors(seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    scales = {"wide": 1e3, "scalar": 1.0, "tiny": 1e-40, "zero": 0.0}
    return {name: np.asarray(scales[name] * rng.uniform(-1, 1, shape)) for name, shape in LAYOUT.items()}


@pytest.mark.parametrize("clients", [2, 3, 4, 7, 8, 50])
@pytest.mark.parametrize("bits", [32, 64])
def test_sums_are_off_by_half_a_step_a_client_at_most(clients: int, bits: int) -> None:
    each = [tensors(seed) for seed in range(clients)]
    code = FixedPoint(LAYOUT, EXPONENTS, clients, bits)
    vectors = [code.encode(one) for one in each]
    assert {vector.shape for vector in vectors} == {(code.size,)}
    total = np.sum(vectors, axis=0, dtype=vectors[0].dtype)
    decoded = code.decode(total)
    assert total[-1] == 0
    for name, step in code.steps().items():
        exact = np.sum([one[name] for one in each], axis=0)
        largest = max(np.abs(one[name]).max() for one in each)
        assert np.abs(decoded[name] - exact).max() <= clients * step / 2 + 1e-15 * clients * largest
    # Of a range of 2^10, 64 bits leave a step below 2^-45 for 50 clients.
    assert code.steps()["wide"] == 2.0 ** (10 - (bits - 1 - clients.bit_length()))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("clients", [2, 3, 4, 7, 8])
def test_the_sum_does_not_wrap_where_all_clients_have_the_largest_entry(clients: int, sign: float, bits: int) -> None:
    code = FixedPoint({"x": (1,)}, (0,), clients, bits)
    vector = code.encode({"x": np.array([sign])})
    total = np.sum([vector] * clients, axis=0, dtype=vector.dtype)
    assert code.decode(total)["x"].item() == sign * clients


def test_what_is_beyond_the_range_is_cut_off_and_counted() -> None:
    code = FixedPoint({"x": (4,), "y": (2,)}, (1, -1), clients=3, bits=64)
    vector = code.encode({"x": np.array([2.0, -2.5, 1e300, 0.0]), "y": np.array([0.5, -0.75])})
    assert vector[-1] == 3
    decoded = code.decode(vector)
    assert decoded["x"].tolist() == [2.0, -2.0, 2.0, 0.0]
    assert decoded["y"].tolist() == [0.5, -0.5]


@pytest.mark.parametrize(("clients", "bits"), [(2**24 - 1, 32), (2**30 - 1, 32), (3, 32), (2**24 - 1, 64)])
def test_the_count_of_what_is_cut_off_does_not_wrap(clients: int, bits: int) -> None:
    code = FixedPoint({"x": (1000,)}, (0,), clients=clients, bits=bits)
    vector = code.encode({"x": np.full(1000, 7.0)})
    assert code.clipped(vector) == 1000
    # Multiplied in the ring, as if all clients had been added up.
    assert code.clipped(vector * vector.dtype.type(clients)) == 1000 * clients
    assert code.size == len(vector)


def test_the_count_takes_no_more_room_than_it_may_need() -> None:
    sizes = {(10, 32): 1, (10**6, 32): 1, (10**9, 32): 2, (10**9, 64): 1, (10**15, 32): 2}
    for (numbers, bits), digits in sizes.items():
        assert FixedPoint({"x": (numbers,)}, (0,), clients=5, bits=bits).size == numbers + digits
    assert FixedPoint({"x": (430_000,)}, (0,), clients=10_000, bits=32).size == 430_000 + 2


def test_nothing_that_a_client_sends_depends_on_the_size_of_its_tensors_but_the_numbers_under_the_mask() -> None:
    code = FixedPoint(LAYOUT, EXPONENTS, clients=3, bits=64)
    vectors = [code.encode({name: scale * one for name, one in tensors(0).items()}) for scale in (0.0, 1.0, 1e9)]
    assert {(vector.shape, vector.dtype) for vector in vectors} == {(vectors[0].shape, vectors[0].dtype)}


def test_whole_numbers_are_exact() -> None:
    counts = [{"n": np.array(float(count))} for count in (1, 77, 60_000)]
    code = FixedPoint({"n": ()}, (17,), clients=3, bits=32)
    assert code.decode(sum(code.encode(one) for one in counts[1:]) + code.encode(counts[0]))["n"] == 60_078


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.array([np.inf])}, "tensor 'x' of a secure sum is not finite"),
        ({"y": np.array([1.0])}, "tensors are"),
        ({"x": np.array([1.0, 1.0])}, "tensors are"),
    ],
)
def test_what_the_code_does_not_hold_is_refused(given: dict[str, NDArray[np.float64]], message: str) -> None:
    code = FixedPoint(layout={"x": (1,)}, exponents=(1,), clients=3, bits=32)
    with pytest.raises(InputError, match=message):
        code.encode(given)

"""Real tensors as numbers modulo 2^bits."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.secure.fixed_point import FixedPoint, Tensors, exponents_of

LAYOUT = {"wide": (3, 4), "scalar": (), "tiny": (5,), "zero": (2,)}


def tensors(seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    scales = {"wide": 1e3, "scalar": 1.0, "tiny": 1e-40, "zero": 0.0}
    return {name: np.asarray(scales[name] * rng.uniform(-1, 1, shape)) for name, shape in LAYOUT.items()}


@pytest.mark.parametrize("clients", [2, 3, 4, 7, 8, 50])
@pytest.mark.parametrize("bits", [32, 64])
def test_sums_are_off_by_half_a_step_a_client_at_most(clients: int, bits: int) -> None:
    each = [tensors(seed) for seed in range(clients)]
    code = FixedPoint.fit(LAYOUT, [exponents_of(one) for one in each], bits=bits)
    vectors = [code.encode(one) for one in each]
    assert {vector.shape for vector in vectors} == {(code.size,)}
    decoded = code.decode(np.sum(vectors, axis=0, dtype=vectors[0].dtype))
    for name, step in code.steps().items():
        exact = np.sum([one[name] for one in each], axis=0)
        largest = max(np.abs(one[name]).max() for one in each)
        bound = clients * step / 2 + 1e-15 * clients * largest
        assert np.abs(decoded[name] - exact).max() <= bound
        # The step is fine: no fewer than bits - 3 - log2(clients) bits for the largest entry.
        assert largest == 0 or step <= largest * 8 * clients / 2**bits


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("clients", [2, 3, 4, 7, 8])
def test_the_sum_does_not_wrap_where_all_clients_have_the_largest_entry(clients: int, sign: float) -> None:
    below = {"x": np.array([sign * np.nextafter(1.0, 0.0)])}
    code = FixedPoint.fit({"x": (1,)}, [exponents_of(below)] * clients, bits=32)
    vector = code.encode(below)
    total = np.sum([vector] * clients, axis=0, dtype=vector.dtype)
    assert code.decode(total)["x"].item() == sign * clients


def test_whole_numbers_are_exact() -> None:
    counts = [{"n": np.array(float(count))} for count in (1, 77, 60_000)]
    code = FixedPoint.fit({"n": ()}, [exponents_of(one) for one in counts], bits=32)
    assert code.decode(sum(code.encode(one) for one in counts[1:]) + code.encode(counts[0]))["n"] == 60_078


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.array([2.0])}, r"tensor 'x' has an entry of 2\^1 or more; allowed: below 2\^1"),
        ({"x": np.array([np.inf])}, "tensor 'x' of a secure sum is not finite"),
        ({"y": np.array([1.0])}, "tensors are"),
        ({"x": np.array([1.0, 1.0])}, "tensors are"),
    ],
)
def test_what_the_code_does_not_hold_is_refused(given: dict[str, NDArray[np.float64]], message: str) -> None:
    code = FixedPoint(layout={"x": (1,)}, exponents=(1,), clients=3, bits=32)
    with pytest.raises(InputError, match=message):
        code.encode(given)

"""The whole protocol: what the server learns, what it does not, and who may leave."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from fedfisher_core.errors import InputError
from fedfisher_core.secure.fixed_point import FixedPoint, Tensors, exponents_of
from fedfisher_core.secure.masking import mask
from fedfisher_core.secure.protocol import KEYS_BYTES, SEALED_BYTES, Client, Collected, Terms, collect
from fedfisher_core.secure.shamir import SHARE_BYTES
from fedfisher_core.settings import Round

LAYOUT = {"weight": (20, 30), "bias": (7,)}
SIZE = 607


def values(client: int) -> Tensors:
    rng = np.random.default_rng(100 + client)
    return {name: (1 + client) * rng.normal(size=shape) for name, shape in LAYOUT.items()}


def terms(bits: int = 64, threshold: int = 3, session: bytes = b"one") -> Terms:
    return Terms(layout=LAYOUT, bits=bits, threshold=threshold, session=session)


def run(known: Terms, dropouts: dict[int, Round] | None = None, *, clients: int = 5) -> Collected:
    members = [
        Client(number, lambda number=number: values(number), terms=known, rng=np.random.default_rng(number))
        for number in range(clients)
    ]
    return collect(members, known, dropouts=dropouts or {})


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("dropouts", "summed"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({1: "keys"}, [0, 2, 3, 4]),
        ({1: "shares", 4: "shares"}, [0, 2, 3]),
        ({0: "upload", 3: "upload"}, [1, 2, 4]),
        ({2: "unmasking", 4: "unmasking"}, [0, 1, 2, 3, 4]),
        ({0: "shares", 4: "unmasking"}, [1, 2, 3, 4]),
        ({4: "upload", 2: "unmasking"}, [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_the_server_learns_exactly_the_sum_of_the_uploads_that_arrived(
    dropouts: dict[int, Round], summed: list[int], bits: int
) -> None:
    collected = run(terms(bits), dropouts)
    assert list(collected.uploaded) == summed
    plain = [collected.code.encode(values(client)) for client in summed]
    assert np.array_equal(collected.unmask(), np.sum(plain, axis=0, dtype=plain[0].dtype))
    for name, total in collected.tensors().items():
        exact = np.sum([values(client)[name] for client in summed], axis=0)
        assert np.abs(total - exact).max() <= collected.errors()[name] + 1e-13


def test_the_code_is_as_fine_as_the_clients_that_take_part_allow() -> None:
    # The largest client leaves before it says how large its entries are.
    code = run(terms(), {4: "keys"}).code
    assert code == FixedPoint.fit(LAYOUT, [exponents_of(values(client)) for client in range(4)], bits=64)


def chi_square(numbers: NDArray[np.unsignedinteger[Any]]) -> float:
    """Probability of bytes that are at least as uneven, were they uniform."""
    counts = np.bincount(np.frombuffer(numbers.tobytes(), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(chi2.sf(np.square(counts - expected).sum() / expected, df=255))


@pytest.mark.parametrize("bits", [32, 64])
def test_one_masked_upload_is_uniform(bits: int) -> None:
    layout = {"x": (50_000,)}
    known = Terms(layout=layout, bits=bits, threshold=2, session=b"")
    constant = {"x": np.full(50_000, 0.75)}
    uploads: list[bytes] = []

    class Watched(Client):
        def upload(self, sealed):  # type: ignore[no-untyped-def]
            uploads.append(super().upload(sealed))
            return uploads[-1]

    members = [Watched(number, lambda: constant, terms=known, rng=np.random.default_rng(number)) for number in range(3)]
    collected = collect(members, known, dropouts={})
    kind = collected.masked.dtype
    vectors = [np.frombuffer(upload, dtype=kind) for upload in uploads]
    assert chi_square(collected.code.encode(constant)) < 1e-10
    for vector in vectors:
        assert 1e-3 < chi_square(vector) < 1 - 1e-3
    # Two uploads of the same numbers have nothing in common, nor have all of them together before they are unmasked.
    assert chi_square(vectors[0] - vectors[1]) > 1e-3
    assert chi_square(collected.masked) > 1e-3
    assert set(collected.tensors()["x"].tolist()) == {2.25}


def test_a_mask_depends_on_its_seed_and_its_session() -> None:
    masks = [
        mask(bytes([seed]) * 32, 100, bits=64, session=session).tobytes()
        for seed in (1, 2)
        for session in (b"one", b"two")
    ]
    assert len(set(masks)) == 4
    assert run(terms(session=b"one")).masked.tobytes() != run(terms(session=b"two")).masked.tobytes()


def test_of_each_client_one_secret_only_can_be_recovered() -> None:
    """The shares that the server gets of a client whose upload arrived are of its own mask, never of its pairs' key."""
    known = terms()
    members = [
        Client(number, lambda number=number: values(number), terms=known, rng=np.random.default_rng(number))
        for number in range(5)
    ]
    collected = collect(members, known, dropouts={3: "upload"})
    for holder in (0, 1, 2, 4):
        for client, (pair, own) in members[holder]._held.items():
            assert collected.revealed[client][holder] == (pair if client == 3 else own)
            assert pair != own


@pytest.mark.parametrize("message", ["keys", "shares", "upload", "unmasking"])
def test_too_few_survivors_are_named_beside_the_threshold(message: Round) -> None:
    with pytest.raises(InputError) as caught:
        run(terms(threshold=4), {0: message, 2: message})
    text = str(caught.value)
    assert f"3 of 5 clients are left to send '{message}' (survivors: [1, 3, 4])" in text
    assert "wire.secure.threshold=4" in text


def test_bytes_are_those_of_the_messages() -> None:
    exponents, shares = 2 * len(LAYOUT), SHARE_BYTES
    everyone = run(terms(32))
    assert everyone.upload_bytes == 5 * (KEYS_BYTES + exponents + 4 * SEALED_BYTES + 4 * SIZE + 5 * shares)
    assert everyone.download_bytes == 5 * (5 * KEYS_BYTES + exponents + 4 * SEALED_BYTES + 1)
    some = run(terms(64), {0: "keys", 1: "upload"})
    assert some.upload_bytes == 4 * (KEYS_BYTES + exponents + 3 * SEALED_BYTES) + 3 * (8 * SIZE + 4 * shares)


def test_the_same_seed_sends_the_same_bits() -> None:
    assert run(terms()).masked.tobytes() == run(terms()).masked.tobytes()

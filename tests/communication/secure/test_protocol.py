"""The whole protocol: what the server learns, what it does not, and who may leave."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from fedfisher_core.communication.secure.client import Client
from fedfisher_core.communication.secure.fixed_point import FixedPoint, mask
from fedfisher_core.communication.secure.keys import TAG_BYTES
from fedfisher_core.communication.secure.protocol import collect
from fedfisher_core.communication.secure.shamir import SHARE_BYTES
from fedfisher_core.communication.secure.terms import KEYS_BYTES, Terms
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import Round
from tests.communication.secure.parties import SIZE, members, run, terms, values

# Two shares under one tag.
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES


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
    collected = run(terms(bits=bits), dropouts)
    assert list(collected.uploaded) == summed
    plain = [collected.terms.code.encode(values(client)) for client in summed]
    assert np.array_equal(collected.unmasked, np.sum(plain, axis=0, dtype=plain[0].dtype))
    assert collected.clipped() == 0
    for name, total in collected.tensors().items():
        exact = np.sum([values(client)[name] for client in summed], axis=0)
        assert np.abs(total - exact).max() <= collected.errors()[name] + 1e-13


def test_the_server_learns_how_many_numbers_all_clients_cut_off() -> None:
    known = Terms(b"", (0, 1, 2), 2, FixedPoint({"x": (4,)}, (0,), clients=3, bits=64))
    added = {0: [1.0, -1.0, 0.5, 0.0], 1: [1.5, -7.0, 0.5, 0.0], 2: [1.0, 0.0, 0.0, 1e300]}
    clients = [
        Client(
            number,
            lambda number=number: {"x": np.array(added[number])},  # type: ignore[misc]
            terms=known,
            root=bytes([number]) * 32,
            signing=bytes(32),
        )
        for number in added
    ]
    collected = collect(clients, known, dropouts={})
    assert collected.clipped() == 3 / 12
    assert collected.tensors()["x"].tolist() == [3.0, -2.0, 1.0, 1.0]


def chi_square(numbers: NDArray[np.unsignedinteger[Any]]) -> float:
    """Probability of bytes that are at least as uneven, were they uniform."""
    counts = np.bincount(np.frombuffer(numbers.tobytes(), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(chi2.sf(np.square(counts - expected).sum() / expected, df=255))


@pytest.mark.parametrize("bits", [32, 64])
def test_one_masked_upload_is_uniform(bits: int) -> None:
    layout = {"x": (50_000,)}
    known = Terms(b"", (0, 1, 2), 2, FixedPoint(layout, (0,), clients=3, bits=bits))
    constant = {"x": np.full(50_000, 0.75)}
    uploads: list[bytes] = []

    class Watched(Client):
        def upload(self, sealed):  # type: ignore[no-untyped-def]
            uploads.append(super().upload(sealed))
            return uploads[-1]

    clients = [
        Watched(number, lambda: constant, terms=known, root=bytes([number]) * 32, signing=bytes(32))
        for number in range(3)
    ]
    collected = collect(clients, known, dropouts={})
    kind = collected.masked.dtype
    vectors = [np.frombuffer(upload, dtype=kind) for upload in uploads]
    assert chi_square(known.code.encode(constant)) < 1e-10
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
    held: dict[int, dict[int, tuple[bytes, bytes]]] = {}

    class Watched(Client):
        def reveal(self, uploaded, signatures):  # type: ignore[no-untyped-def]
            held[self.number] = dict(self._held)
            return super().reveal(uploaded, signatures)

    collected = collect(members(known, Watched), known, dropouts={3: "upload"})
    assert sorted(held) == [0, 1, 2, 4]
    for holder, shares in held.items():
        for client, (pair, own) in shares.items():
            assert collected.messages.revealed(client)[holder] == (pair if client == 3 else own)
            assert pair != own


@pytest.mark.parametrize("message", ["keys", "shares", "upload", "unmasking"])
def test_too_few_survivors_are_named_beside_the_threshold(message: Round) -> None:
    with pytest.raises(InputError) as caught:
        run(terms(threshold=4), {0: message, 2: message})
    text = str(caught.value)
    assert f"3 of 5 clients are left to send '{message}' (survivors: [1, 3, 4])" in text
    assert "wire.secure.threshold=4" in text


def test_bytes_are_those_of_the_messages() -> None:
    # A number more than the tensors have says how many were cut off; a list of clients is a byte.
    shares = SHARE_BYTES
    everyone = run(terms(bits=32)).messages
    assert everyone.bytes_sent() == 5 * (KEYS_BYTES + 4 * SEALED_BYTES + 4 * (SIZE + 1) + 5 * shares)
    assert everyone.bytes_received(5) == 5 * (5 * KEYS_BYTES + 1 + 4 * SEALED_BYTES + 1 + 1)
    some = run(terms(), {0: "keys", 1: "upload"}).messages
    assert some.bytes_sent() == 4 * (KEYS_BYTES + 3 * SEALED_BYTES) + 3 * (8 * (SIZE + 1) + 4 * shares)
    assert some.formula_bits(terms()) == 8 * (some.bytes_sent() - 4 * 3 * 16)

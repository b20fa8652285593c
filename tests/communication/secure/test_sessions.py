"""Two sessions of the same clients: what a server learns in one does not open the other."""

import numpy as np
import pytest

from fedfisher_core.communication.secure import shamir
from fedfisher_core.communication.secure.client import Client, add_pair, own_mask
from fedfisher_core.communication.secure.fixed_point import Vector
from fedfisher_core.communication.secure.keys import KEY_BYTES, stream
from fedfisher_core.communication.secure.protocol import Collected, collect
from fedfisher_core.settings import Round
from tests.communication.secure.parties import members, terms, values

VICTIM = 1


class Careless(Client):
    """Draws its secrets without regard to the session."""

    def __init__(self, number, read, *, terms, root, signing):  # type: ignore[no-untyped-def]
        super().__init__(number, read, terms=terms, root=root, signing=signing)
        self._draw = stream(root)
        self._sharing_key, self._pair_key, self._own_seed = (self._draw(KEY_BYTES) for _ in range(3))


def session(kind: type[Client], name: bytes, dropouts: dict[int, Round]) -> tuple[Vector, Collected]:
    """What a server sees: the victim's masked upload, and the other messages."""
    known = terms(session=name)
    seen: dict[int, bytes] = {}

    class Watched(kind):  # type: ignore[misc, valid-type]
        def upload(self, sealed):  # type: ignore[no-untyped-def]
            seen[self.number] = super().upload(sealed)
            return seen[self.number]

    collected = collect(members(known, Watched), known, dropouts=dropouts)
    return np.frombuffer(seen.get(VICTIM, b""), dtype=collected.masked.dtype).copy(), collected


def unmask_victim(kind: type[Client]) -> tuple[Vector, Collected]:
    """Take the victim's own mask from the session that it finished, and its pairs' key from the one that it left."""
    upload, finished = session(kind, b"with", {})
    _, left = session(kind, b"without", {VICTIM: "upload"})
    upload -= own_mask(shamir.combine(finished.messages.revealed(VICTIM)), finished.terms)
    pair_key = shamir.combine(left.messages.revealed(VICTIM))
    masks = np.zeros_like(upload)
    for other, keys in finished.messages.adverts.items():
        if other != VICTIM:
            add_pair(masks, VICTIM, other, pair_key, keys, finished.terms)
    return upload - masks, finished


def test_a_session_with_a_client_and_one_without_do_not_unmask_it() -> None:
    found, seen = unmask_victim(Client)
    own = seen.terms.code.encode(values(VICTIM))
    # Of 64 uniform bits none is like the client's own number.
    assert not (found == own).any()
    guessed = seen.terms.code.decode(found)["weight"]
    assert abs(np.corrcoef(guessed.ravel(), values(VICTIM)["weight"].ravel())[0, 1]) < 0.15


def test_the_attack_works_on_secrets_that_two_sessions_share() -> None:
    found, seen = unmask_victim(Careless)
    assert np.array_equal(found, seen.terms.code.encode(values(VICTIM)))


@pytest.mark.parametrize("change", [{"session": b"two"}, {"threshold": 4}, {"bits": 32}, {"active": True}], ids=str)
def test_whatever_names_a_session_changes_every_secret_and_every_message(change: dict[str, object]) -> None:
    one, two = (members(known)[0] for known in (terms(), terms(**change)))  # type: ignore[arg-type]
    secrets = [{each._sharing_key, each._pair_key, each._own_seed} for each in (one, two)]
    assert len(secrets[0] | secrets[1]) == 6
    assert one._draw(KEY_BYTES) != two._draw(KEY_BYTES)
    assert one.advertise()[: 2 * KEY_BYTES] != two.advertise()[: 2 * KEY_BYTES]


def test_the_same_settings_send_the_same_bytes() -> None:
    one, two = (session(Client, b"one", {2: "upload"}) for _ in range(2))
    assert np.array_equal(one[0], two[0])
    assert one[1].messages == two[1].messages
    assert np.array_equal(one[1].masked, two[1].masked)

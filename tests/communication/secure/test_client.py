"""What a client refuses, regardless of what the server asks of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from fedfisher_core.communication.secure.client import Client
from fedfisher_core.communication.secure.shamir import SHARE_BYTES
from fedfisher_core.communication.secure.terms import Terms
from fedfisher_core.engine.errors import ProtocolError
from tests.communication.secure.parties import CLIENTS, members, sealed_for, terms

EVERYONE = tuple(range(CLIENTS))


@dataclass
class Talk:
    """A server's conversation with five clients up to their uploads; it asks the first one what it likes."""

    known: Terms
    clients: list[Client]
    directory: dict[int, bytes]
    sealed: list[dict[int, bytes]]

    @staticmethod
    def begin(*, active: bool = False) -> "Talk":
        known = terms(active=active)
        clients = members(known)
        directory = {one.number: one.advertise() for one in clients}
        return Talk(known, clients, directory, [one.share(directory) for one in clients[1:]])

    def shares(self) -> dict[int, bytes]:
        return {sender: messages[0] for sender, messages in enumerate(self.sealed, start=1)}

    def uploaded(self) -> Client:
        """The first client, after its upload."""
        first = self.clients[0]
        first.share(self.directory)
        first.upload(self.shares())
        return first


def test_every_message_is_sent_once_and_in_order() -> None:
    known = terms()
    clients = members(known)
    directory = {one.number: one.advertise() for one in clients}
    with pytest.raises(ProtocolError, match="client 1 is asked for 'keys'; allowed: 'shares'"):
        clients[1].advertise()
    with pytest.raises(ProtocolError, match="client 2 is asked for 'upload'; allowed: 'shares'"):
        clients[2].upload({})
    with pytest.raises(ProtocolError, match="client 3 is asked for 'consistency'; allowed: 'shares'"):
        clients[3].confirm(EVERYONE)
    with pytest.raises(ProtocolError, match="client 4 is asked for 'unmasking'; allowed: 'shares'"):
        clients[4].reveal(EVERYONE, {})
    for stopped in clients[1:]:
        with pytest.raises(ProtocolError, match="is asked for 'shares'; allowed: nothing more"):
            stopped.share(directory)


def test_a_client_reveals_one_kind_of_share_and_once() -> None:
    first = Talk.begin().uploaded()
    held = dict(first._held)
    answer = first.reveal({0, 1, 2, 4}, {})
    pieces = [answer[at : at + SHARE_BYTES] for at in range(0, len(answer), SHARE_BYTES)]
    assert pieces == [held[client][0 if client == 3 else 1] for client in EVERYONE]
    assert not {pair if client != 3 else own for client, (pair, own) in held.items()} & set(pieces)
    for survivors in ({0, 1, 2, 4}, {0, 1, 2, 3}):
        with pytest.raises(ProtocolError, match="client 0 is asked for 'unmasking'; allowed: nothing more"):
            first.reveal(survivors, {})


def forge(keys: dict[int, bytes], case: str) -> dict[int, bytes]:
    """A directory that a server should not show to client 0."""
    return {
        "too few": {number: keys[number] for number in (0, 1)},
        "without itself": {number: keys[number] for number in (1, 2, 3)},
        "a stranger": keys | {9: bytes(64)},
        "its own key changed": keys | {0: bytes(64)},
        "too short": keys | {3: keys[3][:-1]},
        "its key as another's": keys | {3: keys[0]},
        "one key of two clients": keys | {3: keys[4][:32] + keys[3][32:]},
        "one key twice": keys | {3: keys[3][:32] * 2},
        "low order": keys | {3: bytes(32) + keys[3][32:]},
    }[case]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("too few", r"gets \[0, 1\] as clients that sent keys; allowed: 3 or more of \[0, 1, 2, 3, 4\]"),
        ("without itself", "finds other keys than its own under its number"),
        ("a stranger", r"gets \[0, 1, 2, 3, 4, 9\] as clients that sent keys"),
        ("its own key changed", "finds other keys than its own"),
        ("too short", "gets 63 bytes as keys of client 3; allowed: 64"),
        ("its key as another's", "finds a public key that is used twice"),
        ("one key of two clients", "finds a public key that is used twice"),
        ("one key twice", "finds a public key that is used twice"),
        ("low order", "a public key is not one that keeps a secret"),
    ],
)
def test_a_directory_that_is_not_of_enough_clients_with_keys_of_their_own_is_refused(case: str, message: str) -> None:
    talk = Talk.begin()
    with pytest.raises(ProtocolError, match=message):
        talk.clients[0].share(forge(talk.directory, case))
    with pytest.raises(ProtocolError, match="allowed: nothing more"):
        talk.clients[0].share(talk.directory)


@pytest.mark.parametrize(
    ("senders", "message"),
    [
        ((), r"gets \[0\] as clients that sent shares; allowed: 3 or more"),
        ((1,), r"gets \[0, 1\] as clients that sent shares; allowed: 3 or more"),
    ],
)
def test_an_upload_that_too_few_pairs_mask_is_refused(senders: tuple[int, ...], message: str) -> None:
    talk = Talk.begin()
    talk.clients[0].share(talk.directory)
    with pytest.raises(ProtocolError, match=message):
        talk.clients[0].upload({sender: talk.shares()[sender] for sender in senders})


def test_shares_from_a_stranger_for_another_or_from_itself_are_refused() -> None:
    def mislead(change: Callable[[Talk, dict[int, bytes]], dict[int, bytes]], message: str) -> None:
        talk = Talk.begin()
        own = talk.clients[0].share(talk.directory)
        with pytest.raises(ProtocolError, match=message):
            talk.clients[0].upload(talk.shares() | change(talk, own))

    mislead(lambda talk, own: {7: talk.shares()[1]}, "as clients that sent shares")
    mislead(lambda talk, own: {0: own[1]}, "has no shares to get from itself")
    mislead(lambda talk, own: {1: own[1]}, "sealed message was changed, or is not for this key")
    mislead(lambda talk, own: {1: talk.sealed[0][2]}, "sealed message was changed, or is not for this key")
    mislead(lambda talk, own: {1: talk.shares()[2]}, "sealed message was changed, or is not for this key")


@pytest.mark.parametrize(
    ("survivors", "message"),
    [
        ([], r"gets \[\] as clients whose uploads arrived; allowed: 3 or more"),
        ([0, 1], r"gets \[0, 1\] as clients whose uploads arrived; allowed: 3 or more"),
        ([0, 1, 1, 1], "each once"),
        ([0, 1, 2, 9], "as clients whose uploads arrived"),
        ([1, 2, 3], "is told that its upload did not arrive"),
    ],
)
@pytest.mark.parametrize("active", [False, True])
def test_survivors_that_cannot_be_are_refused(survivors: list[int], message: str, active: bool) -> None:
    first = Talk.begin(active=active).uploaded()
    show = first.confirm if active else partial(first.reveal, signatures={})
    with pytest.raises(ProtocolError, match=message):
        show(survivors)
    with pytest.raises(ProtocolError, match="allowed: nothing more"):
        first.reveal(EVERYONE, {})


def test_what_a_client_cannot_read_stops_it() -> None:
    known = terms()

    class Unreadable(Client):
        def __init__(self, number, read, *, terms, root, signing):  # type: ignore[no-untyped-def]
            super().__init__(number, self._fail, terms=terms, root=root, signing=signing)

        def _fail(self) -> dict[str, object]:
            raise OSError("no such file")

    clients = members(known, Unreadable)
    directory = {one.number: one.advertise() for one in clients}
    sealed = [one.share(directory) for one in clients]
    with pytest.raises(OSError, match="no such file"):
        clients[0].upload(sealed_for(0, sealed))
    with pytest.raises(ProtocolError, match="client 0 is asked for 'upload'; allowed: nothing more"):
        clients[0].upload(sealed_for(0, sealed))

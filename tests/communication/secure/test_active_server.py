"""A server that may send wrong messages, and the signatures that catch it (Bonawitz et al. 2017, figure 4)."""

import numpy as np
import pytest

from fedfisher_core.communication.secure import shamir
from fedfisher_core.communication.secure.client import Client, add_pair, own_mask
from fedfisher_core.communication.secure.keys import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES, public_key, sign
from fedfisher_core.communication.secure.terms import Terms, keys_message, survivors_message
from fedfisher_core.engine.errors import ProtocolError
from fedfisher_core.settings import Round
from tests.communication.secure.parties import CLIENTS, SIZE, members, run, sealed_for, signing, terms, values

EVERYONE = tuple(range(CLIENTS))
VICTIM = 1
# Two lists of survivors: those who see the second one give the victim up for lost.
WITH, WITHOUT = EVERYONE, (0, 2, 3, 4)


def uploaded(known: Terms) -> tuple[list[Client], list[bytes]]:
    """Clients after their uploads, and these."""
    clients = members(known)
    directory = {one.number: one.advertise() for one in clients}
    sealed = [one.share(directory) for one in clients]
    return clients, [one.upload(sealed_for(one.number, sealed)) for one in clients]


def shares_of(client: int, answers: dict[int, bytes]) -> dict[int, bytes]:
    at = client * shamir.SHARE_BYTES
    return {holder: answer[at : at + shamir.SHARE_BYTES] for holder, answer in answers.items()}


def test_without_signatures_a_threshold_of_half_lets_different_lists_unmask_a_client() -> None:
    """What the warning of `Terms` is about: three clients each reveal one kind of share."""
    known = terms(threshold=3, clients=6)
    clients, uploads = uploaded(known)
    own = {number: clients[number].reveal((0, 1, 2), {}) for number in (0, 1, 2)}
    pair = {number: clients[number].reveal((3, 4, 5), {}) for number in (3, 4, 5)}
    found = np.frombuffer(uploads[VICTIM], dtype="<u8").copy()
    found -= own_mask(shamir.combine(shares_of(VICTIM, own)), known)
    masks = np.zeros_like(found)
    secret = shamir.combine(shares_of(VICTIM, pair))
    for other in (0, 2, 3, 4, 5):
        add_pair(masks, VICTIM, other, secret, members(known)[other].advertise(), known)
    assert np.array_equal(found - masks, known.code.encode(values(VICTIM)))


def test_a_server_that_shows_two_clients_different_survivors_is_caught() -> None:
    lists = {0: WITH, 1: WITH, 2: WITHOUT, 3: WITHOUT, 4: WITHOUT}
    for signers, message in (
        (lambda shown: [one for one in lists if lists[one] == shown], "signed the survivors; allowed: 4 or more"),
        (lambda shown: shown, "survivors as client [02] knows them: the signature is not right"),
    ):
        clients, _ = uploaded(terms(active=True, threshold=4))
        signatures = {number: clients[number].confirm(shown) for number, shown in lists.items()}
        for number, shown in lists.items():
            with pytest.raises(ProtocolError, match=message):
                clients[number].reveal(shown, {one: signatures[one] for one in signers(shown)})


def test_a_server_that_shows_one_client_different_survivors_later_is_caught() -> None:
    known = terms(active=True)
    clients, _ = uploaded(known)
    signatures = {one.number: one.confirm(EVERYONE) for one in clients}
    with pytest.raises(ProtocolError, match=r"client 0 is told of survivors \[0, 2, 3, 4\], after \[0, 1, 2, 3, 4\]"):
        clients[0].reveal(WITHOUT, signatures)
    own = {number: sign(signing(number), survivors_message(known, WITHOUT)) for number in WITHOUT}
    with pytest.raises(ProtocolError, match="is told of survivors"):
        clients[2].reveal(WITHOUT, own)
    with pytest.raises(ProtocolError, match="signed the survivors"):
        clients[3].reveal(EVERYONE, {number: signatures[number] for number in (0, 1)})


def test_signatures_of_another_session_are_refused() -> None:
    known, other = terms(active=True), terms(active=True, session=b"two")
    clients, _ = uploaded(known)
    replayed = {one.number: one.confirm(EVERYONE) for one in uploaded(other)[0]}
    for one in clients:
        one.confirm(EVERYONE)
    with pytest.raises(ProtocolError, match="survivors as client 0 knows them: the signature is not right"):
        clients[1].reveal(EVERYONE, replayed)


def forged_keys(known: Terms, signer: bytes, named: int = 3) -> bytes:
    keys = public_key(b"m" * KEY_BYTES) + public_key(b"n" * KEY_BYTES)
    return keys + sign(signer, keys_message(known, named, keys))


@pytest.mark.parametrize("case", ["by the server", "by another client", "unsigned", "of another session", "exchanged"])
def test_forged_keys_are_refused(case: str) -> None:
    known = terms(active=True)
    clients = members(known)
    directory = {one.number: one.advertise() for one in clients}
    forged = {
        "by the server": forged_keys(known, b"s" * KEY_BYTES),
        "by another client": forged_keys(known, signing(4)),
        "unsigned": forged_keys(known, signing(3))[: 2 * KEY_BYTES] + bytes(SIGNATURE_BYTES),
        "of another session": forged_keys(terms(active=True, session=b"two"), signing(3)),
        "exchanged": directory[4],
    }
    with pytest.raises(ProtocolError, match="keys of client 3: the signature is not right"):
        clients[0].share(directory | {3: forged[case]})
    # A server that exchanges keys is not seen by clients who do not sign.
    if case == "by the server":
        trusting = members(terms())
        directory = {one.number: one.advertise() for one in trusting}
        trusting[0].share(directory | {3: forged[case][: 2 * KEY_BYTES]})


@pytest.mark.parametrize(
    ("dropouts", "summed"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({1: "keys"}, [0, 2, 3, 4]),
        ({4: "shares"}, [0, 1, 2, 3]),
        ({0: "upload", 3: "upload"}, [1, 2, 4]),
        ({2: "consistency"}, [0, 1, 2, 3, 4]),
        ({2: "consistency", 4: "unmasking"}, [0, 1, 2, 3, 4]),
        ({0: "shares", 4: "consistency"}, [1, 2, 3, 4]),
    ],
    ids=str,
)
def test_sums_are_those_without_signatures(dropouts: dict[int, Round], summed: list[int]) -> None:
    signed = run(terms(active=True), dropouts)
    plain = run(terms(), {client: "unmasking" if at == "consistency" else at for client, at in dropouts.items()})
    assert list(signed.uploaded) == list(plain.uploaded) == summed
    assert np.array_equal(signed.unmasked, plain.unmasked)


def test_bits_are_those_of_a_hand_count() -> None:
    """Of six clients, client 0 sends no keys, and client 1 no upload."""
    known = terms(active=True, threshold=4, clients=6)
    done = run(known, {0: "keys", 1: "upload"}).messages
    signature, keys, sealed, share = 64, 64, 33 + 33 + TAG_BYTES, 33
    vectors = 4 * 8 * (SIZE + 1)
    sent = 5 * (keys + signature) + 5 * 4 * sealed + vectors + 4 * signature + 4 * 5 * share
    assert done.bytes_sent() == sent
    # The same without the tags of what is sealed.
    assert done.formula_bits(known) == 8 * (sent - 5 * 4 * TAG_BYTES)
    # Each list says by one bit who of those before it is there: one byte for up to eight.
    received = 5 * (5 * (keys + signature) + 1) + 5 * (4 * sealed + 1) + 4 * 1 + 4 * (4 * signature + 1)
    assert done.bytes_received(6) == received


def test_what_signatures_cost() -> None:
    plain, signed = run(terms()).messages, run(terms(active=True)).messages
    each = CLIENTS * 2 * SIGNATURE_BYTES
    assert signed.bytes_sent() - plain.bytes_sent() == each
    assert signed.formula_bits(terms(active=True)) - plain.formula_bits(terms()) == 8 * each
    assert signed.bytes_received(CLIENTS) - plain.bytes_received(CLIENTS) == CLIENTS * (each + 1)

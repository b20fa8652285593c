"""Secure aggregation with double masking (Bonawitz et al. 2017, https://doi.org/10.1145/3133956.3133982): its messages.

Each upload is masked twice. Masks that pairs of clients agree on cancel in the sum. A further mask is the client's
own: an upload may come late, after its sender was given up for lost and its pairs' masks were recovered, and must not
lie open then. For each client the others reveal shares of the one secret or of the other, never of both. A client may
stop at any message. The sum is of all uploads that arrived, as long as `threshold` clients stay to the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from fedfisher_core.communication.secure import shamir
from fedfisher_core.communication.secure.client import Client, add_pair, own_mask
from fedfisher_core.communication.secure.fixed_point import Tensors, Vector, ring_type
from fedfisher_core.communication.secure.keys import KEY_BYTES, SIGNATURE_BYTES
from fedfisher_core.communication.secure.terms import Terms
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.costs import Spent, Stopwatch
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import Round

T = TypeVar("T")


@dataclass(frozen=True)
class Messages:
    """What clients sent, by their numbers; uploads are summed up as they come, and not kept.

    Args:
        adverts: public keys, with their signature where the server may be active.
        sealed: shares of two secrets, by sender and receiver.
        uploaded: the clients whose masked vectors arrived.
        upload_bytes: of one masked vector.
        signatures: of the list of those clients, where the server may be active.
        answers: a share for each client in `sealed`, in their order.
    """

    adverts: Mapping[int, bytes]
    sealed: Mapping[int, Mapping[int, bytes]]
    uploaded: tuple[int, ...]
    upload_bytes: int
    signatures: Mapping[int, bytes]
    answers: Mapping[int, bytes]

    def revealed(self, client: int) -> dict[int, bytes]:
        """The shares of one of a client's two secrets, by holder."""
        begin = list(self.sealed).index(client) * shamir.SHARE_BYTES
        return {holder: answer[begin : begin + shamir.SHARE_BYTES] for holder, answer in self.answers.items()}

    def bytes_sent(self) -> int:
        """Bytes that all clients sent."""
        shares = sum(len(one) for messages in self.sealed.values() for one in messages.values())
        vectors = len(self.uploaded) * self.upload_bytes
        return _total(self.adverts) + shares + vectors + _total(self.signatures) + _total(self.answers)

    def bytes_received(self, invited: int) -> int:
        """Bytes that the server sent to all clients: what each forwards, and a bit for each that might have sent it."""
        directory = len(self.adverts) * (_total(self.adverts) + _list_bytes(invited))
        forwarded = sum(
            len(message) for messages in self.sealed.values() for to, message in messages.items() if to in self.sealed
        )
        shares = forwarded + len(self.sealed) * _list_bytes(len(self.adverts))
        survivors = len(self.uploaded) * _list_bytes(len(self.sealed))
        confirmed = len(self.signatures) * (_total(self.signatures) + _list_bytes(len(self.uploaded)))
        return directory + shares + survivors + confirmed

    def formula_bits(self, terms: Terms) -> int:
        """Bits that all clients sent, as papers count them (Bonawitz et al. 2017, section 7.1): sealed without tags."""
        key, share = 8 * KEY_BYTES, 8 * shamir.SHARE_BYTES
        signature = 8 * SIGNATURE_BYTES if terms.signed else 0
        keys = len(self.adverts) * (2 * key + signature)
        shares = len(self.sealed) * (len(self.adverts) - 1) * 2 * share
        vectors = len(self.uploaded) * terms.code.size * terms.code.bits
        confirmed = len(self.signatures) * signature
        return keys + shares + vectors + confirmed + len(self.answers) * len(self.sealed) * share


def _total(messages: Mapping[int, bytes]) -> int:
    return sum(map(len, messages.values()))


def _list_bytes(known: int) -> int:
    """Bytes of a list of some of so many clients, one bit each."""
    return -(-known // 8)


@dataclass(frozen=True)
class Collected:
    """What the server holds after the last message.

    Args:
        client_spent: what all clients spent on their messages.
    """

    terms: Terms
    masked: Vector
    messages: Messages
    client_spent: Spent

    @property
    def uploaded(self) -> tuple[int, ...]:
        """The clients in the sum."""
        return self.messages.uploaded

    @computed_once
    def unmasked(self) -> Vector:
        """The sum of the vectors of `uploaded`, exactly."""
        total = self.masked.copy()
        for client in self.messages.sealed:
            secret = shamir.combine(self.messages.revealed(client))
            if client in self.uploaded:
                total -= own_mask(secret, self.terms)
                continue
            for other in self.uploaded:
                # The pair masks of the missing upload cancel those in its pairs' uploads.
                add_pair(total, client, other, secret, self.messages.adverts[other], self.terms)
        return total

    def tensors(self) -> Tensors:
        """The sums in double precision, by name."""
        return self.terms.code.decode(self.unmasked)

    def clipped(self) -> float:
        """The fraction of the clients' numbers that were cut off at the range."""
        return self.terms.code.clipped(self.unmasked) / (len(self.uploaded) * self.terms.code.numbers)

    def errors(self) -> dict[str, float]:
        """The most that rounding can change an entry of each tensor's sum, unless numbers were cut off.

        Of numbers of 64 bits, `tensors` keeps the 53 leading ones.
        """
        return {name: len(self.uploaded) * step / 2 for name, step in self.terms.code.steps().items()}


def collect(clients: Sequence[Client], terms: Terms, *, dropouts: Mapping[int, Round]) -> Collected:
    """Carry the messages between clients and server.

    Args:
        clients: in the order of their numbers.
        dropouts: the first message that a client fails to send; the others send all.

    Raises:
        InputError: fewer clients than the threshold are left.
    """
    clock = Clock()
    adverts = {one.number: clock.time(one.advertise) for one in _senders(clients, "keys", terms, dropouts)}
    sealed = {
        one.number: clock.time(partial(one.share, adverts)) for one in _senders(clients, "shares", terms, dropouts)
    }
    masked = np.zeros(terms.code.size, dtype=ring_type(terms.code.bits))
    uploaded: list[int] = []
    for one in _senders(clients, "upload", terms, dropouts):
        upload = clock.time(partial(one.upload, _addressed_to(one.number, sealed)))
        masked += np.frombuffer(upload, dtype=masked.dtype)
        uploaded.append(one.number)
    signatures: dict[int, bytes] = {}
    if terms.signed:
        confirming = _senders(clients, "consistency", terms, dropouts)
        signatures = {one.number: clock.time(partial(one.confirm, uploaded)) for one in confirming}
    answers = {
        one.number: clock.time(partial(one.reveal, uploaded, signatures))
        for one in _senders(clients, "unmasking", terms, dropouts)
    }
    return Collected(
        terms=terms,
        masked=masked,
        messages=Messages(adverts, sealed, tuple(uploaded), masked.nbytes, signatures, answers),
        client_spent=clock.spent,
    )


class Clock:
    """Adds up what calls spend."""

    def __init__(self) -> None:
        self.spent = Spent()

    def time(self, call: Callable[[], T]) -> T:
        """Call, and add what the call spent."""
        watch = Stopwatch()
        result = call()
        self.spent += watch.spent()
        return result


def _addressed_to(receiver: int, sealed: Mapping[int, Mapping[int, bytes]]) -> dict[int, bytes]:
    return {sender: messages[receiver] for sender, messages in sealed.items() if sender != receiver}


def _senders(clients: Sequence[Client], message: Round, terms: Terms, dropouts: Mapping[int, Round]) -> list[Client]:
    order = terms.messages
    left = [
        one for one in clients if one.number not in dropouts or order.index(dropouts[one.number]) > order.index(message)
    ]
    if len(left) < terms.threshold:
        raise InputError(
            f"secure aggregation: {len(left)} of {len(clients)} clients are left to send {message!r} "
            f"(survivors: {[one.number for one in left]}); allowed: wire.secure.threshold={terms.threshold} or more"
        )
    return left

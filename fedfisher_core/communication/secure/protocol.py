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
from fedfisher_core.communication.secure.client import Client
from fedfisher_core.communication.secure.double_masks import add_pair, own_mask
from fedfisher_core.communication.secure.fixed_point import Tensors
from fedfisher_core.communication.secure.masking import Vector, ring_type
from fedfisher_core.communication.secure.messages import Messages
from fedfisher_core.communication.secure.terms import Terms
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.costs import Spent, Stopwatch
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import Round

T = TypeVar("T")


@dataclass(frozen=True)
class Collected:
    """What the server holds after the last message.

    Args:
        masked: sum of the uploads that arrived.
        messages: what clients sent besides.
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

"""Secure aggregation with double masking (Bonawitz et al. 2017, https://doi.org/10.1145/3133956.3133982).

The server follows the protocol but is curious. It learns the sum of the vectors of those clients whose upload arrived
and, of each client, the binary exponents that fix the quantisation (`FixedPoint`): how large the largest entry of each
tensor is, to a factor of 2. The server and fewer than `threshold` clients together learn no more of the others. A
client may stop at any message; the sum is of all uploads that arrived, as long as `threshold` clients stay to the end.

Each upload is masked twice: by masks that pairs of clients agree on and that cancel in the sum, and by one of the
client's own, lest an upload that comes after its sender was given up for lost, and its pairs' masks were recovered,
lies open. For each client the others reveal shares of the one secret or of the other, never of both.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, get_args

import numpy as np

from fedfisher_core.errors import InputError
from fedfisher_core.secure import shamir
from fedfisher_core.secure.fixed_point import FixedPoint, Layout, Tensors, exponents_of
from fedfisher_core.secure.keys import KEY_BYTES, TAG_BYTES, agree, public_key, seal, unseal
from fedfisher_core.secure.masking import Vector, mask, ring_type
from fedfisher_core.settings import Round

T = TypeVar("T")

KEYS_BYTES = 2 * KEY_BYTES
SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES
_EXPONENT = np.dtype("<i2")


@dataclass(frozen=True)
class Terms:
    """What everyone knows before the first message.

    Args:
        layout: names and shapes of the tensors that are added.
        bits: of a number under the mask, 32 or 64.
        threshold: clients that must stay to the end.
        session: names this aggregation, so that no mask is used in two.
    """

    layout: Layout
    bits: int
    threshold: int
    session: bytes


class Client:
    """One client's part.

    Args:
        number: its number, from 0.
        read: returns what it adds, in double precision.
        terms: what everyone knows.
        rng: draws its secrets. The benchmark's is seeded, so that runs can be repeated; whoever has something to hide
            must draw them from the operating system.
    """

    def __init__(self, number: int, read: Callable[[], Tensors], *, terms: Terms, rng: np.random.Generator) -> None:
        self.number = number
        self._read = read
        self._terms = terms
        self._rng = rng
        self._sharing_key, self._pair_key, self._own_seed = (rng.bytes(KEY_BYTES) for _ in range(3))
        self._directory: dict[int, bytes] = {}
        self._exponents: tuple[int, ...] = ()
        # Of each client's secrets: the share of its pairs' key, and that of its own mask's seed.
        self._held: dict[int, tuple[bytes, bytes]] = {}

    def advertise(self) -> bytes:
        """The first message: two public keys, and the exponents of its tensors."""
        exponents = np.array(exponents_of(self._read()), dtype=_EXPONENT)
        return public_key(self._sharing_key) + public_key(self._pair_key) + exponents.tobytes()

    def share(self, directory: Mapping[int, bytes], exponents: bytes) -> dict[int, bytes]:
        """The second message: shares of its two secrets, sealed for each other client.

        Args:
            directory: the two public keys of each client, itself among them.
            exponents: the largest of all clients.

        Returns:
            By receiver.
        """
        self._directory = dict(directory)
        self._exponents = tuple(np.frombuffer(exponents, dtype=_EXPONENT).tolist())
        pair, own = (
            shamir.split(secret, threshold=self._terms.threshold, holders=sorted(directory), rng=self._rng)
            for secret in (self._pair_key, self._own_seed)
        )
        self._held[self.number] = (pair[self.number], own[self.number])
        return {
            other: seal(self._channel(other, sender=self.number), pair[other] + own[other])
            for other in sorted(directory)
            if other != self.number
        }

    def upload(self, sealed: Mapping[int, bytes]) -> bytes:
        """The third message: its vector under all of its masks.

        Args:
            sealed: shares from each other client that sent some; pairs are formed with these.

        Returns:
            The numbers.
        """
        for other, message in sealed.items():
            shares = unseal(self._channel(other, sender=other), message)
            self._held[other] = (shares[: shamir.SHARE_BYTES], shares[shamir.SHARE_BYTES :])
        code = FixedPoint(self._terms.layout, self._exponents, len(self._directory), self._terms.bits)
        vector = code.encode(self._read())
        vector += _mask(self._own_seed, code, self._terms)
        for other in sealed:
            _add_pair(vector, self.number, other, self._pair_key, self._directory[other], code, self._terms)
        return vector.tobytes()

    def reveal(self, uploaded: Collection[int]) -> bytes:
        """The last message: one share of a secret of each client that formed pairs.

        Args:
            uploaded: the clients whose uploads arrived. Of them it reveals the own mask's seed, of the others the
                pairs' key.

        Returns:
            The shares, in the order of the clients' numbers.
        """
        return b"".join(own if client in uploaded else pair for client, (pair, own) in sorted(self._held.items()))

    def _channel(self, other: int, *, sender: int) -> bytes:
        purpose = b"shares" + self._terms.session + sender.to_bytes(4, "little")
        return agree(self._sharing_key, self._directory[other][:KEY_BYTES], purpose=purpose)


@dataclass(frozen=True)
class Collected:
    """What the server holds after the last message.

    Args:
        terms: what everyone knows.
        code: how tensors were written as numbers.
        masked: sum of the uploads that arrived.
        directory: the two public keys of each client.
        paired: the clients that formed pairs.
        uploaded: those of them whose upload arrived.
        revealed: shares by client whose secret they are of, then by holder.
        upload_bytes: what all clients sent.
        download_bytes: what the server sent to all clients.
        client_seconds: what all clients spent on their messages.
    """

    terms: Terms
    code: FixedPoint
    masked: Vector
    directory: Mapping[int, bytes]
    paired: tuple[int, ...]
    uploaded: tuple[int, ...]
    revealed: Mapping[int, Mapping[int, bytes]]
    upload_bytes: int
    download_bytes: int
    client_seconds: float

    def unmask(self) -> Vector:
        """Take off the masks: the sum of the vectors of `uploaded`, exactly."""
        total = self.masked.copy()
        for client in self.paired:
            secret = shamir.combine(self.revealed[client])
            if client in self.uploaded:
                total -= _mask(secret, self.code, self.terms)
                continue
            for other in self.uploaded:
                # The mask that the missing upload would have held cancels what its pairs' uploads hold.
                _add_pair(total, client, other, secret, self.directory[other], self.code, self.terms)
        return total

    def tensors(self) -> Tensors:
        """The sums, unmasked and in double precision, by name."""
        return self.code.decode(self.unmask())

    def errors(self) -> dict[str, float]:
        """The most that an entry of each tensor's sum may be off by rounding."""
        return {name: len(self.uploaded) * step / 2 for name, step in self.code.steps().items()}


def default_threshold(clients: int) -> int:
    """More than half of the clients, and never one alone, whose sum would be its own upload."""
    return max(2, clients // 2 + 1)


def collect(clients: Sequence[Client], terms: Terms, *, dropouts: Mapping[int, Round]) -> Collected:
    """Carry the messages between clients and server.

    Args:
        clients: in the order of their numbers.
        terms: what everyone knows.
        dropouts: the first message that a client fails to send; the others send all.

    Returns:
        What the server holds in the end.

    Raises:
        InputError: fewer clients than the threshold are left.
    """
    clock = Clock()
    adverts = {one.number: clock.time(one.advertise) for one in _senders(clients, "keys", terms, dropouts)}
    directory = {number: advert[:KEYS_BYTES] for number, advert in adverts.items()}
    exponents = [tuple(np.frombuffer(advert[KEYS_BYTES:], dtype=_EXPONENT).tolist()) for advert in adverts.values()]
    code = FixedPoint.fit(terms.layout, exponents, bits=terms.bits)
    agreed = np.array(code.exponents, dtype=_EXPONENT).tobytes()
    upload_bytes = sum(map(len, adverts.values()))
    download_bytes = len(adverts) * (len(adverts) * KEYS_BYTES + len(agreed))

    sealed = {
        one.number: clock.time(partial(one.share, directory, agreed))
        for one in _senders(clients, "shares", terms, dropouts)
    }
    upload_bytes += sum(len(message) for messages in sealed.values() for message in messages.values())
    download_bytes += len(sealed) * (len(sealed) - 1) * SEALED_BYTES

    masked = np.zeros(code.size, dtype=ring_type(terms.bits))
    uploaded = []
    for one in _senders(clients, "upload", terms, dropouts):
        shares = {other: messages[one.number] for other, messages in sealed.items() if other != one.number}
        upload = clock.time(partial(one.upload, shares))
        masked += np.frombuffer(upload, dtype=masked.dtype)
        upload_bytes += len(upload)
        uploaded.append(one.number)

    revealed: dict[int, dict[int, bytes]] = {number: {} for number in sealed}
    # Who uploaded fits in one bit a client.
    download_bytes += len(uploaded) * -(-len(sealed) // 8)
    for one in _senders(clients, "unmasking", terms, dropouts):
        answer = clock.time(partial(one.reveal, uploaded))
        upload_bytes += len(answer)
        for place, number in enumerate(sealed):
            revealed[number][one.number] = answer[place * shamir.SHARE_BYTES : (place + 1) * shamir.SHARE_BYTES]
    return Collected(
        terms=terms,
        code=code,
        masked=masked,
        directory=directory,
        paired=tuple(sealed),
        uploaded=tuple(uploaded),
        revealed=revealed,
        upload_bytes=upload_bytes,
        download_bytes=download_bytes,
        client_seconds=clock.seconds,
    )


class Clock:
    """Adds up what calls take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, call: Callable[[], T]) -> T:
        """Call, and add what it took.

        Args:
            call: without arguments.

        Returns:
            Its result.
        """
        begun = time.perf_counter()
        result = call()
        self.seconds += time.perf_counter() - begun
        return result


def _senders(clients: Sequence[Client], message: Round, terms: Terms, dropouts: Mapping[int, Round]) -> list[Client]:
    """The clients that still send this message."""
    order = get_args(Round)
    left = [
        one for one in clients if one.number not in dropouts or order.index(dropouts[one.number]) > order.index(message)
    ]
    if len(left) < terms.threshold:
        raise InputError(
            f"secure aggregation: {len(left)} of {len(clients)} clients are left to send {message!r} "
            f"(survivors: {[one.number for one in left]}); allowed: wire.secure.threshold={terms.threshold} or more"
        )
    return left


def _mask(seed: bytes, code: FixedPoint, terms: Terms) -> Vector:
    return mask(seed, code.size, bits=terms.bits, session=terms.session)


def _add_pair(
    vector: Vector, client: int, other: int, private: bytes, keys: bytes, code: FixedPoint, terms: Terms
) -> None:
    """Add the mask that a client has in common with another: the one adds what the other subtracts."""
    seed = agree(private, keys[KEY_BYTES:], purpose=b"pair" + terms.session)
    if client < other:
        vector += _mask(seed, code, terms)
    else:
        vector -= _mask(seed, code, terms)

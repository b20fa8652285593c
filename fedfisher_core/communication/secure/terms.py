"""The public terms of secure aggregation, known before the first message, and what clients sign."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from fedfisher_core.communication.secure.fixed_point import FixedPoint
from fedfisher_core.communication.secure.keys import KEY_BYTES
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import Round

KEYS_BYTES = 2 * KEY_BYTES

_log = logging.getLogger("fedfisher.secure")


@dataclass(frozen=True)
class Terms:
    """What all clients and the server know before the first message.

    Args:
        session: names the aggregation; not made of data that clients hold.
        participants: the clients that are invited, by number.
        threshold: clients that must stay to the end.
        code: how tensors are written as numbers.
        verification_keys: of each participant, which all have from another source than the server. With them, messages
            are signed and the server may be active; with None, it is trusted to follow the protocol.

    Raises:
        InputError: the threshold does not fit the participants or the server, or there is nothing to add up.
    """

    session: bytes
    participants: tuple[int, ...]
    threshold: int
    code: FixedPoint
    verification_keys: Mapping[int, bytes] | None = None

    def __post_init__(self) -> None:
        """Refuse terms under which the sum would tell more than it may, and warn of those that trust the server."""
        invited = len(self.participants)
        require_threshold(self.threshold, invited, active=self.signed)
        if not self.code.numbers:
            raise InputError("a secure sum has no numbers; allowed: at least one")
        if 2 * self.threshold <= invited:
            _log.warning(
                "wire.secure.threshold=%d is at most half of %d clients: the sum is safe from an honest-but-curious "
                "server only. One that tells clients of different survivors unmasks single uploads.",
                self.threshold,
                invited,
            )

    @property
    def signed(self) -> bool:
        """Whether clients sign their keys and the list of survivors."""
        return self.verification_keys is not None

    @property
    def messages(self) -> tuple[Round, ...]:
        """A client's messages, in their order."""
        return ("keys", "shares", "upload", *(("consistency",) if self.signed else ()), "unmasking")

    @computed_once
    def context(self) -> bytes:
        """Digest of the terms: part of every key, mask and signature, so that none serves in two sessions."""
        code, keys = self.code, self.verification_keys
        known = (
            self.session,
            self.participants,
            self.threshold,
            tuple(code.layout.items()),
            code.exponents,
            code.clients,
            code.bits,
            None if keys is None else sorted(keys.items()),
        )
        return hashlib.sha256(repr(known).encode()).digest()


def default_threshold(clients: int, *, active: bool) -> int:
    """How many clients must stay, where the settings do not say.

    It is more than half of the clients, or more than two thirds, so that a third of them may collude with an active
    server; never one alone, whose sum would be its own upload.
    """
    return max(2, (2 * clients // 3 if active else clients // 2) + 1)


def require_threshold(threshold: int, clients: int, *, active: bool) -> None:
    """Refuse, by an InputError, a number of clients that must stay which is too small or too large."""
    if not 2 <= threshold <= clients:
        raise InputError(
            f"wire.secure.threshold={threshold} with {clients} clients; allowed: 2 to the number of clients"
        )
    if active and 2 * threshold <= clients:
        raise InputError(
            f"wire.secure.threshold={threshold} is at most half of {clients} clients; allowed with "
            f"wire.secure.adversary='active': {clients // 2 + 1} or more"
        )


def keys_message(terms: Terms, client: int, keys: bytes) -> bytes:
    """What a client signs of its two public keys."""
    return b"keys" + terms.context + client.to_bytes(4, "little") + keys


def survivors_message(terms: Terms, uploaded: tuple[int, ...]) -> bytes:
    """What a client signs of the clients whose uploads are said to have arrived, in the order of their numbers."""
    return b"survivors" + terms.context + b"".join(client.to_bytes(4, "little") for client in uploaded)

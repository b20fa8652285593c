"""Clients with tensors of their own, and the terms that they agree on."""

from collections.abc import Callable, Sequence

import numpy as np

from fedfisher_core.communication.secure.client import Client
from fedfisher_core.communication.secure.fixed_point import FixedPoint, Tensors
from fedfisher_core.communication.secure.keys import verification_key
from fedfisher_core.communication.secure.protocol import Collected, collect
from fedfisher_core.communication.secure.terms import Terms
from fedfisher_core.settings import Round

CLIENTS = 5
LAYOUT = {"weight": (20, 30), "bias": (7,)}
SIZE = 607
EXPONENTS = (7, 5)


def values(client: int) -> Tensors:
    """What a client adds."""
    rng = np.random.default_rng(100 + client)
    return {name: (1 + client) * rng.normal(size=shape) for name, shape in LAYOUT.items()}


def reader(client: int) -> Callable[[], Tensors]:
    return lambda: values(client)


def signing(client: int) -> bytes:
    """A client's private key for signatures."""
    return bytes([100 + client]) * 32


def terms(
    *, bits: int = 64, threshold: int = 3, session: bytes = b"one", active: bool = False, clients: int = CLIENTS
) -> Terms:
    return Terms(
        session=session,
        participants=tuple(range(clients)),
        threshold=threshold,
        code=FixedPoint(LAYOUT, EXPONENTS, clients=clients, bits=bits),
        verification_keys={number: verification_key(signing(number)) for number in range(clients)} if active else None,
    )


def member(number: int, known: Terms, kind: type[Client] = Client) -> Client:
    """A client whose root is the same in all sessions."""
    return kind(number, reader(number), terms=known, root=bytes([number]) * 32, signing=signing(number))


def members(known: Terms, kind: type[Client] = Client) -> list[Client]:
    return [member(number, known, kind) for number in known.participants]


def run(known: Terms, dropouts: dict[int, Round] | None = None) -> Collected:
    return collect(members(known), known, dropouts=dropouts or {})


def sealed_for(receiver: int, sealed: Sequence[dict[int, bytes]]) -> dict[int, bytes]:
    """The shares that clients, in the order of their numbers, sent to another one."""
    return {sender: messages[receiver] for sender, messages in enumerate(sealed) if sender != receiver}

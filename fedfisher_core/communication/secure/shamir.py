"""Shamir's secret sharing: any `threshold` shares give the secret, fewer say nothing about it."""

from collections.abc import Mapping, Sequence

from fedfisher_core.communication.secure.keys import Draw
from fedfisher_core.engine.errors import InputError, ProtocolError

PRIME = 2**256 + 297
"""The least prime above every secret of 32 bytes."""

SECRET_BYTES = 32
SHARE_BYTES = 33
# A number of 48 bytes modulo the prime is uniform up to 2^-127.
_DRAWN_BYTES = 48


def split(secret: bytes, *, threshold: int, holders: Sequence[int], draw: Draw) -> dict[int, bytes]:
    """Split a secret: shares are values of a random polynomial of degree threshold - 1, whose value at 0 is the secret.

    Args:
        secret: 32 bytes.
        threshold: how many shares give the secret.
        holders: numbers, from 0, of the clients that get a share of 33 bytes.
        draw: draws the polynomial.

    Raises:
        InputError: the secret has another length, a holder is named twice or is negative, or the threshold is not
            from 1 to the number of holders.
    """
    if len(secret) != SECRET_BYTES:
        raise InputError(f"secret has {len(secret)} bytes; allowed: {SECRET_BYTES}")
    if len(set(holders)) != len(holders) or min(holders, default=0) < 0:
        raise InputError(f"holders are {list(holders)}; allowed: each once, from 0")
    if not 1 <= threshold <= len(holders):
        raise InputError(f"threshold is {threshold}; allowed: 1 to {len(holders)}, the number of holders")
    drawn = (int.from_bytes(draw(_DRAWN_BYTES), "little") % PRIME for _ in range(threshold - 1))
    coefficients = [int.from_bytes(secret, "little"), *drawn]
    shares = {}
    for holder in holders:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * _place(holder) + coefficient) % PRIME
        shares[holder] = value.to_bytes(SHARE_BYTES, "little")
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Recover a secret: the value at 0 of the polynomial through the shares (Lagrange).

    Args:
        shares: by holder, at least as many as the threshold; fewer give another secret, or none.

    Raises:
        ProtocolError: the shares belong to no secret of 32 bytes.
    """
    places = {_place(holder): int.from_bytes(share, "little") for holder, share in shares.items()}
    secret = 0
    for place, value in places.items():
        numerator = denominator = 1
        for other in places:
            if other != place:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - place) % PRIME
        secret = (secret + value * numerator * pow(denominator, -1, PRIME)) % PRIME
    if secret >= 1 << 8 * SECRET_BYTES:
        raise ProtocolError(f"the shares of {sorted(shares)} belong to no secret of {SECRET_BYTES} bytes")
    return secret.to_bytes(SECRET_BYTES, "little")


def _place(holder: int) -> int:
    """Where the polynomial is evaluated; not at 0, where the secret is."""
    return holder + 1

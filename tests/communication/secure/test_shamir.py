"""Shamir's secret sharing."""

from itertools import combinations

import numpy as np
import pytest

from fedfisher_core.communication.secure.shamir import PRIME, SHARE_BYTES, combine, split
from fedfisher_core.engine.errors import InputError

HOLDERS = (0, 2, 3, 7, 11)


def is_prime(number: int) -> bool:
    """Miller and Rabin's test for the first primes as bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(
        pow(base, odd, number) == 1 or any(pow(base, odd << i, number) == number - 1 for i in range(twos))
        for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    )


def test_the_field_is_one_and_the_least_that_holds_every_secret() -> None:
    assert is_prime(PRIME)
    assert not any(is_prime(number) for number in range(2**256, PRIME))


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, bytes(range(32))], ids=["least", "largest", "other"])
def test_any_threshold_of_the_shares_give_the_secret(secret: bytes) -> None:
    shares = split(secret, threshold=3, holders=HOLDERS, draw=np.random.default_rng(0).bytes)
    assert {len(share) for share in shares.values()} == {SHARE_BYTES}
    for size in (3, 4, 5):
        for chosen in combinations(HOLDERS, size):
            assert combine({holder: shares[holder] for holder in chosen}) == secret


def test_fewer_shares_fit_every_secret() -> None:
    """For two of three shares and any other secret there is a third share that makes it."""
    shares = split(bytes(range(32)), threshold=3, holders=(0, 1, 2), draw=np.random.default_rng(0).bytes)
    first, second = (int.from_bytes(shares[holder], "little") for holder in (0, 1))
    for other in (0, 12345, 2**255):
        # At places 1, 2, 3 Lagrange's weights of the value at 0 are 3, -3 and 1.
        third = (other - 3 * first + 3 * second) % PRIME
        forged = {0: shares[0], 1: shares[1], 2: third.to_bytes(SHARE_BYTES, "little")}
        assert combine(forged) == other.to_bytes(32, "little")


def test_shares_are_drawn_anew() -> None:
    draw = np.random.default_rng(0).bytes
    one, two = (split(bytes(32), threshold=2, holders=HOLDERS, draw=draw) for _ in range(2))
    assert not set(one.values()) & set(two.values())


@pytest.mark.parametrize(
    ("secret", "threshold", "holders", "message"),
    [
        (bytes(31), 2, HOLDERS, "secret has 31 bytes; allowed: 32"),
        (bytes(32), 6, HOLDERS, "threshold is 6; allowed: 1 to 5"),
        (bytes(32), 0, HOLDERS, "threshold is 0; allowed: 1 to 5"),
        (bytes(32), 2, (1, 1), r"holders are \[1, 1\]; allowed: each once"),
        (bytes(32), 1, (-1, 1), r"holders are \[-1, 1\]; allowed: each once, from 0"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    secret: bytes, threshold: int, holders: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        split(secret, threshold=threshold, holders=holders, draw=np.random.default_rng(0).bytes)

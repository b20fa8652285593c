"""Key agreement and sealed messages."""

import pytest

from fedfisher_core.communication.secure.keys import TAG_BYTES, agree, public_key, seal, stream, unseal
from fedfisher_core.engine.errors import ProtocolError

ONE, TWO, THREE = (bytes([number]) * 32 for number in (1, 2, 3))


def test_both_ends_agree_on_a_key_that_depends_on_its_purpose() -> None:
    key = agree(ONE, public_key(TWO), purpose=b"a")
    assert key == agree(TWO, public_key(ONE), purpose=b"a")
    assert len({key, agree(ONE, public_key(TWO), purpose=b"b"), agree(ONE, public_key(THREE), purpose=b"a")}) == 3


def test_only_the_key_opens_a_sealed_message() -> None:
    sealed = seal(ONE, b"shares")
    assert len(sealed) == len(b"shares") + TAG_BYTES
    assert unseal(ONE, sealed) == b"shares"
    for key, message in ((TWO, sealed), (ONE, sealed[:-1] + bytes([sealed[-1] ^ 1]))):
        with pytest.raises(ProtocolError, match="sealed message was changed"):
            unseal(key, message)


def test_a_point_of_low_order_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not one that keeps a secret"):
        agree(ONE, bytes(32), purpose=b"a")


def test_a_key_is_expanded_to_bytes_that_do_not_come_again() -> None:
    draw = stream(ONE)
    drawn = [draw(32) for _ in range(4)]
    assert len(set(drawn)) == 4
    assert stream(ONE)(128) == b"".join(drawn)
    assert stream(TWO)(32) != drawn[0]

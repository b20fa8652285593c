"""Key agreement and sealed messages."""

import pytest

from fedfisher_core.errors import CorruptArtifactError
from fedfisher_core.secure.keys import TAG_BYTES, agree, public_key, seal, unseal

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
        with pytest.raises(CorruptArtifactError, match="sealed message was changed"):
            unseal(key, message)

"""The two masks of an upload: one of the client's own, and those of its pairs, which cancel in the sum."""

from fedfisher_core.secure.keys import KEY_BYTES, agree
from fedfisher_core.secure.masking import Vector, mask
from fedfisher_core.secure.terms import KEYS_BYTES, Terms


def own_mask(seed: bytes, terms: Terms) -> Vector:
    """The mask that a client adds on its own.

    Args:
        seed: the client's secret, 32 bytes.
        terms: what everyone knows.

    Returns:
        Shape (size of the code,).
    """
    return mask(seed, terms.code.size, bits=terms.code.bits, session=terms.context)


def add_pair(vector: Vector, client: int, other: int, private: bytes, keys: bytes, terms: Terms) -> None:
    """Add the mask that a client has in common with another: the one adds what the other subtracts.

    Args:
        vector: shape (size of the code,); changed in place.
        client: the one whose mask it is.
        other: the other end of the pair.
        private: the client's private key of its pairs.
        keys: the first message of the other, its public keys.
        terms: what everyone knows.
    """
    seed = agree(private, keys[KEY_BYTES:KEYS_BYTES], purpose=b"pair" + terms.context)
    if client < other:
        vector += own_mask(seed, terms)
    else:
        vector -= own_mask(seed, terms)

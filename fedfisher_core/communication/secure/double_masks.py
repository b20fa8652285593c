"""The two masks of an upload: the client's own, and those of its pairs, which cancel in the sum."""

from fedfisher_core.communication.secure.keys import KEY_BYTES, agree
from fedfisher_core.communication.secure.masking import Vector, mask
from fedfisher_core.communication.secure.terms import KEYS_BYTES, Terms


def own_mask(seed: bytes, terms: Terms) -> Vector:
    """The mask that a client adds on its own, from its secret of 32 bytes; shape (size of the code,)."""
    return mask(seed, terms.code.size, bits=terms.code.bits, session=terms.context)


def add_pair(vector: Vector, client: int, other: int, private: bytes, keys: bytes, terms: Terms) -> None:
    """Add the mask that a client has in common with another, in place: the one adds what the other subtracts.

    Args:
        vector: shape (size of the code,).
        private: the client's private key of its pairs.
        keys: the first message of the other client, its public keys.
    """
    seed = agree(private, keys[KEY_BYTES:KEYS_BYTES], purpose=b"pair" + terms.context)
    if client < other:
        vector += own_mask(seed, terms)
    else:
        vector -= own_mask(seed, terms)

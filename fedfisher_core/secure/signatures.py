"""Signatures, which show that a message is from the client that it names (Ed25519)."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfisher_core.errors import ProtocolError

SIGNATURE_BYTES = 64


def verification_key(private: bytes) -> bytes:
    """The key, 32 bytes, that shows what was signed with a private key of 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, message: bytes) -> bytes:
    """Sign a message with a private key of 32 bytes; the signature has 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def require_signed(verification: bytes, signature: bytes, message: bytes, *, what: str) -> None:
    """Make sure that a message was signed.

    Args:
        verification: the signer's verification key, 32 bytes.
        signature: 64 bytes.
        message: that was signed.
        what: the message and its signer, for the error.

    Raises:
        ProtocolError: it was not.
    """
    try:
        Ed25519PublicKey.from_public_bytes(verification).verify(signature, message)
    except InvalidSignature:
        raise ProtocolError(f"{what}: the signature is not right") from None

"""Keys that two clients agree on, messages that only one other client can read, and signatures."""

from collections.abc import Callable
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedfisher_core.engine.errors import ProtocolError

KEY_BYTES = 32
TAG_BYTES = 16
# Every key seals only one message, or is expanded once, so that its nonce need not change.
_SEALING_NONCE = bytes(12)
_STREAM_NONCE = bytes(16)

Draw: TypeAlias = Callable[[int], bytes]
"""Draws that many random bytes, new ones with every call."""


def public_key(private: bytes) -> bytes:
    """The X25519 public key, 32 bytes, of a private key of 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes, *, purpose: bytes) -> bytes:
    """Agree on a key of 32 bytes (X25519, then HKDF with SHA-256); both ends get the same one.

    Args:
        private: of this end, 32 bytes.
        public: of the other end, 32 bytes.
        purpose: what the key is for; another purpose gives another key.

    Raises:
        ProtocolError: the public key gives every private key the same secret (a point of low order).
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ProtocolError("a public key is not one that keeps a secret") from None
    return derive(shared, purpose=purpose)


def derive(secret: bytes, *, purpose: bytes) -> bytes:
    """Derive a key of 32 bytes for one purpose from a secret (HKDF with SHA-256)."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(secret)


def stream(key: bytes) -> Draw:
    """Expand a key of 32 bytes to as many pseudo-random bytes as are drawn (ChaCha20)."""
    encryptor = Cipher(ChaCha20(key, _STREAM_NONCE), mode=None).encryptor()
    return lambda size: encryptor.update(bytes(size))


def seal(key: bytes, message: bytes) -> bytes:
    """Encrypt and authenticate the only message of a key (ChaCha20-Poly1305); 16 bytes longer than the message."""
    return ChaCha20Poly1305(key).encrypt(_SEALING_NONCE, message, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Undo `seal`; a ProtocolError where the message was sealed with another key, or changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(_SEALING_NONCE, sealed, None)
    except InvalidTag:
        raise ProtocolError("sealed message was changed, or is not for this key") from None


SIGNATURE_BYTES = 64


def verification_key(private: bytes) -> bytes:
    """The key, 32 bytes, that verifies what was signed with a private key of 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, message: bytes) -> bytes:
    """Sign a message with a private key of 32 bytes; the signature has 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def require_signed(verification: bytes, signature: bytes, message: bytes, *, what: str) -> None:
    """Make sure, with the signer's verification key, that a message was signed; a ProtocolError names `what` if not."""
    try:
        Ed25519PublicKey.from_public_bytes(verification).verify(signature, message)
    except InvalidSignature:
        raise ProtocolError(f"{what}: the signature is not right") from None

"""Raw uploads sealed for the controller alone: X25519, HKDF-SHA256, ChaCha20-Poly1305."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feducb.errors import RefusedError
from feducb.protocol.roster import signed_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

__all__ = ["open_sealed", "seal_for"]

_SEALED = b"feducb upload"


def seal_for(public: str, payload: bytes, *context: str) -> bytes:
    """Encrypt for the owner of an X25519 key alone: ephemeral key, HKDF-SHA256, ChaCha20-Poly1305."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    ephemeral = X25519PrivateKey.generate()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    point = ephemeral.public_key().public_bytes_raw()
    cipher = _cipher(shared, point, bytes.fromhex(public))
    return point + cipher.encrypt(bytes(12), payload, signed_bytes(b"", context))


def open_sealed(private: bytes, sealed: bytes, *context: str) -> bytes:
    """What `seal_for` sealed; raises `RefusedError` on anything else."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    key = X25519PrivateKey.from_private_bytes(private)
    point = sealed[:32]
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(point))
        cipher = _cipher(shared, point, key.public_key().public_bytes_raw())
        return cipher.decrypt(bytes(12), sealed[32:], signed_bytes(b"", context))
    except (InvalidTag, ValueError):
        raise RefusedError("malformed", "not sealed for this controller") from None


def _cipher(shared: bytes, ephemeral: bytes, public: bytes) -> ChaCha20Poly1305:
    """A key of its own for every message, so that the nonce can be zero."""
    from cryptography.hazmat.primitives.ciphers import aead
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(algorithm=SHA256(), length=32, salt=ephemeral + public, info=_SEALED).derive(shared)
    return aead.ChaCha20Poly1305(derived)

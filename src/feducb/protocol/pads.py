"""One-time pads that an agent has in common with a keeper: keys, and what hides a row.

Nothing here is cryptography of our own beyond composing X25519, HKDF-SHA256, HMAC-SHA256, SHA-256 and
ChaCha20; docs/cryptography.md goes through it line by line.

    κ   = HKDF-SHA256(X25519(agent's season key, keeper's season key);
                      info = charter, agent, keeper, both public keys)
    pad = ChaCha20 stream under the key SHA-256(κ ‖ label ‖ nonce), as whole numbers of 64 bits

An agent adds one pad per keeper to its row, modulo 2^64. Season keys live for one season.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol.roster import Roster
from feducb.system import optional

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = [
    "KEY_SIZE",
    "NONCE_SIZE",
    "Charter",
    "Label",
    "SeasonKey",
    "Words",
    "from_bytes",
    "make_nonce",
    "pad",
    "require_key",
    "to_bytes",
    "to_words",
]

Words = NDArray[np.uint64]

KEY_SIZE = NONCE_SIZE = 32
_INFO = "feducb pad 1"
_LABEL = struct.Struct("<IIII")
_LAST_SEASON = 2**32 - 1


@dataclass(frozen=True, order=True, slots=True)
class Label:
    """Which row: no two uploads of an agent have the same."""

    season: int
    group: int
    row: int  # k, counted from 1
    attempt: int = 1  # 2 makes up for a row that was closed empty

    def to_bytes(self) -> bytes:
        """16 bytes."""
        return _LABEL.pack(self.season, self.group, self.row, self.attempt)

    @classmethod
    def from_bytes(cls, data: bytes) -> Label:
        """Back from `to_bytes`; raises `RefusedError` for what is no label."""
        if len(data) != _LABEL.size:
            raise RefusedError("malformed", f"a label of {len(data)} bytes, expected {_LABEL.size}")
        label = cls(*_LABEL.unpack(data))
        if label.season < 1 or label.row < 1 or label.attempt not in (1, 2):
            raise RefusedError("malformed", f"no row has the label {label}")
        return label

    def following(self, *, empty: bool) -> Label:
        """The next one, by whether this one was closed empty: then it is made up for once."""
        if empty and self.attempt == 1:
            return replace(self, attempt=2)
        return replace(self, row=self.row + 1, attempt=1)

    def __str__(self) -> str:
        group = f", group {self.group}" if self.group else ""
        again = ", made up for" if self.attempt == 2 else ""
        return f"row {self.row} of season {self.season}{group}{again}"


@dataclass(frozen=True, slots=True)
class Charter:
    """What everybody agrees on in a season: who they are, and what is promised. In all that is signed.

    Attributes:
        federation: its name.
        season: which.
        digest: SHA-256 of the name, the season, the roster and the terms, in hexadecimal.
    """

    federation: str
    season: int
    digest: str

    @classmethod
    def of(cls, roster: Roster, terms: Terms, season: int) -> Charter:
        """The charter of a season; raises `ConfigurationError` for one that no label can name."""
        if season > _LAST_SEASON:
            raise ConfigurationError("season", season, f"at most {_LAST_SEASON} under trust keepers")
        # In the roster's own order, since agents are told by their place in it. Terms are equal if their
        # numbers are, though one file says 1 and another 1.0.
        known = hashlib.sha256(roster.content().encode()).hexdigest()
        promised = json.loads(terms.to_json(), parse_int=float)
        plain = json.dumps([roster.federation, season, known, promised], sort_keys=True)
        return cls(roster.federation, season, hashlib.sha256(plain.encode()).hexdigest())


class SeasonKey:
    """An X25519 key for one season, an agent's or a keeper's; remembers what it has in common with others."""

    def __init__(self, private: bytes | None = None) -> None:
        with optional("secure sums", "keepers"):
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.private = secrets.token_bytes(KEY_SIZE) if private is None else private
        self._key = X25519PrivateKey.from_private_bytes(self.private)
        self.public: bytes = self._key.public_key().public_bytes_raw()
        self._common: dict[tuple[str, str], tuple[bytes, bytes]] = {}  # by agent and keeper: info and κ

    def common(self, other: bytes, charter: Charter, *, agent: str, keeper: str) -> bytes:
        """κ, from this key and the other's public one."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        # Names hold no zero byte and keys have one length, so no two of these read the same. Equivalent
        # public keys, of which X25519 has several, make different κ.
        names = "\0".join((_INFO, charter.digest, agent, keeper, "")).encode()
        info = names + b"".join(sorted((self.public, other)))
        known = self._common.get((agent, keeper))
        if known is None or known[0] != info:
            shared = _exchange(self._key, other)
            common = HKDF(algorithm=SHA256(), length=KEY_SIZE, salt=None, info=info).derive(shared)
            # One for each agent, so that changing keys fill no memory.
            known = self._common[agent, keeper] = (info, common)
        return known[1]


def require_key(public: bytes) -> None:
    """Raise `RefusedError` for a public key that makes the same secret with every key: one of small order."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    _exchange(X25519PrivateKey.from_private_bytes(bytes(KEY_SIZE)), public)  # any private key tells


def _exchange(key: X25519PrivateKey, public: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        return key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # the secret would be all zeros
        raise RefusedError("key", "a public key that makes no secret") from None


def make_nonce(secret: bytes, label: Label, row: NDArray[np.int64]) -> bytes:
    """32 bytes that no other row of this agent has, though its file or its random generator were copied.

    Args:
        secret: the agent's own, of the season.
        label: which row.
        row: (q,), under noise and not yet padded: two different rows have different nonces.
    """
    fresh = secrets.token_bytes(16) + label.to_bytes() + row.astype("<i8").tobytes()
    return hmac.digest(secret, fresh, "sha256")


def pad(common: bytes, label: Label, nonce: bytes, count: int) -> Words:
    """(q,), the pad of a row, from κ."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    # A key of its own for every row, so that ChaCha20's own nonce and counter can be zero.
    key = hashlib.sha256(common + label.to_bytes() + nonce).digest()
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def to_words(row: NDArray[np.int64]) -> Words:
    """The same bits, to be added modulo 2^64."""
    return row.astype(np.int64).view(np.uint64)


def to_bytes(words: Words) -> bytes:
    """As they travel: little-endian."""
    return words.astype("<u8").tobytes()


def from_bytes(data: bytes) -> Words:
    """Back from `to_bytes`."""
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)

"""API keys: who may call. Only their hashes are kept."""

from __future__ import annotations

import json
import re
import secrets
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal

from feducb.agent.noted import KeyChange
from feducb.errors import ConfigurationError
from feducb.formats import API_KEYS
from feducb.system import current_user, write_atomically

__all__ = [
    "LOOKERS",
    "ApiKeys",
    "Key",
    "Role",
    "add_key",
    "hash_of",
    "key_changes",
    "read_keys",
    "revoke_key",
]

Role = Literal["application", "carrier", "viewer", "operator"]
_ROLES: tuple[Role, ...] = ("application", "carrier", "viewer", "operator")
LOOKERS: tuple[Role, ...] = ("viewer", "operator")  # may see how it stands
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key.

    Attributes:
        name: for people.
        role: an ``application`` decides and rewards; a ``carrier`` takes releases and brings sums; a
            ``viewer`` sees how it stands and changes nothing; an ``operator`` may do everything.
        sha256: of the secret. It has 256 random bits, so that a plain hash cannot be turned round.
        made_at: ISO 8601 in UTC.
        made_by: a user of the machine; empty in files from before that was kept.
    """

    name: str
    role: Role
    sha256: str
    made_at: str
    made_by: str = ""

    @property
    def fingerprint(self) -> str:
        """By which logs name it."""
        return self.sha256[:12]

    def __str__(self) -> str:
        return f"key {self.name} ({self.fingerprint})"


def read_keys(path: Path) -> list[Key]:
    """All keys of a file; none if it does not exist."""
    return _read(path)[0]


def key_changes(path: Path) -> list[KeyChange]:
    """All keys of a file, and those that were revoked, for an operator log (`agent.noted`)."""
    keys, revoked = _read(path)
    made = [KeyChange(False, one.name, one.role, one.fingerprint, one.made_by or "unknown") for one in keys]
    return made + [KeyChange(True, **one) for one in revoked]


def _read(path: Path) -> tuple[list[Key], list[dict[str, str]]]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        API_KEYS.require(plain["version"], f"version of {path}")
        keys, revoked = [Key(**one) for one in plain["keys"]], list(plain.get("revoked", ()))
    except FileNotFoundError:
        return [], []
    except ConfigurationError:
        raise
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError("keys", str(path), "a file made by `feducb agent key add`") from None
    if any(one.role not in _ROLES for one in keys):
        raise ConfigurationError("keys", str(path), f"keys with roles {' or '.join(_ROLES)}")
    return keys, revoked


def add_key(path: Path, name: str, role: Role = "application") -> str:
    """Make a key; returns its secret, which is kept nowhere."""
    keys, revoked = _read(path)
    if not _NAME.fullmatch(name) or any(one.name == name for one in keys):
        raise ConfigurationError("key", name, "a new name of letters, digits, '.', '-' and '_'")
    if role not in _ROLES:
        raise ConfigurationError("role", role, " or ".join(_ROLES))
    secret = f"feducb_{secrets.token_urlsafe(32)}"
    made = Key(name=name, role=role, sha256=hash_of(secret), made_at=_now(), made_by=current_user())
    _write(path, [*keys, made], revoked)
    return secret


def revoke_key(path: Path, name: str) -> None:
    """Take a key away; a running service notices within a second."""
    keys, revoked = _read(path)
    gone = [one for one in keys if one.name == name]
    if not gone:
        raise ConfigurationError("key", name, f"one of {', '.join(one.name for one in keys) or 'none'}")
    by = current_user()
    ended = [{"name": one.name, "role": one.role, "fingerprint": one.fingerprint, "by": by} for one in gone]
    _write(path, [one for one in keys if one.name != name], [*revoked, *ended])


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _write(path: Path, keys: list[Key], revoked: list[dict[str, str]]) -> None:
    plain = {"version": API_KEYS.number, "keys": [asdict(one) for one in keys], "revoked": revoked}
    write_atomically(path, json.dumps(plain, indent=1), private=True)


def hash_of(secret: str | bytes) -> str:
    """What is kept of a secret of 256 random bits: SHA-256, in hexadecimal."""
    return sha256(secret.encode() if isinstance(secret, str) else secret).hexdigest()


class ApiKeys:
    """The keys of a running service; a changed file is read again within a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_at, self._stamp = 0.0, (-1, -1)
        self._keys: dict[str, Key] = {}
        self.look()

    def changes(self) -> list[KeyChange] | None:
        """What became of keys, for the operator log; None where their file cannot be read now."""
        try:
            return key_changes(self._path)
        except (ConfigurationError, OSError):
            return None

    def look(self) -> None:
        """Read the file if it changed. One that cannot be read lets nobody in."""
        self._looked_at = time.monotonic()
        try:
            file = self._path.stat()
            stamp = (file.st_mtime_ns, file.st_ino)
        except FileNotFoundError:
            stamp = (-1, -1)
        if stamp != self._stamp or not self._keys:
            self._stamp, self._keys = stamp, {}
            self._keys = {one.sha256: one for one in read_keys(self._path)}

    def role(self, authorization: bytes | None) -> Role | None:
        """Of whoever shows this ``Authorization`` header; None if nobody is known by it."""
        key = self.key(authorization)
        return None if key is None else key.role

    def key(self, authorization: bytes | None) -> Key | None:
        """Which key this ``Authorization`` header shows; None if none that is known."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return None
        return self._find(hash_of(authorization[7:]))

    def role_of(self, hashed: str) -> Role | None:
        """Of the key with this SHA-256; None if there is none, or none any more."""
        key = self._find(hashed)
        return None if key is None else key.role

    def _find(self, hashed: str) -> Key | None:
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            try:
                self.look()
            except (ConfigurationError, OSError):
                return None
        return self._keys.get(hashed)

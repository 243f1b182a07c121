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

from feducb.errors import ConfigurationError
from feducb.system import write_atomically

__all__ = ["LOOKERS", "ApiKeys", "Key", "Role", "add_key", "hash_of", "read_keys", "revoke_key"]

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
    """

    name: str
    role: Role
    sha256: str
    made_at: str


def read_keys(path: Path) -> list[Key]:
    """All keys of a file; none if it does not exist."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        keys = [Key(**one) for one in plain["keys"]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError("keys", str(path), "a file made by `feducb agent key add`") from None
    if any(one.role not in _ROLES for one in keys):
        raise ConfigurationError("keys", str(path), f"keys with roles {' or '.join(_ROLES)}")
    return keys


def add_key(path: Path, name: str, role: Role = "application") -> str:
    """Make a key; returns its secret, which is kept nowhere."""
    keys = read_keys(path)
    if not _NAME.fullmatch(name) or any(one.name == name for one in keys):
        raise ConfigurationError("key", name, "a new name of letters, digits, '.', '-' and '_'")
    if role not in _ROLES:
        raise ConfigurationError("role", role, " or ".join(_ROLES))
    secret = f"feducb_{secrets.token_urlsafe(32)}"
    made = Key(name=name, role=role, sha256=hash_of(secret), made_at=datetime.now(UTC).isoformat())
    _write(path, [*keys, made])
    return secret


def revoke_key(path: Path, name: str) -> None:
    """Take a key away; a running service notices within a second."""
    keys = read_keys(path)
    if not any(one.name == name for one in keys):
        raise ConfigurationError("key", name, f"one of {', '.join(one.name for one in keys) or 'none'}")
    _write(path, [one for one in keys if one.name != name])


def _write(path: Path, keys: list[Key]) -> None:
    plain = {"version": 1, "keys": [asdict(one) for one in keys]}
    write_atomically(path, json.dumps(plain, indent=1), private=True)


def hash_of(secret: str | bytes) -> str:
    """What is kept of a secret of 256 random bits: SHA-256, in hexadecimal."""
    return sha256(secret.encode() if isinstance(secret, str) else secret).hexdigest()


class ApiKeys:
    """The keys of a running service; a changed file is read again within a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_at, self._stamp = 0.0, (-1, -1)
        self._roles: dict[str, Role] = {}
        self.look()

    def look(self) -> None:
        """Read the file if it changed. One that cannot be read lets nobody in."""
        self._looked_at = time.monotonic()
        try:
            file = self._path.stat()
            stamp = (file.st_mtime_ns, file.st_ino)
        except FileNotFoundError:
            stamp = (-1, -1)
        if stamp != self._stamp or not self._roles:
            self._stamp, self._roles = stamp, {}
            self._roles = {one.sha256: one.role for one in read_keys(self._path)}

    def role(self, authorization: bytes | None) -> Role | None:
        """Of whoever shows this ``Authorization`` header; None if nobody is known by it."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return None
        return self.role_of(hash_of(authorization[7:]))

    def role_of(self, hashed: str) -> Role | None:
        """Of the key with this SHA-256; None if there is none, or none any more."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            try:
                self.look()
            except (ConfigurationError, OSError):
                return None
        return self._roles.get(hashed)

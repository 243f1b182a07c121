"""What agents and federations may be called: wherever one is named, here is the pattern."""

from __future__ import annotations

import re

from feducb.errors import ConfigurationError

__all__ = ["require_name"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def require_name(setting: str, name: object) -> str:
    """Return ``name`` if it can be part of a NATS subject and of a path, else raise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(setting, name, "1 to 64 letters, digits, - or _")
    return name

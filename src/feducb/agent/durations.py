"""Lengths of time as people write them: 90s, 15m, 1h, 7d."""

from __future__ import annotations

import re

from feducb.config import require_finite
from feducb.errors import ConfigurationError

__all__ = ["parse_duration"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(setting: str, value: object) -> float:
    """Seconds, from a number of them or a text such as ``90s``, ``15m``, ``1h``, ``7d``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return require_finite(setting, value, at_least=0)
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", value) if isinstance(value, str) else None
    if parts is None:
        expected = "a number of seconds, or a text such as 90s, 15m, 1h or 7d"
        raise ConfigurationError(setting, value, expected)
    return float(parts[1]) * _UNITS[parts[2]]

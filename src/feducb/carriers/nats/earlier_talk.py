"""How a newcomer is told what the federation learnt before it came: the last sum of each earlier season."""

from __future__ import annotations

__all__ = ["MOST", "ask_before", "asked_before"]

MOST = 1000  # seasons that are asked for, one after the other
_ASKED = b"before "  # and a season


def ask_before(season: int) -> bytes:
    """The question for the last sum of the newest season before one."""
    return _ASKED + str(season).encode()


def asked_before(data: bytes) -> int | None:
    """The season, if that is what somebody asks."""
    number = data.removeprefix(_ASKED)
    return int(number) if data.startswith(_ASKED) and number.isdigit() and len(number) <= 9 else None

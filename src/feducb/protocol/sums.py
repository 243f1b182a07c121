"""A sum as a controller publishes it: who is in it, and the sum.

    mark │ bytes of the names │ names, sorted, one a line │ the sum (`messages`)

There is one way to write it, so a sum that was published is published again byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from feducb.protocol import messages

__all__ = ["NamedSum", "Published", "decode", "encode", "name_sum"]

_HEAD = struct.Struct("<4sI")
_MARK = b"SUM1"
_LONGEST_NAMES = 2**23


class Published(Protocol):
    """What carriers need to know of what a controller publishes."""

    @property
    def season(self) -> int:
        """Which season it is of."""
        ...

    @property
    def number(self) -> int:
        """k."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Who is in it."""
        ...

    @property
    def body(self) -> bytes:
        """As it travels, for ever the same."""
        ...


@dataclass(frozen=True, slots=True)
class NamedSum:
    """A sum, and whose records are in it. One that nobody would accept cannot be made.

    Attributes:
        names: sorted. If nobody is trusted, as many as `messages.GridSum.agents`; a trusted controller's
            release counts as one, and has the names of all who handed records over.
        payload: the sum, as `messages` wrote it.
        total: the same, decoded: once, where it came in.
    """

    names: tuple[str, ...]
    payload: bytes
    total: messages.GridSum = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        if "" in self.names or list(self.names) != sorted(set(self.names)):
            raise ValueError("message has names that are empty, repeated or not sorted")
        if self.total.agents not in (1, len(self.names)):
            raise ValueError(f"message has {len(self.names)} names for a sum of {self.total.agents} agents")

    @property
    def season(self) -> int:
        """Which season it is of."""
        return self.total.season

    @property
    def number(self) -> int:
        """k."""
        return self.total.number

    @property
    def body(self) -> bytes:
        """As it travels."""
        return encode(self)


def name_sum(names: Iterable[str], payload: bytes) -> NamedSum:
    """Put names to a sum that `messages` wrote."""
    return NamedSum(tuple(sorted(set(names))), payload, messages.decode(payload))


@lru_cache(maxsize=1)  # it is written to disk, then sent
def encode(named: NamedSum) -> bytes:
    """The bytes of a sum with its names."""
    names = "\n".join(named.names).encode()
    if len(names) > _LONGEST_NAMES:
        raise ValueError(f"names of {len(names)} bytes, expected at most {_LONGEST_NAMES}")
    return _HEAD.pack(_MARK, len(names)) + names + named.payload


def decode(data: bytes) -> NamedSum:
    """Read what `encode` wrote; raises ``ValueError`` on anything else."""
    if len(data) < _HEAD.size:
        raise ValueError(f"message has {len(data)} bytes, expected at least {_HEAD.size}")
    mark, size = _HEAD.unpack_from(data)
    if mark != _MARK:
        raise ValueError(f"message has mark {mark!r}, expected {_MARK!r}")
    if size > min(_LONGEST_NAMES, len(data) - _HEAD.size):
        raise ValueError(f"message has {len(data)} bytes, which does not fit names of {size} bytes")
    try:
        names = tuple(data[_HEAD.size : _HEAD.size + size].decode().split("\n"))
    except UnicodeDecodeError:
        raise ValueError("message has names that are no text") from None
    payload = data[_HEAD.size + size :]
    return NamedSum(names, payload, messages.decode(payload))

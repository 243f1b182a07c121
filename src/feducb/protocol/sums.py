"""A sum as a controller publishes it: who is in it, and the sum.

    mark │ bytes of the names │ names, sorted, one a line │ the sum (`messages`)

With the other mark, how many of them have handed over all that they will is between the first two. There is
one way to write it, so a sum that was published is published again byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from feducb.formats import NAMED_SUM
from feducb.protocol import messages

__all__ = ["NamedSum", "Published", "decode", "encode", "name_sum"]

_HEAD = struct.Struct("<4sI")
_MARK = NAMED_SUM.mark("SUM", 1)
_SEALED_MARK, _SEALED = NAMED_SUM.mark("SUM"), struct.Struct("<I")
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
        sealed: of a trusted controller's release, how many agents have all their batches of the season in it;
            a sum of releases tells that by its number, and has 0 here.
    """

    names: tuple[str, ...]
    payload: bytes
    total: messages.GridSum = field(compare=False, repr=False)
    sealed: int = 0

    def __post_init__(self) -> None:
        if "" in self.names or list(self.names) != sorted(set(self.names)):
            raise ValueError("message has names that are empty, repeated or not sorted")
        if self.total.agents not in (1, len(self.names)):
            raise ValueError(f"message has {len(self.names)} names for a sum of {self.total.agents} agents")
        if self.sealed > len(self.names):
            raise ValueError(f"message has {len(self.names)} names, and {self.sealed} that are done")

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


def name_sum(names: Iterable[str], payload: bytes, *, sealed: int = 0) -> NamedSum:
    """Put names to a sum that `messages` wrote."""
    return NamedSum(tuple(sorted(set(names))), payload, messages.decode(payload), sealed)


@lru_cache(maxsize=1)  # it is written to disk, then sent
def encode(named: NamedSum) -> bytes:
    """The bytes of a sum with its names."""
    names = "\n".join(named.names).encode()
    if len(names) > _LONGEST_NAMES:
        raise ValueError(f"names of {len(names)} bytes, expected at most {_LONGEST_NAMES}")
    if named.sealed:
        names = _SEALED.pack(named.sealed) + names
    return _HEAD.pack(_SEALED_MARK if named.sealed else _MARK, len(names)) + names + named.payload


def decode(data: bytes) -> NamedSum:
    """Read what `encode` wrote; raises ``ValueError`` on anything else."""
    if len(data) < _HEAD.size:
        raise ValueError(f"message has {len(data)} bytes, expected at least {_HEAD.size}")
    mark, size = _HEAD.unpack_from(data)
    if mark not in (_MARK, _SEALED_MARK):
        raise ValueError(f"message has {NAMED_SUM.unlike(mark, _MARK)}")
    if size > min(_LONGEST_NAMES, len(data) - _HEAD.size):
        raise ValueError(f"message has {len(data)} bytes, which does not fit names of {size} bytes")
    start, sealed = _HEAD.size, 0
    if mark == _SEALED_MARK:
        if size < _SEALED.size or not (sealed := _SEALED.unpack_from(data, start)[0]):
            raise ValueError(f"message has mark {mark!r}, and does not say how many are done")
        start += _SEALED.size
    try:
        names = tuple(data[start : _HEAD.size + size].decode().split("\n"))
    except UnicodeDecodeError:
        raise ValueError("message has names that are no text") from None
    payload = data[_HEAD.size + size :]
    return NamedSum(names, payload, messages.decode(payload), sealed)

"""What a controller has published, sum by sum, for its page: all of it public. Each is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["PastSum", "PastSums"]

_MOST = 1000  # that are listed


class PastSum(NamedTuple):
    """One sum that was published."""

    season: int
    number: int
    published_at: float  # seconds since 1970
    names: tuple[str, ...]  # who is in it
    deviation: float  # of the noise in an off-diagonal entry of its Gram; public


class PastSums:
    """The newest sums of a file, which only grows."""

    def __init__(self, read_after: Callable[[int, int], Iterable[PastSum]]) -> None:
        """What is there is read when it is first asked for.

        Args:
            read_after: the sums after this season and number, in order.
        """
        self._read_after, self._known = read_after, list[PastSum]()

    def listed(self) -> list[dict[str, Any]]:
        """Newest first, as plain data."""
        newest = self._known[-1][:2] if self._known else (0, 0)
        self._known = [*self._known, *self._read_after(*newest)][-_MOST:]
        return [one._asdict() | {"names": list(one.names)} for one in reversed(self._known)]

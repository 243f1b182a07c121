"""Which season runs when: a public start and a length, the same for everybody who takes part.

    season      first            first + 1        first + 2
         |────── length ──────|────── length ──────|──────
       start

Everybody reads the number off its own clock, so that nobody announces a season and a late starter joins the
running one. Who was away skips those that have passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.protocol.engine_table import require_keys

__all__ = ["BELIEVED_AFTER", "LINGER", "Calendar", "Leap"]

# Everybody stays in a season that is over until its last sum is there, for this part of a season at most.
LINGER = 0.1
BELIEVED_AFTER = 60.0  # seconds for which a clock that left out a whole season must stand to be believed


class Leap:
    """A clock that leaves out a whole season may be wrong: it is believed if it still says so a minute later.

    Keys of a season are gone once the next is open, and none is opened twice: whoever believed a wrong clock
    at once would be out until the season that it named.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def is_believed(self, *, leapt: bool) -> bool:
        """Whether to go by the clock, which has left out a whole season or not."""
        if not leapt:
            self._since = None
            return True
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since >= BELIEVED_AFTER


@dataclass(frozen=True, slots=True)
class Calendar:
    """Seasons of one length, one after the other.

    Attributes:
        start: when the first starts, in seconds since 1970.
        length: of each, in seconds.
        first: the number of the first.
    """

    start: float
    length: float
    first: int = 1

    def __post_init__(self) -> None:
        require_finite("start", self.start, at_least=0)
        require_finite("season", self.length, above=0)
        require_integer("first_season", self.first, at_least=1)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Calendar:
        """Read a ``[seasons]`` table, as `feducb agent terms` writes it."""
        require_keys("seasons", table, needed=("start", "season"), known=("first_season",))
        start = table["start"]
        if not isinstance(start, datetime) or start.tzinfo is None:
            expected = "a time with its zone, such as 2027-01-01T00:00:00Z"
            raise ConfigurationError("seasons.start", str(start), expected)
        return cls(start.timestamp(), table["season"], table.get("first_season", 1))

    def to_table(self) -> str:
        """As a ``[seasons]`` table, for those who know the agents' terms and not their settings."""
        start = datetime.fromtimestamp(self.start, UTC).isoformat()
        lines = ("[seasons]", f"start = {start}", f"season = {self.length!r}", f"first_season = {self.first}")
        return "\n".join(lines)

    def number_at(self, now: float) -> int:
        """The season that runs at a moment; the first, before it has started."""
        number = self.first + max(0, math.floor((now - self.start) / self.length))
        while number > self.first and self.starts(number) > now:  # the quotient is rounded
            number -= 1
        while self.starts(number + 1) <= now:
            number += 1
        return number

    def starts(self, number: int) -> float:
        """When a season starts, in seconds since 1970: the same number at everybody, to the last bit."""
        return self.start + (number - self.first) * self.length

    def ends(self, number: int) -> float:
        """When it ends, and the next one starts."""
        return self.starts(number + 1)

    def leaves_out(self, number: int, now: float) -> bool:
        """Whether a whole season has passed since this one."""
        return now >= self.ends(number + 1)

"""Every file and message that outlives a process or leaves it, with its number: docs/formats.md says more.

A format has one whole number. Whatever an earlier reader would misread raises it; a reader takes what it was
written for and refuses a newer one in a sentence. Dropping an older one takes a major version of feducb.
"""

from __future__ import annotations

from typing import NamedTuple

from feducb.config import require_integer
from feducb.errors import ConfigurationError

__all__ = ["FORMATS", "Format"]


class Format(NamedTuple):
    """One kind of file or message."""

    name: str
    number: int  # the newest, which is written
    oldest: int = 1  # that is still read

    def require(self, given: object, setting: str) -> int:
        """The number, if it can be read here; ``setting`` is how an error calls it."""
        number = require_integer(setting, given, at_least=1)
        if not self.oldest <= number <= self.number:
            raise ConfigurationError(setting, number, self.expected(number))
        return number

    def expected(self, given: int) -> str:
        """What can be read, and what to do about something else."""
        remedy = "update feducb" if given > self.number else "an earlier feducb reads it"
        return f"{self.readable}: {remedy}"

    @property
    def readable(self) -> str:
        """The numbers that are read here."""
        return str(self.number) if self.oldest == self.number else f"{self.oldest} to {self.number}"

    def mark(self, letters: str, number: int | None = None) -> bytes:
        """Three letters and the number, with which messages begin that have no header of their own."""
        return f"{letters}{self.number if number is None else number}".encode()

    def unlike(self, given: bytes, expected: bytes) -> str:
        """What is wrong with a message that begins with these four bytes."""
        if given[:3] == expected[:3] and given[3:].isdigit():
            number = int(given[3:])
            return f"format {number} of {self.name}, expected {self.expected(number)}"
        return f"mark {given!r}, expected {expected!r}"


# SQLite files: the number is `PRAGMA user_version`, and how many steps lead there (``migrations``).
AGENT_STORE = Format("agent's file", 16)
CONTROLLER_STORE = Format("trusted controller's file", 16)
RELEASE_BOOK = Format("controller's file", 3)
ROW_BOOK = Format("controller's file with keepers", 1)
KEEPER_BOOK = Format("keeper's file", 1)
PEER_BOOK = Format("peer's file", 2)

# Files of text.
AGENT_TOML = Format("agent.toml", 2)
CONTROLLER_TOML = Format("controller.toml", 1)
KEEPER_TOML = Format("keeper.toml", 1)
ROSTER = Format("roster", 1)
RECIPE = Format("recipe", 1)
API_KEYS = Format("API keys", 1)
EXPORT = Format("export", 1)

# Messages.
MESSAGE = Format("release or sum", 4, oldest=2)
NAMED_SUM = Format("named sum", 2)
RAW_UPLOAD = Format("raw upload", 2, oldest=2)
PEER_MESSAGE = Format("message between peers", 2, oldest=2)
PEER_ANSWER = Format("answer between peers", 1)
SECURE_ROWS = Format("secure rows", 1)
FLOWER = Format("exchange over Flower", 2, oldest=2)

FORMATS = tuple(one for one in tuple(globals().values()) if isinstance(one, Format))

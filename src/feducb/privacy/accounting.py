"""Who is protected: which two worlds must look alike, and how many agents a person can visit.

What she costs is the trust's to know (`Trust.spend`).
"""

from __future__ import annotations

from enum import Enum

from feducb.config import require_integer
from feducb.errors import ConfigurationError

__all__ = ["Neighbours", "require_agents_per_person"]


class Neighbours(Enum):
    """Which two worlds must look alike."""

    ONE_RECORD = "one record (an action and its reward) is replaced by another; no other record changes"
    ONE_PERSON = "all records of one person are replaced by others; nobody else's change"


def require_agents_per_person(setting: str, value: int, agents: int) -> int:
    """Return ``value`` if a person can visit so many of the agents there are, else raise."""
    if require_integer(setting, value, at_least=1) > agents:
        raise ConfigurationError(setting, value, f"at most the number of agents, {agents}")
    return value

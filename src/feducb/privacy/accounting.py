"""Who is protected, and what it costs to protect them: neighbours, and who counts how often.

Everything that leaves an agent is Gaussian, so every cost is a μ, and costs compose as lengths of vectors do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.interfaces import Trust

__all__ = [
    "Contribution",
    "Neighbours",
    "require_agents_per_person",
    "spend",
]


class Neighbours(Enum):
    """Which two worlds must look alike."""

    ONE_RECORD = "one record (an action and its reward) is replaced by another; no other record changes"
    ONE_PERSON = "all records of one person are replaced by others; nobody else's change"


@dataclass(frozen=True, slots=True)
class Contribution:
    """How many records one person can have, at each agent she visits.

    Attributes:
        records: p_i, one entry per agent; ``(1,)`` is a visitor who comes once.
    """

    records: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not self.records:
            raise ConfigurationError("records per person", self.records, "at least one agent")
        for count in self.records:
            require_integer("records per person", count, at_least=1)

    @property
    def neighbours(self) -> Neighbours:
        """What is replaced."""
        return Neighbours.ONE_RECORD if self.records == (1,) else Neighbours.ONE_PERSON


def spend(mus: Sequence[float], contribution: Contribution, trust: Trust) -> float:
    """The μ of a person, from the μ of one record at each agent she visits.

    Guarantees:
        The trust knows how costs at several agents compose (`Trust.spend`). Records in different batches of
        one mechanism add up, since (EᵀE)_ij ≥ 0. Seasons and sub-sampled estimators hold disjoint records: a
        record costs its own season alone.

    Args:
        mus: μ_i of one record, one per agent in ``contribution``.
        contribution: p_i.
        trust: who adds the noise.
    """
    if len(mus) != len(contribution.records):
        raise ConfigurationError(
            "mus", f"{len(mus)} numbers", f"one for each of {len(contribution.records)} agents"
        )
    for mu in mus:
        require_finite("mu", mu, above=0)
    return trust.spend(mus, contribution.records)


def require_agents_per_person(setting: str, value: int, agents: int) -> int:
    """Return ``value`` if a person can visit so many of the agents there are, else raise."""
    if require_integer(setting, value, at_least=1) > agents:
        raise ConfigurationError(setting, value, f"at most the number of agents, {agents}")
    return value

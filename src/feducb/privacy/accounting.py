"""Who is protected, and what it costs to protect them: neighbours, trust, and who counts how often.

Everything that leaves an agent is Gaussian, so every cost is a μ, and costs compose as lengths of vectors do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.privacy.calibration import to_epsilon

__all__ = [
    "Contribution",
    "Guarantee",
    "Neighbours",
    "Trust",
    "records_covered",
    "require_agents_per_person",
    "require_trust",
    "spend",
]

Trust = Literal["nobody", "controller"]


class Neighbours(Enum):
    """Which two worlds must look alike."""

    ONE_RECORD = "one record (an action and its reward) is replaced by another; no other record changes"
    ONE_PERSON = "all records of one person are replaced by others; nobody else's change"


def require_trust(value: str) -> Trust:
    """Return ``value`` if it names a setting of trust, else raise."""
    if value == "nobody":
        return "nobody"
    if value == "controller":
        return "controller"
    raise ConfigurationError("trust", value, "nobody or controller")


@dataclass(frozen=True, slots=True)
class Contribution:
    """How many records one person can have, at each agent she visits.

    Attributes:
        records: p_i, one entry an agent; ``(1,)`` is a visitor who comes once.
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


def spend(mus: Sequence[float], contribution: Contribution, trust: Trust = "nobody") -> float:
    """The μ of a person, from the μ of one record at each agent she visits.

    Guarantees:
        ``nobody``: the agents' mechanisms are independent, so her cost is √(Σ μ_i² p_i²). ``controller``: one
        mechanism sees all her records, their moves add up, and it runs at the least of the budgets: min μ · Σ
        p_i. Records in different batches of one mechanism add up too, since (EᵀE)_ij ≥ 0. Seasons and
        sub-sampled estimators hold disjoint records: a record costs its own season alone.

    Args:
        mus: μ_i of one record, one an agent in ``contribution``.
        contribution: p_i.
        trust: where the noise is added.
    """
    if len(mus) != len(contribution.records):
        raise ConfigurationError(
            "mus", f"{len(mus)} numbers", f"one for each of {len(contribution.records)} agents"
        )
    for mu in mus:
        require_finite("mu", mu, above=0)
    if require_trust(trust) == "controller":
        return min(mus) * sum(contribution.records)
    return math.sqrt(sum((mu * count) ** 2 for mu, count in zip(mus, contribution.records, strict=True)))


def require_agents_per_person(setting: str, value: int, agents: int) -> int:
    """Return ``value`` if a person can visit so many of the agents there are, else raise."""
    if require_integer(setting, value, at_least=1) > agents:
        raise ConfigurationError(setting, value, f"at most the number of agents, {agents}")
    return value


def records_covered(per_agent: int, agents_per_person: int, trust: Trust) -> int:
    """How many records of one person one mechanism sees, and its noise must cover: Σ p_i of `spend`.

    ``nobody``: an agent's mechanism sees the p records she has there. ``controller``: one mechanism sees them
    all, up to p at each of the agents she visits; agents hash ids under keys of their own, so that nobody can
    count hers over agents, and only p times their number bounds it.

    Args:
        per_agent: p, which every agent holds by itself.
        agents_per_person: how many agents one person visits at most.
        trust: where the noise is added.
    """
    return per_agent * agents_per_person if trust == "controller" else per_agent


@dataclass(frozen=True, kw_only=True, slots=True)
class Guarantee:
    """What is promised to whom.

    Attributes:
        mu: of the person's whole contribution.
        delta: the δ at which ε is told.
        contribution: how often she counts.
        trust: where the noise is added.
    """

    mu: float
    delta: float
    contribution: Contribution = Contribution()
    trust: Trust = "nobody"

    @property
    def epsilon(self) -> float:
        """ε on the exact Gaussian curve."""
        return to_epsilon(self.mu, self.delta)

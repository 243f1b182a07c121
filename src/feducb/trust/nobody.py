"""Nobody is trusted: every agent adds noise of its own before anything leaves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from feducb.interfaces import Trust, TrustWords, interactions
from feducb.types import Array

__all__ = ["Nobody"]


@dataclass(frozen=True, slots=True)
class Nobody(Trust):
    """Releases leave an agent, each under its own noise; their sum carries one noise per agent.

    Guarantees:
        The promise is about what one agent lets out. Agents' noises are independent, so a person with p_i
        records at agent i costs √(Σ μ_i² p_i²).
    """

    pooled: ClassVar[bool] = False
    raw: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    words: ClassVar[TrustWords] = TrustWords(
        adversary=(
            "Anyone but the agent itself, the controller included, who reads every release of every agent, "
            "chooses later visitors by them, and makes the agent restart at any moment."
        ),
        trusted="Nobody. Every agent adds its own noise before anything leaves it.",
        reads="every release",
        where="at an agent",
        elsewhere="each adds its own noise",
    )

    @property
    def name(self) -> str:
        """As in files."""
        return "nobody"

    def scales(self, own: Array) -> Array:
        """Each agent adds what its own budget needs."""
        return own

    def spend(self, mus: Sequence[float], records: Sequence[int]) -> float:
        """Independent noises: costs compose as lengths do."""
        return math.sqrt(sum((mu * count) ** 2 for mu, count in zip(mus, records, strict=True)))

    def records_covered(self, per_agent: int, agents_per_person: int) -> int:
        """An agent's noise sees the records that she has there."""
        return per_agent

    def mu_at(self, mu: float, agents: int, *, agents_per_person: int) -> float:
        """√k times that at one agent, whatever was stated: noise does not depend on it."""
        return mu * math.sqrt(agents)

    def agents_visited(self, agents: int) -> int:
        """One: further agents take no noise from this one's promise."""
        return 1

    def several_agents(self, records: int, agents: int, price: Callable[[int], str]) -> str:
        """Not covered, and what it costs."""
        stated = f", and at {agents}, as stated, {price(agents)}" if agents > 2 else ""
        return (
            "The promise is about what one agent lets out; each adds noise of its own. A person with "
            f"{interactions(records)} at each of k agents has √k times this μ: at 2 agents "
            f"{price(2)}{stated}."
        )

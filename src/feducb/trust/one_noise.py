"""What trusts have in common under which one noise covers a person's records at all agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from feducb.interfaces import Trust, interactions

__all__ = ["OneNoise"]


class OneNoise(Trust):
    """One mechanism sees all records of a person, so that their moves, and her costs, add up.

    Attributes:
        whose: the noise, as statements call it.
    """

    joint: ClassVar[bool] = True
    whose: ClassVar[str]

    def spend(self, mus: Sequence[float], records: Sequence[int]) -> float:
        """Costs add up, at the least of the budgets."""
        return min(mus) * sum(records)

    def records_covered(self, per_agent: int, agents_per_person: int) -> int:
        """Those at all the agents she visits."""
        return per_agent * agents_per_person

    def mu_at(self, mu: float, agents: int, *, agents_per_person: int) -> float:
        """As promised at the stated number of agents; in proportion at another."""
        return mu * agents / agents_per_person

    def agents_visited(self, agents: int) -> int:
        """All of them: the noise must cover what nobody rules out."""
        return agents

    def several_agents(self, records: int, agents: int, price: Callable[[int], str]) -> str:
        """Covered as far as stated."""
        if agents > 1:
            return (
                f"Covered: {self.whose} is for up to {interactions(records)} at each of up to {agents} "
                f"agents, {self.records_covered(records, agents)} in all. Each agent holds its own bound; "
                "nobody can count a person over agents, since each hashes ids under a key of its own."
            )
        return (
            "Not covered: whoever runs the federation states that people do not visit several agents, and "
            f"nothing checks it. A person with {interactions(records)} at each of k agents has k times this "
            f"μ: at 2 agents {price(2)}."
        )

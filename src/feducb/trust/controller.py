"""The controller is trusted: it gets raw sums, adds noise once to their total, and shows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from feducb.interfaces import Feature, Trust, TrustWords, interactions
from feducb.types import Array

__all__ = ["Controller"]


@dataclass(frozen=True, slots=True)
class Controller(Trust):
    """Raw sums leave an agent, sealed for the controller; the total of all agents carries one noise.

    Guarantees:
        One mechanism sees all records of a person, so their moves add up, and it runs at the least of the
        budgets: with p_i records at agent i she costs min μ · Σ p_i. Agents hash ids under keys of their own,
        so nobody can count her records over agents: only p times the number of agents she visits bounds them.
    """

    pooled: ClassVar[bool] = True
    raw: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    words: ClassVar[TrustWords] = TrustWords(
        adversary=(
            "Anyone but the agent itself and the controller, who reads everything the controller shows, "
            "chooses later visitors by it, and makes agents or controller restart at any moment."
        ),
        trusted=(
            "The controller: agents send it raw sums over an encrypted, authenticated link; it adds noise "
            "once to their total and shows nothing else."
        ),
        reads="all that the controller shows",
        where="at all agents together",
        elsewhere="covered by the noise",
    )
    refusals: ClassVar[Mapping[Feature, str]] = {
        "groups": "1 where the controller is trusted",
        "graph": "nobody on a graph: there is no controller",
        "topology": "nobody on a topology: there is no controller",
        "paper mode": "nobody in paper mode: there every agent privatises",
        "budgets": "none: a trusted controller has one budget",
    }

    @property
    def name(self) -> str:
        """As in files."""
        return "controller"

    def scales(self, own: Array) -> Array:
        """One noise for all, at the least of the budgets."""
        largest: Array = own.max(keepdims=True)
        return largest

    def spend(self, mus: Sequence[float], records: Sequence[int]) -> float:
        """One mechanism: costs add up."""
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
                f"Covered: the controller's noise is for up to {interactions(records)} at each of up to "
                f"{agents} agents, {self.records_covered(records, agents)} in all. Each agent holds its own "
                "bound; nobody can count a person over agents, since each hashes ids under a key of its own."
            )
        return (
            "Not covered: whoever runs the federation states that people do not visit several agents, and "
            f"nothing checks it. A person with {interactions(records)} at each of k agents has k times this "
            f"μ: at 2 agents {price(2)}."
        )

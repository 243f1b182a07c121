"""An agent alone: nothing leaves it, so that nobody adds noise and nobody has to be trusted with anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from feducb.interfaces import Feature, Trust, TrustWords
from feducb.types import Array

__all__ = ["Alone"]


@dataclass(frozen=True, slots=True)
class Alone(Trust):
    """``self``: one deployed agent that learns from its own raw records, at once. No federation has it.

    Guarantees:
        No release, upload or row is ever made under it: the privatizer and the store refuse. So outsiders
        learn nothing, ε = δ = 0. Visitors see decisions that rest on other visitors' raw records, and nothing
        is promised against them.
    """

    pooled: ClassVar[bool] = False
    raw: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    leaves: ClassVar[bool] = False
    words: ClassVar[TrustWords] = TrustWords(
        adversary="Anyone who sees neither the agent's file nor its decisions: nothing leaves.",
        trusted="Whoever runs the agent, with its visitors' raw records.",
        reads="nothing",
        where="at this agent",
        elsewhere="nothing leaves there either",
    )
    refusals: ClassVar[Mapping[Feature, str]] = {
        "groups": "1 under trust self: an agent alone keeps one estimator",
        "graph": "nobody or keepers on a graph: under self an agent has no neighbours",
        "topology": "nobody or keepers on a topology: under self an agent has no neighbours",
        "paper mode": "nobody in paper mode: there every agent privatises",
        "budgets": "none under trust self: nothing leaves",
    }

    @property
    def name(self) -> str:
        """As in files."""
        return "self"

    def scales(self, own: Array) -> Array:
        """There is no noise, and no sum that could carry any."""
        return own[:0]

    def spend(self, mus: Sequence[float], records: Sequence[int]) -> float:
        """Nothing leaves, so nobody pays."""
        return 0.0

    def records_covered(self, per_agent: int, agents_per_person: int) -> int:
        """Those that she has here."""
        return per_agent

    def mu_at(self, mu: float, agents: int, *, agents_per_person: int) -> float:
        """Nothing, wherever she goes."""
        return 0.0

    def agents_visited(self, agents: int) -> int:
        """This one."""
        return 1

    def several_agents(self, records: int, agents: int, price: Callable[[int], str]) -> str:
        """What others promise is theirs."""
        return "Nothing leaves this agent, so it adds nothing to what a person pays elsewhere."

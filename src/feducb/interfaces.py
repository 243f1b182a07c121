"""What folders of one layer know of each other: the interface of a trust, and the table of those there are.

A trust says who adds the noise. Privacy, which states what is promised, and the drivers, which play by it,
ask this interface; the trusts themselves are files of `feducb.trust`, which enters them in `TRUSTS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from feducb.errors import ConfigurationError
from feducb.types import Array

__all__ = ["TRUSTS", "Feature", "Trust", "TrustWords", "interactions", "require_trust"]

Feature = Literal["groups", "graph", "topology", "paper mode", "budgets"]
"""What a trust may refuse: several estimators per agent, a graph (deployed, or the simulated topology), the
paper's mode, and budgets of the agents' own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustWords:
    """How statements word a trust.

    Attributes:
        adversary: against whom the promise holds.
        trusted: who is trusted with what.
        reads: what the adversary of a simulation reads.
        where: where one noise covers a person's records.
        elsewhere: what becomes of a person's records at further agents.
    """

    adversary: str
    trusted: str
    reads: str
    where: str
    elsewhere: str


class Trust(ABC):
    """Who adds noise, what leaves an agent, what a person costs, what is refused, and how it is worded.

    A trust has no state: one object serves all. Its name stands for it in files, messages and JSON.

    Attributes:
        name: as in files and on the command line.
        pooled: whether the sum of all agents carries one noise; if not, it carries one per agent.
        raw: whether agents hand over raw sums, as uploads for the controller's file (`ControllerStore`). If
            not, releases leave an agent, and its own noise is in them.
        words: for statements.
        refusals: by what is refused, what was expected instead.
    """

    name: ClassVar[str]
    pooled: ClassVar[bool]
    raw: ClassVar[bool]
    words: ClassVar[TrustWords]
    refusals: ClassVar[Mapping[Feature, str]] = {}

    def __str__(self) -> str:
        return self.name

    def noises(self, agents: int) -> int:
        """How many independent noises the sum of so many agents carries."""
        return 1 if self.pooled else agents

    def refuse(self, feature: Feature, setting: str, value: object) -> None:
        """Raise a `ConfigurationError` about ``setting`` if the feature does not go with this trust."""
        if feature in self.refusals:
            raise ConfigurationError(setting, value, self.refusals[feature])

    @abstractmethod
    def scales(self, own: Array) -> Array:
        """(noises,), the deviation of each noise in a sum, from (agents,), those that the budgets need."""

    @abstractmethod
    def spend(self, mus: Sequence[float], records: Sequence[int]) -> float:
        """The μ of a person, from the μ of one record at each agent she visits.

        Everything that is shown is Gaussian, so every cost is a μ. Records in different batches of one
        mechanism add up, since (EᵀE)_ij ≥ 0. Seasons and sub-sampled estimators hold disjoint records: a
        record costs its own season alone.

        Args:
            mus: μ_i of one record, per agent.
            records: p_i, how many she has there.
        """

    @abstractmethod
    def records_covered(self, per_agent: int, agents_per_person: int) -> int:
        """How many records of one person one noise must cover: the sum of those it sees (`spend`).

        Args:
            per_agent: p, which every agent holds by itself.
            agents_per_person: how many agents one person visits at most.
        """

    @abstractmethod
    def mu_at(self, mu: float, agents: int, *, agents_per_person: int) -> float:
        """The μ of a person at so many agents, where ``mu`` is promised for ``agents_per_person``."""

    @abstractmethod
    def agents_visited(self, agents: int) -> int:
        """How many of all agents a person is taken to visit where nobody states it."""

    @abstractmethod
    def several_agents(self, records: int, agents: int, price: Callable[[int], str]) -> str:
        """What the statement says about a person who visits several agents.

        Args:
            records: p, at each agent.
            agents: as stated, how many she visits at most.
            price: what she pays at so many agents, in words.
        """


TRUSTS: dict[str, Trust] = {}
"""By name. `feducb.trust` fills it, with one line per trust."""


def require_trust(value: str | Trust) -> Trust:
    """The trust itself, or the one of that name."""
    if isinstance(value, Trust):
        return value
    if isinstance(value, str) and value in TRUSTS:
        return TRUSTS[value]
    *others, last = TRUSTS
    raise ConfigurationError("trust", value, f"{', '.join(others)} or {last}")


def interactions(count: int) -> str:
    """A number of records, in words."""
    return f"{count} interaction{'s' if count > 1 else ''}"

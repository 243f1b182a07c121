"""The controller is trusted: it gets raw sums, adds noise once to their total, and shows nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from feducb.interfaces import Feature, TrustWords
from feducb.trust.one_noise import OneNoise
from feducb.types import Array

__all__ = ["Controller"]


@dataclass(frozen=True, slots=True)
class Controller(OneNoise):
    """Raw sums leave an agent, sealed for the controller; the total of all agents carries one noise.

    Guarantees:
        One mechanism sees all records of a person, so their moves add up, and it runs at the least of the
        budgets: with p_i records at agent i she costs min μ · Σ p_i. Agents hash ids under keys of their own,
        so nobody can count her records over agents: only p times the number of agents she visits bounds them.
    """

    pooled: ClassVar[bool] = True
    raw: ClassVar[bool] = True
    whose: ClassVar[str] = "the controller's noise"
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

"""What folders of one layer know of each other: the interfaces of a trust and of a model, and their tables.

A trust says who adds the noise, a model what is learnt. Privacy, which states what is promised, and the
drivers, which play by it, ask these interfaces; the trusts and models themselves are files of `feducb.trust`
and `feducb.models`, which enter them in `TRUSTS` and `MODELS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.types import Array, Belief, Statistics, add

__all__ = [
    "MODELS",
    "MODEL_FAMILIES",
    "SOLITARY",
    "TRUSTS",
    "TRUST_FAMILIES",
    "Bound",
    "ConfidenceSet",
    "Contexts",
    "Feature",
    "Model",
    "Trust",
    "TrustWords",
    "interactions",
    "require_model",
    "require_trust",
]

Contexts = Literal["private", "public"]
"""Whether what is known of visitors, and what they are shown, is protected as their rewards are."""

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
        pooled: whether the sum of all agents carries one noise; if not, it carries one per agent.
        raw: whether agents hand over raw sums, as uploads for the controller's file (`ControllerStore`). If
            not, what leaves an agent has noise of its own in it.
        joint: whether a person's records at several agents are under one noise, so that their costs add up.
        padded: whether rows leave under pads, so that only sums of them open.
        leaves: whether anything leaves an agent at all; under ``self`` nothing does.
        words: for statements.
        refusals: by what is refused, what was expected instead.
    """

    pooled: ClassVar[bool]
    raw: ClassVar[bool]
    joint: ClassVar[bool]
    padded: ClassVar[bool] = False
    leaves: ClassVar[bool] = True
    words: ClassVar[TrustWords]
    refusals: ClassVar[Mapping[Feature, str]] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """As in files and on the command line: `require_trust` makes the trust of it again."""

    def __str__(self) -> str:
        return self.name

    def among(self, agents: int) -> Trust:
        """The same, with what it leaves to the number of agents filled in."""
        return self

    def on_graph(self) -> Trust:
        """The same without a controller, where a clique moves only when all of its members are there."""
        return self

    def shares(self, agents: int) -> int:
        """Between how many agents that do not collude, and are there, one noise is divided."""
        return 1

    def quorum(self, agents: int) -> int:
        """How many agents a sum must have to open; 1 where the trust asks for no number."""
        return 1

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

TRUST_FAMILIES: dict[str, Callable[[str], Trust]] = {}
"""By what stands before the first colon of a name: makes the trust of what stands after it."""


SOLITARY: dict[str, Trust] = {}
"""By name, trusts under which nothing leaves an agent: one deployed agent may have one, no federation."""


class Bound(Protocol):
    """A confidence bound: what a released sum says about θ*."""

    @property
    def problem(self) -> Problem:
        """The public bounds it was made for."""
        ...

    def belief(self, gram: Array, moment: Array, variance: Array) -> Belief:
        """What is believed after reading a released sum.

        Args:
            gram: (..., d, d), G + H.
            moment: (..., d), u + h.
            variance: (...), w, of one off-diagonal entry of H.
        """
        ...


class ConfidenceSet(Bound, Protocol):
    """A bound that says beforehand how much it will tell."""

    def half_axis(self, evenly: float, variance: float = 0.0) -> float:
        """Half an axis of the set that a sum with G + H = ``evenly`` · I would leave: a public number."""
        ...


class Model(ABC):
    """What is learnt: record → flat vector of bounded length; sum of flat vectors under noise → `Belief`.

    It has no state: one object serves all, and its name stands for it in files. A record is an action x and a
    reward y within the public bounds; s is the weight of rewards.

    Guarantees:
        The flat vectors of any two neighbouring records are at most √2 · ``radius`` apart, and none is longer
        than that. Any two are neighbours if contexts are private; those with one action if they are public.
        All noise is calibrated to it. Releases are sums of flat vectors under noise, so that nothing else of
        a record leaves, and whatever is read off them is post-processing.

    Attributes:
        contexts: whether actions are protected as rewards are.
        part_of_linear: whether flat vectors are the linear model's, of actions no longer, less some
            coordinates: then what is proven of its moves holds of these.
        released_set: makes the `ConfidenceSet` that reads sums, under noise or not (`MixtureBound`).
        printed: makes the paper's.
    """

    contexts: ClassVar[Contexts] = "private"
    part_of_linear: ClassVar[bool] = False
    released_set: ClassVar[Callable[..., ConfidenceSet]]
    printed: ClassVar[Callable[..., Any]]

    @property
    @abstractmethod
    def name(self) -> str:
        """As in files: `require_model` makes the model of it again."""

    @abstractmethod
    def coordinates(self, dim: int) -> int:
        """q, the length of a flat vector of records with actions of length d."""

    @abstractmethod
    def weight(self, problem: Problem) -> float:
        """s, by which rewards are multiplied before noise and divided after: the best for public bounds."""

    @abstractmethod
    def radius(self, problem: Problem, weight: float = 1.0) -> float:
        """R²: replacing one record moves the sum of flat vectors by at most √2 R²."""

    @abstractmethod
    def flatten(self, actions: Array, rewards: Array, weight: float) -> Array:
        """(n, q), the flat vectors of records: actions (n, d), rewards (n,)."""

    @abstractmethod
    def read(self, flat: Array, *, dim: int, weight: float, unit: float = 1.0) -> tuple[Array, Array]:
        """Gram (..., d, d) and moment (..., d) of a sum of flat vectors, or of noise.

        Args:
            flat: (..., q), in multiples of ``unit``.
            dim: d.
            weight: s.
            unit: what 1 in ``flat`` stands for.
        """

    def nearest(self, actions: Array) -> Array:
        """(..., n, d), each action as a record may have it: itself, or what is left of one that it may not.

        It looks at one action at a time, and makes none longer.
        """
        return actions

    def noisy(self, dim: int) -> NDArray[np.bool_]:
        """(q,), which coordinates of a flat vector carry noise; the others are public."""
        return np.ones(self.coordinates(dim), dtype=np.bool_)

    def gram_radius(self, dim: int, releases: int, alpha: float) -> float:
        """λ with −H_k ⪯ λ√w_k I for all releases k, but for a chance α, H_k the noise of the Gram.

        Of a full symmetric one E λ_max ≤ 2√d, and λ_max is √2-Lipschitz; then a union over releases.
        """
        return 2.0 * math.sqrt(dim) + 2.0 * math.sqrt(math.log(releases / alpha))

    def residual_scales(self, problem: Problem, weight: float) -> Array:
        """(d,), at least the sorted eigenvalues of D: h − Hθ* has covariance w·D, whatever θ* is, ‖θ*‖ ≤ S.

        The first is the largest, D̄. Of a full Gram D = (1/s² + ‖θ*‖²) I + θ*θ*ᵀ.
        """
        squared = problem.parameter_bound**2
        scales = np.full(problem.dim, 1.0 / weight**2 + squared)
        scales[0] += squared
        return scales

    def entry_scale(self, problem: Problem, weight: float) -> float | None:
        """The mean variance of an entry of h − Hθ*, over w, for estimates; None: as of a full Gram."""
        return None

    def add(self, statistics: Statistics, actions: Array, rewards: Array) -> Statistics:
        """Add records to raw sums of floats: the same sums that ``read`` makes of flat vectors.

        Args:
            statistics: raw sums so far.
            actions: (..., n, d).
            rewards: (..., n).
        """
        return add(statistics, actions, rewards)


MODELS: dict[str, Model] = {}
"""By name. `feducb.models` fills it, with one line per model."""

MODEL_FAMILIES: dict[str, Callable[[str], Model]] = {}
"""By what stands before the first colon of a name: makes the model of what stands after it."""


def require_trust(value: str | Trust) -> Trust:
    """The trust itself, or the one of that name."""
    if isinstance(value, Trust):
        return value
    if isinstance(value, str):
        family, colon, rest = value.partition(":")
        if colon and family in TRUST_FAMILIES:
            return TRUST_FAMILIES[family](rest)
        if value in TRUSTS:
            return TRUSTS[value]
        if value in SOLITARY:
            return SOLITARY[value]
    raise ConfigurationError("trust", value, _listed(TRUSTS))


def require_model(value: str | Model) -> Model:
    """The model itself, or the one of that name."""
    if isinstance(value, Model):
        return value
    if isinstance(value, str):
        family, colon, rest = value.partition(":")
        if colon and family in MODEL_FAMILIES:
            return MODEL_FAMILIES[family](rest)
        if value in MODELS:
            return MODELS[value]
    raise ConfigurationError("model", value, _listed([*MODELS, *(f"{name}:…" for name in MODEL_FAMILIES)]))


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def interactions(count: int) -> str:
    """A number of records, in words."""
    return f"{count} interaction{'s' if count > 1 else ''}"

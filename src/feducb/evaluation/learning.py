"""Policies learnt from logged records by the code that agents run: the same sums, noise and bounds.

The confidence bound holds for any predictable actions, so learning from actions that a trial drew at random
is legitimate. Logged actions do not depend on releases either: only what an agent knows after the last one
matters here, and when within the stream a record came does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.models.confidence import OwnDataBound
from feducb.models.ridge import factorise
from feducb.policies.optimistic import upper_confidence_bounds
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import PrivatizerState
from feducb.protocol.controller import add_up, synchronise
from feducb.protocol.estimators import Estimator, calibrated_estimator
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Explicit, Geometric
from feducb.types import Belief, Statistics
from feducb.worlds.streams import Purpose, Streams

__all__ = ["Alone", "FederatedLearner", "Learner", "Learnt", "federation_name", "release_rounds"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_ROWS_AN_AGENT = 32
_GATHERED = 2**19  # numbers in matrices of rows gathered at once


def release_rounds(horizon: int, releases: int) -> tuple[int, ...]:
    """Release rounds up to the horizon: geometric, the last one at the end."""
    if releases > horizon:
        raise ConfigurationError("releases", releases, f"at most the records of an average agent, {horizon}")
    if releases == 1:
        return Explicit((horizon,)).rounds(horizon)
    return Geometric(first=min(8, horizon - releases + 1), releases=releases).rounds(horizon)


def federation_name(federation: Federation) -> str:
    """What a federation is called in tables and results."""
    if federation.baseline is not None:
        return "federation without privacy"
    epsilon = min(budget.epsilon for budget in federation.budgets)
    return f"private federation, ε = {epsilon:g}, {federation.trust} trusted"


@dataclass(frozen=True, slots=True)
class Learnt:
    """What agents know in the end.

    Attributes:
        belief: of each agent, or of all with a leading axis of length 1; None: nothing worth reading.
    """

    belief: Belief | None

    def choices(self, candidates: Array, agents: Indices, *, greedy: bool) -> Array:
        """(n, K), the probability of each candidate; uniform while nothing is known.

        Args:
            candidates: (n, K, d).
            agents: (n,), by number.
            greedy: by the estimate alone; else by the upper confidence bound, as an agent plays.
        """
        count, arms, _ = candidates.shape
        if self.belief is None:
            return np.full((count, arms), 1.0 / arms)
        chosen = np.empty(count, dtype=np.int64)
        if self.belief.theta.shape[0] == 1:
            chosen[:] = self._best(0, candidates, greedy)
            return np.asarray(np.eye(arms)[chosen])
        order = np.argsort(agents, kind="stable")
        names, starts = np.unique(agents[order], return_index=True)
        if count >= _ROWS_AN_AGENT * len(names):
            for agent, rows in zip(names.tolist(), np.split(order, starts[1:]), strict=True):
                chosen[rows] = self._best(agent, candidates[rows], greedy)
        else:  # few rows an agent: a matrix a row is faster than a call an agent
            at_once = max(1, _GATHERED // candidates.shape[-1] ** 2)
            for start in range(0, count, at_once):
                rows = order[start : start + at_once]
                chosen[rows] = self._best(agents[rows], candidates[rows], greedy)
        return np.asarray(np.eye(arms)[chosen])

    def _best(self, agent: int | Indices, candidates: Array, greedy: bool) -> Indices:
        """The best candidate of each row, for one agent, or for each row's own."""
        assert self.belief is not None
        if greedy:
            scores = candidates @ self.belief.theta[agent][..., None]
            return np.asarray(np.argmax(scores[..., 0], axis=-1))
        own = Belief(
            self.belief.theta[agent],
            self.belief.inverse[agent],
            self.belief.ellipsoid_width[agent],
            self.belief.euclidean_width[agent],
        )
        if isinstance(agent, int):
            flat = candidates.reshape(-1, candidates.shape[-1])
            scores = upper_confidence_bounds(own, flat).reshape(candidates.shape[:-1])
        else:
            scores = upper_confidence_bounds(own, candidates)
        return np.asarray(np.argmax(scores, axis=-1))


class Learner(Protocol):
    """A way to learn from the records of M agents."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    def learn(self, sums: Statistics, run: int) -> Learnt:
        """From raw sums with one leading axis, agents; ``run`` numbers the draw of the noise."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """Each agent learns from its own records and sends nothing."""

    problem: Problem
    alpha: float = 0.1
    regularizer: float = 1.0
    name: str = "each agent alone"

    def learn(self, sums: Statistics, run: int) -> Learnt:
        """One belief per agent."""
        bound = OwnDataBound(problem=self.problem, alpha=self.alpha, regularizer=self.regularizer)
        prior = self.regularizer * np.eye(self.problem.dim)
        return Learnt(bound.belief(factorise(sums.gram + prior, sums.moment)))


@dataclass(frozen=True, slots=True)
class FederatedLearner:
    """All learn from released sums, under noise or not.

    Attributes:
        federation: who learns, under which promise.
        estimator: noise, bound and release rounds.
        seed: of the noise.
    """

    federation: Federation
    estimator: Estimator
    seed: int = 0

    @classmethod
    def of(cls, federation: Federation, rounds: tuple[int, ...], *, seed: int = 0) -> FederatedLearner:
        """With noise for the federation's budgets, or without privacy."""
        everybody = range(federation.agents)
        return cls(
            federation, calibrated_estimator(federation, rounds, everybody, alpha=federation.alpha), seed
        )

    @property
    def name(self) -> str:
        """As tables call it."""
        return federation_name(self.federation)

    @property
    def reads(self) -> bool:
        """Whether any release is worth reading, by public numbers; if not, actions are drawn uniformly."""
        first: int = getattr(self.estimator.rule, "first", 1)
        return first <= len(self.estimator.release_rounds)

    def learn(self, sums: Statistics, run: int) -> Learnt:
        """One belief for all, from the last release."""
        privatizer, rule = self.estimator.privatizer, self.estimator.rule
        assert privatizer is not None
        if not self.reads:
            return Learnt(None)
        streams = Streams(self.seed)
        noise = SeededNoise(
            streams.grid(range(run, run + 1), range(self.federation.agents), Purpose.NOISE)
            if self.federation.trust == "nobody"
            else [[streams.shared(run, Purpose.NOISE)]]
        )
        # All records are there before the first release: the last one, which counts, is the same.
        total = Statistics(sums.gram[None], sums.moment[None], sums.count)
        state = PrivatizerState(total, 0, ())
        for _ in self.estimator.release_rounds:
            state, release = synchronise(privatizer, state, noise, trust=self.federation.trust)
        belief = rule.absorb(rule.start((1, self.federation.agents)), add_up(release)).belief
        assert belief is not None
        return Learnt(
            Belief(
                belief.theta[0],
                belief.inverse[0],
                belief.ellipsoid_width[0],
                belief.euclidean_width[0],
            )
        )

"""Policies learnt from logged records by the code that agents run: the same sums, noise and bounds.

The confidence bound holds for any predictable actions, so learning from actions that a trial drew at random
is legitimate. Logged actions do not depend on releases either: only what an agent knows after the last one
matters here, and when within the stream a record came does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feducb.errors import ConfigurationError
from feducb.evaluation.verdicts import ALONE
from feducb.models import LINEAR
from feducb.models.joint import JointBound, Others
from feducb.models.play import AlonePlay, JointPlay, ReleasedPlay
from feducb.policies import Policy
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import PrivatizerState
from feducb.protocol.closing import own_estimator
from feducb.protocol.estimators import Estimator, alone_estimator, calibrated_estimator
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Explicit, Geometric
from feducb.protocol.synchronisation import add_up, synchronise
from feducb.types import Array, Belief, Indices, ReleasedSum, Statistics
from feducb.worlds.features import Recipe, model_of
from feducb.worlds.streams import Streams

__all__ = ["Alone", "FederatedLearner", "Learner", "choices", "federation_name", "release_rounds"]

_ROWS_PER_AGENT = 32
_GATHERED = 2**19  # numbers in matrices of rows gathered at once


def release_rounds(horizon: int, releases: int) -> tuple[int, ...]:
    """Release rounds up to the horizon: geometric, the last one at the end."""
    if releases == 1:
        return (horizon,)
    return Geometric(first=min(8, horizon - releases + 1), releases=releases).rounds(horizon)


def federation_name(federation: Federation) -> str:
    """What a federation is called in tables and results."""
    if federation.baseline is not None:
        return "federation without privacy"
    epsilon = min(budget.epsilon for budget in federation.budgets)
    return f"private federation, ε = {epsilon:g}, {federation.trust.name} trusted"


def choices(belief: Belief | None, candidates: Array, agents: Indices, policy: Policy) -> Array:
    """(n, K), the probability of each candidate; uniform while nothing is known.

    Args:
        belief: of each agent, or of all with a leading axis of length 1; None: nothing worth reading.
        candidates: (n, K, d).
        agents: (n,), by number.
        policy: how agents choose.
    """
    if belief is None:
        return policy.propensities(None, candidates)
    if belief.theta.shape[0] == 1:
        return policy.propensities(_part(belief, 0), candidates)
    chances, count = np.empty(candidates.shape[:-1]), len(candidates)
    order = np.argsort(agents, kind="stable")
    names, starts = np.unique(agents[order], return_index=True)
    if count >= _ROWS_PER_AGENT * len(names):
        for agent, rows in zip(names.tolist(), np.split(order, starts[1:]), strict=True):
            chances[rows] = policy.propensities(_part(belief, agent), candidates[rows])
    else:  # few rows per agent: a matrix per row is faster than a call per agent
        at_once = max(1, _GATHERED // candidates.shape[-1] ** 2)
        for start in range(0, count, at_once):
            rows = order[start : start + at_once]
            own = _part(belief, agents[rows])
            chances[rows] = policy.propensities(own, candidates[rows][:, None])[:, 0]
    return chances


def _part(belief: Belief, agent: int | Indices) -> Belief:
    """What one agent believes, or what each of several does."""
    return Belief(*(part[agent] for part in _parts(belief)))


def _joined(beliefs: Sequence[Belief], order: Indices) -> Belief:
    """What all of several groups believe, in another order."""
    return Belief(*(np.concatenate(parts)[order] for parts in zip(*map(_parts, beliefs), strict=True)))


def _parts(belief: Belief) -> tuple[Array, ...]:
    return belief.theta, belief.inverse, belief.ellipsoid_width, belief.euclidean_width, belief.guess


@dataclass(frozen=True, slots=True)
class Alone:
    """Each agent learns from its own records and sends nothing; it reads them as a federation reads a sum."""

    federation: Federation  # whose agents they are
    name: str = ALONE

    def learn(self, sums: Statistics, run: int, records: Indices | None = None) -> Belief:
        """One belief per agent, from raw sums with one leading axis, agents."""
        rule = alone_estimator(self.federation, 1, alpha=self.federation.alpha).rule
        assert isinstance(rule, AlonePlay)
        return rule.bound.belief(sums.gram, sums.moment, np.zeros(len(sums.moment)))


@dataclass(frozen=True, slots=True)
class FederatedLearner:
    """All learn from released sums, under noise or not."""

    federation: Federation
    estimator: Estimator  # noise, bound and release rounds
    seed: int = 0  # of the noise
    shared: Indices | None = None  # the coordinates that leave agents, where some are personal

    @classmethod
    def of(
        cls, federation: Federation, rounds: tuple[int, ...], *, seed: int = 0, recipe: Recipe | None = None
    ) -> FederatedLearner:
        """With noise for the federation's budgets, or without privacy.

        Raises:
            ConfigurationError: a term of the recipe is personal, and play is released.
        """
        everybody, personal = range(federation.agents), bool(recipe and recipe.personal)
        if federation.baseline is not None or (federation.play == "released" and not personal):
            made = calibrated_estimator(federation, rounds, everybody, alpha=federation.alpha)
            return cls(federation, made, seed)
        if federation.play == "released":
            raise ConfigurationError("play", "released", "own, since terms of the recipe are personal")
        leaves = replace(federation, schedule=Explicit(rounds))
        if recipe and personal:  # the same bounds of rewards and of θ*, shorter actions, and their own zeros
            shared, structured = recipe.shared, federation.model != LINEAR
            problem = replace(federation.problem, dim=shared.dim, action_bound=shared.action_bound)
            leaves = replace(leaves, problem=problem, model=model_of(shared) if structured else LINEAR)
        made = own_estimator(leaves, rounds[-1], everybody)
        assert isinstance(made.rule, JointPlay)
        # What counts is what they know in the end, and not how they looked around before.
        bound, places = replace(made.rule.bound, looks=0), None
        if recipe and personal:
            alone = replace(bound.alone, problem=federation.problem, regularizer=federation.prior)
            bound, places = replace(bound, alone=alone), recipe.shared_places
        return cls(federation, replace(made, rule=replace(made.rule, bound=bound)), seed, places)

    @property
    def name(self) -> str:
        """What tables call it."""
        return federation_name(self.federation)

    @property
    def reads(self) -> bool:
        """Whether any release is worth reading, by public numbers; if not, actions are drawn uniformly."""
        rule = self.estimator.rule
        assert isinstance(rule, ReleasedPlay | JointPlay)
        return isinstance(rule, JointPlay) or rule.first <= len(self.estimator.release_rounds)

    def learn(self, sums: Statistics, run: int, records: Indices | None = None) -> Belief | None:
        """One belief for all, from the last release; in own play one per agent, from its own records as well.

        Args:
            sums: raw, with one leading axis, agents.
            run: numbers the draw of the noise.
            records: (M,), how many each agent has; as many as ``sums`` counts if left out.
        """
        privatizer, rule = self.estimator.privatizer, self.estimator.rule
        assert privatizer is not None
        if not self.reads:
            return None
        agents, trust = range(self.federation.agents), self.federation.trust
        noise = SeededNoise(Streams(self.seed).noise(range(run, run + 1), agents, pooled=trust.pooled))
        # All records are there before the first release: the last one, which counts, is the same.
        gram, moment = self._leaves(sums)
        state = PrivatizerState(Statistics(gram[None], moment[None], sums.count), 0, ())
        for _ in self.estimator.release_rounds:
            state, release = synchronise(privatizer, state, noise, trust=trust)
        released = add_up(release)
        if isinstance(rule, JointPlay):
            return self._joint(rule.bound, sums, records, released)
        belief = rule.absorb(rule.start((1, len(agents))), released).belief
        assert belief is not None
        return _part(belief, 0)

    def _leaves(self, sums: Statistics) -> tuple[Array, Array]:
        """The part of raw sums that may leave."""
        if self.shared is None:
            return sums.gram, sums.moment
        return sums.gram[..., self.shared[:, None], self.shared], sums.moment[..., self.shared]

    def _joint(
        self, bound: JointBound, sums: Statistics, records: Indices | None, released: ReleasedSum
    ) -> Belief:
        """What raw own sums and the others' part of a sum tell, which has no personal coordinates."""
        places = np.arange(sums.moment.shape[-1]) if self.shared is None else self.shared
        own_gram, own_moment = self._leaves(sums)
        gram, moment = np.zeros_like(sums.gram), np.zeros_like(sums.moment)
        gram[..., places[:, None], places] = released.gram[0] - own_gram
        moment[..., places] = released.moment[0] - own_moment
        counts = np.full(len(moment), sums.count) if records is None else records
        squares = np.broadcast_to(sums.squares, counts.shape)
        order = np.argsort(counts, kind="stable")
        found = []
        for some in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1):  # as many records each
            own = Statistics(sums.gram[some], sums.moment[some], int(counts[some[0]]), squares[some])
            found.append(bound.belief(own, Others.of(gram[some], moment[some])))
        return _joined(found, np.argsort(order))


Learner = Alone | FederatedLearner

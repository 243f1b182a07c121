"""Policies learnt from logged records by the code that agents run: the same sums, noise and bounds.

The confidence bound holds for any predictable actions, so learning from actions that a trial drew at random
is legitimate. Logged actions do not depend on releases either: only what an agent knows after the last one
matters here, and when within the stream a record came does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feducb.errors import ConfigurationError
from feducb.evaluation.verdicts import ALONE
from feducb.models import LINEAR
from feducb.models.joint import Others
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
    parts = belief.theta, belief.inverse, belief.ellipsoid_width, belief.euclidean_width, belief.guess
    return Belief(*(part[agent] for part in parts))


@dataclass(frozen=True, slots=True)
class Alone:
    """Each agent learns from its own records and sends nothing; it reads them as a federation reads a sum."""

    federation: Federation  # whose agents they are
    name: str = ALONE

    def learn(self, sums: Statistics, run: int) -> Belief:
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
        if not (recipe and personal):
            return cls(federation, made, seed)
        assert isinstance(made.rule, JointPlay)
        alone = replace(made.rule.bound.alone, problem=federation.problem, regularizer=federation.prior)
        rule = replace(made.rule, bound=replace(made.rule.bound, alone=alone))
        return cls(federation, replace(made, rule=rule), seed, recipe.shared_places)

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

    def learn(self, sums: Statistics, run: int) -> Belief | None:
        """One belief for all, from the last release; in own play one per agent, from its own records as well.

        ``run`` numbers the draw of the noise.
        """
        privatizer, rule = self.estimator.privatizer, self.estimator.rule
        assert privatizer is not None
        if not self.reads:
            return None
        agents, trust = range(self.federation.agents), self.federation.trust
        noise = SeededNoise(Streams(self.seed).noise(range(run, run + 1), agents, pooled=trust.pooled))
        # All records are there before the first release: the last one, which counts, is the same.
        total = Statistics(sums.gram[None], sums.moment[None], sums.count)
        state = PrivatizerState(self._leaves(total), 0, ())
        for _ in self.estimator.release_rounds:
            state, release = synchronise(privatizer, state, noise, trust=trust)
        if self.shared is not None:
            return _part(self._joint(total, add_up(release)), 0)
        knowledge = rule.start((1, len(agents)))
        if rule.acts_on_own_data:
            knowledge = replace(knowledge, sums=total)
        belief = rule.absorb(knowledge, add_up(release)).belief
        assert belief is not None
        return _part(belief, 0)

    def _leaves(self, total: Statistics) -> Statistics:
        """The part of raw sums that may leave."""
        if self.shared is None:
            return total
        gram = total.gram[..., self.shared[:, None], self.shared]
        return Statistics(gram, total.moment[..., self.shared], total.count)

    def _joint(self, total: Statistics, released: ReleasedSum) -> Belief:
        """What raw own sums and the others' part of a sum tell, which has no personal coordinates."""
        assert self.shared is not None
        assert isinstance(self.estimator.rule, JointPlay)
        own, gram, moment = self._leaves(total), np.zeros_like(total.gram), np.zeros_like(total.moment)
        gram[..., self.shared[:, None], self.shared] = released.gram[..., None, :, :] - own.gram
        moment[..., self.shared] = released.moment[..., None, :] - own.moment
        return self.estimator.rule.bound.belief(total, Others.of(gram, moment))


Learner = Alone | FederatedLearner

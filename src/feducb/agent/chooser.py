"""How an agent chooses: by its policy, from what it knows for the visitor's group."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from feducb.agent.learnt import wording
from feducb.agent.reasons import Explanation, Question, explain
from feducb.agent.settings import AgentSettings
from feducb.policies import Optimistic, Tempered
from feducb.policies.decider import Decider
from feducb.policies.policy import certain, draw_one_evenly
from feducb.storage import events
from feducb.types import Belief

__all__ = ["Chooser"]

Array = NDArray[np.float64]


class Chooser:
    """What was learnt, by group, ready to decide by.

    Attributes:
        deciders: by group; a group that has learnt nothing yet has none.
        alone: for visitors who are held out; None before own records were read.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.deciders: dict[int, Decider] = {}
        self.alone: Decider | None = None

    def know(self, group: int, belief: Belief | None) -> None:
        """Go by this from now on; None is nothing."""
        if belief is None:
            self.deciders.pop(group, None)
        else:
            self.deciders[group] = Decider(belief, self._settings.exploration)

    def know_alone(self, belief: Belief | None) -> None:
        """Decide by this for whom is held out; None is nothing."""
        self.alone = None if belief is None else Decider(belief, self._settings.exploration)

    def choose_alone(self, candidates: Array, coin: random.Random) -> tuple[int, float]:
        """Index and its propensity, as an agent alone chooses: by the same policy."""
        policy, decider = self._settings.chooses.policy, self.alone
        if decider is None:
            return draw_one_evenly(coin.random(), len(candidates))
        if type(policy) is Optimistic:
            return decider.decide(candidates), 1.0
        if type(policy) is Tempered:
            return decider.temper(candidates, coin.random(), policy)
        index, chance = policy.decide(decider.belief, candidates[None], np.array([coin.random()]))
        return int(index[0]), float(chance[0])

    def _decider(self, group: int, lane: int | None) -> Decider | None:
        held_out = lane == events.ALONE and self._settings.trust.leaves
        return self.alone if held_out else self.deciders.get(group)

    def choose(self, group: int, candidates: Array, coin: random.Random) -> tuple[int, float, bool]:
        """Index, its propensity, and whether it was drawn uniformly.

        `Optimistic` and `Tempered` are played by the compiled decider, which chooses the same.
        """
        policy, decider = self._settings.chooses, self.deciders.get(group)
        chosen_by = policy.policy
        if decider is None:
            return *draw_one_evenly(coin.random(), len(candidates)), True
        if not policy.share:
            if type(chosen_by) is Optimistic:
                return decider.decide(candidates), 1.0, False
            if type(chosen_by) is Tempered:
                return *decider.temper(candidates, coin.random(), chosen_by), False
        coins = np.array([coin.random()])
        if type(chosen_by) is Optimistic:
            best = np.array([decider.decide(candidates)])
            index, chance = policy.mix(certain(best, len(candidates)), coins)
        elif type(chosen_by) is Tempered:
            index, chance = policy.mix(decider.tempered_chances(candidates, chosen_by)[None], coins)
        else:
            index, chance = policy.decide(decider.belief, candidates[None], coins)
        return int(index[0]), float(chance[0]), bool(policy.draws_evenly(coins)[0])

    def judge(self, group: int, action: Array, lane: int | None = None) -> tuple[float, float] | None:
        """What reward is expected of an action (d,), and the most that its mean may be.

        In the application's units, within the public range of rewards; None before anything was learnt.
        """
        decider = self._decider(group, lane)
        if decider is None:
            return None
        problem = self._settings.problem
        (low, high), centre = problem.reward_range, problem.reward_centre
        estimate, bound = decider.judge(action)
        return min(max(centre + estimate, low), high), min(max(centre + bound, low), high)

    def scores(self, group: int, candidates: Array, lane: int | None = None) -> Array | None:
        """The upper confidence bound of each candidate; None before anything was learnt.

        In the application's units, and not cut off at the range of rewards: cut off, several would be equal.
        """
        decider = self._decider(group, lane)
        centre = self._settings.problem.reward_centre
        return None if decider is None else centre + decider.score(candidates)

    def explain(self, group: int, asked: Question, source: str, lane: int | None) -> Explanation | None:
        """Why an action was chosen (`reasons`); None before anything was learnt."""
        decider, problem = self._decider(group, lane), self._settings.problem
        if decider is None:
            return None
        return explain(asked, decider, problem, wording(self._settings.recipe, problem.dim), source)

    def reaches_all(self, group: int) -> bool:
        """Whether every candidate could be chosen: always, until something was learnt."""
        return self._settings.chooses.reaches_all or group not in self.deciders

"""Several seasons of one simulation: each with a budget and noise of its own, in a world that goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feducb.models.play import ReleasedPlay, Rule
from feducb.models.remembering import Fading, RememberingPlay
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Release
from feducb.protocol.estimators import Estimator
from feducb.protocol.recall import Past, recalling
from feducb.simulation.plan import Plan, Team
from feducb.simulation.reference import Live

__all__ = ["SeasonalLive"]


class SeasonalLive(Live):
    """An estimator as it goes from season to season; it remembers what the plan says."""

    def __init__(self, plan: Plan, team: Team, estimator: Estimator, shape: tuple[int, int]) -> None:
        self._plan, self._team, self._shape, self._estimator = plan, team, shape, estimator
        self._past: list[tuple[float, Past]] = []  # the moment of each last sum, and the sum
        super().__init__(replace(estimator, rule=self._rule(1)), shape)
        self._season = 1

    def catch_up(self, now: int) -> None:
        """Absorb what arrives by the start of this round; begin the season that it is in."""
        super().catch_up(now)
        season = (now - 1) // self._plan.season_rounds + 1
        while self._season < season:
            self._remember()
            self._season += 1
            if self.batch is not None:
                super().__init__(replace(self._estimator, rule=self._rule(self._season)), self._shape)

    def synchronise(self, plan: Plan, now: int, noise: SeededNoise) -> tuple[Release | None, list[int]]:
        """As of one season, whose rounds are counted from its start."""
        return super().synchronise(plan, (now - 1) % plan.season_rounds + 1, noise)

    def _remember(self) -> None:
        """The season that is over, if anything came of it."""
        newest = self.knowledge.newest
        if newest is None:
            return
        rounds, number = self._estimator.release_rounds, newest.total.number
        fading = self._fading()
        planned = np.array(rounds, dtype=np.float64)
        records = len(self._team.agents) * (planned if fading is None else fading.records(planned))
        moment = (self._season - 1) * self._plan.season_rounds + rounds[number - 1]
        kept = Past(total=newest.faded, records=float(records[number - 1]), left=())
        self._past.append((float(moment), kept))

    def _fading(self) -> Fading | None:
        half_life, privatizer = self._plan.seasons.half_life, self._estimator.privatizer
        if half_life is None or privatizer is None:
            return None
        moments = tuple(map(float, self._estimator.release_rounds))
        return Fading(moments, half_life, privatizer.mechanism.decoder())

    def _rule(self, season: int) -> Rule:
        """How a season's sums are read."""
        rule, fading = self._estimator.rule, self._fading()
        if not isinstance(rule, ReleasedPlay):  # alone, or by no sums at all: nothing begins anew
            return rule
        past = self._remembered(season)
        if not past and fading is None:
            weights = np.ones((len(self._estimator.release_rounds) + 1, 1))
            return RememberingPlay(bound=rule.bound, first=rule.first, past=(), weights=weights)
        federation = self._plan.federation
        return recalling(
            federation, self._estimator, self._team.agents, past, alpha=federation.alpha, fading=fading
        )

    def _remembered(self, season: int) -> list[Past]:
        seasons, starts = self._plan.seasons, (season - 1) * self._plan.season_rounds
        newest_first = self._past[::-1][: seasons.remembered]
        moments = starts + np.array([0.0, *self._estimator.release_rounds])
        made = []
        for ago, (moment, kept) in enumerate(newest_first, start=1):
            left = np.full(len(moments), seasons.discount**ago)
            if seasons.half_life is not None:
                left = 0.5 ** ((moments - moment) / seasons.half_life)
            made.append(replace(kept, left=tuple(left.tolist())))
        return made

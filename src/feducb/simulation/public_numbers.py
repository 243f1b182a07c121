"""What is public of a season before anyone has played: when sums are worth reading, and what they are worth.

All that privacy costs a season comes in through the noise of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from feducb.config import Budget, Problem
from feducb.models.play import AlonePlay
from feducb.protocol.closing import closing_rounds, others_worth
from feducb.protocol.estimators import alone_estimator, plan_rounds
from feducb.protocol.team_noise import TeamNoise
from feducb.simulation.planned_season import Season
from feducb.worlds.synthetic import paper_world

__all__ = ["Numbers", "numbers_of", "season_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """What is public of a season, before anyone has played.

    Attributes:
        dim: d.
        arms: K.
        visitors: T.
        agents: M.
        noise: of a sum, in visitors: so many of each agent bring as much in each direction.
        read_from: when a sum is first worth reading; T if none is.
        closes: when all release under own play, and close after the last; empty: they stay alone.
        worth: what the others' records are worth at the close beside own ones.
        alone_from: when an agent alone begins to read its records.
    """

    dim: int
    arms: int
    visitors: int
    agents: int
    noise: float
    read_from: int
    closes: tuple[int, ...]
    worth: float
    alone_from: int

    @property
    def readable(self) -> bool:
        """Whether any released sum is read before the last visitor."""
        return self.read_from < self.visitors

    @property
    def blind(self) -> float:
        """What a visitor costs whose action is drawn uniformly, in the paper's world."""
        return 0.2 * (1.0 - 1.0 / self.arms)


def season_of(*, dim: int, arms: int, epsilon: float, delta: float, **more: Any) -> Season:
    """A season in the paper's world; people visit one agent each."""
    budget = Budget(epsilon=epsilon, delta=delta)
    return Season(world=paper_world(Problem(dim=dim), arms), budget=budget, **more)


def numbers_of(season: Season) -> Numbers:
    """The public numbers of a season; no threshold is simulated for them."""
    problem, visitors, team = season.world.problem, season.visitors, range(season.agents)
    released = replace(season, play="released", distance=None).federation
    own = replace(season, play="own").federation
    closes = closing_rounds(own, team, visitors)
    alone = alone_estimator(released, visitors, alpha=released.alpha).rule
    assert isinstance(alone, AlonePlay)
    noise = TeamNoise.of(released, team).whole
    return Numbers(
        dim=problem.dim,
        arms=season.world.arms,
        visitors=visitors,
        agents=season.agents,
        noise=noise * problem.dim / (season.agents * problem.action_bound**2),
        read_from=plan_rounds(released, team, visitors, alpha=released.alpha)[0],
        closes=closes,
        worth=others_worth(own, team, closes[-1]) if closes else 0.0,
        alone_from=alone.first,
    )

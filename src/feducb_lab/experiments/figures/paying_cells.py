"""Places in the map of where federating pays: what was played there, and what the public rule takes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from feducb.simulation.planned_season import Season
from feducb.simulation.predicting import predict
from feducb.simulation.public_numbers import season_of
from feducb_lab.experiments.experiment import Outcome, Results
from feducb_lab.experiments.figures import common

__all__ = ["REAL", "TRUSTS", "Cell", "cell_at", "cells_of", "season_at"]

TRUSTS = {
    "nobody": "nobody is trusted",
    "keepers": "keepers open sums",
    "controller": "the controller is trusted",
}

REAL: dict[str, tuple[int, float, int]] = {
    "actg175": (10, 216.5, 16),
    "star": (78, 66.0, 13),
    "star-years": (80, 277.0, 17),
    "health-insurance": (6, 3330.5, 13),
    "movielens": (40, 494.0, 21),
    "letter": (50, 152.0, 170),
    "orange-juice": (83, 943.0, 35),
    "movielens-users": (364, 35.0, 20),
}
"""Real data sets (`feducb data list`): agents, records of the middle one, d."""


def season_at(label: Mapping[str, Any]) -> Season:
    """What would be planned there."""
    return season_of(
        dim=10,
        arms=100,
        epsilon=label["epsilon"],
        delta=1e-6,
        trust=label["trust"],
        visitors=label["T"],
        agents=label["M"],
    )


class Cell(NamedTuple):
    """A place in the map."""

    alone: Outcome
    plays: Sequence[Outcome]  # under either play, if agents share at all
    chosen: Outcome | None  # by the public rule; None: stay alone

    @property
    def ratio(self) -> float:
        """Regret over alone's; 1 where all stay alone."""
        return 1.0 if self.chosen is None else self.chosen.mean / self.alone.mean

    @property
    def pays(self) -> bool:
        """Whether it is surely less."""
        return self.chosen is not None and common.surely_less(self.chosen, self.alone)


def _alone(results: Results, visitors: int) -> Outcome:
    """The stronger of the two agents alone."""
    return min(results.where(who="alone", T=visitors), key=lambda one: one.mean)


def cell_at(results: Results, agents: int, visitors: int, **label: Any) -> Cell:
    """What was played there, and which of it by the public rule."""
    plays = results.where(M=agents, T=visitors, **label)
    chosen = plays[0] if plays and "epsilon" not in label else None  # without privacy there is one play
    if plays and "epsilon" in label:
        said = predict(season_at(plays[0].label))
        assert said is not None, plays[0].label
        if said.pays_after is not None:
            (chosen,) = (one for one in plays if one.label["play"] == said.play)
    return Cell(_alone(results, visitors), plays, chosen)


def cells_of(results: Results, **label: Any) -> list[list[Cell]]:
    """By agents, then by visitors."""
    return [
        [cell_at(results, agents, visitors, **label) for visitors in results.values("T")]
        for agents in results.values("M", who="no privacy")
    ]

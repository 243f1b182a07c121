"""A world of fixed actions, where elimination plays, and ours in it.

K actions are drawn once a run, uniformly on the unit sphere, and stay: they are public, so that rewards alone
are protected (`models.PublicContexts`). Rewards are Beta(p, 1 − p) with p = ½ + ⟨x, θ*⟩, ‖θ*‖ = 0.45.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feducb.config import Budget, Problem
from feducb.protocol.federation import Federation
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import simulate
from feducb.types import Array
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.synthetic import BetaRewards
from feducb.worlds.world import Chosen, Contexts

__all__ = ["FixedSet", "ours_on_a_fixed_set"]

_LENGTH = 0.45  # of θ*


@dataclass(frozen=True, slots=True)
class FixedSet:
    """The same K actions for everybody, another K each run.

    Attributes:
        dim: d.
        arms: K.
    """

    dim: int
    arms: int

    @property
    def problem(self) -> Problem:
        """Rewards are in [0, 1], and known to be: they are centred, and move a sum by 1 at most."""
        return Problem(dim=self.dim, reward_bound=0.5, reward_centre=0.5, parameter_bound=0.5)

    def draw(self, streams: Streams, run: int) -> tuple[Array, Array]:
        """Actions (K, d) and θ* (d,) of a run."""
        generator = streams.shared(run, Purpose.PARAMETER)
        drawn = generator.standard_normal((self.arms + 1, self.dim))
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn[1:], _LENGTH * drawn[0]

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> _FixedVisits:
        """Start these runs."""
        return _FixedVisits(self, streams, runs, agents)


class _FixedVisits(BetaRewards):
    def __init__(self, world: FixedSet, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        super().__init__(streams, runs, agents)
        drawn = [world.draw(streams, run) for run in runs]
        self._actions, self.theta = (np.array(part) for part in zip(*drawn, strict=True))
        self._means = np.einsum("rkd,rd->rk", self._actions, self.theta)

    def arrive(self, rounds: int) -> Contexts:
        shape = (*self._shape, rounds)
        actions = np.broadcast_to(self._actions[:, None, None], (*shape, *self._actions.shape[1:]))
        return Contexts(actions, np.broadcast_to(self._means[:, None, None], (*shape, self._means.shape[1])))

    def reward(self, chosen: Chosen) -> Array:
        """Beta, with ½ added to ⟨x, θ*⟩."""
        return super().reward(Chosen(chosen.index, chosen.actions, 0.5 + chosen.means))


def ours_on_a_fixed_set(
    *,
    agents: int,
    dim: int,
    arms: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    records_per_person: int = 1,
    **setting: Any,
) -> SimulationResult:
    """A federation, or a baseline, whose actions are public: noise on the moment alone."""
    world = FixedSet(dim, arms)
    who = {name: setting.pop(name) for name in ("trust", "baseline", "policy") if name in setting}
    federation = Federation(
        problem=world.problem,
        agents=agents,
        budget=Budget(epsilon=epsilon, delta=delta),
        contexts="public",
        records_per_person=records_per_person,
        **who,
    )
    return simulate(federation, world, **setting)

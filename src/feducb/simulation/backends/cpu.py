"""Compiled loops on processors, through numba."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from feducb.models.play import OwnDataPlay
from feducb.simulation.backends.backend import Ints, Kernels, OwnDataSettings, OwnPlay, Stretch, Sums
from feducb.simulation.backends.teams import KernelsBackend
from feducb.simulation.plan import Plan
from feducb.types import Array, Belief
from feducb.worlds.synthetic import PaperEnvironment

__all__ = ["CpuBackend", "CpuKernels"]

_WORTH_THREADS = 10_000_000  # agent-steps × K × d: below, starting threads takes longer than they save


class CpuBackend(KernelsBackend):
    """numba, on all processors."""

    name = "cpu"

    def refusal(self, plan: Plan) -> str | None:
        """Why this plan cannot be played here; None if it can."""
        return super().refusal(plan) or (None if find_spec("numba") else "numba is not installed")

    def kernels(self, plan: Plan, *, threads: int) -> Kernels:
        """The compiled loops, for this plan's world."""
        return CpuKernels(plan, threads=threads, defer=self.defer)


class CpuKernels:
    """`epochs` and `own_data` for one plan; they are imported, and so is numba, when it is made."""

    work_at_once = 4e9

    def __init__(self, plan: Plan, *, threads: int, defer: bool) -> None:
        from feducb.simulation.backends import epochs, own_data
        from feducb.simulation.backends.tiles import World

        self.epochs, self.own_data, world = epochs, own_data, plan.environment
        assert isinstance(world, PaperEnvironment)
        self.world = World(
            dim=world.problem.dim,
            arms=world.arms,
            best=world.best,
            others=world.others,
            parameter_norm=world.parameter_norm,
            action_bound=world.problem.action_bound,
            seed=int(np.random.SeedSequence(plan.seed).generate_state(1)[0]),
        )
        self.exploration, self.full = plan.exploration, plan.full
        self.threads, self.defer = threads, defer

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        """Rounds in which nobody learns."""
        by_agent = self.epochs.fixed_epoch(
            self.world, belief, stretch, rounds, full=self.full, defer=self.defer, threads=self.threads
        )
        parts = (by_agent.gram, by_agent.moment, by_agent.squares, by_agent.regret, by_agent.drawn)
        return Sums(*(part.sum(axis=1) for part in parts))

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        """Agents that take their own records in at once."""
        return _OwnRuns(self, rule, stretch)


class _OwnRuns:
    """One state per run: each has its own sync rounds."""

    def __init__(self, kernels: CpuKernels, rule: OwnDataPlay, stretch: Stretch) -> None:
        self._kernels, self._stretch = kernels, stretch
        self._settings = OwnDataSettings.of(rule, exploration=kernels.exploration)
        dim, runs = kernels.world.dim, len(stretch.runs)
        self.next_round: Ints = np.full(runs, stretch.first_round, dtype=np.int64)
        self.regret: Array = np.zeros((runs, len(stretch.points)))
        self._states: list[Any] = [None] * runs
        self.restart(np.arange(runs), np.tile(rule.prior * np.eye(dim), (runs, 1, 1)), np.zeros((runs, dim)))

    def advance(self, rounds: Ints) -> Ints:
        asked, kernels, world = [], self._kernels, self._kernels.world
        for place in np.flatnonzero(rounds):
            run, count = self._stretch.runs[place], int(rounds[place])
            work = count * self._stretch.agents * world.arms * world.dim
            played = kernels.own_data.own_data_steps(
                world,
                self._states[place],
                replace(self._stretch, runs=range(run, run + 1), first_round=int(self.next_round[place])),
                count,
                defer=kernels.defer,
                threads=kernels.threads if work >= _WORTH_THREADS else 1,
            )
            self.next_round[place] += played.rounds
            self.regret[place] += played.regret.sum(axis=(0, 1))
            asked += [place] * played.asked
        return np.array(asked, dtype=np.int64)

    def pending(self, places: Ints) -> tuple[Array, Array]:
        states = [self._states[place] for place in places]
        grams, moments = ([getattr(one, part).sum(axis=0) for one in states] for part in ("gram", "moment"))
        return np.stack(grams), np.stack(moments)

    def restart(self, places: Ints, gram: Array, moment: Array) -> None:
        agents = self._stretch.agents
        for place, own_gram, own_moment in zip(places, gram, moment, strict=True):
            self._states[place] = self._kernels.own_data.own_data(
                self._settings, np.tile(own_gram, (agents, 1, 1)), np.tile(own_moment, (agents, 1))
            )

    def dump(self) -> object:
        return self._states, self.next_round, self.regret

    def load(self, state: Any) -> None:
        self._states, self.next_round, self.regret = state

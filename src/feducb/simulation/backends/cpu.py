"""Compiled loops on processors, through numba."""

from __future__ import annotations

import math
from dataclasses import astuple
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.models.play import OwnDataPlay
from feducb.simulation.backends.backend import Kernels, OwnPlay, OwnWidths, Stretch, Sums
from feducb.simulation.backends.teams import KernelsBackend
from feducb.simulation.plan import Plan
from feducb.types import Belief
from feducb.worlds.synthetic import PaperEnvironment

__all__ = ["CpuBackend", "CpuKernels"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_WORTH_THREADS = 10_000_000  # agent-steps × K × d: below, starting threads takes longer than they save


class CpuBackend(KernelsBackend):
    """numba, on all processors."""

    name = "cpu"

    def missing(self, plan: Plan) -> str | None:
        """numba, if it is."""
        return None if find_spec("numba") else "numba is not installed"

    def kernels(self, plan: Plan, *, threads: int) -> Kernels:
        """The compiled loops, for this plan's world."""
        return CpuKernels(plan, threads=threads, defer=self.defer)


class CpuKernels:
    """`cpu_kernels` for one plan."""

    work_at_once = 4e9  # agent-steps × K × d: a few seconds

    @property
    def steps_at_once(self) -> int:
        """Fewer where a step is more work."""
        return max(1, int(self.work_at_once / (self.world.arms * self.world.dim)))

    def __init__(self, plan: Plan, *, threads: int, defer: bool) -> None:
        from feducb.simulation.backends import cpu_kernels

        self.compiled, world = cpu_kernels, plan.environment
        assert isinstance(world, PaperEnvironment)
        self.world = cpu_kernels.World(
            dim=world.problem.dim,
            arms=world.arms,
            best=world.best,
            others=world.others,
            parameter_norm=world.parameter_norm,
            action_bound=world.problem.action_bound,
        )
        self.exploration = plan.exploration
        self.common: dict[str, Any] = {
            "seed": int(np.random.SeedSequence(plan.seed).generate_state(1)[0]),
            "defer": defer,
            "threads": threads,
        }

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        """Rounds in which nobody learns."""
        parts = None
        if belief is not None:
            parts = (
                belief.theta[:, None],
                belief.inverse[:, None],
                belief.ellipsoid_width[:, None],
                belief.euclidean_width[:, None],
            )
        played = self.compiled.fixed_epoch(
            self.world,
            parts,
            runs=stretch.runs,
            agents=stretch.agents,
            first_round=stretch.first_round,
            rounds=rounds,
            points=stretch.points,
            **self.common,
        )
        return Sums(played.gram.sum(axis=1), played.moment.sum(axis=1), played.regret.sum(axis=1))

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        """Agents that take their own records in at once."""
        return _OwnRuns(self, rule, stretch)


class _OwnRuns:
    """One state per run: each has its own sync rounds."""

    def __init__(self, kernels: CpuKernels, rule: OwnDataPlay, stretch: Stretch) -> None:
        self._kernels, self._runs, self._agents = kernels, stretch.runs, stretch.agents
        self._points, runs = stretch.points, stretch.runs
        self._radius = kernels.compiled.Radius(*astuple(OwnWidths.of(rule.bound)))
        self._trigger = rule.trigger
        dim = kernels.world.dim
        self.next_round: Ints = np.full(len(runs), stretch.first_round, dtype=np.int64)
        self.regret: Array = np.zeros((len(runs), len(stretch.points)))
        self._states: list[Any] = [None] * len(runs)
        prior = np.tile(rule.prior * np.eye(dim), (len(runs), 1, 1))
        self.restart(np.arange(len(runs)), prior, np.zeros((len(runs), dim)))

    def advance(self, rounds: Ints) -> Ints:
        asked, world = [], self._kernels.world
        for place, run in enumerate(self._runs):
            if rounds[place]:
                work = int(rounds[place]) * self._agents * world.arms * world.dim
                threads = self._kernels.common["threads"] if work >= _WORTH_THREADS else 1
                played = self._kernels.compiled.own_data_steps(
                    self._kernels.world,
                    self._states[place],
                    self._radius,
                    runs=[run],
                    agents=self._agents,
                    first_round=int(self.next_round[place]),
                    rounds=int(rounds[place]),
                    points=self._points,
                    exploration=self._kernels.exploration,
                    threshold=math.inf if self._trigger is None else self._trigger.threshold,
                    **self._kernels.common | {"threads": threads},
                )
                self.next_round[place] += played.rounds
                self.regret[place] += played.regret.sum(axis=(0, 1))
                asked += [place] * played.asked
        return np.array(asked, dtype=np.int64)

    def pending(self, places: Ints) -> tuple[Array, Array]:
        data = [self._states[place] for place in places]
        return np.stack([one.gram.sum(axis=0) for one in data]), np.stack(
            [one.moment.sum(axis=0) for one in data]
        )

    def restart(self, places: Ints, gram: Array, moment: Array) -> None:
        offset = None if self._trigger is None else self._trigger.offset
        for position, place in enumerate(places):
            self._states[place] = self._kernels.compiled.own_data(
                np.tile(gram[position], (self._agents, 1, 1)),
                np.tile(moment[position], (self._agents, 1)),
                offset=offset,
            )

    def dump(self) -> object:
        return self._states, self.next_round, self.regret

    def load(self, state: Any) -> None:
        self._states, self.next_round, self.regret = state

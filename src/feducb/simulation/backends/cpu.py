"""Compiled loops on processors, through numba."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.agent import OwnDataPlay
from feducb.core.confidence import Belief, PaperBound
from feducb.environments.synthetic import PaperEnvironment
from feducb.simulation.backends.base import OwnPlay, Sums
from feducb.simulation.backends.federation import MOST_ROUNDS, play_teams, turns_in_all
from feducb.simulation.backends.reference import single_threaded_blas
from feducb.simulation.checkpoint import Checkpoint
from feducb.simulation.plan import Plan
from feducb.simulation.reference import BlockResult

__all__ = ["CpuBackend", "CpuKernels", "kernels_refusal"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def kernels_refusal(plan: Plan) -> str | None:
    """What no compiled backend plays."""
    if type(plan.environment) is not PaperEnvironment:
        return "only the paper's environment is compiled"
    if plan.topology is not None and plan.determinant:
        return "the determinant trigger on a graph counts who asked, which only the reference does"
    if turns_in_all(plan) > MOST_ROUNDS:
        return "there are more rounds than 32 bits count"
    return None


class CpuBackend:
    """numba, on all processors.

    Attributes:
        defer: whether candidates that cannot be chosen are left undrawn; changes nothing but the time.
    """

    name = "cpu"

    def __init__(self, *, defer: bool = True) -> None:
        self.defer = defer

    def refusal(self, plan: Plan) -> str | None:
        """Whatever `kernels_refusal` says, or numba is not there."""
        try:
            import numba  # noqa: F401
        except ImportError:
            return "numba is not installed"
        return kernels_refusal(plan)

    def play(
        self, plan: Plan, *, threads: int, progress: Callable[[int], None], checkpoint: Checkpoint | None
    ) -> list[BlockResult]:
        """All runs of each team."""
        kernels = CpuKernels(plan, threads=threads, defer=self.defer)
        with single_threaded_blas():
            return play_teams(plan, kernels, progress=progress, checkpoint=checkpoint)


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

    def fixed(
        self,
        belief: Belief | None,
        *,
        runs: range,
        agents: int,
        first_round: int,
        rounds: int,
        points: Sequence[int],
    ) -> Sums:
        """Rounds in which nobody learns."""
        parts = None
        if belief is not None:
            parts = (
                belief.theta[:, None],
                belief.inverse[:, None],
                belief.ellipsoid_width[:, None],
                belief.euclidean_width[:, None],
            )
        found = self.compiled.fixed_epoch(
            self.world,
            parts,
            runs=runs,
            agents=agents,
            first_round=first_round,
            rounds=rounds,
            points=points,
            **self.common,
        )
        return Sums(found.gram.sum(axis=1), found.moment.sum(axis=1), found.regret.sum(axis=1))

    def own(
        self, rule: OwnDataPlay, *, runs: range, agents: int, first_round: int, points: Sequence[int]
    ) -> OwnPlay:
        """Agents that take their own records in at once."""
        return _OwnRuns(self, rule, runs=runs, agents=agents, first_round=first_round, points=points)


class _OwnRuns:
    """One state a run: each has its own sync rounds."""

    def __init__(
        self,
        kernels: CpuKernels,
        rule: OwnDataPlay,
        *,
        runs: range,
        agents: int,
        first_round: int,
        points: Sequence[int],
    ) -> None:
        self._kernels, self._rule, self._runs, self._agents = kernels, rule, runs, agents
        self._points = points
        self._radius = _radius(kernels.compiled.Radius, rule)
        self._trigger = rule.trigger
        dim = kernels.world.dim
        self.next_round: Ints = np.full(len(runs), first_round, dtype=np.int64)
        self.regret: Array = np.zeros((len(runs), len(points)))
        self._states: list[Any] = [None] * len(runs)
        prior = np.tile(rule.prior * np.eye(dim), (len(runs), 1, 1))
        self.restart(np.arange(len(runs)), prior, np.zeros((len(runs), dim)))

    def advance(self, rounds: Ints) -> Ints:
        asked = []
        for place, run in enumerate(self._runs):
            if rounds[place]:
                found = self._kernels.compiled.own_data_steps(
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
                    **self._kernels.common,
                )
                self.next_round[place] += found.rounds
                self.regret[place] += found.regret.sum(axis=(0, 1))
                asked += [place] * found.asked
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


def _radius(make: Any, rule: OwnDataPlay) -> Any:
    """β = σ√max(A + log det V, 0) + constant, and b, of either bound."""
    bound, problem = rule.bound, rule.bound.problem
    if isinstance(bound, PaperBound):
        union = 2.0 * math.log(2.0 * bound.agents * bound.releases / bound.alpha)
        logarithm = union - problem.dim * math.log(bound.rho_min)
        constant, euclidean = problem.parameter_bound * bound.root_rho_max + bound.kappa, 0.0
    else:
        logarithm = 2.0 * math.log(1.0 / bound.alpha) - problem.dim * math.log(bound.regularizer)
        constant, euclidean = 0.0, bound.regularizer * problem.parameter_bound
    return make(problem.noise_scale, logarithm, constant, euclidean)

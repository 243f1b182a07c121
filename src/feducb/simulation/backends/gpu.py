"""CUDA kernels, through CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.agent import OwnDataPlay
from feducb.core.confidence import Belief
from feducb.environments.synthetic import PaperEnvironment
from feducb.simulation.backends.base import OwnPlay, Sums
from feducb.simulation.backends.cpu import kernels_refusal
from feducb.simulation.backends.federation import play_teams
from feducb.simulation.backends.gpu_kernels import (
    LARGEST_DIM,
    GpuKernels,
    OwnDataRuns,
    OwnDataSettings,
    missing_gpu,
)
from feducb.simulation.checkpoint import Checkpoint
from feducb.simulation.plan import Plan
from feducb.simulation.reference import BlockResult

__all__ = ["DeviceKernels", "GpuBackend"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = (256, 65_536)  # rounds played at once where any of them may turn out to have been the last


class GpuBackend:
    """One NVIDIA GPU; the ``gpu`` extra brings CuPy, which is imported here and nowhere else.

    Attributes:
        defer: whether candidates that cannot be chosen are left undrawn; changes nothing but the time.
    """

    name = "gpu"

    def __init__(self, *, defer: bool = True) -> None:
        self.defer = defer

    def refusal(self, plan: Plan) -> str | None:
        """No GPU, too large a dimension, or what `kernels_refusal` says."""
        if plan.problem.dim > LARGEST_DIM:
            return f"d is above {LARGEST_DIM}"
        return kernels_refusal(plan) or missing_gpu()

    def play(
        self, plan: Plan, *, threads: int, progress: Callable[[int], None], checkpoint: Checkpoint | None
    ) -> list[BlockResult]:
        """All runs of each team; ``threads`` is for processors."""
        kernels = DeviceKernels(plan, defer=self.defer)
        return play_teams(plan, kernels, progress=progress, checkpoint=checkpoint)


class DeviceKernels:
    """`gpu_kernels` for one plan."""

    work_at_once = 4e12  # agent-steps × K × d: a few seconds

    @property
    def steps_at_once(self) -> int:
        """Fewer where a step is more work."""
        return max(1, int(self.work_at_once / (self._compiled.arms * self._compiled.dim)))

    def __init__(self, plan: Plan, *, defer: bool) -> None:
        assert isinstance(plan.environment, PaperEnvironment)
        self._compiled = GpuKernels(plan.environment, seed=plan.seed)
        self._exploration, self._defer = plan.exploration, defer

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
        found = self._compiled.fixed_epoch(
            belief,
            runs=runs,
            agents=agents,
            first_round=first_round,
            rounds=rounds,
            checkpoints=points,
            defer=self._defer,
        )
        return Sums(found.gram, found.moment, found.regret)

    def own(
        self, rule: OwnDataPlay, *, runs: range, agents: int, first_round: int, points: Sequence[int]
    ) -> OwnPlay:
        """Agents that take their own records in at once."""
        return _OwnRuns(
            self._compiled,
            rule,
            self._exploration,
            runs=runs,
            agents=agents,
            first=first_round,
            points=points,
        )


class _OwnRuns:
    """`OwnDataRuns` as an `OwnPlay`."""

    def __init__(
        self,
        kernels: GpuKernels,
        rule: OwnDataPlay,
        exploration: float,
        *,
        runs: range,
        agents: int,
        first: int,
        points: Sequence[int],
    ) -> None:
        settings = OwnDataSettings.of(rule, exploration=exploration)
        self._runs = OwnDataRuns(
            kernels, settings, runs=runs, agents=agents, checkpoints=points, prior=rule.prior
        )
        self._runs.next_round[:] = first
        self._chunked = settings.threshold is not None

    @property
    def next_round(self) -> Ints:
        return self._runs.next_round.copy()

    @property
    def regret(self) -> Array:
        return self._runs.regret

    def advance(self, rounds: Ints) -> Ints:
        if self._chunked:  # what is played beyond a trigger is played in vain
            chunk = np.clip(self._runs.waited // 16, *_CHUNK)
            rounds = np.minimum(rounds, chunk)
        return self._runs.advance(rounds)

    def pending(self, places: Ints) -> tuple[Array, Array]:
        gram, moment = self._runs.pending(places)
        return gram.sum(axis=1), moment.sum(axis=1)

    def restart(self, places: Ints, gram: Array, moment: Array) -> None:
        self._runs.restart(places, gram, moment)

    def dump(self) -> object:
        return self._runs.dump()

    def load(self, state: Any) -> None:
        self._runs.load(state)

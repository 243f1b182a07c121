"""CUDA kernels, through CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.models.play import OwnDataPlay
from feducb.simulation.backends.backend import Kernels, OwnPlay, Stretch, Sums
from feducb.simulation.backends.gpu_kernels import (
    LARGEST_ARMS,
    LARGEST_DIM,
    GpuKernels,
    OwnDataRuns,
    OwnDataSettings,
    missing_gpu,
)
from feducb.simulation.backends.teams import KernelsBackend
from feducb.simulation.plan import Plan
from feducb.types import Belief
from feducb.worlds.synthetic import PaperEnvironment

__all__ = ["DeviceKernels", "GpuBackend"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = (256, 65_536)  # rounds played at once where any of them may turn out to have been the last


class GpuBackend(KernelsBackend):
    """One NVIDIA GPU; the ``gpu`` extra brings CuPy."""

    name = "gpu"

    def missing(self, plan: Plan) -> str | None:
        """Room for the problem, or a GPU, if one is."""
        if plan.problem.dim > LARGEST_DIM:
            return f"d is above {LARGEST_DIM}"
        if plan.environment.arms > LARGEST_ARMS:
            return f"K is above {LARGEST_ARMS:,}"
        return missing_gpu()

    def kernels(self, plan: Plan, *, threads: int) -> Kernels:
        """CUDA kernels; ``threads`` is for processors."""
        return DeviceKernels(plan, defer=self.defer)


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

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        """Rounds in which nobody learns."""
        played = self._compiled.fixed_epoch(
            belief,
            runs=stretch.runs,
            agents=stretch.agents,
            first_round=stretch.first_round,
            rounds=rounds,
            checkpoints=list(stretch.points),
            defer=self._defer,
        )
        return Sums(played.gram, played.moment, played.regret)

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        """Agents that take their own records in at once."""
        return _OwnRuns(self._compiled, rule, stretch, exploration=self._exploration)


class _OwnRuns:
    """`OwnDataRuns` as an `OwnPlay`."""

    def __init__(
        self, kernels: GpuKernels, rule: OwnDataPlay, stretch: Stretch, *, exploration: float
    ) -> None:
        settings = OwnDataSettings.of(rule, exploration=exploration)
        self._runs = OwnDataRuns(
            kernels,
            settings,
            runs=stretch.runs,
            agents=stretch.agents,
            checkpoints=list(stretch.points),
            prior=rule.prior,
        )
        self._runs.next_round[:] = stretch.first_round
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

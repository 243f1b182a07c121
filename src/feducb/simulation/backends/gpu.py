"""CUDA kernels, through CuPy."""

from __future__ import annotations

import numpy as np

from feducb.models.play import OwnDataPlay
from feducb.simulation.backends.backend import Ints, Kernels, OwnPlay, Stretch, Sums
from feducb.simulation.backends.gpu_kernels import (
    LARGEST_ARMS,
    LARGEST_DIM,
    GpuKernels,
    OwnDataRuns,
    missing_gpu,
)
from feducb.simulation.backends.teams import KernelsBackend
from feducb.simulation.plan import Plan
from feducb.types import Array, Belief
from feducb.worlds.synthetic import PaperEnvironment

__all__ = ["DeviceKernels", "GpuBackend"]

_CHUNK = (256, 65_536)  # rounds played at once where any of them may turn out to have been the last


class GpuBackend(KernelsBackend):
    """One NVIDIA GPU; the ``gpu`` extra brings CuPy."""

    name = "gpu"

    def refusal(self, plan: Plan) -> str | None:
        """Why this plan cannot be played here: also for want of room for the problem, or of a GPU."""
        if (reason := super().refusal(plan)) is not None:
            return reason
        if plan.problem.dim > LARGEST_DIM:
            return f"d is above {LARGEST_DIM}"
        if plan.environment.arms > LARGEST_ARMS:
            return f"K is above {LARGEST_ARMS:,}"
        return missing_gpu()

    def kernels(self, plan: Plan, *, threads: int) -> Kernels:
        """CUDA kernels; ``threads`` is for processors."""
        return DeviceKernels(plan, defer=self.defer)


class DeviceKernels(GpuKernels):
    """`GpuKernels` for one plan."""

    work_at_once = 4e12

    def __init__(self, plan: Plan, *, defer: bool) -> None:
        assert isinstance(plan.environment, PaperEnvironment)
        super().__init__(plan.environment, seed=plan.seed)
        self._exploration, self._full, self._defer = plan.exploration, plan.full, defer

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        """Rounds in which nobody learns."""
        return self.fixed_epoch(belief, stretch, rounds, full=self._full, defer=self._defer)

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        """Agents that take their own records in at once."""
        return _OwnRuns(self, rule, stretch, exploration=self._exploration)


class _OwnRuns(OwnDataRuns):
    """`OwnDataRuns` as the protocol wants them: in chunks, and summed over agents."""

    def advance(self, rounds: Ints) -> Ints:
        if self.watched:  # what is played beyond a trigger is played in vain
            rounds = np.minimum(rounds, np.clip(self.waited // 16, *_CHUNK))
        return super().advance(rounds)

    def pending(self, places: Ints) -> tuple[Array, Array]:
        gram, moment = super().pending(places)
        return gram.sum(axis=1), moment.sum(axis=1)

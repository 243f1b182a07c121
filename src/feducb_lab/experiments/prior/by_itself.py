"""Players that the simulator does not know: their runs, and a result like that of `feducb.simulate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from feducb.simulation.reference import checkpoints
from feducb.simulation.results import SimulationResult
from feducb.types import Array
from feducb.worlds.streams import Streams

__all__ = ["Lasting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lasting:
    """How many play, among how many actions, how long and how often; as in a setting of `feducb.simulate`."""

    agents: int
    dim: int
    arms: int
    horizon: int
    runs: int
    seed: int = 0
    threads: int | None = None
    backend: str = ""  # not used: these players are written in numpy

    def play(
        self, run: Callable[[Streams, int], Array], ends: Sequence[int], *, privacy: dict[str, Any]
    ) -> SimulationResult:
        """All runs.

        Args:
            run: (streams, number) → (T,), what the average agent loses in each round.
            ends: rounds after which something is told.
            privacy: what is promised.
        """
        started, streams, points = time.perf_counter(), Streams(self.seed), checkpoints(self.horizon)
        with ThreadPoolExecutor(self.threads or 1) as pool:
            lost = np.array(list(pool.map(lambda number: run(streams, number), range(self.runs))))
        seconds = time.perf_counter() - started
        return SimulationResult(
            rounds=points,
            regret=np.cumsum(lost, axis=1)[:, points - 1],
            release_rounds=(tuple(ends),) * self.runs,
            releases=float(len(ends)),
            messages=2.0 * self.agents * len(ends),
            bytes=0.0,
            seconds=seconds,
            agent_steps_per_second=self.runs * self.agents * self.horizon / seconds,
            config=asdict(self) | {"backend": "numpy"},
            privacy={"holds": True} | privacy,
            theory=None,
        )

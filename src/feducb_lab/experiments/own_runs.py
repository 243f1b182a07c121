"""Own play, run by run: also among others who lie about what they saw."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from feducb.models.joint import Others
from feducb.models.play import JointPlay, Knowledge
from feducb.simulation.runner import simulate
from feducb.types import Array, ReleasedSum

__all__ = ["LIES", "lied_to", "play_runs"]

Lie = Callable[[Array], Array]

LIES: dict[str, Lie] = {  # of the moment
    "the opposite": lambda moment: -moment,
    "another θ": lambda moment: np.roll(moment, 1, axis=-1),
    "nothing gained": np.zeros_like,
    "half of it": lambda moment: 0.5 * moment,
}


def play_runs(
    *, runs: int, seed: int, backend: str, threads: int | None, lie: str | None = None, **setting: Any
) -> dict[str, Any]:
    """Runs of one agent and setting, each with a seed of its own, so that each can be looked at by itself.

    Args:
        runs: how many.
        seed: of the first; the next has the next.
        backend: as of `simulate`.
        threads: how many processes play at the same time; as many as there are processors if None.
        lie: what the others say in place of what they saw, one of `LIES`: every agent is the honest one.
        setting: keywords of `simulate`.
    """
    play = partial(_play, {**setting, "backend": backend, "runs": 1, "threads": 1}, lie)
    seeds = range(seed, seed + runs)
    processes = min(runs, threads or os.cpu_count() or 1)
    if processes == 1:
        found = list(map(play, seeds))
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(play, seeds))
    regrets = np.array([regret for regret, _ in found])
    error = float(regrets.std(ddof=1) / len(regrets) ** 0.5) if runs > 1 else None
    rounds = found[0][1]
    return {
        "per_agent_regret": {"mean": float(regrets.mean()), "stderr": error},
        "finals": regrets.tolist(),
        "releases": len(rounds),
        "release_rounds": rounds,
        "curve": [],
    }


def _play(setting: dict[str, Any], lie: str | None, seed: int) -> tuple[float, list[int]]:
    if lie is None:
        result = simulate(**setting, seed=seed)
    else:
        with mock.patch.object(JointPlay, "absorb", lied_to(LIES[lie])):
            result = simulate(**setting, seed=seed)
    return float(result.mean), list(result.release_rounds[0])


def lied_to(lie: Lie) -> Callable[[JointPlay, Knowledge, ReleasedSum], Knowledge]:
    """`JointPlay.absorb`, of sums in which the others lie."""
    absorb = JointPlay.absorb

    def hear(self: JointPlay, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        if total.number < self.last:  # what one honest agent adds to the sum does not matter
            return absorb(self, knowledge, replace(total, moment=lie(total.moment)))
        own = knowledge.sums
        assert own is not None
        gram, moment = total.gram[..., None, :, :] - own.gram, total.moment[..., None, :] - own.moment
        return self._read(replace(knowledge, others=Others.of(gram, lie(moment))))

    return hear

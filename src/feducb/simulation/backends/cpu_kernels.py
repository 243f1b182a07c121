"""`PaperEnvironment` simulated by compiled loops: the reference's law, not its random numbers.

`fixed_epoch` plays rounds in which nobody learns, `own_data_steps` agents that take in their own records at
once. What they draw and how they score can be looked at with `draw_arms` and `score_actions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from feducb.simulation.backends.epochs import BeliefParts, EpochResult, fixed_epoch
from feducb.simulation.backends.own_data import (
    OwnDataResult,
    OwnDataState,
    Radius,
    own_data,
    own_data_steps,
)
from feducb.simulation.backends.pruning import align
from feducb.simulation.backends.tiles import (
    LANES,
    MEAN,
    SCORE,
    World,
    draw,
    padded,
    score,
    score_dense,
    scratch,
)

__all__ = [
    "BeliefParts",
    "EpochResult",
    "OwnDataResult",
    "OwnDataState",
    "Radius",
    "World",
    "draw_arms",
    "fixed_epoch",
    "own_data",
    "own_data_steps",
    "score_actions",
]

Array = NDArray[np.float64]

_from_python = njit(error_model="numpy")


@_from_python
def _draw(tile: Any, sheet: Any, counters: Any, agent: Any, seed: Any, run: Any, world: World) -> None:
    draw(tile, sheet, counters, LANES, agent, seed, run, world)


@_from_python
def _score(tile: Any, sheet: Any, dim: int, theta: Any, cross: Any, values: Any, widths: Any) -> None:
    score(tile, sheet, LANES, dim, theta, cross, values, widths)


@_from_python
def _score_dense(tile: Any, sheet: Any, dim: int, theta: Any, inverse: Any, widths: Any) -> None:
    score_dense(tile, sheet, LANES, dim, theta, inverse, widths[0], widths[1])


def draw_arms(
    world: World, *, seed: int, run: int, agent: int, first_round: int, rounds: int
) -> tuple[Array, Array]:
    """The candidates that the kernels draw: actions (rounds, K, d) and mean rewards (rounds, K).

    `fixed_epoch` turns them by its belief's frame (`pruning.align`).
    """
    count, dim, space = rounds * world.arms, world.dim, scratch(world.dim)
    key = np.uint32(agent), np.uint32(seed), np.uint32(run)
    actions, means = np.empty((count, dim)), np.empty(count)
    for first in range(0, count, LANES):
        number = np.arange(first, first + LANES)
        space.counters[:LANES] = number % world.arms
        space.counters[LANES:] = first_round + number // world.arms
        _draw(space.tile, space.sheet, space.counters, *key, world)
        filled = min(LANES, count - first)
        actions[first : first + filled] = space.tile.reshape(-1, LANES)[:dim, :filled].T
        means[first : first + filled] = space.sheet[MEAN : MEAN + filled]
    return actions.reshape(rounds, world.arms, dim), means.reshape(rounds, world.arms)


def score_actions(
    belief: BeliefParts, actions: Array, *, exploration: float = 1.0, dense: bool = False
) -> Array:
    """Scores of given actions (n, d) under one belief, as in `fixed_epoch` or (``dense``) own-data play."""
    theta, inverse, ellipsoid, euclidean = belief
    count, dim = actions.shape
    widths = exploration * np.array([float(ellipsoid), float(euclidean)])
    beliefs = align(theta[None], inverse[None], widths[None])
    parts = [padded(part)[0] for part in (beliefs.theta, beliefs.cross, beliefs.values)]
    space, scores, single = scratch(dim), np.empty(count), widths.astype(np.float32)
    space.theta[:dim], space.inverse[:dim, :dim] = theta, inverse
    turned = actions if dense else actions @ beliefs.frame[0]
    for first in range(0, count, LANES):
        here = turned[first : first + LANES]
        space.tile.reshape(-1, LANES)[:dim, : len(here)] = here.T
        if dense:
            _score_dense(space.tile, space.sheet, dim, space.theta, space.inverse, single)
        else:
            _score(space.tile, space.sheet, dim, *parts, single)
        scores[first : first + LANES] = space.sheet[SCORE : SCORE + len(here)]
    return scores

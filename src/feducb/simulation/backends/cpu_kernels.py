"""What the compiled loops draw and how they score, to be looked at from Python."""

from __future__ import annotations

import numpy as np
from numba import njit

from feducb.simulation.backends.pruning import align
from feducb.simulation.backends.tiles import (
    BONUS,
    LANES,
    MEAN,
    SCORE,
    Whose,
    World,
    draw,
    draw_bonuses,
    score,
    score_dense,
    scratch,
)
from feducb.types import Array, Belief

__all__ = ["draw_arms", "draw_parts", "score_actions"]

# The same again, with a way in from Python.
_draw, _draw_bonuses, _score, _score_dense = (
    njit(error_model="numpy")(kernel.py_func) for kernel in (draw, draw_bonuses, score, score_dense)
)


def draw_arms(world: World, *, run: int, agent: int, first_round: int, rounds: int) -> tuple[Array, Array]:
    """The candidates that the kernels draw: actions (rounds, K, d) and mean rewards (rounds, K).

    `fixed_epoch` turns them by its belief's frame (`pruning.align`).
    """
    count, dim, candidates = rounds * world.arms, world.dim, scratch(world.dim).others
    actions, means = np.empty((count, dim)), np.empty(count)
    for first in range(0, count, LANES):
        number = np.arange(first, first + LANES)
        candidates.counters[:LANES] = number % world.arms
        candidates.counters[LANES:] = first_round + number // world.arms
        _draw(candidates, LANES, Whose(np.uint32(run), np.uint32(agent)), world)
        filled = min(LANES, count - first)
        actions[first : first + filled] = candidates.tile.reshape(-1, LANES)[:dim, :filled].T
        means[first : first + filled] = candidates.sheet[MEAN : MEAN + filled]
    return actions.reshape(rounds, world.arms, dim), means.reshape(rounds, world.arms)


def draw_parts(world: World, full: float, *, run: int, agent: int, first_round: int, rounds: int) -> Array:
    """(rounds,), the part of the bonus that the kernels play each round with (`Tempered`)."""
    candidates, parts = scratch(world.dim).chosen, np.empty(rounds)
    for first in range(0, rounds, LANES):
        candidates.counters[LANES:] = first_round + np.arange(first, first + LANES)
        _draw_bonuses(candidates, LANES, Whose(np.uint32(run), np.uint32(agent)), world, full)
        parts[first : first + LANES] = candidates.sheet[BONUS : BONUS + min(LANES, rounds - first)]
    return parts


def score_actions(belief: Belief, actions: Array, *, part: float = 1.0, dense: bool = False) -> Array:
    """Scores of given actions (n, d), as in `fixed_epoch` or (``dense``) own-data play.

    Args:
        belief: one, with a leading axis of length 1.
        actions: in the belief's coordinates.
        part: of the bonus, in `fixed_epoch`.
        dense: whether all of V⁻¹ is used.
    """
    count, dim = actions.shape
    aligned, space, scores = align(belief), scratch(dim), np.empty(count)
    beliefs = aligned.in_single_precision(np.zeros((1, 2)))
    space.others.sheet[BONUS : BONUS + LANES] = part
    space.theta[:dim], space.inverse[:dim, :dim] = belief.theta[0], belief.inverse[0]
    turned = actions if dense else actions @ aligned.frame[0]
    for first in range(0, count, LANES):
        here = turned[first : first + LANES]
        space.others.tile.reshape(-1, LANES)[:dim, : len(here)] = here.T
        if dense:
            _score_dense(space.others, LANES, dim, space.theta, space.inverse, aligned.widths[0])
        else:
            _score(space.others, LANES, dim, beliefs, 0)
        scores[first : first + LANES] = space.others.sheet[SCORE : SCORE + len(here)]
    return scores

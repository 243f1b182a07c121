"""Rounds in which nobody learns, as between two releases: every agent plays by a belief that stays as it is.

Candidate 0 of a visitor is drawn first. If it scores at least as high as any other can (`pruning`), the
others are not drawn: it is chosen either way. All random numbers are functions of (seed, run, agent, round),
so this leaves every number of the result as it is, and so do threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.simulation.backends.parallel import SOURCES, kept_on_disk, workers
from feducb.simulation.backends.pruning import Aligned, align, highest_scores, rounding
from feducb.simulation.backends.tiles import (
    BEST,
    INDEX,
    LANES,
    MEAN,
    REWARD,
    SCORE,
    SPARE,
    Scratch,
    World,
    add_records,
    compiled,
    draw,
    draw_coins,
    padded,
    pay,
    score,
    scratch,
    whole_vectors,
    written_out,
)

__all__ = ["BeliefParts", "EpochResult", "Rounds", "fixed_epoch", "rising_points"]

Array = NDArray[np.float64]
BeliefParts = tuple[Array, Array, Array, Array]
Rounds = Sequence[int] | NDArray[np.int64]
Word = Any  # np.uint32

_PARALLEL_PARTS = 64  # an epoch of few agents is cut along its rounds, into as many parts on any machine …
_SHORTEST_PART = 4096  # … but not into shorter ones
_WORTH_THREADS = 2000  # rounds

_u32, _f32 = np.uint32, np.float32


class _Beliefs(NamedTuple):
    """`Aligned` beliefs in single precision, zeros behind each row, and bounds on the scores of others."""

    theta: NDArray[np.float32]
    cross: NDArray[np.float32]
    values: NDArray[np.float32]
    widths: NDArray[np.float32]
    bounds: Array


@compiled
def _keep_best(
    chosen: Any, record: Any, at: int, tile: Any, sheet: Any, counters: Any, start: int, stop: int, dim: int
) -> None:
    """Put the best of columns start … stop − 1 in the place of the record ``at`` if it scores higher."""
    best, highest, best_mean = -1, record[SCORE + at], record[BEST + at]
    for j in range(start, stop):
        best_mean = max(best_mean, sheet[MEAN + j])
        if sheet[SCORE + j] > highest:
            best, highest = j, sheet[SCORE + j]
    record[BEST + at] = best_mean
    if best >= 0:
        record[SCORE + at], record[MEAN + at] = highest, sheet[MEAN + best]
        record[INDEX + at] = _f32(counters[best])
        for row in range(dim):
            chosen[row * LANES + at] = tile[row * LANES + best]


@written_out
def _look_at_others(
    space: Scratch,
    count: int,
    agent: Word,
    seed: Word,
    run: Word,
    world: World,
    beliefs: _Beliefs,
    which: int,
) -> None:
    """Draw candidates 1 … K − 1 of the ``count`` rounds that wait, and put the best in candidate 0's place.

    Candidates of several rounds share a tile, so that no lane is idle.
    """
    chosen, record, visits, tile, sheet, counters, waiting = space[:7]
    others = world.arms - 1
    # A tile takes the next LANES candidates of the list "all others of all waiting rounds": it may begin in
    # the middle of one round and end in the middle of another.
    for first in range(0, count * others, LANES):
        filled = min(LANES, count * others - first)
        start: Any = np.int64(0)  # a plain 0 would be a type of its own
        while start < filled:
            at, number = waiting[(first + start) // others], (first + start) % others
            stop = min(filled, start + others - number)
            for j in range(start, stop):
                counters[j], counters[LANES + j] = _u32(1 + number + j - start), visits[LANES + at]
            start = stop
        lanes = whole_vectors(filled)
        draw(tile, sheet, counters, lanes, agent, seed, run, world)
        theta, cross, values = beliefs.theta[which], beliefs.cross[which], beliefs.values[which]
        score(tile, sheet, lanes, world.dim, theta, cross, values, beliefs.widths[which])
        # The same pieces again: each is compared with the best that its round has so far, so ties go to the
        # candidate with the lowest number, as in the reference's argmax.
        start = np.int64(0)
        while start < filled:
            at, number = waiting[(first + start) // others], (first + start) % others
            stop = min(filled, start + others - number)
            _keep_best(chosen, record, at, tile, sheet, counters, start, stop, world.dim)
            start = stop


@compiled
def _keep_trace(trace: Any, start: int, count: int, chosen: Any, record: Any, dim: int) -> None:
    for j in range(count):
        trace[start + j, 0] = record[INDEX + j]
        trace[start + j, 1] = record[MEAN + j]
        trace[start + j, 2] = record[REWARD + j]
        for row in range(dim):
            trace[start + j, 3 + row] = chosen[row * LANES + j]


def _kernel(sources: int) -> Any:
    @kept_on_disk
    def run_epochs(  # noqa: PLR0912
        world: World,
        separate: bool,
        known: bool,
        beliefs: _Beliefs,
        points: Any,
        seed: int,
        tasks: Any,
        first: int,
        last: int,
        gram: Any,
        moment: Any,
        regret: Any,
        trace: Any,
        looked: Any,
        space: Scratch,
    ) -> int:
        """Play some tasks, one row each: run, agent, belief, first round, rounds."""
        dim, word = world.dim, _u32(seed)
        chosen, record, visits, _, _, counters, waiting, tries, wide, sums = space[:10]
        sums_moment = space.vectors[0]
        for task in range(first, last):
            run, agent, which = _u32(tasks[task, 0]), _u32(tasks[task, 1]), tasks[task, 2]
            first_round, rounds, point, lost = tasks[task, 3], tasks[task, 4], 0, 0.0
            theta, cross, values = beliefs.theta[which], beliefs.cross[which], beliefs.values[which]
            for row in range(dim):
                sums_moment[row] = 0.0
                for column in range(dim + SPARE):
                    sums[row, column] = 0.0
            for start in range(0, rounds, LANES):
                count = min(LANES, rounds - start)
                lanes = whole_vectors(count)
                for j in range(lanes):
                    visits[j], visits[LANES + j] = _u32(0), _u32(first_round + start + j)
                    record[INDEX + j] = record[BEST + j] = _f32(0.0)
                # Alg. 1, l. 5 to 8: S does not change between releases, and l. 4's U is left out (differs
                # from the paper), so that LANES rounds of an agent can be decided side by side.
                if known:
                    draw(chosen, record, visits, lanes, agent, word, run, world)
                    score(chosen, record, lanes, dim, theta, cross, values, beliefs.widths[which])
                    unsettled = np.int64(0)
                    for j in range(count):
                        record[BEST + j] = record[MEAN + j]
                        # Not `<=`: the bound is one on all others' scores, and on a tie candidate 0 wins
                        # either way.
                        if record[SCORE + j] < beliefs.bounds[which]:
                            waiting[unsettled] = j
                            unsettled += 1
                    _look_at_others(space, unsettled, agent, word, run, world, beliefs, which)
                    looked[task] += unsettled
                else:
                    # Nothing is known: the choice is uniform, but regret needs the visitor's best mean. Only
                    # where bands overlap can it be another than candidate 0's.
                    for number in range(1 if separate else world.arms):
                        for j in range(lanes):
                            visits[j] = _u32(number)
                        draw(chosen, record, visits, lanes, agent, word, run, world)
                        for j in range(lanes):
                            record[BEST + j] = max(record[BEST + j], record[MEAN + j])
                    draw_coins(record, visits, lanes, agent, word, run, world.arms)
                    draw(chosen, record, visits, lanes, agent, word, run, world)
                # Alg. 1, l. 9 and 11: the reward, and the record that the next release is made of.
                pay(record, visits, count, agent, word, run, waiting, counters, tries)
                add_records(chosen, record, wide, count, dim, sums, sums_moment)
                for j in range(count):
                    # Means are float32, their differences are added in float64, and put down once per
                    # interval of the curve.
                    while points[point] < first_round + start + j:
                        regret[task, point] += lost
                        point, lost = point + 1, 0.0
                    lost += np.float64(record[BEST + j]) - np.float64(record[MEAN + j])
                if len(trace) > 0:
                    _keep_trace(trace[task], start, count, chosen, record, dim)
            regret[task, point] += lost
            # `add_records` fills the diagonal and above; some columns beyond d hold what nobody reads.
            for row in range(dim):
                moment[task, row] = sums_moment[row]
                for column in range(row, dim):
                    gram[task, row, column] = gram[task, column, row] = sums[row, column]
        return sources

    return run_epochs


_run_epochs = _kernel(SOURCES)


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What some rounds came to.

    Attributes:
        gram: (runs, agents, d, d), Σ x xᵀ of the chosen actions.
        moment: (runs, agents, d), Σ y x.
        regret: (runs, agents, points), what was lost in the rounds up to each point and after the one before.
        drawn: (runs, agents), in how many rounds all candidates were drawn.
        trace: (runs, agents, rounds, 3 + d), index, mean, reward and action of each choice, if asked for.
    """

    gram: Array
    moment: Array
    regret: Array
    drawn: NDArray[np.int64]
    trace: Array | None


def fixed_epoch(
    world: World,
    belief: BeliefParts | None,
    *,
    seed: int,
    runs: Sequence[int],
    agents: int,
    first_round: int,
    rounds: int,
    points: Rounds,
    exploration: float = 1.0,
    defer: bool = True,
    traced: bool = False,
    threads: int = 1,
) -> EpochResult:
    """Play rounds in which nobody learns. Coordinates are such that θ* = ‖θ*‖ e₁.

    Args:
        world: the environment.
        belief: θ̂ (..., d), V⁻¹ (..., d, d), β (...) and b (...), where ... broadcasts against (runs, agents);
            None while nothing is known: then actions are drawn uniformly.
        seed: of all random numbers, with the runs' and agents' numbers and the rounds'.
        runs: the runs' numbers.
        agents: M.
        first_round: the number of the first round.
        rounds: how many rounds.
        points: rounds at which the regret curve is read, rising, the last one not before the last round.
        exploration: scales β and b.
        defer: whether to skip candidates that cannot be chosen; changes nothing but the time.
        traced: whether to keep every choice.
        threads: worker threads; changes nothing but the time.
    """
    world, leading, pairs, dim = world.plain(), (len(runs), agents), len(runs) * agents, world.dim
    points = rising_points(points, first_round + rounds - 1)
    held = None if belief is None else _hold(belief, exploration, leading, dim)
    beliefs = _single_precision(world, held, defer)
    parts = 1
    # Parts follow from the numbers alone, never from the threads at hand: sums in floating point depend on
    # how they are cut, and the same command must give the same digits on every machine.
    if not traced and pairs < _PARALLEL_PARTS:
        parts = max(1, min(-(-_PARALLEL_PARTS // pairs), rounds // _SHORTEST_PART))
    cuts = np.array([rounds * part // parts for part in range(parts + 1)])
    table = np.empty((*leading, parts, 5), np.int64)
    table[..., 0] = np.asarray(runs)[:, None, None]
    table[..., 1] = np.arange(agents)[:, None]
    table[..., 2] = 0 if held is None else held.which[..., None]
    table[..., 3], table[..., 4] = first_round + cuts[:-1], np.diff(cuts)
    tasks = table.reshape(-1, 5)
    gram, moment = np.zeros((len(tasks), dim, dim)), np.zeros((len(tasks), dim))
    regret, drawn = np.zeros((len(tasks), len(points))), np.zeros(len(tasks), np.int64)
    trace = np.zeros((pairs if traced else 0, rounds, 3 + dim))

    def work(first: int, last: int) -> None:
        _run_epochs(
            world, world.separate, belief is not None, beliefs, points, seed, tasks, first, last,
            gram, moment, regret, trace, drawn, scratch(dim),
        )  # fmt: skip

    with workers(threads if pairs * rounds >= _WORTH_THREADS else 1) as spread:
        spread(len(tasks), work)
    # In a fixed order, whichever thread was first.
    gram = gram.reshape(*leading, parts, dim, dim).sum(axis=2)
    moment = moment.reshape(*leading, parts, dim).sum(axis=2)
    # Kernels played in the frame that makes V⁻¹ an arrowhead; sums must be in one frame to be added over
    # agents.
    if held is not None:
        frame = held.beliefs.frame[held.which]
        gram = frame @ gram @ np.swapaxes(frame, -1, -2)
        moment = (frame @ moment[..., None])[..., 0]
        if traced:
            trace[..., 3:] = trace[..., 3:] @ np.swapaxes(frame.reshape(-1, dim, dim), -1, -2)
    return EpochResult(
        gram=gram,
        moment=moment,
        regret=regret.reshape(*leading, parts, len(points)).sum(axis=2),
        drawn=drawn.reshape(*leading, parts).sum(axis=2),
        trace=trace.reshape(*leading, rounds, 3 + dim) if traced else None,
    )


def rising_points(points: Rounds, last_round: int) -> NDArray[np.int64]:
    """Points at which regret is read, checked: kernels look for the next one without an eye on the end."""
    checked = np.asarray(points, np.int64)
    if not len(checked) or checked[-1] < last_round or np.any(np.diff(checked) <= 0):
        raise ValueError(f"points must rise and reach the last round, {last_round}")
    return checked


class _Held(NamedTuple):
    """Different beliefs, and which of them each (run, agent) holds."""

    beliefs: Aligned
    which: NDArray[np.int64]


def _hold(belief: BeliefParts, exploration: float, leading: tuple[int, int], dim: int) -> _Held:
    theta, inverse, ellipsoid, euclidean = (np.asarray(part, np.float64) for part in belief)
    shape = np.broadcast_shapes(theta.shape[:-1], inverse.shape[:-2], ellipsoid.shape, euclidean.shape)
    widths = np.stack([np.broadcast_to(part, shape) for part in (ellipsoid, euclidean)], axis=-1)
    count = math.prod(shape)
    beliefs = align(
        np.broadcast_to(theta, (*shape, dim)).reshape(count, dim),
        np.broadcast_to(inverse, (*shape, dim, dim)).reshape(count, dim, dim),
        exploration * widths.reshape(count, 2),
    )
    return _Held(beliefs, np.broadcast_to(np.arange(count).reshape(shape), leading))


def _single_precision(world: World, held: _Held | None, defer: bool) -> _Beliefs:
    if held is None:
        nothing = np.zeros((1, 0), np.float32)
        return _Beliefs(nothing, nothing, nothing, nothing, np.zeros(1))
    beliefs = held.beliefs
    theta, cross, values = (padded(part) for part in (beliefs.theta, beliefs.cross, beliefs.values))
    bounds = highest_scores(world, beliefs, rounding(world.dim)) if defer else np.full(len(theta), math.inf)
    return _Beliefs(theta, cross, values, beliefs.widths.astype(np.float32), bounds)

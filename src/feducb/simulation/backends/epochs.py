"""Rounds in which nobody learns, as between two releases: every agent plays by a belief that stays as it is.

Candidate 0 of a visitor is drawn first, after the coin that says with which part of the bonus candidates are
scored (`Tempered`; `Optimistic` needs none). If it scores at least as high as any other can (`pruning`), the
others are not drawn: it is chosen either way. All random numbers are functions of (seed, run, agent, round),
so this leaves every number of the result as it is, and so do threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.simulation.backends.backend import Stretch, Sums
from feducb.simulation.backends.parallel import SOURCES, kept_on_disk, workers
from feducb.simulation.backends.pruning import align, bound_lines, rounding
from feducb.simulation.backends.tiles import (
    BEST,
    BONUS,
    INDEX,
    LANES,
    MEAN,
    REWARD,
    SCORE,
    SPARE,
    Beliefs,
    Candidates,
    Scratch,
    Whose,
    World,
    add_records,
    compiled,
    draw,
    draw_bonuses,
    draw_coins,
    pay,
    score,
    scratch,
    whole_vectors,
    written_out,
)
from feducb.types import Belief

__all__ = ["fixed_epoch", "rising_points"]

_PARALLEL_PARTS = 64  # an epoch of few agents is cut along its rounds, into as many parts on any machine …
_SHORTEST_PART = 4096  # … but not into shorter ones
_WORTH_THREADS = 2000  # rounds
_WORTH_A_BOUND = 2**13  # candidates of a belief: fewer are drawn in less time than a bound takes

_u32, _f32 = np.uint32, np.float32


class _Work(NamedTuple):
    """What is to be played, a row for each task, and room for what it comes to.

    Attributes:
        tasks: run, agent, belief, first round, rounds.
        points: rounds at which regret is read.
        gram, moment, squares, regret, drawn, trace: as in `Sums`; no trace if none is asked for.
    """

    tasks: NDArray[np.int64]
    points: NDArray[np.int64]
    gram: NDArray[np.float64]
    moment: NDArray[np.float64]
    squares: NDArray[np.float64]
    regret: NDArray[np.float64]
    drawn: NDArray[np.int64]
    trace: NDArray[np.float64]


@compiled
def _keep_best(chosen: Candidates, at: int, others: Candidates, start: int, stop: int, dim: int) -> None:
    """Put the best of the others' columns start … stop − 1 in the place ``at`` if it scores higher."""
    (chosen_tile, record, _), (tile, sheet, counters) = chosen, others
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
            chosen_tile[row * LANES + at] = tile[row * LANES + best]


@written_out
def _look_at_others(
    space: Scratch, count: int, whose: Whose, world: World, beliefs: Beliefs, which: int
) -> None:
    """Draw candidates 1 … K − 1 of the ``count`` rounds that wait, and put the best in candidate 0's place.

    Candidates of several rounds share a tile, so that no lane is idle.
    """
    counters, visits, waiting = space.others.counters, space.chosen.counters, space.retries.waiting
    sheet, record, others = space.others.sheet, space.chosen.sheet, world.arms - 1
    # A tile takes the next LANES candidates of the list "all others of all waiting rounds": it may begin in
    # the middle of one round and end in the middle of another.
    for first in range(0, count * others, LANES):
        filled = min(LANES, count * others - first)
        start: Any = np.int64(0)  # a plain 0 would be a type of its own
        while start < filled:
            at, number = waiting[(first + start) // others], (first + start) % others
            stop, bonus = min(filled, start + others - number), record[BONUS + at]
            for j in range(start, stop):
                counters[j], counters[LANES + j] = _u32(1 + number + j - start), visits[LANES + at]
                sheet[BONUS + j] = bonus
            start = stop
        lanes = whole_vectors(filled)
        draw(space.others, lanes, whose, world)
        score(space.others, lanes, world.dim, beliefs, which)
        # The same pieces again: each is compared with the best that its round has so far, so ties go to the
        # candidate with the lowest number, as in the reference's argmax.
        start = np.int64(0)
        while start < filled:
            at, number = waiting[(first + start) // others], (first + start) % others
            stop = min(filled, start + others - number)
            _keep_best(space.chosen, at, space.others, start, stop, world.dim)
            start = stop


@compiled
def _keep_trace(trace: Any, start: int, count: int, chosen: Candidates, dim: int) -> None:
    for j in range(count):
        trace[start + j, 0] = chosen.sheet[INDEX + j]
        trace[start + j, 1] = chosen.sheet[MEAN + j]
        trace[start + j, 2] = chosen.sheet[REWARD + j]
        for row in range(dim):
            trace[start + j, 3 + row] = chosen.tile[row * LANES + j]


def _kernel(sources: int) -> Any:
    @kept_on_disk
    def run_epochs(  # noqa: PLR0912
        world: World, beliefs: Beliefs, full: float, work: _Work, first: int, last: int, space: Scratch
    ) -> int:
        """Play some tasks; beliefs without coordinates are none."""
        dim, tasks, points = world.dim, work.tasks, work.points
        chosen, waiting, sums, sums_moment = space.chosen, space.retries.waiting, space.sums, space.vectors[0]
        tile, record, visits = chosen  # once: each look into a group of arrays counts references
        bounds, regret = beliefs.bounds, work.regret
        for task in range(first, last):
            whose, which = Whose(_u32(tasks[task, 0]), _u32(tasks[task, 1])), tasks[task, 2]
            first_round, rounds, point, lost = tasks[task, 3], tasks[task, 4], 0, 0.0
            floor, rise = bounds[which, 0], bounds[which, 1]
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
                if beliefs.theta.shape[1] > 0:
                    if full < 1.0:
                        draw_bonuses(chosen, lanes, whose, world, full)
                    draw(chosen, lanes, whose, world)
                    score(chosen, lanes, dim, beliefs, which)
                    unsettled = np.int64(0)
                    for j in range(count):
                        record[BEST + j] = record[MEAN + j]
                        bound = floor
                        if full < 1.0:
                            bound += rise * np.float64(record[BONUS + j])
                        # Not `<=`: the bound is one on all others' scores, and on a tie candidate 0 wins
                        # either way.
                        if record[SCORE + j] < bound:
                            waiting[unsettled] = j
                            unsettled += 1
                    _look_at_others(space, unsettled, whose, world, beliefs, which)
                    work.drawn[task] += unsettled
                else:
                    # Nothing is known: the choice is uniform, but regret needs the visitor's best mean. Only
                    # where bands overlap can it be another than candidate 0's.
                    for number in range(1 if world.others[1] <= world.best[0] else world.arms):
                        for j in range(lanes):
                            visits[j] = _u32(number)
                        draw(chosen, lanes, whose, world)
                        for j in range(lanes):
                            record[BEST + j] = max(record[BEST + j], record[MEAN + j])
                    draw_coins(chosen, lanes, whose, world)
                    draw(chosen, lanes, whose, world)
                # Alg. 1, l. 9 and 11: the reward, and the record that the next release is made of.
                pay(chosen, count, whose, world, space.retries)
                add_records(tile, record, space.wide, count, dim, sums, sums_moment)
                for j in range(count):
                    work.squares[task] += np.float64(record[REWARD + j]) ** 2
                    # Means are float32, their differences are added in float64, and put down once per
                    # interval of the curve.
                    while points[point] < first_round + start + j:
                        regret[task, point] += lost
                        point, lost = point + 1, 0.0
                    lost += np.float64(record[BEST + j]) - np.float64(record[MEAN + j])
                if len(work.trace) > 0:
                    _keep_trace(work.trace[task], start, count, chosen, dim)
            regret[task, point] += lost
            # `add_records` fills the diagonal and above; some columns beyond d hold what nobody reads.
            for row in range(dim):
                work.moment[task, row] = sums_moment[row]
                for column in range(row, dim):
                    work.gram[task, row, column] = work.gram[task, column, row] = sums[row, column]
        return sources

    return run_epochs


_run_epochs = _kernel(SOURCES)


def fixed_epoch(
    world: World,
    belief: Belief | None,
    stretch: Stretch,
    rounds: int,
    *,
    full: float = 1.0,
    defer: bool = True,
    traced: bool = False,
    threads: int = 1,
) -> Sums:
    """Play rounds in which nobody learns, for each agent. Coordinates are such that θ* = ‖θ*‖ e₁.

    Args:
        world: the environment.
        belief: leading axis (runs,), shared by a run's agents; None while nothing is known: then actions are
            drawn uniformly.
        stretch: who plays, and from when on.
        rounds: how many rounds.
        full: the chance of the whole bonus, else it is scaled by a coin (`Tempered`); 1 is `Optimistic`.
        defer: whether to skip candidates that cannot be chosen; changes nothing but the time.
        traced: whether to keep every choice.
        threads: worker threads; changes nothing but the time.
    """
    world, leading, dim = world.plain(), (len(stretch.runs), stretch.agents), world.dim
    pairs, first_round = math.prod(leading), stretch.first_round
    points = rising_points(stretch.points, first_round + rounds - 1)
    worth = stretch.agents * rounds * world.arms >= _WORTH_A_BOUND
    beliefs, frame = _single_precision(world, belief, full, defer and worth)
    parts = 1
    # Parts follow from the numbers alone, never from the threads at hand: sums in floating point depend on
    # how they are cut, and the same command must give the same digits on every machine.
    if not traced and pairs < _PARALLEL_PARTS:
        parts = max(1, min(-(-_PARALLEL_PARTS // pairs), rounds // _SHORTEST_PART))
    cuts = np.array([rounds * part // parts for part in range(parts + 1)])
    tasks = np.empty((*leading, parts, 5), np.int64)
    tasks[..., 0] = np.asarray(stretch.runs)[:, None, None]
    tasks[..., 1] = np.arange(stretch.agents)[:, None]
    tasks[..., 2] = 0 if belief is None else np.arange(len(stretch.runs))[:, None, None]
    tasks[..., 3], tasks[..., 4] = first_round + cuts[:-1], np.diff(cuts)
    count = pairs * parts
    work = _Work(
        tasks=tasks.reshape(-1, 5),
        points=points,
        gram=np.zeros((count, dim, dim)),
        moment=np.zeros((count, dim)),
        squares=np.zeros(count),
        regret=np.zeros((count, len(points))),
        drawn=np.zeros(count, np.int64),
        trace=np.zeros((pairs if traced else 0, rounds, 3 + dim)),
    )
    with workers(threads if pairs * rounds >= _WORTH_THREADS else 1) as spread:
        spread(count, lambda first, last: _run_epochs(world, beliefs, full, work, first, last, scratch(dim)))
    # In a fixed order, whichever thread was first.
    gram, moment, squares, regret, drawn = (
        part.reshape(*leading, parts, *part.shape[1:]).sum(axis=2)
        for part in (work.gram, work.moment, work.squares, work.regret, work.drawn)
    )
    trace = work.trace.reshape(*leading, rounds, 3 + dim) if traced else None
    # Kernels played in the frame that makes V⁻¹ an arrowhead; sums must be in one frame to be added over
    # agents.
    if frame is not None:
        back = np.swapaxes(frame, -1, -2)
        gram, moment = frame @ gram @ back, (frame @ moment[..., None])[..., 0]
        if trace is not None:
            trace[..., 3:] = trace[..., 3:] @ back
    return Sums(gram, moment, squares, regret, drawn, trace)


def rising_points(points: Sequence[int], last_round: int) -> NDArray[np.int64]:
    """Points at which regret is read, checked: kernels look for the next one without an eye on the end."""
    checked = np.asarray(points, np.int64)
    if not len(checked) or checked[-1] < last_round or np.any(np.diff(checked) <= 0):
        raise ValueError(f"points must rise and reach the last round, {last_round}")
    return checked


def _single_precision(
    world: World, belief: Belief | None, full: float, defer: bool
) -> tuple[Beliefs, NDArray[np.float64] | None]:
    """What kernels look at, and the frame that it is in, (runs, 1, d, d)."""
    if belief is None:
        nothing = np.zeros((1, 0), np.float32)
        return Beliefs(nothing, nothing, nothing, nothing, np.zeros((1, 2))), None
    aligned = align(belief)
    bounds = np.tile([math.inf, 0.0], (len(aligned.theta), 1))
    if defer:
        bounds = bound_lines(world, aligned, rounding(world.dim), full)
    return aligned.in_single_precision(bounds), aligned.frame[:, None]

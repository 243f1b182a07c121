"""Agents that act on S + U, the last released sum and their own records, which they take in at once.

So do each agent alone (S = ρI) and the paper's agents. As in `epochs`, candidates that cannot be chosen are
not drawn. All agents play until the first of them asks for a synchronisation: they play on without knowing
who will, and again, with the same random numbers, up to that round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.models.ridge import factorise
from feducb.simulation.backends.backend import OwnDataSettings, Stretch
from feducb.simulation.backends.epochs import rising_points
from feducb.simulation.backends.parallel import SOURCES, Spread, kept_on_disk, workers
from feducb.simulation.backends.pruning import align, highest_scores, rounding
from feducb.simulation.backends.tiles import (
    LANES,
    MEAN,
    REWARD,
    SCORE,
    Scratch,
    Whose,
    World,
    compiled,
    draw,
    pay,
    score_dense,
    scratch,
    summed,
    whole_vectors,
    written_out,
)
from feducb.types import Array, Belief

__all__ = ["OwnDataResult", "OwnDataState", "own_data", "own_data_steps"]

_LEG = 1024  # rounds between fresh factorisations, since rounding drifts …
_LATE_LEG = 8192  # … and as many later on
_FRESH_SHARE = 8  # ceilings are computed again when an eighth more rounds were waited
_FEWEST_AHEAD = 8  # rounds that are played without knowing who will ask
_ROUNDING_AGAIN = 1.01  # more than 1 + η: rounding of what has changed since a ceiling was computed

# Where a state keeps which matrix, vector and number of an agent: see `OwnDataState`. Working space has two
# vectors more.
_INVERSE, _GRAM, _GUARD = range(3)
_THETA, _MOMENT, _CEILING_THETA, _ACTION, _DIRECTION = range(5)
_LOG_DET, _GUARD_LOG_DET, _ANCHOR, _CEILING, _CEILING_WEIGHT, _CEILING_REACH = range(6)

_u32 = np.uint32


class _Leg(NamedTuple):
    """Rounds to play, by a row for each task, and room for what they come to.

    Attributes:
        first_round: the number of the first.
        rounds: how many.
        waited: how many were played since the last synchronisation.
        tasks: run and agent.
        points: rounds at which regret is read.
        matrices, vectors, numbers: as in `OwnDataState`; are brought up to date.
        regret, trace: as in `OwnDataResult`; no trace if none is asked for.
        counts: rounds played, in how many all candidates were drawn, whether the agent asked in the last.
    """

    first_round: int
    rounds: int
    waited: int
    tasks: NDArray[np.int64]
    points: NDArray[np.int64]
    matrices: Array
    vectors: Array
    numbers: Array
    regret: Array
    trace: Array
    counts: NDArray[np.int64]


@compiled
def _copy_rows(source: Any, target: Any) -> None:
    """Copy as many rows as both have, by loops: a slice would be an array to allocate."""
    for row in range(min(len(source), len(target))):
        for column in range(source.shape[1]):
            target[row, column] = source[row, column]


@compiled
def _copy(source: Any, target: Any) -> None:
    """Copy all matrices of a task."""
    for number in range(len(source)):
        _copy_rows(source[number], target[number])


@summed
def _turn(matrix: Any, vector: Any, result: Any) -> float:
    """Put matrix · vector into ``result``; return vectorᵀ · matrix · vector."""
    product = 0.0
    for row in range(len(vector)):
        total = 0.0
        for column in range(len(vector)):
            total += matrix[row, column] * vector[column]
        result[row] = total
        product += total * vector[row]
    return product


@compiled
def _shrink(inverse: Any, direction: Any, growth: float) -> None:
    """Sherman–Morrison: V⁻¹ ← V⁻¹ − V⁻¹x xᵀV⁻¹/(1 + xᵀV⁻¹x), given V⁻¹x and the denominator."""
    for row in range(len(direction)):
        scaled = direction[row] / growth
        for column in range(len(direction)):
            inverse[row, column] -= scaled * direction[column]


@compiled
def _take_in(matrices: Any, vectors: Any, growth: float, reward: float) -> None:
    """U ← U + x xᵀ, ū ← ū + y x (Alg. 1, l. 10); so θ̂ ← θ̂ + V⁻¹x (y − xᵀθ̂) with the new V."""
    gram, theta, moment = matrices[_GRAM], vectors[_THETA], vectors[_MOMENT]
    action, direction = vectors[_ACTION], vectors[_DIRECTION]
    error = reward
    for row in range(len(action)):
        error -= theta[row] * action[row]
    for row in range(len(action)):
        theta[row] += direction[row] / growth * error
        moment[row] += action[row] * reward
        for column in range(len(action)):
            gram[row, column] += action[row] * action[column]
    _shrink(matrices[_INVERSE], direction, growth)


@written_out
def _best_other(space: Scratch, world: World, whose: Whose, now: Any, widths: Any, best: Any) -> Any:
    """Look for a candidate that scores above the best one's, whose score and mean are given.

    Its action goes to the place of that one's.

    Returns:
        Its number, or 0 if there is none; its mean; and the highest of all means.
    """
    tile, sheet, counters = space.others
    action, theta, inverse = space.vectors[_ACTION], space.vectors[_THETA], space.matrices[_INVERSE]
    single_theta, single_inverse = space.theta, space.inverse
    dim, others = world.dim, world.arms - 1
    # Scores of candidates that are looked at in bulk may be in single precision: `_look_up` widens its bound
    # for that.
    for row in range(dim):
        single_theta[row] = theta[row]
        for column in range(dim):
            single_inverse[row, column] = inverse[row, column]
    highest, mean = best
    number, best_mean = 0, mean
    for first in range(0, others, LANES):
        filled = min(LANES, others - first)
        lanes = whole_vectors(filled)
        for j in range(lanes):
            counters[j], counters[LANES + j] = _u32(1 + first + j), now
        draw(space.others, lanes, whose, world)
        score_dense(space.others, lanes, dim, single_theta, single_inverse, widths)
        place = -1
        for j in range(filled):
            best_mean = max(best_mean, sheet[MEAN + j])
            # Strictly: the first of equals is kept, as argmax does.
            if sheet[SCORE + j] > highest:
                place, highest = j, np.float64(sheet[SCORE + j])
        if place >= 0:
            number, mean = 1 + first + place, sheet[MEAN + place]
            for row in range(dim):
                action[row] = tile[row * LANES + place]
    return number, mean, best_mean


def _kernel(sources: int) -> Any:  # noqa: PLR0915
    @kept_on_disk
    def run_own_data(  # noqa: PLR0912, PLR0915
        world: World, settings: OwnDataSettings, leg: _Leg, first: int, last: int, space: Scratch
    ) -> int:
        """Play some tasks, each up to and with the round in which it asks for a synchronisation."""
        dim, first_round, rounds, points = world.dim, leg.first_round, leg.rounds, leg.points
        matrices, vectors, numbers = leg.matrices, leg.vectors, leg.numbers
        exploration, trace, regret = settings.exploration, leg.trace, leg.regret
        chosen, others = space.chosen, space.others
        tile, record, visits = chosen  # once: each look into a group of arrays counts references
        inverse, guard = space.matrices[_INVERSE], space.matrices[_GUARD]
        theta, ceiling_theta = space.vectors[_THETA], space.vectors[_CEILING_THETA]
        action, direction = space.vectors[_ACTION], space.vectors[_DIRECTION]
        for task in range(first, last):
            whose, point, lost = Whose(_u32(leg.tasks[task, 0]), _u32(leg.tasks[task, 1])), 0, 0.0
            played, looked, asked = 0, 0, 0
            log_det, guard_log_det = numbers[task, _LOG_DET], numbers[task, _GUARD_LOG_DET]
            ceiling, ceiling_weight = numbers[task, _CEILING], numbers[task, _CEILING_WEIGHT]
            reach = numbers[task, _CEILING_REACH]
            # Work on a copy of its own: threads that write to neighbouring tasks would share cache lines.
            _copy(matrices[task], space.matrices)
            _copy_rows(vectors[task], space.vectors)
            for number in range(rounds):
                at = number % LANES
                if at == 0:  # the best candidates of the next rounds, and what they would pay
                    lanes = whole_vectors(min(LANES, rounds - number))
                    for j in range(lanes):
                        visits[j], visits[LANES + j] = _u32(0), _u32(first_round + number + j)
                    draw(chosen, lanes, whose, world)
                    pay(chosen, lanes, whose, world, space.retries)
                for row in range(dim):
                    action[row] = tile[row * LANES + at]
                # Alg. 1, l. 4 to 8: V = S + U is kept as its inverse; det(V + xxᵀ) = (1 + xᵀV⁻¹x) det V.
                growth = 1.0 + _turn(inverse, action, direction)
                linear, length, moved = 0.0, 0.0, 0.0
                for row in range(dim):
                    linear += theta[row] * action[row]
                    length += direction[row] * direction[row]
                    moved += (theta[row] - ceiling_theta[row]) ** 2
                root = math.sqrt(max(settings.logarithm + log_det, 0.0))
                ellipsoid = exploration * (settings.noise_scale * root + settings.constant)
                euclidean = exploration * settings.euclidean
                highest = linear + ellipsoid * math.sqrt(growth - 1.0) + euclidean * math.sqrt(length)
                # Since the ceiling was computed V has only grown, but θ̂ has moved, and β may have grown.
                weight = ellipsoid + euclidean * reach / world.action_bound
                change = max(weight - ceiling_weight, 0.0) * reach
                change += world.action_bound * math.sqrt(moved)
                index, mean, reward = 0, record[MEAN + at], record[REWARD + at]
                best_mean = mean
                if highest < ceiling + _ROUNDING_AGAIN * change:
                    looked += 1
                    now, widths = _u32(first_round + number), (ellipsoid, euclidean)
                    index, other_mean, best_mean = _best_other(
                        space, world, whose, now, widths, (highest, mean)
                    )
                    if index > 0:
                        mean = other_mean
                        growth = 1.0 + _turn(inverse, action, direction)
                        others.sheet[MEAN], others.counters[LANES] = mean, now
                        pay(others, np.int64(1), whose, world, space.retries)
                        reward = others.sheet[REWARD]
                # Alg. 1, l. 10 and 11: own records enter at once. So play the printed algorithm and agents
                # alone, of whom nothing leaves; `calibrated` must not.
                _take_in(space.matrices, space.vectors, growth, np.float64(reward))
                log_det += math.log(growth)
                while points[point] < first_round + number:
                    regret[task, point] += lost
                    point, lost = point + 1, 0.0
                lost += np.float64(best_mean) - np.float64(mean)
                if len(trace) > 0:
                    trace[task, number, 0], trace[task, number, 1] = index, mean
                    trace[task, number, 2] = reward
                    for row in range(dim):
                        trace[task, number, 3 + row] = action[row]
                played = number + 1
                if settings.threshold < math.inf:
                    # The trigger's matrix has M(ρ_max − ρ_min) I more than V, so it needs an inverse of its
                    # own.
                    growth = 1.0 + _turn(guard, action, direction)
                    _shrink(guard, direction, growth)
                    guard_log_det += math.log(growth)
                    # Alg. 1, l. 12, with D/(Δt + 1).
                    if guard_log_det - numbers[task, _ANCHOR] >= settings.threshold / (leg.waited + played):
                        asked = 1
                        break
            regret[task, point] += lost
            leg.counts[task, 0], leg.counts[task, 1], leg.counts[task, 2] = played, looked, asked
            numbers[task, _LOG_DET], numbers[task, _GUARD_LOG_DET] = log_det, guard_log_det
            _copy(space.matrices, matrices[task])
            _copy_rows(space.vectors, vectors[task])
        return sources

    return run_own_data


_run_own_data = _kernel(SOURCES)


@dataclass(slots=True)
class OwnDataState:
    """Agents with regressions V = S + U; n = runs × agents of them, the runs outermost.

    `own_data_steps` brings it up to date, in place.

    Attributes:
        settings: how they play.
        base_gram, base_moment: S, (n, d, d) and (n, d): what came at the last synchronisation.
        matrices: (n, 3, d, d): V⁻¹; U, own records since then; the inverse of V + offset I.
        vectors: (n, 3, d): θ̂; ū; θ̂ when the ceiling was computed.
        numbers: (n, 6): log det V; log det(V + offset I); log det S; the ceiling, a bound on the scores of
            all candidates but the best; and when that was computed, β + b‖V⁻¹‖^½ and L‖V⁻¹‖^½.
        waited: rounds since the last synchronisation.
        looked_up: how many it were when ceilings were computed last.
    """

    settings: OwnDataSettings
    base_gram: Array
    base_moment: Array
    matrices: Array
    vectors: Array
    numbers: Array
    waited: int = 0
    looked_up: int = 0

    @property
    def gram(self) -> Array:
        """(n, d, d), U: Σ x xᵀ since the last synchronisation."""
        return self.matrices[:, _GRAM]

    @property
    def moment(self) -> Array:
        """(n, d), ū: Σ y x since the last synchronisation."""
        return self.vectors[:, _MOMENT]

    @property
    def inverse(self) -> Array:
        """(n, d, d), V⁻¹."""
        return self.matrices[:, _INVERSE]

    @property
    def theta(self) -> Array:
        """(n, d), θ̂ = V⁻¹(moment of S + ū)."""
        return self.vectors[:, _THETA]

    @property
    def log_det(self) -> Array:
        """(n,), log det V."""
        return self.numbers[:, _LOG_DET]


@dataclass(slots=True)
class OwnDataResult:
    """What some rounds came to.

    Attributes:
        regret: (runs, agents, points), as in `Sums`; so are the others.
        drawn: (runs, agents).
        rounds: how many were played: all, or fewer if an agent asked for a synchronisation after the last.
        asked: whether one did.
        traces: (runs, agents, rounds, 3 + d), one after the other, if asked for.
    """

    regret: Array
    drawn: NDArray[np.int64]
    rounds: int = 0
    asked: bool = False
    traces: list[Array] = field(default_factory=list)

    @property
    def trace(self) -> Array:
        """(runs, agents, rounds, 3 + d), all of them."""
        return np.concatenate(self.traces, axis=2)


def own_data(settings: OwnDataSettings, gram: Array, moment: Array) -> OwnDataState:
    """Start, or start again after a synchronisation: S is given, (n, d, d) and (n, d), and U = 0."""
    count, dim = moment.shape
    state = OwnDataState(
        settings=OwnDataSettings(*map(float, settings)),  # kernels are compiled for these
        base_gram=np.array(gram, np.float64),
        base_moment=np.array(moment, np.float64),
        matrices=np.zeros((count, 3, dim, dim)),
        vectors=np.zeros((count, 3, dim)),
        numbers=np.zeros((count, 6)),
    )
    _factorise(state)
    state.numbers[:, _ANCHOR] = state.log_det
    state.numbers[:, _CEILING] = math.inf
    return state


def _factorise(state: OwnDataState) -> None:
    """Make inverses, θ̂ and determinants from the sums, which do not drift."""
    ridge = factorise(state.base_gram + state.gram, state.base_moment + state.moment)
    state.inverse[:], state.theta[:], state.log_det[:] = ridge.inverse, ridge.theta, ridge.log_det
    if state.settings.watched:
        shifted = ridge.gram + state.settings.offset * np.eye(ridge.gram.shape[-1])
        watched = factorise(shifted, np.zeros_like(ridge.moment))
        state.matrices[:, _GUARD], state.numbers[:, _GUARD_LOG_DET] = watched.inverse, watched.log_det


def _until_fresh(waited: int) -> int:
    """Rounds up to the next factorisation; a matter of rounds alone, however they are cut into calls."""
    leg = _LEG if waited < _LATE_LEG else _LATE_LEG
    return leg - waited % leg


def _look_up(state: OwnDataState, world: World, spread: Spread) -> None:
    """Compute ceilings for the regressions as they are.

    They are scored in coordinates in which V⁻¹ is full. Σ|x_i V⁻¹_ij x_j| ≤ √d ‖V⁻¹‖ ‖x‖², so rounding may be
    √d times as large as in `pruning`.
    """
    settings = state.settings
    root = np.sqrt(np.maximum(settings.logarithm + state.log_det, 0.0))
    ellipsoid = settings.exploration * (settings.noise_scale * root + settings.constant)
    euclidean = np.full_like(ellipsoid, settings.exploration * settings.euclidean)
    beliefs = align(Belief(state.theta, state.inverse, ellipsoid, euclidean))
    eta = rounding(world.dim) * math.sqrt(world.dim)
    state.numbers[:, _CEILING] = highest_scores(world, beliefs, eta, spread)
    state.vectors[:, _CEILING_THETA] = state.theta
    state.numbers[:, _CEILING_WEIGHT] = ellipsoid + euclidean * np.sqrt(beliefs.largest)
    state.numbers[:, _CEILING_REACH] = world.action_bound * np.sqrt(beliefs.largest)
    state.looked_up = state.waited


def own_data_steps(
    world: World,
    state: OwnDataState,
    stretch: Stretch,
    rounds: int,
    *,
    defer: bool = True,
    traced: bool = False,
    threads: int = 1,
) -> OwnDataResult:
    """Play rounds in which agents take their own records in at once, until one asks for a synchronisation.

    The state is brought up to date. If there is a trigger, one run plays at a time, since each has its own
    sync rounds. All else is as in `fixed_epoch`.
    """
    runs, agents, watched = stretch.runs, stretch.agents, state.settings.watched
    if watched and len(runs) != 1:
        raise ValueError("under the determinant trigger each run has its own sync rounds: one run at a time")
    if state.theta.shape != (len(runs) * agents, world.dim):
        raise ValueError(f"a state of shape {state.theta.shape} is not that of these runs and agents")
    world, leading = world.plain(), (len(runs), agents)
    points = rising_points(stretch.points, stretch.first_round + rounds - 1)
    tasks = np.stack(np.broadcast_arrays(np.asarray(runs)[:, None], np.arange(agents)), axis=-1)
    tasks = tasks.reshape(-1, 2).astype(np.int64)
    result = OwnDataResult(np.zeros((*leading, len(points))), np.zeros(leading, np.int64))

    def play(spread: Spread, rounds: int) -> _Leg:
        leg = _Leg(
            first_round=stretch.first_round + result.rounds,
            rounds=rounds,
            waited=state.waited,
            tasks=tasks,
            points=points,
            matrices=state.matrices,
            vectors=state.vectors,
            numbers=state.numbers,
            regret=np.zeros((len(tasks), len(points))),
            trace=np.zeros((len(tasks) if traced else 0, rounds, 3 + world.dim)),
            counts=np.zeros((len(tasks), 3), np.int64),
        )
        spread(
            len(tasks),
            lambda first, last: _run_own_data(world, state.settings, leg, first, last, scratch(world.dim)),
        )
        return leg

    with workers(threads) as spread:
        while result.rounds < rounds and not result.asked:
            # Agents are played one after the other, but the first who asks ends the round for all (Alg. 1, l.
            # 13): play ahead, and if somebody asked, go back and play up to that round. Random numbers are
            # functions of the round, so the second pass meets the same visitors.
            ahead = min(rounds - result.rounds, _until_fresh(state.waited))
            if watched:
                # Half as many as were waited so far: little is thrown away, and few passes are needed.
                ahead = min(ahead, max(_FEWEST_AHEAD, state.waited // 2))
            before = tuple(part.copy() for part in (state.matrices, state.vectors, state.numbers))
            leg = play(spread, ahead)
            askers = leg.counts[:, 2] > 0
            result.asked = bool(askers.any())
            if result.asked:
                state.matrices, state.vectors, state.numbers = before
                leg = play(spread, int(leg.counts[askers, 0].min()))
            result.rounds += leg.rounds
            state.waited += leg.rounds
            result.regret += leg.regret.reshape(result.regret.shape)
            result.drawn += leg.counts[:, 1].reshape(leading)
            if traced:
                result.traces.append(leg.trace.reshape(*leading, leg.rounds, -1))
            # At fixed numbers of rounds since the synchronisation, not of calls: cutting a run differently
            # must not change it.
            if _until_fresh(state.waited - 1) == 1:
                _factorise(state)
                if defer and state.waited >= state.looked_up + state.looked_up // _FRESH_SHARE:
                    _look_up(state, world, spread)
    return result

"""Agents that act on S + U, the last released sum and their own records, which they take in at once.

So do each agent alone (S = ρI) and the paper's agents. As in `epochs`, candidates that cannot be chosen are
not drawn. All agents play until the first of them asks for a synchronisation: they play on without knowing
who will, and again, with the same random numbers, up to that round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.models.ridge import factorise
from feducb.simulation.backends.epochs import Rounds, rising_points
from feducb.simulation.backends.parallel import SOURCES, Spread, kept_on_disk, workers
from feducb.simulation.backends.pruning import align, highest_scores, rounding
from feducb.simulation.backends.tiles import (
    LANES,
    MEAN,
    REWARD,
    SCORE,
    Scratch,
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

__all__ = ["OwnDataResult", "OwnDataState", "Radius", "own_data", "own_data_steps"]

Array = NDArray[np.float64]
Word = Any  # np.uint32

_LEG = 1024  # rounds between fresh factorisations, since rounding drifts …
_LATE_LEG = 8192  # … and as many later on
_FRESH_SHARE = 8  # ceilings are computed again when an eighth more rounds were waited
_FEWEST_AHEAD = 8  # rounds that are played without knowing who will ask
_ROUNDING_AGAIN = 1.01  # more than 1 + η: rounding of what has changed since a ceiling was computed

# Where a state keeps which matrix, vector and number of an agent: see `OwnDataState`.
_INVERSE, _GRAM, _GUARD = range(3)
_THETA, _MOMENT, _CEILING_THETA = range(3)
_LOG_DET, _GUARD_LOG_DET, _ANCHOR, _CEILING, _CEILING_WEIGHT, _CEILING_REACH = range(6)

_u32, _f32 = np.uint32, np.float32


class Radius(NamedTuple):
    """How far an agent trusts a regression on its own data: β = σ√max(A + log det V, 0) + constant, and b.

    Attributes:
        noise_scale: σ.
        logarithm: A; 2 ln(1/α) − d ln ρ in `OwnDataBound`, 2 ln(2Mn/α) − d ln Σρ_min in `PaperBound`.
        constant: added to the root; S Σ√ρ_max + Σκ in `PaperBound`.
        euclidean: b; ρS in `OwnDataBound`.
    """

    noise_scale: float
    logarithm: float
    constant: float
    euclidean: float


@compiled
def _copy_rows(source: Any, target: Any) -> None:
    """Copy as many rows as both have."""
    for row in range(min(len(source), len(target))):
        for column in range(source.shape[1]):
            target[row, column] = source[row, column]


@compiled
def _copy(source: Any, target: Any) -> None:
    """Copy all matrices of a task, by loops: a slice would be an array to allocate."""
    for number in range(len(source)):
        for row in range(source.shape[1]):
            for column in range(source.shape[2]):
                target[number, row, column] = source[number, row, column]


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
def _take_in(
    gram: Any,
    moment: Any,
    inverse: Any,
    theta: Any,
    action: Any,
    direction: Any,
    growth: float,
    reward: float,
) -> None:
    """U ← U + x xᵀ, ū ← ū + y x (Alg. 1, l. 10); so θ̂ ← θ̂ + V⁻¹x (y − xᵀθ̂) with the new V."""
    error = reward
    for row in range(len(action)):
        error -= theta[row] * action[row]
    for row in range(len(action)):
        theta[row] += direction[row] / growth * error
        moment[row] += action[row] * reward
        for column in range(len(action)):
            gram[row, column] += action[row] * action[column]
    _shrink(inverse, direction, growth)


@written_out
def _best_other(
    space: Scratch,
    action: Any,
    highest: float,
    best_mean: Any,
    inverse: Any,
    theta: Any,
    ellipsoid: float,
    euclidean: float,
    at_round: Word,
    agent: Word,
    seed: Word,
    run: Word,
    world: World,
) -> Any:
    """Look for a candidate that scores above ``highest``; its action goes to ``action``.

    Returns:
        Its number, or 0 if there is none; its mean; and the highest of all means.
    """
    tile, sheet, counters, single_theta, single_inverse = space[3:6] + space[10:12]
    dim, others = world.dim, world.arms - 1
    # Scores of candidates that are looked at in bulk may be in single precision: `_look_up` widens its bound
    # for that.
    for row in range(dim):
        single_theta[row] = theta[row]
        for column in range(dim):
            single_inverse[row, column] = inverse[row, column]
    number, mean = 0, best_mean
    for first in range(0, others, LANES):
        filled = min(LANES, others - first)
        lanes = whole_vectors(filled)
        for j in range(lanes):
            counters[j], counters[LANES + j] = _u32(1 + first + j), at_round
        draw(tile, sheet, counters, lanes, agent, seed, run, world)
        score_dense(tile, sheet, lanes, dim, single_theta, single_inverse, _f32(ellipsoid), _f32(euclidean))
        best = -1
        for j in range(filled):
            best_mean = max(best_mean, sheet[MEAN + j])
            # Strictly: the first of equals is kept, as argmax does.
            if sheet[SCORE + j] > highest:
                best, highest = j, np.float64(sheet[SCORE + j])
        if best >= 0:
            number, mean = 1 + first + best, sheet[MEAN + best]
            for row in range(dim):
                action[row] = tile[row * LANES + best]
    return number, mean, best_mean


def _kernel(sources: int) -> Any:  # noqa: PLR0915
    @kept_on_disk
    def run_own_data(  # noqa: PLR0912, PLR0915
        world: World,
        matrices: Any,
        vectors: Any,
        numbers: Any,
        watched: bool,
        radius: Radius,
        exploration: float,
        first_round: int,
        rounds: int,
        waited: int,
        threshold: float,
        points: Any,
        seed: int,
        tasks: Any,
        first: int,
        last: int,
        regret: Any,
        trace: Any,
        counts: Any,
        space: Scratch,
    ) -> int:
        """Play some tasks, a row each: run, agent; each up to and with the round in which it asks for a sync.

        Rows of ``counts``: rounds played, in how many all candidates were drawn, whether the last asked.
        """
        dim, word = world.dim, _u32(seed)
        chosen, record, visits, _, sheet, counters, waiting, tries = space[:8]
        inverse, gram, guard = space.matrices[_INVERSE], space.matrices[_GRAM], space.matrices[_GUARD]
        theta, moment, ceiling_theta = (
            space.vectors[_THETA],
            space.vectors[_MOMENT],
            space.vectors[_CEILING_THETA],
        )
        action, direction = space.vectors[3], space.vectors[4]
        for task in range(first, last):
            run, agent, point, lost = _u32(tasks[task, 0]), _u32(tasks[task, 1]), 0, 0.0
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
                    draw(chosen, record, visits, lanes, agent, word, run, world)
                    pay(record, visits, lanes, agent, word, run, waiting, counters, tries)
                for row in range(dim):
                    action[row] = chosen[row * LANES + at]
                # Alg. 1, l. 4 to 8: V = S + U is kept as its inverse; det(V + xxᵀ) = (1 + xᵀV⁻¹x) det V.
                growth = 1.0 + _turn(inverse, action, direction)
                linear, length, moved = 0.0, 0.0, 0.0
                for row in range(dim):
                    linear += theta[row] * action[row]
                    length += direction[row] * direction[row]
                    moved += (theta[row] - ceiling_theta[row]) ** 2
                root = math.sqrt(max(radius.logarithm + log_det, 0.0))
                ellipsoid = exploration * (radius.noise_scale * root + radius.constant)
                euclidean = exploration * radius.euclidean
                highest = linear + ellipsoid * math.sqrt(growth - 1.0) + euclidean * math.sqrt(length)
                # Since the ceiling was computed V has only grown, but θ̂ has moved, and β may have grown.
                weight = ellipsoid + euclidean * reach / world.action_bound
                change = max(weight - ceiling_weight, 0.0) * reach
                change += world.action_bound * math.sqrt(moved)
                index, mean, reward = 0, record[MEAN + at], record[REWARD + at]
                best_mean = mean
                if highest < ceiling + _ROUNDING_AGAIN * change:
                    looked += 1
                    index, other_mean, best_mean = _best_other(
                        space, action, highest, mean, inverse, theta, ellipsoid, euclidean,
                        _u32(first_round + number), agent, word, run, world,
                    )  # fmt: skip
                    if index > 0:
                        mean = other_mean
                        growth = 1.0 + _turn(inverse, action, direction)
                        sheet[MEAN], counters[LANES] = mean, _u32(first_round + number)
                        pay(sheet, counters, np.int64(1), agent, word, run, waiting, counters, tries)
                        reward = sheet[REWARD]
                # Alg. 1, l. 10 and 11: own records enter at once. So play the printed algorithm and agents
                # alone, of whom nothing leaves; `calibrated` must not.
                _take_in(gram, moment, inverse, theta, action, direction, growth, np.float64(reward))
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
                if watched:
                    # The trigger's matrix has M(ρ_max − ρ_min) I more than V, so it needs an inverse of its
                    # own.
                    growth = 1.0 + _turn(guard, action, direction)
                    _shrink(guard, direction, growth)
                    guard_log_det += math.log(growth)
                    # Alg. 1, l. 12, with D/(Δt + 1).
                    if guard_log_det - numbers[task, _ANCHOR] >= threshold / (waited + played):
                        asked = 1
                        break
            regret[task, point] += lost
            counts[task, 0], counts[task, 1], counts[task, 2] = played, looked, asked
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
        base_gram, base_moment: S, (n, d, d) and (n, d): what came at the last synchronisation.
        matrices: (n, 3, d, d): V⁻¹; U, own records since then; the inverse of V + offset I.
        vectors: (n, 3, d): θ̂; ū; θ̂ when the ceiling was computed.
        numbers: (n, 6): log det V; log det(V + offset I); log det S; the ceiling, a bound on the scores of
            all candidates but the best; and when that was computed, β + b‖V⁻¹‖^½ and L‖V⁻¹‖^½.
        offset: what the trigger's matrix has more than V on its diagonal; None without a trigger.
        waited: rounds since the last synchronisation.
        looked_up: how many it were when ceilings were computed last.
    """

    base_gram: Array
    base_moment: Array
    matrices: Array
    vectors: Array
    numbers: Array
    offset: float | None
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


@dataclass(frozen=True, slots=True)
class OwnDataResult:
    """What some rounds came to.

    Attributes:
        rounds: how many were played: all, or fewer if an agent asked for a synchronisation after the last.
        asked: whether one did.
        regret: (runs, agents, points), as in `EpochResult`; so are the others.
        drawn: (runs, agents).
        trace: (runs, agents, rounds, 3 + d), if asked for.
    """

    rounds: int
    asked: bool
    regret: Array
    drawn: NDArray[np.int64]
    trace: Array | None


def own_data(gram: Array, moment: Array, *, offset: float | None = None) -> OwnDataState:
    """Start, or start again after a synchronisation: S is given, U = 0.

    Args:
        gram: (n, d, d), S.
        moment: (n, d).
        offset: M(ρ_max − ρ_min), if there is a determinant trigger.
    """
    count, dim = moment.shape
    state = OwnDataState(
        base_gram=np.array(gram, np.float64),
        base_moment=np.array(moment, np.float64),
        matrices=np.zeros((count, 3, dim, dim)),
        vectors=np.zeros((count, 3, dim)),
        numbers=np.zeros((count, 6)),
        offset=offset,
    )
    _factorise(state)
    state.numbers[:, _ANCHOR] = state.log_det
    state.numbers[:, _CEILING] = math.inf
    return state


def _factorise(state: OwnDataState) -> None:
    """Make inverses, θ̂ and determinants from the sums, which do not drift."""
    ridge = factorise(state.base_gram + state.gram, state.base_moment + state.moment)
    state.inverse[:], state.theta[:], state.log_det[:] = ridge.inverse, ridge.theta, ridge.log_det
    if state.offset is not None:
        shifted = ridge.gram + state.offset * np.eye(ridge.gram.shape[-1])
        watched = factorise(shifted, np.zeros_like(ridge.moment))
        state.matrices[:, _GUARD], state.numbers[:, _GUARD_LOG_DET] = watched.inverse, watched.log_det


def _until_fresh(waited: int) -> int:
    """Rounds up to the next factorisation; a matter of rounds alone, however they are cut into calls."""
    leg = _LEG if waited < _LATE_LEG else _LATE_LEG
    return leg - waited % leg


def _look_up(state: OwnDataState, world: World, radius: Radius, exploration: float, spread: Spread) -> None:
    """Compute ceilings for the regressions as they are.

    They are scored in coordinates in which V⁻¹ is full. Σ|x_i V⁻¹_ij x_j| ≤ √d ‖V⁻¹‖ ‖x‖², so rounding may be
    √d times as large as in `pruning`.
    """
    root = np.sqrt(np.maximum(radius.logarithm + state.log_det, 0.0))
    ellipsoid = exploration * (radius.noise_scale * root + radius.constant)
    euclidean = np.full_like(ellipsoid, exploration * radius.euclidean)
    beliefs = align(state.theta, state.inverse, np.stack([ellipsoid, euclidean], axis=-1))
    eta = rounding(world.dim) * math.sqrt(world.dim)
    state.numbers[:, _CEILING] = highest_scores(world, beliefs, eta, spread)
    state.vectors[:, _CEILING_THETA] = state.theta
    state.numbers[:, _CEILING_WEIGHT] = ellipsoid + euclidean * np.sqrt(beliefs.largest)
    state.numbers[:, _CEILING_REACH] = world.action_bound * np.sqrt(beliefs.largest)
    state.looked_up = state.waited


def own_data_steps(
    world: World,
    state: OwnDataState,
    radius: Radius,
    *,
    seed: int,
    runs: Sequence[int],
    agents: int,
    first_round: int,
    rounds: int,
    points: Rounds,
    exploration: float = 1.0,
    threshold: float = math.inf,
    defer: bool = True,
    traced: bool = False,
    threads: int = 1,
) -> OwnDataResult:
    """Play rounds in which agents take their own records in at once, until one asks for a synchronisation.

    Args:
        world: the environment.
        state: what agents know; is brought up to date.
        radius: how wide their beliefs are.
        seed: as in `fixed_epoch`; so is all that is not said here.
        runs: the runs' numbers; one run only if there is a trigger, since each has its own sync rounds.
        agents: M.
        first_round: the number of the first round.
        rounds: how many rounds at most.
        points: rounds at which the regret curve is read.
        exploration: scales β and b.
        threshold: D; an agent asks when log det(V + offset I) − log det S ≥ D/Δt, Δt counting this round.
        defer: whether to skip candidates that cannot be chosen.
        traced: whether to keep every choice.
        threads: worker threads.
    """
    if state.offset is not None and len(runs) != 1:
        raise ValueError("under the determinant trigger each run has its own sync rounds: one run at a time")
    if state.theta.shape != (len(runs) * agents, world.dim):
        raise ValueError(f"a state of shape {state.theta.shape} is not that of these runs and agents")
    world, radius = world.plain(), Radius(*map(float, radius))
    exploration, threshold = float(exploration), float(threshold)
    dim, leading, points = world.dim, (len(runs), agents), rising_points(points, first_round + rounds - 1)
    tasks = np.stack(np.broadcast_arrays(np.asarray(runs)[:, None], np.arange(agents)), axis=-1)
    tasks = tasks.reshape(-1, 2).astype(np.int64)
    regret, drawn = np.zeros((len(tasks), len(points))), np.zeros(len(tasks), np.int64)
    traces: list[Array] = []
    done, asked = 0, False

    def play(spread: Spread, count: int) -> tuple[Array, NDArray[np.int64], Array]:
        lost, counts = np.zeros_like(regret), np.zeros((len(tasks), 3), np.int64)
        trace = np.zeros((len(tasks) if traced else 0, count, 3 + dim))

        def work(first: int, last: int) -> None:
            _run_own_data(
                world, state.matrices, state.vectors, state.numbers, state.offset is not None, radius,
                exploration, first_round + done, count, state.waited, threshold, points, seed, tasks,
                first, last, lost, trace, counts, scratch(dim),
            )  # fmt: skip

        spread(len(tasks), work)
        return lost, counts, trace

    with workers(threads) as spread:
        while done < rounds and not asked:
            # Agents are played one after the other, but the first who asks ends the round for all (Alg. 1, l.
            # 13): play ahead, and if somebody asked, go back and play up to that round. Random numbers are
            # functions of the round, so the second pass meets the same visitors.
            leg = min(rounds - done, _until_fresh(state.waited))
            if state.offset is not None:
                # Half as many as were waited so far: little is thrown away, and few passes are needed.
                leg = min(leg, max(_FEWEST_AHEAD, state.waited // 2))
            before = tuple(part.copy() for part in (state.matrices, state.vectors, state.numbers))
            lost, counts, trace = play(spread, leg)
            asked = bool(counts[:, 2].any())
            if asked:
                leg = int(counts[counts[:, 2] > 0, 0].min())
                state.matrices, state.vectors, state.numbers = before
                lost, counts, trace = play(spread, leg)
            done += leg
            state.waited += leg
            regret += lost
            drawn += counts[:, 1]
            traces.append(trace)
            # At fixed numbers of rounds since the synchronisation, not of calls: cutting a run differently
            # must not change it.
            if _until_fresh(state.waited - 1) == 1:
                _factorise(state)
                if defer and state.waited >= state.looked_up + state.looked_up // _FRESH_SHARE:
                    _look_up(state, world, radius, exploration, spread)
    return OwnDataResult(
        rounds=done,
        asked=asked,
        regret=regret.reshape(*leading, len(points)),
        drawn=drawn.reshape(leading),
        trace=np.concatenate(traces, axis=1).reshape(*leading, done, 3 + dim) if traced else None,
    )

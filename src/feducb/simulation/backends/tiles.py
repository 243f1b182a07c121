"""Candidates side by side: drawing them, scoring them, paying for them, adding their records up.

Coordinates are such that θ* = ‖θ*‖ e₁. A candidate is x = (c, y): c = p/‖θ*‖ for its mean reward p, and y
uniform in the ball of radius √(L² − c²) (`PaperEnvironment`). This law does not change if y is rotated.

A *tile* holds up to `LANES` candidates, in single precision: a row for each coordinate, flat, so that
candidate j has its coordinate i at ``i·LANES + j`` and one instruction works on eight or sixteen candidates.
Beside it lies a *sheet*, with a row for each number that belongs to a candidate, and the *counters*, which
say whose candidate it is: one row for its number among the K of a visitor (0 is the best), one for the round.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from feducb.simulation.backends.generator import (
    beta_attempt,
    exponential,
    fma,
    high_product,
    normal_pair,
    philox,
    uniform,
)

__all__ = [
    "BEST",
    "BONUS",
    "INDEX",
    "LANES",
    "MEAN",
    "REWARD",
    "SCORE",
    "SPARE",
    "Beliefs",
    "Candidates",
    "Scratch",
    "Whose",
    "World",
    "add_records",
    "compiled",
    "draw",
    "draw_bonuses",
    "draw_coins",
    "padded",
    "pay",
    "score",
    "score_dense",
    "scratch",
    "summed",
    "whole_vectors",
    "written_out",
]

LANES = 128
SPARE = 3  # rows behind a tile's last coordinate: coordinates are drawn and scored four at a time
_VECTOR = 16  # loop passes at once on the widest machines; loops run over whole vectors
_APART = 64  # numbers between what different threads write to

_u32, _f32 = np.uint32, np.float32
_ZERO, _ONE, _TWO = _f32(0.0), _f32(1.0), _f32(2.0)

# A counter's second word: block 0, 1, … of a candidate's coordinates, or one of these.
_PAY, _COIN, _TEMPER = _u32(2**31), _u32(2**31 + 1), _u32(2**31 + 2)
_FIRST = _u32(0)

# Compiled without checks for division by zero, which would keep loops from being vectorised, and without a
# way in from Python, which would take longer to compile than many a function: a call from there is a crash.
compiled = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
# Written out where it is called: every level of calls would be optimised once more.
written_out = njit(nogil=True, error_model="numpy", inline="always")
# Sums may be added up in any order.
summed = njit(
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract"},
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)


# Where each row of a sheet starts. BEST is the highest mean that the visitor offers, INDEX the number of the
# chosen candidate, BONUS the part of the bonus that it is scored with; those from _SCALE on are for sums on
# the way.
_ROWS = 12
MEAN, SCORE, REWARD, BEST, INDEX, BONUS, _SCALE, _LINEAR, _CROSS, _SQUARE, _TURN, _LENGTH = (
    LANES * row for row in range(_ROWS)
)


class World(NamedTuple):
    """The public numbers of a `PaperEnvironment`, and the seed of all that is drawn in it.

    Attributes:
        dim: d.
        arms: K.
        best: the best candidate's band of mean rewards.
        others: the other candidates' band.
        parameter_norm: ‖θ*‖.
        action_bound: L.
        seed: of all random numbers, with those of the run, the agent and the round.
    """

    dim: int
    arms: int
    best: tuple[float, float] = (0.7, 0.8)
    others: tuple[float, float] = (0.5, 0.6)
    parameter_norm: float = 1.0
    action_bound: float = 1.0
    seed: int = 0

    def plain(self) -> World:
        """The same in Python's own numbers: for others, kernels would be compiled again."""
        (low, high), (other_low, other_high) = self.best, self.others
        best, others = (float(low), float(high)), (float(other_low), float(other_high))
        norm, bound = float(self.parameter_norm), float(self.action_bound)
        return World(int(self.dim), int(self.arms), best, others, norm, bound, int(self.seed))

    @property
    def separate(self) -> bool:
        """Whether candidate 0 is the best for certain."""
        return self.others[1] <= self.best[0]


class Whose(NamedTuple):
    """Who draws: with the world's seed and the round, all that a random number depends on."""

    run: Any  # np.uint32, and so is the agent
    agent: Any


class Candidates(NamedTuple):
    """A tile, its sheet and its counters."""

    tile: NDArray[np.float32]
    sheet: NDArray[np.float32]
    counters: NDArray[np.uint32]


class Beliefs(NamedTuple):
    """`pruning.Aligned` beliefs in single precision, with spare zeros behind each row.

    Attributes:
        theta, cross, values: (B, d + SPARE).
        widths: (B, 2), β and b.
        bounds: (B, 2), floor and rise: with a part c of the bonus no candidate but the best scores above
            floor + c·rise.
    """

    theta: NDArray[np.float32]
    cross: NDArray[np.float32]
    values: NDArray[np.float32]
    widths: NDArray[np.float32]
    bounds: NDArray[np.float64]


class Retries(NamedTuple):
    """Columns that are not dealt with yet, their counters, and what is tried for them."""

    waiting: NDArray[np.int64]
    counters: NDArray[np.uint32]
    tries: NDArray[np.float32]


class Scratch(NamedTuple):
    """Working space of one thread; what threads write to at every step is in here, each its own.

    Attributes:
        chosen: what was chosen, one column per round.
        others: candidates that are looked at.
        retries: what is not dealt with yet.
        wide: a tile in double precision.
        sums: a Gram with spare columns.
        theta, inverse: a belief in single precision, with spare rows and columns.
        vectors: (5, d), the last two x and V⁻¹x.
        matrices: (3, d, d).
    """

    chosen: Candidates
    others: Candidates
    retries: Retries
    wide: NDArray[np.float64]
    sums: NDArray[np.float64]
    theta: NDArray[np.float32]
    inverse: NDArray[np.float32]
    vectors: NDArray[np.float64]
    matrices: NDArray[np.float64]


def _apart(shape: tuple[int, ...], kind: Any) -> Any:
    """Zeros with room before and after: threads that write to the same cache line wait for each other."""
    size = math.prod(shape)
    return np.zeros(size + 2 * _APART, kind)[_APART : _APART + size].reshape(shape)


def scratch(dim: int) -> Scratch:
    """Working space, zeroed: spare rows are multiplied by zero, and must be finite. The bonus is whole."""
    rows = dim + SPARE
    chosen, others = (
        Candidates(
            tile=_apart((rows * LANES,), np.float32),
            sheet=_apart((_ROWS * LANES,), np.float32),
            counters=_apart((2 * LANES,), np.uint32),
        )
        for _ in range(2)
    )
    for candidates in (chosen, others):
        candidates.sheet[BONUS : BONUS + LANES] = 1.0
    return Scratch(
        chosen=chosen,
        others=others,
        retries=Retries(_apart((LANES,), np.int64), others.counters, _apart((LANES,), np.float32)),
        wide=_apart((rows, LANES), np.float64),
        sums=_apart((dim, rows), np.float64),
        theta=_apart((rows,), np.float32),
        inverse=_apart((rows, rows), np.float32),
        vectors=_apart((5, dim), np.float64),
        matrices=_apart((3, dim, dim), np.float64),
    )


def padded(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows (n, d) in single precision, with spare zeros behind each."""
    count, dim = rows.shape
    result = np.zeros((count, dim + SPARE), np.float32)
    result[:, :dim] = rows
    return result


@compiled
def whole_vectors(count: int) -> int:
    """``count`` rounded up, so that no loop has a slow end."""
    return (count + _VECTOR - 1) // _VECTOR * _VECTOR


@compiled
def draw(candidates: Candidates, lanes: int, whose: Whose, world: World) -> None:
    """Draw candidates: their means and coordinates.

    For g ~ N(0, I) in d − 1 dimensions and E ~ Exp(1), g/√(‖g‖² + 2E) is uniform in the unit ball. Block 0 of
    a candidate's random words gives p, E and two coordinates of g, each further block four more. Rows of the
    last block that are not needed hold numbers that nobody reads.
    """
    tile, sheet, counters = candidates
    run, agent = whose
    dim, seed = world.dim, _u32(world.seed)
    low, width = _f32(world.best[0]), _f32(world.best[1] - world.best[0])
    other_low, other_width = _f32(world.others[0]), _f32(world.others[1] - world.others[0])
    per_mean = _f32(1.0 / world.parameter_norm)
    needs_x, needs_y = _f32(dim > 1), _f32(dim > 2)
    # Everything is computed for all lanes, needed or not, and multiplied by 0 or 1: a branch would cost the
    # vector.
    for j in range(lanes):
        number = counters[j]
        mean_word, length_word, radius, angle = philox(number, _FIRST, counters[LANES + j], agent, seed, run)
        best = number == _u32(0)
        mean = fma(width if best else other_width, uniform(mean_word), low if best else other_low)
        x, y = normal_pair(radius, angle)
        sheet[MEAN + j] = mean
        tile[j], tile[LANES + j], tile[2 * LANES + j] = mean * per_mean, x, y
        sheet[_SCALE + j] = fma(needs_x * x, x, fma(needs_y * y, y, _TWO * exponential(length_word)))
    for block in range(1, (dim + 4) // 4):
        first = 4 * block - 1
        rows = tile[first * LANES : (first + 4) * LANES]
        needs_y, needs_z, needs_w = _f32(first + 1 < dim), _f32(first + 2 < dim), _f32(first + 3 < dim)
        for j in range(lanes):
            radius, angle, other_radius, other_angle = philox(
                counters[j], _u32(block), counters[LANES + j], agent, seed, run
            )
            x, y = normal_pair(radius, angle)
            z, w = normal_pair(other_radius, other_angle)
            rows[j], rows[LANES + j], rows[2 * LANES + j], rows[3 * LANES + j] = x, y, z, w
            squared = fma(x, x, fma(needs_y * y, y, fma(needs_z * z, z, needs_w * w * w)))
            sheet[_SCALE + j] += squared
    longest = _f32(world.action_bound * world.action_bound)
    for j in range(lanes):
        left_over = max(longest - tile[j] * tile[j], _ZERO)
        # √(L² − c²)/√(‖g‖² + 2E): the length of y and the direction's own, in one factor.
        sheet[_SCALE + j] = math.sqrt(left_over / sheet[_SCALE + j])
    for row in range(1, dim):
        line = tile[row * LANES : (row + 1) * LANES]
        for j in range(lanes):
            line[j] *= sheet[_SCALE + j]


@compiled
def draw_coins(candidates: Candidates, lanes: int, whose: Whose, world: World) -> None:
    """Choose a candidate uniformly: ⌊K u⌋."""
    _, sheet, counters = candidates
    run, agent = whose
    seed = _u32(world.seed)
    for j in range(lanes):
        coin, _, _, _ = philox(_FIRST, _COIN, counters[LANES + j], agent, seed, run)
        counters[j] = high_product(coin, _u32(world.arms))
        sheet[INDEX + j] = _f32(counters[j])


@compiled
def draw_bonuses(candidates: Candidates, lanes: int, whose: Whose, world: World, full: float) -> None:
    """The part of the bonus in each round: 1 with a chance of ``full`` < 1, else uniform (`Tempered.scale`).

    Never above 1, up to where `Beliefs.bounds` hold.
    """
    _, sheet, counters = candidates
    run, agent = whose
    seed, whole, per_rest = _u32(world.seed), _f32(full), _f32(1.0 / (1.0 - full))
    for j in range(lanes):
        word, _, _, _ = philox(_FIRST, _TEMPER, counters[LANES + j], agent, seed, run)
        coin = uniform(word)
        sheet[BONUS + j] = _ONE if coin <= whole else min((coin - whole) * per_rest, _ONE)


@compiled
def score(candidates: Candidates, lanes: int, dim: int, beliefs: Beliefs, which: int) -> None:
    """θ̂ᵀx + c(β√(xᵀV⁻¹x) + b‖V⁻¹x‖) for V⁻¹ = [[a, mᵀ], [m, diag λ]] (`pruning.align`), c as in BONUS.

    xᵀV⁻¹x = ac² + 2c mᵀy + Σλ_iy_i², and V⁻¹x = (ac + mᵀy, cm + λy).
    """
    tile, sheet, _ = candidates
    theta, cross, values = beliefs.theta[which], beliefs.cross[which], beliefs.values[which]
    for j in range(lanes):
        # Alg. 1, l. 8, with a second width b (docs/theory.md). Five running sums per candidate, four
        # coordinates at a time: loads and stores of the sheet are what this loop costs.
        sheet[_LINEAR + j] = sheet[_CROSS + j] = sheet[_SQUARE + j] = _ZERO
        sheet[_TURN + j] = sheet[_LENGTH + j] = _ZERO
    skew = _ZERO  # ‖m‖²
    for first in range(1, dim, 4):
        rows = tile[first * LANES : (first + 4) * LANES]
        t0, t1, t2, t3 = theta[first], theta[first + 1], theta[first + 2], theta[first + 3]
        m0, m1, m2, m3 = cross[first], cross[first + 1], cross[first + 2], cross[first + 3]
        v0, v1, v2, v3 = values[first], values[first + 1], values[first + 2], values[first + 3]
        skew = fma(m0, m0, fma(m1, m1, fma(m2, m2, fma(m3, m3, skew))))
        for j in range(lanes):
            x, y, z, w = rows[j], rows[LANES + j], rows[2 * LANES + j], rows[3 * LANES + j]
            p, q, r, s = v0 * x, v1 * y, v2 * z, v3 * w  # λ_i y_i
            sheet[_LINEAR + j] = fma(t0, x, fma(t1, y, fma(t2, z, fma(t3, w, sheet[_LINEAR + j]))))
            sheet[_CROSS + j] = fma(m0, x, fma(m1, y, fma(m2, z, fma(m3, w, sheet[_CROSS + j]))))
            sheet[_SQUARE + j] = fma(p, x, fma(q, y, fma(r, z, fma(s, w, sheet[_SQUARE + j]))))
            sheet[_TURN + j] = fma(m0, p, fma(m1, q, fma(m2, r, fma(m3, s, sheet[_TURN + j]))))
            sheet[_LENGTH + j] = fma(p, p, fma(q, q, fma(r, r, fma(s, s, sheet[_LENGTH + j]))))
    along, corner, widths = theta[0], cross[0], beliefs.widths[which]
    ellipsoid, euclidean = widths[0], widths[1]
    for j in range(lanes):
        c, crossed = tile[j], sheet[_CROSS + j]
        first_turned = fma(corner, c, crossed)
        squared = fma(c, first_turned + crossed, sheet[_SQUARE + j])
        length = fma(c * c, skew, fma(_TWO * c, sheet[_TURN + j], sheet[_LENGTH + j]))
        length = fma(first_turned, first_turned, length)
        total, bonus = fma(along, c, sheet[_LINEAR + j]), sheet[BONUS + j]
        # Rounding may leave a square just below zero.
        total = fma(bonus * ellipsoid, _f32(math.sqrt(max(squared, _ZERO))), total)
        sheet[SCORE + j] = fma(bonus * euclidean, _f32(math.sqrt(max(length, _ZERO))), total)


@compiled
def score_dense(candidates: Candidates, lanes: int, dim: int, theta: Any, inverse: Any, widths: Any) -> None:
    """The same score for any V⁻¹; the belief is in single precision, with spare zeros behind each row."""
    tile, sheet, _ = candidates
    ellipsoid, euclidean = _f32(widths[0]), _f32(widths[1])
    for j in range(lanes):
        sheet[_LINEAR + j] = sheet[_SQUARE + j] = sheet[_LENGTH + j] = _ZERO
    for row in range(dim):
        line, along, weights = tile[row * LANES : (row + 1) * LANES], theta[row], inverse[row]
        for j in range(lanes):
            sheet[_TURN + j] = _ZERO
        for first in range(0, dim, 4):
            rows = tile[first * LANES : (first + 4) * LANES]
            p, q, r, s = weights[first], weights[first + 1], weights[first + 2], weights[first + 3]
            for j in range(lanes):
                turned = fma(p, rows[j], fma(q, rows[LANES + j], sheet[_TURN + j]))
                sheet[_TURN + j] = fma(r, rows[2 * LANES + j], fma(s, rows[3 * LANES + j], turned))
        for j in range(lanes):
            x, turned = line[j], sheet[_TURN + j]
            sheet[_LINEAR + j] = fma(along, x, sheet[_LINEAR + j])
            sheet[_SQUARE + j] = fma(turned, x, sheet[_SQUARE + j])
            sheet[_LENGTH + j] = fma(turned, turned, sheet[_LENGTH + j])
    for j in range(lanes):
        width = ellipsoid * _f32(math.sqrt(max(sheet[_SQUARE + j], _ZERO)))
        width = fma(euclidean, _f32(math.sqrt(sheet[_LENGTH + j])), width)
        sheet[SCORE + j] = sheet[_LINEAR + j] + width


@compiled
def pay(candidates: Candidates, count: int, whose: Whose, world: World, room: Retries) -> None:
    """Draw rewards ~ Beta(p, 1 − p) for the first ``count`` columns; those whose attempt failed try again."""
    _, sheet, counters = candidates
    run, agent = whose
    seed = _u32(world.seed)
    waiting, again, tries = room
    for j in range(count):
        waiting[j] = j
    attempt = 0
    while count > 0:
        for j in range(count):
            tries[j] = sheet[MEAN + waiting[j]]
            again[j] = counters[LANES + waiting[j]]
        # Jöhnk's method fails now and then. The attempt's number is part of the counter, so a reward does not
        # depend on who else had to try again.
        for j in range(whole_vectors(count)):
            first, second, _, _ = philox(_u32(attempt), _PAY, again[j], agent, seed, run)
            tries[j] = beta_attempt(tries[j], first, second)
        left = 0
        for j in range(count):
            if tries[j] >= _ZERO:
                sheet[REWARD + waiting[j]] = tries[j]
            else:
                waiting[left] = waiting[j]
                left += 1
        count = left
        attempt += 1


@summed
def add_records(tile: Any, sheet: Any, wide: Any, count: int, dim: int, gram: Any, moment: Any) -> None:
    """Add Σ x xᵀ (diagonal and above) and Σ y x of the first ``count`` columns, in double precision."""
    for row in range(dim):
        for j in range(count):
            wide[row, j] = tile[row * LANES + j]
    for row in range(dim):
        line, total = wide[row], 0.0
        for j in range(count):
            total += line[j] * sheet[REWARD + j]
        moment[row] += total
        # Four sums at once, so that additions need not wait for each other; columns beyond d fall into spare
        # ones.
        for column in range(row, dim, 4):
            first, second, third, fourth = wide[column], wide[column + 1], wide[column + 2], wide[column + 3]
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for j in range(count):
                a += line[j] * first[j]
                b += line[j] * second[j]
                c += line[j] * third[j]
                d += line[j] * fourth[j]
            gram[row, column] += a
            gram[row, column + 1] += b
            gram[row, column + 2] += c
            gram[row, column + 3] += d

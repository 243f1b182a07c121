"""An upper bound on the score of every candidate but the best, so that most of them need not be drawn.

In coordinates with θ* along the first axis a candidate is x = (c, y), c in the band [l, h] of mean rewards
over ‖θ*‖, ‖x‖ ≤ L. Its score is θ̂ᵀx + β√Q(x) + b‖V⁻¹x‖ with Q(x) = xᵀV⁻¹x and V⁻¹ = [[a, mᵀ], [m, Λ]].
Rotations of y do not change the law, so coordinates can be chosen in which Λ = diag(λ_i).

The bound. ‖V⁻¹x‖² ≤ ‖V⁻¹‖ Q(x), so the score is at most θ̂ᵀx + w√Q(x) with w = β + b‖V⁻¹‖^½. For every
s > 0, w√Q ≤ s Q + w²/(4s); and for every μ ≥ 0, adding μ(L² − ‖x‖²) ≥ 0 does not lower it. What is left is
a quadratic function of y, concave if all e_i = μ − sλ_i > 0, whose maximum over all y is known:

    score(x) ≤ w²/(4s) + μL² + ¼Σ θ̂_i²/e_i + max over c in [l, h] of (p c − q c²),
    p = θ̂₁ + s Σ m_iθ̂_i/e_i,   q = μ − s a − s² Σ m_i²/e_i.

Any (s, μ) gives a bound, however it was found. The right side is jointly convex in them (for each x it is
w²/(4s) and something linear, and this is their maximum over x), so that two nested searches find the least.

With a part c of the bonus (`Tempered`) scores are lines in c, and the highest of all others a maximum of
lines: convex in c. So the line from a bound at c = 0 to one at c = 1 is a bound for all c between.

Rounding. The kernels' scores are single precision sums of fewer than 4d + 64 roundings, so that each part is
off by at most η = (4d + 64)·2⁻²⁴ of the sum of its terms' absolute values: η(|θ̂₁| + ‖θ̂_⊥‖)L in the linear
part, ηQ₊ and ηN₊ under the two roots, η of each root after it. All are added here, and band and ball widened
by η, so that the bound is one on the *computed* scores. With a part of the bonus, what is added is
constant or linear in c as well: the line, too, bounds computed scores.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from feducb.simulation.backends.parallel import Spread, all_here, kept_on_disk
from feducb.simulation.backends.tiles import Beliefs, World, padded
from feducb.types import Array, Belief

__all__ = ["Aligned", "Ball", "align", "bound_lines", "highest_score", "highest_scores", "rounding"]

_BRACKET = 16.0  # searches of s and of the gap cover a factor e^16 …
_THIRDS = 24  # … and end within one of e^0.001; a minimum is flat


class Aligned(NamedTuple):
    """Beliefs in coordinates that make all of V⁻¹ but its first row and column diagonal.

    Attributes:
        frame: (B, d, d), the rotations; x in the belief's coordinates is ``frame @ x`` of these.
        theta: (B, d), θ̂.
        cross: (B, d), a and m, the first row of V⁻¹.
        values: (B, d), λ from the second entry on; the first is 0.
        widths: (B, 2), β and b.
        largest: (B,), ‖V⁻¹‖.
    """

    frame: Array
    theta: Array
    cross: Array
    values: Array
    widths: Array
    largest: Array

    def in_single_precision(self, bounds: Array) -> Beliefs:
        """As kernels score by them, with bounds (B, 2) on the scores of others."""
        theta, cross, values = (padded(part) for part in (self.theta, self.cross, self.values))
        return Beliefs(theta, cross, values, self.widths.astype(np.float32), bounds)


class Ball(NamedTuple):
    """Where candidates lie: ‖x‖ ≤ ``longest``, and c between ``low`` and ``high``."""

    longest: float
    low: float
    high: float


def align(belief: Belief) -> Aligned:
    """Choose coordinates for beliefs with the leading axis (B,)."""
    # Rounding makes an inverse slightly lopsided, and eigh reads one triangle only.
    inverse = (belief.inverse + np.swapaxes(belief.inverse, -1, -2)) / 2.0
    values, frame = np.zeros(belief.theta.shape), np.zeros(inverse.shape)
    frame[:, 0, 0] = 1.0
    # The first axis is θ*'s and stays: means are read off it. The law is the same under rotations of the
    # rest.
    values[:, 1:], frame[:, 1:, 1:] = np.linalg.eigh(inverse[:, 1:, 1:])
    return Aligned(
        frame=frame,
        theta=np.einsum("bij,bi->bj", frame, belief.theta),
        cross=np.einsum("bij,bi->bj", frame, inverse[:, 0]),
        values=values,
        widths=np.stack([belief.ellipsoid_width, belief.euclidean_width], axis=-1),
        largest=np.asarray(np.linalg.eigvalsh(inverse)[:, -1], np.float64),
    )


def rounding(dim: int) -> float:
    """η, the relative error of a sum of fewer than 4d + 64 terms in single precision."""
    return (4.0 * dim + 64.0) * 2.0**-24


@njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _value(s: float, gap: float, belief: Aligned, top: float, ball: Ball) -> Any:
    """The bound at s and μ = s·max λ + gap, but for its terms in s alone."""
    theta, cross, values = belief.theta, belief.cross, belief.values
    longest, low, high = ball
    mu = s * top + gap
    base, p, q = 0.0, theta[0], mu - s * cross[0]
    for i in range(1, len(theta)):
        weight = 1.0 / (s * (top - values[i]) + gap)  # 1/e_i
        base += 0.25 * theta[i] * theta[i] * weight
        p += s * cross[i] * theta[i] * weight
        q -= s * s * cross[i] * cross[i] * weight
    # A parabola over [l, h]: an end, or the vertex if it opens downwards and lies inside.
    highest = max(p * low - q * low * low, p * high - q * high * high)
    if q > 0.0 and low < p / (2.0 * q) < high:
        highest = p * p / (4.0 * q)
    return mu * longest * longest + base + highest


@kept_on_disk
def highest_score(belief: Aligned, ball: Ball, eta: float) -> Any:
    """The least bound on the computed scores of candidates in a ball, for one belief (no leading axis).

    The best s is w/(2√Q) with Q ≤ L²‖V⁻¹‖. Given s and c, y is pulled by θ̂_⊥ + 2scm, and the best gap is
    about the length of that over 2L.
    """
    _, theta, cross, values, widths, largest = belief
    longest, high = ball.longest * (1.0 + eta), ball.high * (1.0 + eta)
    wider = Ball(longest, ball.low * (1.0 - eta), high)
    across, skew, top = 0.0, 0.0, 0.0
    for i in range(1, len(theta)):
        across += theta[i] * theta[i]
        skew += cross[i] * cross[i]
        top = max(top, values[i])
    across, skew = math.sqrt(across), math.sqrt(skew)
    linear = (abs(theta[0]) + across) * longest
    quadratic = (abs(cross[0]) + 2.0 * skew + top) * longest * longest  # Q₊
    length = ((abs(cross[0]) + skew) ** 2 + (skew + top) ** 2) * longest * longest  # N₊
    excess = eta * max(quadratic, length / largest)  # what rounding may add to Q
    weight = max((widths[0] + widths[1] * math.sqrt(largest)) * (1.0 + eta), 1e-300)  # w

    # s = w/(2√Q) with Q ≤ L²‖V⁻¹‖: the search starts at half of the least that s can be, and covers e^16
    # above it.
    left, at_left, at_right = math.log(weight / (4.0 * longest * math.sqrt(largest))), 0.0, 0.0
    right = left + _BRACKET
    for _ in range(_THIRDS):
        third = (right - left) / 3.0
        for side in range(2):
            s = math.exp(left + (1 + side) * third)
            pull = 0.0
            for i in range(1, len(theta)):
                pull += (theta[i] + 2.0 * s * high * cross[i]) ** 2
            upper = math.log(math.sqrt(pull) / (2.0 * longest) + 1e-12 * (1.0 + s * top)) + 4.0
            lower, at_lower, at_upper = upper - _BRACKET, 0.0, 0.0
            for _ in range(_THIRDS):
                step = (upper - lower) / 3.0
                at_lower = _value(s, math.exp(lower + step), belief, top, wider)
                at_upper = _value(s, math.exp(upper - step), belief, top, wider)
                if at_lower < at_upper:
                    upper -= step
                else:
                    lower += step
            # The two sides of the outer search share this body: after the second, `at_left` holds the first
            # one's value.
            at_left = at_right
            at_right = min(at_lower, at_upper) + s * excess + weight * weight / (4.0 * s)
        if at_left < at_right:
            right -= third
        else:
            left += third
    return eta * linear + min(at_left, at_right)


def highest_scores(world: World, beliefs: Aligned, eta: float, spread: Spread = all_here) -> Array:
    """For each belief, a score that no candidate but number 0 exceeds; infinite where all are needed."""
    if world.arms == 1:
        return np.full(len(beliefs.theta), -math.inf)
    if not world.separate:  # any candidate may have the highest mean, from which regret counts
        return np.full(len(beliefs.theta), math.inf)
    ball, bounds = _others(world), np.empty(len(beliefs.theta))

    def work(first: int, last: int) -> None:
        for number in range(first, last):
            bounds[number] = highest_score(Aligned(*(part[number] for part in beliefs)), ball, eta)

    spread(len(bounds), work)
    # Where a search fails (a belief with infinite widths, say) everything is drawn: slower, never wrong.
    return np.where(np.isfinite(bounds), bounds, math.inf)


def bound_lines(world: World, beliefs: Aligned, eta: float, full: float = 1.0) -> Array:
    """(B, 2), floor and rise: with a part c of the bonus no candidate but number 0 exceeds floor + c·rise.

    Args:
        world: the environment.
        beliefs: whose scores.
        eta: their rounding.
        full: the chance of the whole bonus; at 1 no other c is played, and none is covered.
    """
    top = highest_scores(world, beliefs, eta)
    if full == 1.0:
        return np.stack([top, np.zeros_like(top)], axis=-1)
    # An infinite end has no rise: all are drawn, or there are none.
    floor = np.where(np.isfinite(top), _highest_estimates(beliefs, _others(world), eta), top)
    rise = np.subtract(top, floor, out=np.zeros_like(top), where=np.isfinite(top))
    return np.stack([floor, rise], axis=-1)


def _others(world: World) -> Ball:
    """Where all candidates but number 0 lie."""
    low, high = (edge / world.parameter_norm for edge in world.others)
    return Ball(world.action_bound, low, high)


def _highest_estimates(beliefs: Aligned, ball: Ball, eta: float) -> Array:
    """(B,), bounds on the computed θ̂ᵀx: the maximum over c of θ̂₁c + ‖θ̂_⊥‖√(L² − c²), which is concave."""
    along, across = beliefs.theta[:, 0], np.linalg.norm(beliefs.theta[:, 1:], axis=-1)
    longest = ball.longest * (1.0 + eta)
    free = longest * along / np.maximum(np.hypot(along, across), 1e-300)
    at = np.clip(free, ball.low * (1.0 - eta), ball.high * (1.0 + eta))
    highest = along * at + across * np.sqrt(np.maximum(longest**2 - at**2, 0.0))
    return np.asarray(highest + eta * (np.abs(along) + across) * longest)

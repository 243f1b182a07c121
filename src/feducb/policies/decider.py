"""One agent's decisions, one visitor a call, as fast as Python can be asked.

`Optimistic` and `Tempered` say what is chosen; a `Decider` chooses the same from one belief, kept ready.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from feducb.config import require_finite
from feducb.errors import ConfigurationError
from feducb.policies.optimistic import best_by_bound, upper_confidence_bounds
from feducb.policies.tempered import Tempered
from feducb.types import Belief

__all__ = ["Decider"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_FLOAT64 = np.dtype(np.float64)
_SIEVED_DIM = 24  # as `lines.MANY`
_BLOCKS = 4  # a V⁻¹ of which one in so many entries is not zero is for actions that are mostly zero too


class _Kernels(NamedTuple):
    """For one visitor and for many (`best_action`)."""

    best: Any
    best_of_many: Any
    tempered: Any
    chances: Any
    bound: Any


@dataclass(frozen=True, eq=False, slots=True)
class Decider:
    """Chooses actions on one belief, exactly as `Optimistic` or `Tempered` does: of equal scores the first.

    Where rounding could decide, the choice is left to the policy; without numba, all of them are.

    Attributes:
        belief: what is known; a copy is kept. Leading axes must have length 1.
        exploration: scales both widths; 1 is the proven bound.
    """

    belief: Belief
    exploration: float = 1.0
    _state: Array = field(init=False, repr=False)
    _kernels: _Kernels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        belief = _single(self.belief)
        exploration = require_finite("exploration", self.exploration)
        for name, value in (
            ("belief", belief),
            ("exploration", exploration),
            ("_state", _packed(belief, exploration)),
            ("_kernels", _kernels()),
        ):
            object.__setattr__(self, name, value)

    def decide(self, actions: ArrayLike) -> int:
        """Choose for one visitor.

        Args:
            actions: (K, d), the candidates. Contiguous float64 is read where it lies, all else is copied.

        Returns:
            The index of the best one.
        """
        try:
            index: int = self._kernels.best(_ready(actions), self._state)
        except TypeError:  # not two axes
            index = -1
        if index < 0:
            index = int(self._by_reference(self._checked(actions, 2)[None])[0])
        return index

    def temper(self, actions: ArrayLike, coin: float, policy: Tempered) -> tuple[int, float]:
        """Choose for one visitor as a tempered policy does.

        Args:
            actions: (K, d), as for `decide`.
            coin: uniform on [0, 1).
            policy: which one.

        Returns:
            The index of the chosen one, and the chance with which it was chosen.
        """
        if self.exploration != 1.0:
            raise _unproven(self.exploration)
        try:
            index, chance = self._kernels.tempered(_ready(actions), self._state, policy.full, coin)
        except TypeError:  # not two axes
            index, chance = -1, math.nan
        if index < 0:
            several = policy.decide(self.belief, self._checked(actions, 2)[None], np.array([coin]))
            index, chance = int(several[0][0]), float(several[1][0])
        return index, chance

    def tempered_chances(self, actions: ArrayLike, policy: Tempered) -> Array:
        """(K,), the chance with which a tempered policy chooses each of the candidates (K, d)."""
        if self.exploration != 1.0:
            raise _unproven(self.exploration)
        try:
            chances: Array = self._kernels.chances(_ready(actions), self._state, policy.full)
        except TypeError:
            chances = np.full(1, np.nan)
        if math.isnan(chances[0]):
            chances = policy.propensities(self.belief, self._checked(actions, 2)[None])[0]
        return chances

    def decide_many(self, actions: ArrayLike) -> Indices:
        """Choose for many visitors.

        Args:
            actions: (R, K, d), the K candidates of each of R visitors.

        Returns:
            (R,), the index of the best one for each.
        """
        try:
            chosen: Indices = self._kernels.best_of_many(_as_floats(actions), self._state)
        except TypeError:  # not three axes
            chosen = np.full(1, -1)
        if (chosen < 0).any():
            chosen = self._by_reference(self._checked(actions, 3))
        return chosen

    def score(self, actions: ArrayLike) -> Array:
        """The upper confidence bound of each candidate: (..., K, d) to (..., K)."""
        given = _as_real(actions)
        checked = self._checked(given, max(2, given.ndim))
        flat = checked.reshape(-1, checked.shape[-1])
        scores = upper_confidence_bounds(self.belief, flat, exploration=self.exploration)
        return scores.reshape(checked.shape[:-1])

    def judge(self, action: Array) -> tuple[float, float]:
        """The likeliest mean reward of one action (d,), and its upper confidence bound."""
        ready = _ready(action)
        bound = self._kernels.bound(ready, self._state)
        return float(ready @ self.belief.guess), float(self.score(ready[None])[0]) if math.isnan(
            bound
        ) else bound

    def _by_reference(self, actions: Array) -> Indices:
        return best_by_bound(self.belief, actions, exploration=self.exploration)

    def _checked(self, actions: ArrayLike, axes: int) -> Array:
        """The actions as an array, or an error that says what is wrong with them."""
        given, dim = _as_real(actions), len(self.belief.theta)
        if given.ndim != axes or given.shape[-1] != dim or given.shape[-2] == 0:
            expected = f"({'R, ' * (axes > 2)}K, {dim}) with K ≥ 1"
            raise ConfigurationError("actions", f"of shape {given.shape}", expected)
        finite = np.isfinite(given)
        if not finite.all():
            place = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise ConfigurationError("actions", f"{given[place]} at {place}", "finite numbers")
        return given


def _unproven(exploration: float) -> ConfigurationError:
    return ConfigurationError("exploration", exploration, "1 beside a tempered policy")


def _as_real(actions: ArrayLike) -> Array:
    try:
        given = np.asarray(actions)
    except ValueError:
        raise ConfigurationError("actions", "ragged", "as many numbers in every row") from None
    if given.dtype.kind not in "fiu":
        raise ConfigurationError("actions", f"of type {given.dtype}", "real numbers")
    return given


def _as_floats(actions: ArrayLike) -> Array:
    """As the kernel reads them; copied only if they are something else."""
    return np.require(_as_real(actions), _FLOAT64, ["C", "A"])


def _ready(actions: ArrayLike) -> Array:
    if type(actions) is ndarray and actions.dtype is _FLOAT64 and actions.flags.c_contiguous:
        return actions
    return _as_floats(actions)


@cache
def _kernels() -> _Kernels:
    """Those that are compiled; without numba, stand-ins that leave it undecided."""
    try:
        from feducb.policies.best_action import best_action, best_actions
        from feducb.policies.lines import bound_of
        from feducb.policies.tempered_action import tempered_action, tempered_chances
    except ImportError:
        return _Kernels(_undecided_one, _undecided_many, _undecided_tempered, _no_chances, _no_bound)
    return _Kernels(best_action, best_actions, tempered_action, tempered_chances, bound_of)


def _undecided_one(actions: Array, state: Array) -> int:
    return -1


def _undecided_many(actions: Array, state: Array) -> Indices:
    return np.full(1, -1)


def _undecided_tempered(actions: Array, state: Array, full: float, coin: float) -> tuple[int, float]:
    return -1, math.nan


def _no_chances(actions: Array, state: Array, full: float) -> Array:
    return np.full(1, math.nan)


def _no_bound(action: Array, state: Array) -> float:
    return math.nan


def _single(belief: Belief) -> Belief:
    """A copy of one agent's belief, without leading axes."""
    dim = np.shape(belief.theta)[-1] if np.ndim(belief.theta) else 0
    shapes: dict[str, tuple[int, ...]] = {"theta": (dim,), "inverse": (dim, dim)}
    shapes |= {"ellipsoid_width": (), "euclidean_width": ()}
    if belief.estimate is not None:
        shapes["estimate"] = (dim,)
    parts = {}
    for name, shape in shapes.items():
        part = np.array(getattr(belief, name), dtype=np.float64, order="C")
        if dim == 0 or part.shape != (1,) * (part.ndim - len(shape)) + shape:
            raise ConfigurationError(f"belief.{name}", f"of shape {part.shape}", f"{shape}, of one agent")
        if not np.isfinite(part).all():
            raise ConfigurationError(f"belief.{name}", part.tolist(), "finite numbers")
        part.flags.writeable = False
        parts[name] = part.reshape(shape)
    return Belief(**parts)


def _packed(belief: Belief, exploration: float) -> Array:
    """All that the kernel reads, in one array (`kernels`)."""
    widths = float(exploration * belief.ellipsoid_width), float(exploration * belief.euclidean_width)
    theta = belief.centre(exploration)
    rounding, sieves = _rounding(theta, belief.inverse, *widths), _sieves(theta, belief.inverse, *widths)
    header = np.array([len(theta), *widths, rounding, *sieves])
    parts = [header, theta, belief.inverse.ravel()]
    if sieves[1]:
        dim = len(theta)
        singles = np.zeros((dim + dim % 2, dim + dim % 2), dtype=np.float32)
        singles[:dim, :dim] = np.tril(belief.inverse + belief.inverse.T, -1)
        np.fill_diagonal(singles[:dim, :dim], np.diagonal(belief.inverse))
        parts.append(singles.ravel().view(np.float64))
    return np.concatenate(parts)


def _sieves(theta: Array, inverse: Array, ellipsoid: float, euclidean: float) -> tuple[float, float, float]:
    """At ‖x‖ = 1, a bound on β√(xᵀV⁻¹x), what single precision moves xᵀV⁻¹x by, and what to expect.

    Of few dimensions, over blocks, beside another width, and where single precision could over- or underflow,
    the second is 0: no sieves then. ‖A‖ ≤ ‖A¹⁶‖_F^(1/16) ≤ d^(1/32)‖A‖ takes four products, a tenth of the
    time that eigenvalues take. With γ a bound on the relative error of a sum of d in single precision,
    xᵀV⁻¹x, which is a sum of sums, is off by 2γ‖V⁻¹‖_F at most.
    """
    size, length = (math.sqrt(part @ part) for part in (inverse.ravel(), theta))
    usual = all(part == 0.0 or 1e-10 < part < 1e10 for part in (length, ellipsoid))
    blocks = _BLOCKS * np.count_nonzero(inverse) <= inverse.size
    if len(theta) < _SIEVED_DIM or blocks or euclidean or not usual or not 1e-10 < size < 1e10:
        return math.inf, 0.0, 0.0
    power = inverse / size
    for _ in range(4):
        power = power @ power
    norm = size * math.sqrt(power.ravel() @ power.ravel()) ** (1 / 16) * (1.0 + 1e-9)
    gamma = (len(theta) + 4) * float(np.finfo(np.float32).eps)
    usually = ellipsoid * math.sqrt(max(float(np.trace(inverse)), 0.0) / len(theta))
    return ellipsoid * math.sqrt(norm), 3.0 * gamma * size, usually


def _rounding(theta: Array, inverse: Array, ellipsoid: float, euclidean: float) -> float:
    """How far apart, at ‖x‖ = 1, rounding can move two scores, each computed in two orders.

    With γ a bound on the relative error of the sums and A = ‖V⁻¹‖_F: xᵀθ̂ is off by γ‖θ̂‖ at most, ‖V⁻¹x‖
    by γA, and xᵀV⁻¹x by γA, hence its root by √(γA). That is much for most x, but needs no eigenvalues.
    """
    gamma = 4.0 * (len(theta) + 4) * float(np.finfo(np.float64).eps)
    size, length = (math.sqrt(part @ part) for part in (inverse.ravel(), theta))
    sums = length + abs(ellipsoid) * math.sqrt(size) + abs(euclidean) * size
    return 4.0 * (gamma * sums + abs(ellipsoid) * math.sqrt(gamma * size))

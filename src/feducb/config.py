"""Settings: frozen, validated once, when they are made.

Names are words here and symbols in the mathematics; docs/notation.md maps one to the other.
"""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any, Literal, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError

__all__ = ["Budget", "Mode", "Problem", "require_finite", "require_integer", "require_probability"]

Mode = Literal["calibrated", "paper"]

_LARGEST_EPSILON = 1e9
_ROUNDING = 1.0 + 1e-9  # what was scaled to a bound exactly may come out a little over it
_LARGEST = 2**31 - 1  # nothing that is counted here is more; far below where 64 bits wrap


def require_integer(setting: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``at_least``, else raise."""
    expected = f"a whole number of at least {at_least}"
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ConfigurationError(setting, value, expected)
    number = operator.index(value)
    if number < at_least:
        raise ConfigurationError(setting, value, expected)
    if number > _LARGEST:
        raise ConfigurationError(setting, value, f"{expected} and at most {_LARGEST}")
    return number


def require_finite(
    setting: str, value: float, *, above: float | None = None, at_least: float | None = None
) -> float:
    """Return ``value`` as a float if it is finite and in range, else raise."""
    expected = "a finite number"
    if above is not None:
        expected += f" above {above:g}"
    if at_least is not None:
        expected += f" of at least {at_least:g}"
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise ConfigurationError(setting, value, expected)
    number = float(value)
    in_range = (above is None or number > above) and (at_least is None or number >= at_least)
    if not (math.isfinite(number) and in_range):
        raise ConfigurationError(setting, value, expected)
    return number


def require_probability(setting: str, value: float) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1, else raise."""
    if isinstance(value, bool) or not isinstance(value, SupportsFloat) or not 0.0 < float(value) < 1.0:
        raise ConfigurationError(setting, value, "a number strictly between 0 and 1")
    return float(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is known in public about the linear bandit.

    Attributes:
        dim: length d of an action vector.
        action_bound: L, every action has ``‖x‖ ≤ L``.
        reward_bound: B, every reward has ``|y − c| ≤ B``.
        parameter_bound: S, the unknown parameter has ``‖θ*‖ ≤ S``: that of rewards less c.
        noise_scale: σ, rewards are σ-sub-Gaussian around ``⟨x, θ*⟩`` (½ for rewards in [0, 1]).
        reward_centre: c, taken off each reward before anything else is done with it, so that B is half of
            the rewards' range: ½ with B = ½ for rewards in [0, 1]. Other than 0 it needs a direction in which
            all actions have the same entry, such as a constant column (docs/theory.md, 1).
    """

    dim: int
    action_bound: float = 1.0
    reward_bound: float = 1.0
    parameter_bound: float = 1.0
    noise_scale: float = 0.5
    reward_centre: float = 0.0

    def __post_init__(self) -> None:
        require_integer("dim", self.dim, at_least=1)
        for name in ("action_bound", "reward_bound", "parameter_bound", "noise_scale"):
            value = require_finite(name, getattr(self, name), above=0)
            if not 1e-6 <= value <= 1e6:
                raise ConfigurationError(name, value, "a number from 1e-6 to 1e6: rescale the problem")
        if abs(require_finite("reward_centre", self.reward_centre)) > 1e6:
            raise ConfigurationError("reward_centre", self.reward_centre, "a number from -1e6 to 1e6")

    @property
    def reward_range(self) -> tuple[float, float]:
        """The least and the largest reward, c − B and c + B."""
        return self.reward_centre - self.reward_bound, self.reward_centre + self.reward_bound

    def pays(self, reward: float) -> bool:
        """Whether a reward is in the public range; what is not finite is not."""
        return abs(reward - self.reward_centre) <= self.reward_bound * _ROUNDING

    def short_enough(self, vectors: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which rows (K, d) are of length at most L; what is not finite is not."""
        with np.errstate(over="ignore"):  # what overflows is too long
            return np.asarray(np.vecdot(vectors, vectors) <= (self.action_bound * _ROUNDING) ** 2)

    def require_short(self, vectors: NDArray[np.float64], name: str, where: str = "") -> None:
        """Rows (K, d) must be of length at most L; an error names the first that is not."""
        fits = self.short_enough(vectors)
        if not fits.all():  # nothing that is not a number fits
            place = int(np.argmin(fits))
            raise ConfigurationError(
                f"{name}[{place}]{where}",
                f"of length {math.hypot(*vectors[place]):g}",
                f"finite numbers, of length at most {self.action_bound:g}",
            )

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for files; that rewards are not centred goes without saying, as it always did."""
        plain = asdict(self)
        if not self.reward_centre:
            del plain["reward_centre"]
        return plain


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """One agent's privacy budget: everything that ever leaves it is (epsilon, delta)-private.

    Attributes:
        epsilon: ε > 0.
        delta: 0 < δ < 1; one record in 1/δ may be published in clear, so keep it far below 1/records.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_finite("epsilon", self.epsilon, above=0)
        if self.epsilon > _LARGEST_EPSILON:
            raise ConfigurationError(
                "epsilon", self.epsilon, f"at most {_LARGEST_EPSILON:g}: more is no privacy"
            )
        require_probability("delta", self.delta)

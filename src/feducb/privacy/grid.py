"""Gaussian noise on a grid: what is drawn, what is shipped, and what is certified.

Noise drawn in floating point leaks through its low bits, so deployed noise is a discrete Gaussian on g·ℤ, g a
power of two, drawn by OpenDP. Its privacy curve is the exact Gaussian one of a deviation smaller by a
relative 2(g/s)², up to a factor below 1 + 1e-18 (docs/theory.md, "Noise on a grid"); OpenDP's own map would
ask for 6 to 26 % more noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from feducb.config import Budget
from feducb.errors import ConfigurationError, PrivacyError
from feducb.privacy.calibration import sigma_of
from feducb.privacy.mechanisms import Mechanism
from feducb.system import optional

__all__ = [
    "FINE_BITS",
    "Certificate",
    "GridNoise",
    "certify",
    "choose_grid",
    "draw_whole",
    "entry_variance",
    "log_delta",
    "rounding_radius",
    "total",
]

Ints = NDArray[np.int64]

SMOOTHING = 2  # η of the theorem, in grid steps
MAX_COORDINATES = 10**15  # then N·κ(η) < 1.1e-19, far inside MARGIN
MARGIN = 1e-9  # for float error in the curve and for N·κ, on ε and on log δ
ROUNDING = 2.0**-16  # share of the sensitivity that rounding to the grid may add
ROUNDING_STEPS = 1.0 + 2.0**-16  # a rounded row moves by at most so many steps more than the exact one
MAX_SIGMA = 2**50  # then |noise| < 2^61, but with probability exp(−2^21)
MAX_VALUE = 2**62  # |value| in grid steps
_SLACK = 1.0 + 2.0**-9  # on variances: what grid noise and rounding add to a Gaussian (docs/theory.md)
FINE_BITS = 16  # records and batch sums are kept so many bits finer than releases


def choose_grid(sensitivity: float, *, coordinates: int, releases: int) -> int:
    """Exponent of the largest power of two at which rounding adds at most ROUNDING of the sensitivity.

    It depends on neither ε nor δ: agents of different budgets share a grid, and their integers add.
    """
    steps = math.sqrt(coordinates) * (1.0 + math.sqrt(releases))
    return math.floor(math.log2(ROUNDING * sensitivity / steps) - 1e-9)


def log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of the Gaussian curve: log(Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ))."""
    first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    share = -math.expm1(epsilon + second - first)
    if share < 1e-5:
        raise PrivacyError(
            f"the Gaussian curve cannot be evaluated to nine digits at epsilon {epsilon:g}, mu {mu:g}"
        )
    return float(first + math.log(share))


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """A noise level on a grid, with its guarantee.

    Attributes:
        budget: what is claimed.
        sensitivity: Δ in real units, rounding included.
        exponent: the grid is g = 2^exponent.
        sigma: deviation of the noise that one agent adds to a coordinate, in grid steps; a whole number.
        coordinates: q.
        releases: n.
        shares: H, how many such noises at least are in whatever is seen (docs/theory.md, 9).
    """

    budget: Budget
    sensitivity: float
    exponent: int
    sigma: int
    coordinates: int
    releases: int
    shares: int = 1

    @property
    def scale(self) -> float:
        """Deviation of the noise that one agent adds to a coordinate, in real units."""
        return math.ldexp(float(self.sigma), self.exponent)

    @property
    def mu(self) -> float:
        """The stream is μ-GDP, up to factors that MARGIN covers."""
        return self.mu_with(self.shares)

    def mu_with(self, shares: int) -> float:
        """μ where so many shares of noise are in whatever is seen, and not those that are certified."""
        smoothed = math.sqrt(float(shares * self.sigma**2 - SMOOTHING**2))
        return self.sensitivity / math.ldexp(smoothed, self.exponent)

    def check(self) -> None:
        """Raise unless the noise reaches the claim, with margins for rounding in this very computation."""
        if self.coordinates * self.releases * self.shares > MAX_COORDINATES:
            raise ConfigurationError(
                "releases",
                self.releases,
                f"at most {MAX_COORDINATES // (self.coordinates * self.shares)} at this dimension",
            )
        if not 16 <= self.sigma <= MAX_SIGMA:
            raise ConfigurationError(
                "epsilon", self.budget.epsilon, "a budget whose noise is between 16 and 2^50 grid steps"
            )
        try:
            claimed = log_delta(self.budget.epsilon - MARGIN, self.mu * (1.0 + MARGIN)) + MARGIN
        except PrivacyError:
            raise ConfigurationError(
                "epsilon", self.budget.epsilon, "a budget large enough to certify to nine digits"
            ) from None
        if not claimed <= math.log(self.budget.delta):
            raise PrivacyError(f"noise of {self.sigma} grid steps does not reach the claim {self.budget}")


def certify(
    budget: Budget,
    *,
    sensitivity: float,
    coordinates: int,
    releases: int,
    reach: float = 1.0,
    shares: int = 1,
) -> Certificate:
    """The least noise (to 1e-7) that makes the whole stream (ε, δ)-private.

    Args:
        budget: what is to be claimed.
        sensitivity: √2 R², how far one record moves the stream of exact values.
        coordinates: q.
        releases: n, all of which a record may touch.
        reach: how far all records of a person move the stream, in moves of one (`Terms.reach`).
        shares: H, between how many agents the noise is divided (`Trust.shares`).
    """
    exponent = choose_grid(sensitivity, coordinates=coordinates, releases=releases)
    grid = math.ldexp(1.0, exponent)
    # A record is rounded once on entry (columns of E are at most 1 long), and each row it touches once more.
    # Where noise is shared out each agent rounds rows of its own, and a record may be at another (theory, 9).
    rows = (1.0 if shares == 1 else 2.0) * ROUNDING_STEPS * math.sqrt(releases)
    one = sensitivity + grid * math.sqrt(coordinates) * (1.0 + rows)
    # All of a person's are; but rows are rounded once whatever she has, so reach × that is more than enough.
    whole = reach * one * (1.0 + 1e-12)
    smoothed = sigma_of(budget) * (whole / grid) * (1.0 + 1e-7)
    certificate = Certificate(
        budget=budget,
        sensitivity=whole,
        exponent=exponent,
        sigma=math.ceil(math.hypot(smoothed, SMOOTHING) / math.sqrt(shares)),
        coordinates=coordinates,
        releases=releases,
        shares=shares,
    )
    certificate.check()
    return certificate


def entry_variance(certificate: Certificate, mechanism: Mechanism, number: int) -> float:
    """Variance of an off-diagonal entry of the Gram in an agent's release ``number``: public."""
    entry = certificate.scale / math.sqrt(2.0)  # an off-diagonal entry is its coordinate over √2
    return (entry * float(mechanism.error(number))) ** 2 * _SLACK


def rounding_radius(dim: int) -> float:
    """How far a sum on the grid is from one under Gaussian noise, in the norm of `MixtureBound`'s Σ⁻¹."""
    return (math.sqrt(_SLACK) - 1.0) * math.sqrt(2.0 * dim / 3.0)


def total(parts: Iterable[Ints]) -> Ints:
    """Exact sum, the same in any order; refuses to wrap."""
    kept = [np.asarray(part, dtype=np.int64) for part in parts]
    if sum(max(int(part.max()), -int(part.min())) for part in kept) >= 2**63:
        raise OverflowError("the sum of the releases may not fit 64 bits")
    return np.asarray(np.sum(kept, axis=0, dtype=np.int64))


class GridNoise:
    """Fresh noise from OpenDP for a checked certificate. There is no seed, on purpose."""

    def __init__(self, certificate: Certificate) -> None:
        certificate.check()
        self._measure = _discrete_gaussian(certificate.sigma)

    def draw(self, count: int) -> Ints:
        """``count`` independent draws, in grid steps."""
        return np.array(self._measure([0] * count), dtype=np.int64)


def draw_whole(sigma: int) -> int:
    """One draw of N_ℤ(0, σ²). There is no seed, on purpose."""
    return int(_discrete_gaussian(sigma)([0])[0])


def _discrete_gaussian(sigma: int) -> Any:
    """OpenDP's measurement that adds N_ℤ(0, σ²) to each of some whole numbers."""
    with optional("drawing deployed noise", "deploy"):
        import opendp.prelude as dp  # a large library: only what is deployed loads it
    dp.enable_features("contrib")
    return dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64")),  # T=int would be 32 bits, and OpenDP saturates silently
        dp.l2_distance(T="f64"),
        scale=float(sigma),
    )

"""How a season reads its sums together with those of earlier seasons: by weights that all know beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.models.joint import weight_of
from feducb.models.play import ReleasedPlay
from feducb.models.remembering import Fading, RememberingPlay
from feducb.privacy.noise_law import joint_threshold
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation
from feducb.protocol.team_noise import TeamNoise, bound_for
from feducb.types import Array, ReleasedSum

__all__ = ["Past", "Seasons", "recalling", "weigh"]

_MOST_RELEASES = 1024  # of a season whose F is written out


@dataclass(frozen=True, kw_only=True, slots=True)
class Seasons:
    """How many seasons there are, and what of a season outlives it.

    Attributes:
        count: how many, each with a budget of its own.
        remember: earlier seasons whose last sums are read: ``all``, ``none``, or how many.
        discount: what such a sum counts less with each season that has passed since.
        half_life: in how many rounds what was learnt counts half; None: it does not fade.
    """

    count: int = 1
    remember: str | int = "all"
    discount: float = 1.0
    half_life: float | None = None

    def __post_init__(self) -> None:
        require_integer("seasons", self.count, at_least=1)
        counted = type(self.remember) is int and self.remember >= 1
        if self.remember not in ("all", "none") and not counted:
            raise ConfigurationError("remember", self.remember, "all, none, or how many seasons, at least 1")
        if require_finite("discount", self.discount, above=0) > 1.0:
            raise ConfigurationError("discount", self.discount, "a factor above 0 and at most 1")
        if self.half_life is not None:
            require_finite("half_life", self.half_life, above=0)
            if self.discount != 1.0:
                raise ConfigurationError("discount", self.discount, "1 beside a half-life")

    @property
    def plain(self) -> bool:
        """Whether there is one season, and nothing fades in it."""
        return self.count == 1 and self.half_life is None

    @property
    def remembered(self) -> int:
        """How many earlier seasons are read at most."""
        if isinstance(self.remember, int):
            return self.remember
        return self.count if self.remember == "all" else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """A season that is over, as far as the next ones remember it.

    Attributes:
        total: its last sum; with fading, what its sums came to at the last.
        records: how many records that is, as planned, all agents together.
        left: (n + 1,), what is left of it at each release of the open season, first before any: 1 where
            nothing is forgotten.
    """

    total: ReleasedSum
    records: float
    left: tuple[float, ...]

    @property
    def variance(self) -> float:
        """w of its noise; the same in all runs."""
        return float(np.max(self.total.variance))


def weigh(federation: Federation, residual: float, parts: Sequence[tuple[float, float, float]]) -> Array:
    """What each sum counts, the most 1: public.

    Records spread evenly give a moment the variance σ²g of rewards and wD̄ of privacy for a signal of g, so
    that sums tell most of θ* together if each counts g/(σ²g + wD̄), up to a factor; what is left of it is
    taken off.

    Args:
        federation: whose sums they are.
        residual: D̄.
        parts: of each, how many records it has, its variance and what is left of it.
    """
    problem = federation.problem
    evenly = problem.action_bound**2 / problem.dim
    made = np.array(
        [left * weight_of(problem, records * evenly, noise * residual, 0.0) for records, noise, left in parts]
    )
    largest = float(made.max(initial=0.0))
    return made / largest if largest else made


def recalling(
    federation: Federation,
    estimator: Estimator,
    team: Sequence[int],
    past: Sequence[Past],
    *,
    alpha: float,
    fading: Fading | None = None,
) -> RememberingPlay:
    """How a team reads its season's sums, that of each earlier season beside them.

    What leaves, and when, is the same with or without: it is planned for the season's own records.

    Args:
        federation: whose team it is.
        estimator: how it plays a season by itself.
        team: who adds up releases, by number.
        past: earlier seasons that are remembered.
        alpha: this estimator's share of α, for all readings of the season together.
        fading: how the season's own records fade.
    """
    problem, tuning, privatizer = federation.problem, federation.tuning, estimator.privatizer
    assert privatizer is not None
    if privatizer.mechanism.releases > _MOST_RELEASES:
        return _among_many(federation, estimator, team, past, alpha=alpha)
    mechanism, rounds = privatizer.mechanism, np.array(estimator.release_rounds, dtype=np.float64)
    noise = TeamNoise.of(federation, team, mechanism)
    scale, size = noise.whole, len(rounds)
    scales = tuple(federation.model.residual_scales(problem, noise.weight).tolist())
    own_rows = mechanism.decoder() if fading is None else fading.rows()
    own_records = len(team) * (rounds if fading is None else fading.records(rounds))
    variances = scale**2 * np.sum(own_rows**2, axis=1)
    weights = np.zeros((size + 1, 1 + len(past)))
    for number in range(size + 1):
        earlier = [(one.records, one.variance, one.left[number]) for one in past]
        own = (own_records[number - 1], variances[number - 1], 1.0) if number else (0.0, 1.0, 0.0)
        weights[number] = weigh(federation, scales[0], [own, *earlier])
    rows = np.zeros((size + 1, own_rows.shape[1] + len(past)))
    rows[1:, : own_rows.shape[1]] = weights[1:, :1] * own_rows
    if scale:
        lengths = np.sqrt([one.variance for one in past]) / scale
        rows[:, own_rows.shape[1] :] = weights[:, 1:] * lengths
    evenly = problem.action_bound**2 / problem.dim
    records = weights @ np.array([0.0, *(one.records for one in past)])
    records[1:] += weights[1:, 0] * own_records
    read = scale**2 * np.sum(rows**2, axis=1)

    def worth(number: int) -> bool:
        if records[number] <= 0.0:
            return False
        bound = bound_for(federation, noise, alpha=alpha, releases=size - number + 1)
        half = bound.half_axis(evenly * records[number], read[number])
        return not tuning.patience or half * tuning.patience <= problem.parameter_bound

    first = next((number for number in range(size + 1) if worth(number)), size + 1)
    log_threshold = None
    if tuning.simulated and scale and first <= size:
        prior = federation.prior * problem.noise_scale**2
        share = tuning.shares[0] * alpha
        log_threshold = joint_threshold(rows[first:], scales, share, scale=scale, prior=prior)
    bound = bound_for(
        federation, noise, alpha=alpha, releases=max(1, size - first + 1), log_threshold=log_threshold
    )
    sums = tuple(one.total for one in past)
    return RememberingPlay(bound=bound, first=first, past=sums, weights=weights, fading=fading)


def _among_many(
    federation: Federation, estimator: Estimator, team: Sequence[int], past: Sequence[Past], *, alpha: float
) -> RememberingPlay:
    """`recalling` where F would be too large: a union over readings, all sums counted alike but for age."""
    problem, rule, privatizer = federation.problem, estimator.rule, estimator.privatizer
    assert isinstance(rule, ReleasedPlay)
    assert privatizer is not None
    noise, size = TeamNoise.of(federation, team, privatizer.mechanism), len(estimator.release_rounds)
    weights = np.ones((size + 1, 1 + len(past)))
    for place, one in enumerate(past, start=1):
        weights[:, place] = one.left
    weights[0, 0] = 0.0
    weights /= weights.max(axis=1, keepdims=True).clip(1e-300)
    earlier = weights[0, 1:]
    evenly = problem.action_bound**2 / problem.dim * float(earlier @ [one.records for one in past])
    variance = float(earlier**2 @ [one.variance for one in past])
    bound = bound_for(federation, noise, alpha=alpha, releases=size + 1)
    patience = federation.tuning.patience
    at_once = evenly > 0.0 and bound.half_axis(evenly, variance) * patience <= problem.parameter_bound
    first = 0 if at_once else rule.first
    return RememberingPlay(
        bound=bound, first=first, past=tuple(one.total for one in past), weights=weights, fading=None
    )

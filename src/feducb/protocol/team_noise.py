"""The noise of a team's sum, the set that a sum leaves under it, and whether such a sum is worth reading."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.interfaces import ConfidenceSet
from feducb.privacy.calibration import noise_scale, to_mu
from feducb.privacy.mechanisms import Mechanism
from feducb.protocol.federation import Federation

__all__ = ["TeamNoise", "bound_for", "worth_reading"]

_FIRST_ERROR = 1.2  # of planned releases that are spread by use, at most: up to 16 of them


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamNoise:
    """The noise of a team's sum: √v of each part and of the whole (0 without privacy), and s."""

    scales: NDArray[np.float64]
    weight: float

    @property
    def whole(self) -> float:
        """Of all parts together."""
        return float(np.linalg.norm(self.scales))

    @classmethod
    def of(cls, federation: Federation, team: Sequence[int], mechanism: Mechanism | None = None) -> TeamNoise:
        """For the budgets of a team: all records of a person are covered (`Federation.reach`)."""
        if federation.baseline is not None:
            return cls(scales=np.zeros(len(team)), weight=1.0)
        problem, model, everybody = federation.problem, federation.model, federation.budgets
        weight = model.weight(problem) if federation.tuning.weighted else 1.0
        mus = {budget: to_mu(budget) for budget in set(everybody)}
        radius = federation.reach(mechanism) * model.radius(problem, weight)
        own = np.array([noise_scale(radius, mus[everybody[agent]]) for agent in team])
        return cls(scales=federation.trust.scales(own), weight=weight)


def worth_reading(
    federation: Federation, agents: int, noise: TeamNoise, *, alpha: float, rounds: int, releases: int
) -> bool:
    """Whether a sum after so many rounds is worth reading, by public numbers: a computation, not a look.

    M t records of length L, spread evenly over d directions, give G = (M t L²/d) I. Acting on the set that
    such a sum leaves costs up to twice its width per visitor; drawing uniformly costs what ‖θ*‖ ≤ S allows.
    So half an axis of it must be S/patience or less, at the noise of the first release that is read.
    """
    problem, patience = federation.problem, federation.tuning.patience
    bound = bound_for(federation, noise, alpha=alpha, releases=releases)
    evenly = agents * rounds * problem.action_bound**2 / problem.dim
    return bound.half_axis(evenly, (_FIRST_ERROR * noise.whole) ** 2) * patience <= problem.parameter_bound


def bound_for(
    federation: Federation,
    noise: TeamNoise,
    *,
    alpha: float,
    releases: int,
    log_threshold: float | None = None,
) -> ConfidenceSet:
    """The mixture set over so many releases that are read: a union over them unless a threshold is given.

    Without noise there is nothing to unite: it holds for all looks at the same records.
    """
    problem, model, private = federation.problem, federation.model, noise.whole > 0
    both, gram = (share * alpha for share in federation.tuning.shares) if private else (alpha, alpha)
    if log_threshold is None:
        log_threshold = math.log((releases if private else 1) / both)
    entry = model.entry_scale(problem, noise.weight) if private else None
    return model.released_set(
        problem=problem,
        log_threshold=log_threshold,
        gram_radius=model.gram_radius(problem.dim, releases, gram) if private else 0.0,
        residual=float(model.residual_scales(problem, noise.weight)[0]) if private else 0.0,
        regularizer=federation.prior,
        **({} if entry is None else {"entry": entry}),
    )

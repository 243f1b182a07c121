"""The statistical audit of one claim: neighbouring worlds, scores, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from feducb.audit.bounds import epsilon_from_counts, gaussian_epsilon, least_distance
from feducb.audit.canary import SCORES, Projection, placements, score_weights
from feducb.audit.findings import ClaimResult, ScoreResult
from feducb.audit.trials import Draws, Job
from feducb.privacy.calibration import to_mu
from feducb.privacy.terms import Terms

__all__ = ["OFFSETS", "Evidence", "claim_jobs", "judge"]

Array = NDArray[np.float64]
Evidence = Mapping[tuple[int, int], Draws]
"""Draws by (placement, world)."""

_AT_ONCE = 1_000
OFFSETS = (0.0, 0.5, 1.0, 1.5, 2.0)  # thresholds, in deviations beyond the middle between the worlds


def claim_jobs(subject: str, terms: Terms, trials: int) -> list[Job]:
    """``trials`` in each world, spread evenly over the placements of the canary, in jobs of a second."""
    places = placements(terms.releases)
    jobs = []
    for number, place in enumerate(places):
        own = trials // len(places) + (number < trials % len(places))
        for first in range(0, own, _AT_ONCE):
            jobs += [
                Job(
                    subject=subject,
                    terms=terms.to_json(),
                    placement=place,
                    world=world,
                    trials=min(_AT_ONCE, own - first),
                )
                for world in (0, 1)
            ]
    return jobs


def judge(terms: Terms, evidence: Evidence, level: float) -> ClaimResult:
    """Each score at each placement, and the optimal one pooled; half of ``level`` for each kind of bound.

    Pooling is fair: which batch holds the canary is public, and a mixture of (ε, δ)-private pairs of worlds
    over a public choice is (ε, δ)-private.
    """
    places = placements(terms.releases)
    samples: dict[tuple[str, int], tuple[Array, Array]] = {}
    for place in places:
        projection, weights = Projection.of(terms, place), score_weights(terms, place)
        for score in SCORES:
            # The middle between the worlds by the certified noise: thresholds are set before any draw.
            middle = projection.distance * float(weights[score][place:].sum()) / 2.0
            zeros, ones = (
                projection.read(evidence[place, world].values) @ weights[score] - middle for world in (0, 1)
            )
            samples[score, place + 1] = zeros, ones
    optimal = [samples[SCORES[0], place + 1] for place in places]
    samples[SCORES[0], 0] = (
        np.concatenate([zeros for zeros, _ in optimal]),
        np.concatenate([ones for _, ones in optimal]),
    )
    results = []
    for (score, place), (zeros, ones) in sorted(samples.items()):
        # The pooled score sees most: it has half of the level, the others share the rest.
        share = level / 4.0 if place == 0 else level / 4.0 / (len(samples) - 1)
        mu = least_distance(zeros, ones, share)
        results.append(
            ScoreResult(
                score=score,
                placement=place,
                mu=mu,
                epsilon_gaussian=gaussian_epsilon(mu, terms.budget.delta),
                epsilon=_free_of_assumptions(zeros, ones, delta=terms.budget.delta, level=share),
            )
        )
    best = max(results, key=lambda result: result.mu)
    return ClaimResult(
        epsilon_claimed=terms.budget.epsilon,
        delta=terms.budget.delta,
        trust=terms.trust.name,
        trials=sum(len(evidence[place, 0].values) for place in places),
        mu_claimed=to_mu(terms.budget),
        mu_lower_bound=best.mu,
        epsilon_lower_bound_gaussian=best.epsilon_gaussian,
        epsilon_lower_bound=max(result.epsilon for result in results),
        scores=tuple(results),
    )


def _free_of_assumptions(zeros: Array, ones: Array, *, delta: float, level: float) -> float:
    """The best threshold, in either direction; centred scores, so world 0 leans down and world 1 up."""
    share = level / (2 * len(OFFSETS))
    bounds: Sequence[float] = [
        epsilon_from_counts(
            int(np.sum(one > offset)),
            len(one),
            int(np.sum(zero > offset)),
            len(zero),
            delta=delta,
            level=share,
        )
        for offset in OFFSETS
        for zero, one in ((zeros, ones), (-ones, -zeros))
    ]
    return max(bounds)

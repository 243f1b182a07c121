"""The statistical audit of one claim: neighbouring worlds, scores, bounds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from feducb.audit.bounds import epsilon_from_counts, gaussian_epsilon, least_distance
from feducb.audit.canary import SCORES, Projection, placements, score_weights
from feducb.audit.doors import Make
from feducb.audit.findings import ClaimResult, ScoreResult
from feducb.audit.pool import Progress, draw_all
from feducb.audit.trials import Draws, Job
from feducb.privacy.calibration import to_mu
from feducb.privacy.deployed import Terms

__all__ = ["OFFSETS", "Evidence", "claim_jobs", "draw_evidence", "judge"]

Array = NDArray[np.float64]
Evidence = Mapping[tuple[int, int], Draws]
"""Draws by (placement, world)."""

_AT_ONCE = 1_000
OFFSETS = (0.0, 0.5, 1.0, 1.5, 2.0)  # thresholds, in deviations beyond the middle between the worlds


def claim_jobs(make: Make, terms: Terms, trials: int) -> list[Job]:
    """``trials`` in each world, spread evenly over the placements of the canary, in jobs of a second."""
    places = placements(terms.releases)
    jobs = []
    for number, place in enumerate(places):
        own = trials // len(places) + (number < trials % len(places))
        for first, world in itertools.product(range(0, own, _AT_ONCE), (0, 1)):
            count = min(_AT_ONCE, own - first)
            jobs.append(Job(make=make, terms=terms, placement=place, world=world, trials=count))
    return jobs


def draw_evidence(
    subjects: Sequence[tuple[Make, Terms, int]], *, progress: Progress | None = None
) -> list[Evidence]:
    """For each privatizer, its terms and trials in each world: what left."""
    jobs = [claim_jobs(*subject) for subject in subjects]
    draws = iter(draw_all(list(itertools.chain(*jobs)), progress=progress))
    evidence: list[Evidence] = []
    for own in jobs:
        kept: dict[tuple[int, int], Draws] = {}
        for job in own:
            where, drawn = (job.placement, job.world), next(draws)
            kept[where] = kept[where] + drawn if where in kept else drawn
        evidence.append(kept)
    return evidence


def judge(terms: Terms, evidence: Evidence, level: float) -> ClaimResult:
    """Each score at each placement, and the optimal one pooled; half of ``level`` for each kind of bound.

    Pooling is fair: which batch holds the canary is public, and a mixture of (ε, δ)-private pairs of worlds
    over a public choice is (ε, δ)-private.
    """
    samples: dict[tuple[str, int], tuple[Array, Array]] = {}
    for place in placements(terms.releases):
        projection, weights = Projection.of(terms, place), score_weights(terms, place)
        for score in SCORES:
            # The middle between the worlds by the certified noise: thresholds are set before any draw.
            middle = projection.distance * float(weights[score][place:].sum()) / 2.0
            zeros, ones = (
                projection.read(evidence[place, world].values) @ weights[score] - middle for world in (0, 1)
            )
            samples[score, place + 1] = zeros, ones
    optimal = [pair for (score, _), pair in samples.items() if score == SCORES[0]]
    zeros, ones = (np.concatenate(parts) for parts in zip(*optimal, strict=True))
    samples[SCORES[0], 0] = zeros, ones
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
        trials=len(samples[SCORES[0], 0][0]),
        mu_claimed=to_mu(terms.budget),
        mu_lower_bound=best.mu,
        epsilon_lower_bound_gaussian=best.epsilon_gaussian,
        epsilon_lower_bound=max(result.epsilon for result in results),
        scores=tuple(results),
    )


def _free_of_assumptions(zeros: Array, ones: Array, *, delta: float, level: float) -> float:
    """The best threshold, in either direction; centred scores, so world 0 leans down and world 1 up."""
    share, bounds = level / (2 * len(OFFSETS)), []
    for offset, (zero, one) in itertools.product(OFFSETS, ((zeros, ones), (-ones, -zeros))):
        hits, false_hits = int(np.sum(one > offset)), int(np.sum(zero > offset))
        bounds.append(epsilon_from_counts(hits, len(one), false_hits, len(zero), delta=delta, level=share))
    return max(bounds)

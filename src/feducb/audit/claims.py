"""What trials say about a claim: bounds on its ε, whether the noise is as certified, and what else leaves.

Under the certified noise squares sum to χ² and residues are binomial, up to what rounding does: a bias of
about 1e-6 deviations, and of 1e-5 in a residue's probability, far below what any number of trials here sees.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, chi2

from feducb.audit.bounds import epsilon_from_counts, gaussian_epsilon, least_distance
from feducb.audit.canary import SCORES, canary_move, placements, residuals, score_weights
from feducb.audit.doors import Make
from feducb.audit.findings import Check, ClaimResult, ScoreResult
from feducb.audit.trials import Draws, Job, Progress, draw_all
from feducb.privacy.calibration import to_mu
from feducb.privacy.terms import Terms

__all__ = ["Evidence", "check_grid", "check_low_bits", "check_noise", "draw_evidence", "judge"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Evidence = Mapping[tuple[int, int], Draws]
"""Draws by (placement, world)."""

_AT_ONCE = 1_000
_LOW_BITS = 4
_OFFSETS = (0.0, 0.5, 1.0, 1.5, 2.0)  # thresholds, in deviations beyond the middle between the worlds


def _claim_jobs(make: Make, terms: Terms, trials: int) -> list[Job]:
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
    jobs = [_claim_jobs(*subject) for subject in subjects]
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
    move, delta = canary_move(terms), terms.budget.delta
    distance = float(np.linalg.norm(move))  # μ of a record whose column has length 1
    samples: dict[tuple[str, int], tuple[Array, Array]] = {}
    for place in placements(terms.releases):
        zeros, ones = (
            residuals(terms, place, evidence[place, world].values) @ (move / distance) for world in (0, 1)
        )
        for score, weights in score_weights(terms, place).items():
            # The middle between the worlds by the certified noise: thresholds are set before any draw.
            middle = distance * float(weights[place:].sum()) / 2.0
            samples[score, place + 1] = zeros @ weights - middle, ones @ weights - middle
    optimal = [pair for (score, _), pair in samples.items() if score == SCORES[0]]
    zeros, ones = (np.concatenate(parts) for parts in zip(*optimal, strict=True))
    samples[SCORES[0], 0] = zeros, ones
    results = []
    for (score, place), (zeros, ones) in sorted(samples.items()):
        # The pooled score sees most: it has half of the level, the others share the rest.
        share = level / 4.0 if place == 0 else level / 4.0 / (len(samples) - 1)
        mu, free = least_distance(zeros, ones, share), _free_of_assumptions(zeros, ones, delta, share)
        results.append(ScoreResult(score, place, mu, gaussian_epsilon(mu, delta), free))
    best = max(results, key=lambda result: result.mu)
    return ClaimResult(
        epsilon_claimed=terms.budget.epsilon,
        delta=delta,
        trust=terms.trust.name,
        trials=len(samples[SCORES[0], 0][0]),
        mu_claimed=to_mu(terms.budget),
        mu_lower_bound=best.mu,
        epsilon_lower_bound_gaussian=best.epsilon_gaussian,
        epsilon_lower_bound=max(result.epsilon for result in results),
        scores=tuple(results),
    )


def _free_of_assumptions(zeros: Array, ones: Array, delta: float, level: float) -> float:
    """The best threshold, in either direction; centred scores, so world 0 leans down and world 1 up."""
    share, bounds = level / (2 * len(_OFFSETS)), []
    for offset, (zero, one) in itertools.product(_OFFSETS, ((zeros, ones), (-ones, -zeros))):
        hits, false_hits = int(np.sum(one > offset)), int(np.sum(zero > offset))
        bounds.append(epsilon_from_counts(hits, len(one), false_hits, len(zero), delta=delta, level=share))
    return max(bounds)


def check_noise(terms: Terms, evidence: Evidence, level: float) -> Check:
    """Decoded rows carry independent noise of the certified scale: no coordinate less, no two alike.

    For a unit vector a, Σ ⟨a, residual⟩² over trials is χ². It is asked of all of them together, of each
    coordinate of each row, and of the sum and difference of any two, which sees every correlation.
    """
    white = np.concatenate([_white(terms, place, world, evidence) for place, world in evidence])
    trials, count = white.shape
    gram = white.T @ white
    own = np.diag(gram)
    rows, columns = np.triu_indices(count, 1)
    both = (own[rows] + own[columns]) / 2.0
    squares = np.concatenate([own, both + gram[rows, columns], both - gram[rows, columns]])
    share = level / 2.0
    whole = float(own.sum())
    suspicious = _two_sided(chi2.sf(whole, trials * count), chi2.cdf(whole, trials * count)) < share
    directions = _two_sided(chi2.sf(squares, trials), chi2.cdf(squares, trials))
    strange = int((directions < share / len(squares)).sum())
    return Check(
        f"noise epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        not suspicious and not strange,
        f"deviation {math.sqrt(whole / (trials * count)):.5f} times the certified one over "
        f"{trials * count} draws, {strange} of {len(squares)} directions off",
    )


def _white(terms: Terms, place: int, world: int, evidence: Evidence) -> Array:
    """(trials, n·q): the noise of the rows, in units of the certified deviation; records are taken off."""
    noise = residuals(terms, place, evidence[place, world].values)
    noise[:, place:] -= world * canary_move(terms)
    rows = np.linalg.solve(terms.factors.decoder(), noise)
    return np.asarray(rows.reshape(len(rows), -1))


def _two_sided(above: ArrayLike, below: ArrayLike) -> Array:
    """p-values from those of both tails."""
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(above, below)))


def check_low_bits(terms: Terms, evidence: Evidence, level: float) -> Check:
    """Low bits of what leaves are uniform in both worlds, so they tell nothing.

    Asked of every released integer, and of the first row, which an adversary gets back exactly: it is
    release 1 over F₁₁ ≥ 1, rounded. Each residue mod 2^4 of each is binomial; all are tested, by a union.
    """
    corner = float(terms.factors.decoder()[0, 0])
    bins, worst, tests = 1 << _LOW_BITS, 1.0, 0
    for draws in evidence.values():
        first = np.rint(draws.values[:, :1] / corner).astype(np.int64)
        integers = np.concatenate([first, draws.values], axis=1)
        residues = integers.reshape(len(integers), -1) & (bins - 1)
        counts = np.stack([(residues == residue).sum(axis=0) for residue in range(bins)])
        law = binom(len(residues), 1.0 / bins)
        worst = min(worst, float(_two_sided(law.sf(counts - 1), law.cdf(counts)).min()))
        tests += counts.size
    return Check(
        f"low bits epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        worst >= level / tests,
        f"least p-value {worst:.1e} of {tests} residue counts mod {bins}",
    )


def check_grid(terms: Terms, evidence: Evidence) -> Check:
    """Messages hold whole multiples of one public grid, and their headers are the same in every world."""
    headers = set[tuple[int, bytes]]().union(*(draws.headers for draws in evidence.values()))
    largest = max(int(np.abs(draws.values).max()) for draws in evidence.values())
    return Check(
        f"grid epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        len(headers) == terms.releases and largest < 2**53,
        f"{len(headers)} distinct headers for {terms.releases} releases; "
        f"grid 2^{terms.certificate().exponent}, integers up to 2^{math.log2(largest):.1f}",
    )

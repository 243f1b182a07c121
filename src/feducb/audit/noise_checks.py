"""Checks on what left in the trials: the noise is what the certificate says, and nothing else is told.

Under the certified noise squares sum to χ² and residues are binomial, up to what rounding does: a bias of
about 1e-6 deviations, and of 1e-5 in a residue's probability, far below what any number of trials here sees.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import chi2

from feducb.audit.canary import Projection, canary_pair, coordinates_of
from feducb.audit.claims import Evidence
from feducb.audit.findings import Check
from feducb.privacy.deployed import Terms

__all__ = ["check_grid", "check_low_bits", "check_noise"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOW_BITS = 4


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
    suspicious = _p_value(np.array([whole]), trials * count)[0] < share
    strange = int((_p_value(squares, trials) < share / len(squares)).sum())
    return Check(
        f"noise epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        not suspicious and not strange,
        f"deviation {math.sqrt(whole / (trials * count)):.5f} times the certified one over "
        f"{trials * count} draws, {strange} of {len(squares)} directions off",
    )


def _p_value(squares: Array, freedom: int) -> Array:
    """Two-sided, for sums of squares that should be χ²."""
    return np.asarray(2.0 * np.minimum(chi2.sf(squares, freedom), chi2.cdf(squares, freedom)))


def _white(terms: Terms, place: int, world: int, evidence: Evidence) -> Array:
    """(trials, n·q): the noise of the rows, in units of the certified deviation; records are taken off."""
    projection = Projection.of(terms, place)
    residuals = projection.residuals(evidence[place, world].values)
    if world == 1:
        first, second = (coordinates_of(terms, batch) for batch in canary_pair(terms))
        residuals[:, place:] -= (second - first) / projection.scale
    rows = np.linalg.solve(terms.factors.decoder(), residuals)
    return np.asarray(rows.reshape(len(rows), -1))


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
        worst = min(worst, float(_binomial_p_value(counts, len(residues), 1.0 / bins).min()))
        tests += counts.size
    return Check(
        f"low bits epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        worst >= level / tests,
        f"least p-value {worst:.1e} of {tests} residue counts mod {bins}",
    )


def _binomial_p_value(counts: Ints, trials: int, share: float) -> Array:
    """Two-sided: P(X ≥ k) = I_share(k, n − k + 1), exactly."""
    most = np.where(counts > 0, betainc(np.maximum(counts, 1), trials - counts + 1, share), 1.0)
    least = np.where(counts < trials, 1.0 - betainc(counts + 1, np.maximum(trials - counts, 1), share), 1.0)
    return np.minimum(1.0, 2.0 * np.minimum(most, least))


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

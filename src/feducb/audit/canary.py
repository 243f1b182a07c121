"""Two worlds that differ in one record, and the scores that tell them apart best.

The record is the extreme pair of the sensitivity proof (docs/theory.md, 1): (x, B) against (x′, −B) at the
angle with cos = min(1, (sB/L)²), s the weight of rewards. Everything an auditor may know is used: the
mechanism, the noise, all other records. Decoded rows carry white noise, so ⟨rows − E b, column ⊗ Δ⟩ is the
likelihood ratio (Neyman–Pearson).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from feducb.config import Problem
from feducb.privacy.grid import Certificate
from feducb.privacy.terms import Terms

__all__ = [
    "SCORES",
    "Batch",
    "background",
    "canary_move",
    "canary_pair",
    "coordinates_of",
    "deviation",
    "placements",
    "residuals",
    "score_weights",
    "worlds",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SCORES = ("all releases", "first release", "last release", "difference")
_HOSTILE = 16.0  # under ``clip``, the canary comes so many times too long and too large


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one batch: actions (n, d), rewards (n,) as they come, before they are centred."""

    actions: Array
    rewards: Array

    def __add__(self, other: Batch) -> Batch:
        """The records of both."""
        return Batch(np.vstack([self.actions, other.actions]), np.concatenate([self.rewards, other.rewards]))

    def stretched(self, longer: float, larger: float, centre: float) -> Batch:
        """Actions so many times as long, rewards so many times as far from the centre."""
        return Batch(self.actions * longer, centre + (self.rewards - centre) * larger)


def canary_pair(terms: Terms) -> tuple[Batch, Batch]:
    """The two neighbouring records that are furthest apart: (x, c + B) and (x′, c − B)."""
    problem = terms.problem
    length, reward = problem.action_bound, problem.reward_bound
    cosine = 1.0 if problem.dim == 1 else min(1.0, (terms.weight * reward / length) ** 2)
    one, other = np.zeros((1, problem.dim)), np.zeros((1, problem.dim))
    one[0, 0], other[0, 0] = length, length * cosine
    if terms.contexts == "public":
        other = one  # neighbours differ in the reward alone
    elif problem.dim > 1:
        places = np.eye(problem.dim)[1:] * length * math.sqrt(1.0 - cosine**2)
        beside = (other + place for place in places)  # the first that may be beside it
        fits = (row for row in beside if np.array_equal(terms.model.nearest(row), row))
        other = next(fits, np.roll(one, 1))  # of one-hots, another one
    least, most = problem.reward_range
    return Batch(one, np.array([most])), Batch(other, np.array([least]))


def coordinates_of(terms: Terms, batch: Batch) -> Array:
    """(q,), what the batch adds to a release; written out anew, so as not to trust what is audited."""
    gram = batch.actions.T @ batch.actions
    moment = terms.weight * (batch.actions.T @ (batch.rewards - terms.problem.reward_centre))
    dim = terms.problem.dim
    entries = [gram[i, j] * (1.0 if i == j else math.sqrt(2.0)) for i in range(dim) for j in range(i, dim)]
    return np.array([*entries, *(math.sqrt(2.0) * moment)])


def deviation(certificate: Certificate, terms: Terms, *, less: int = 0) -> float:
    """Of the noise in all that an adversary sees, in real units: of one agent, or of H that share it.

    Args:
        certificate: what an agent adds.
        terms: how many agents there are at least that do not collude.
        less: η, by whose square variances are less in the theorem of noise on a grid.
    """
    shares = terms.trust.shares(terms.agents)
    return math.ldexp(math.sqrt(float(shares * certificate.sigma**2 - less**2)), certificate.exponent)


def placements(releases: int) -> tuple[int, ...]:
    """The batches (counted from 0) that the canary is put into: first, middle, last."""
    return tuple(sorted({0, releases // 2, releases - 1}))


def background(problem: Problem, releases: int) -> list[Batch]:
    """Everybody else: one record a batch, the same in both worlds, well inside the bounds."""
    angles = np.arange(releases) + 0.3
    actions = np.zeros((releases, 1, problem.dim))
    actions[:, 0, 0] = 0.8 * problem.action_bound * np.cos(angles)
    actions[:, 0, -1] += 0.5 * problem.action_bound * np.sin(angles)
    rewards = problem.reward_centre + 0.7 * problem.reward_bound * np.sin(3.0 * angles)
    return [Batch(action, np.array([reward])) for action, reward in zip(actions, rewards, strict=True)]


def worlds(terms: Terms, placement: int, world: int) -> list[Batch]:
    """All batches of one world, as they are handed to the privatizer.

    Under ``clip`` the canary arrives far beyond the bounds: it must not count for more than the extreme pair.
    """
    stream = background(terms.problem, terms.releases)
    canary = canary_pair(terms)[world]
    factor = _HOSTILE if terms.excess == "clip" else 1.0
    stream[placement] += canary.stretched(factor, factor, terms.problem.reward_centre)
    return stream


def canary_move(terms: Terms) -> Array:
    """(q,), Δ: how the canary's batch differs in world 1, in units of the certified noise."""
    first, second = (coordinates_of(terms, batch) for batch in canary_pair(terms))
    return np.asarray((second - first) / deviation(terms.certificate(), terms))


def residuals(terms: Terms, placement: int, values: Ints) -> Array:
    """(trials, n, q): releases less what world 0 would say, in units of the certified noise."""
    certificate = terms.certificate()
    sums = [coordinates_of(terms, batch) for batch in worlds(replace(terms, excess="refuse"), placement, 0)]
    released = np.ldexp(values.astype(np.float64), certificate.exponent)
    return np.asarray((released - np.cumsum(sums, axis=0)) / deviation(certificate, terms))


def score_weights(terms: Terms, placement: int) -> dict[str, Array]:
    """For each score, (n,) weights on the projected releases under which noise has variance 1."""
    encoder, decoder = terms.factors.encoder(), terms.factors.decoder()
    identity = np.eye(terms.releases)
    column = encoder[:, placement]
    before = identity[placement - 1] if placement else np.zeros(terms.releases)
    raw = {
        # rows = F⁻¹ releases, so ⟨rows, column⟩ = ⟨releases, F⁻ᵀ column⟩
        "all releases": solve_triangular(decoder, column, trans="T", lower=True),
        "first release": identity[placement],
        "last release": identity[-1],
        "difference": identity[placement] - before,
    }
    return {name: weights / float(np.linalg.norm(decoder.T @ weights)) for name, weights in raw.items()}

"""The radius of the noise holds for whole streams, as often as it says: on matrices drawn entry by entry."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from feducb.privacy.mechanisms import BinaryTree, Dense, Mechanism, SquareRootToeplitz
from feducb.privacy.noise_law import closed_residual_radius, gram_radius, residual_radius, safe_rank

ALPHA = 0.1


def _streams(
    mechanism: Mechanism, dim: int, weight: float, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """H_k/√w_k (draws, n, d, d) and h_k/√w_k (draws, n, d): unit variance off the diagonal."""
    decoder = mechanism.decoder()
    decoder = decoder / np.linalg.norm(decoder, axis=1, keepdims=True)
    fresh = rng.normal(size=(draws, decoder.shape[1], dim, dim))
    fresh = (fresh + np.swapaxes(fresh, -1, -2)) / math.sqrt(2.0)
    moment = rng.normal(size=(draws, decoder.shape[1], dim)) / weight
    return np.einsum("kr,nrij->nkij", decoder, fresh), np.einsum("kr,nri->nki", decoder, moment)


@pytest.mark.parametrize("mechanism", [Dense(8), SquareRootToeplitz(8), BinaryTree(8), Dense(1)])
@pytest.mark.parametrize(("dim", "bound", "weight"), [(3, 1.0, 0.7), (1, 1.0, 1.0), (4, 2.0, 0.3)])
def test_the_residual_stays_inside_the_radius_over_the_whole_stream(
    mechanism: Mechanism, dim: int, bound: float, weight: float, rng: np.random.Generator
) -> None:
    draws = 3000
    gram, moment = _streams(mechanism, dim, weight, draws, rng)
    direction = rng.normal(size=dim)
    theta = bound * direction / np.linalg.norm(direction)  # any direction: the law is the same
    largest = np.linalg.norm(moment - gram @ theta, axis=-1).max(axis=1)
    radius = residual_radius(mechanism, dim, ALPHA, bound=bound, weight=weight)
    broken = int((largest > radius).sum())
    # Seeded; over seeds, false alarm 1e-6. Not idle either: the quantile is taken with a margin of 1e-9.
    assert broken <= binom.isf(1e-6, draws, ALPHA)
    assert broken >= binom.ppf(1e-6, draws, ALPHA / 2.0)
    closed = closed_residual_radius(dim, mechanism.releases, ALPHA, bound=bound, weight=weight)
    assert radius <= closed  # proven for all laws alike, so wider
    assert int((largest > closed).sum()) <= broken


def test_the_gram_s_noise_stays_above_minus_its_radius() -> None:
    rng = np.random.default_rng(8)
    gram, _ = _streams(Dense(8), 5, 1.0, 1000, rng)
    least = np.linalg.eigvalsh(gram)[..., 0].min(axis=1)
    assert int((least < -gram_radius(5, 8, ALPHA)).sum()) <= binom.isf(1e-6, 1000, ALPHA)


def test_radii_grow_as_they_must() -> None:
    for first, second in ((0.1, 0.01), (0.5, 0.1)):
        assert residual_radius(Dense(8), 3, second) > residual_radius(Dense(8), 3, first)
        assert gram_radius(3, 8, second) > gram_radius(3, 8, first)
    assert residual_radius(Dense(8), 4, ALPHA) > residual_radius(Dense(8), 3, ALPHA)
    assert residual_radius(Dense(8), 3, ALPHA, bound=2.0) > residual_radius(Dense(8), 3, ALPHA, bound=1.0)
    assert residual_radius(Dense(8), 3, ALPHA, weight=0.5) > residual_radius(Dense(8), 3, ALPHA, weight=1.0)
    # Fewer releases that count, a smaller maximum.
    assert residual_radius(Dense(8), 3, ALPHA, first=6) < residual_radius(Dense(8), 3, ALPHA)


def test_one_release_in_one_dimension_by_hand() -> None:
    """h − Hθ with Var h = 1/s², Var H = 2 and |θ| = S: a normal of variance 1/s² + 2S²."""
    weight, bound = 0.8, 1.5
    radius = residual_radius(Dense(1), 1, 0.05, bound=bound, weight=weight)
    deviation = math.sqrt(1.0 / weight**2 + 2.0 * bound**2)
    assert 1.96 * deviation < radius < 2.25 * deviation  # the margin of 8,192 draws is some percent


@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("draws", [1024, 8192])
def test_the_rank_is_the_least_that_is_safe(draws: int, alpha: float) -> None:
    rank, below = safe_rank(draws, alpha), 1.0 - (alpha - 1e-9)
    # The rank-th of the sorted draws is below the quantile if at least ``rank`` draws are.
    assert binom.sf(rank - 1, draws, below) <= 1e-9
    assert binom.sf(rank - 2, draws, below) > 1e-9


def test_where_draws_cannot_be_safe_the_closed_form_is_taken() -> None:
    assert safe_rank(1024, 1e-3) > 1024
    assert safe_rank(8192, 1e-9) == 8193
    for alpha in (1e-4, 1e-12):
        closed = closed_residual_radius(3, 8, alpha, bound=1.0, weight=1.0)
        assert residual_radius(Dense(8), 3, alpha) == closed

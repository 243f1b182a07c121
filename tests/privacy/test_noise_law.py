"""What is claimed of the noise of whole streams, on matrices drawn entry by entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.stats import binom

from feducb.config import Problem
from feducb.models import LINEAR
from feducb.privacy.mechanisms import (
    BinaryTree,
    BufferedToeplitz,
    Dense,
    Mechanism,
    OptimalTree,
    SquareRootToeplitz,
)
from feducb.privacy.noise_law import joint_threshold, mixture_threshold

ALPHA = 0.1
SURE = math.log(1e6)  # of Chernoff's bound: false alarms 1e-6


def _scales(problem: Problem, weight: float) -> tuple[float, ...]:
    return tuple(LINEAR.residual_scales(problem, weight).tolist())


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


def _starts(
    residual: np.ndarray, variances: np.ndarray, problem: Problem, weight: float, prior: float
) -> np.ndarray:
    """Σ_k M_k of each draw, from (h_k − H_kθ*)/√w_k (draws, n, d), as docs/theory.md, 6, defines it."""
    noise = variances * LINEAR.residual_scales(problem, weight)[0]
    priors = 0.5 * noise + prior
    squared = variances * (residual**2).sum(axis=-1)
    parts = (1.0 + noise / priors) ** (-problem.dim / 2) * np.exp(0.5 * squared / (noise + priors))
    return np.asarray(parts.sum(axis=-1))


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [(Dense(8), 1), (Dense(8, 3, 1.5), 4), (SquareRootToeplitz(8), 1), (BinaryTree(8), 3), (Dense(1), 1)],
    ids=str,
)
@pytest.mark.parametrize(("dim", "bound", "weight"), [(3, 1.0, 0.7), (1, 1.0, 1.0), (4, 2.0, 0.3)])
@pytest.mark.parametrize("prior", [0.0, 5.0], ids=["noise rules", "rewards count too"])
def test_the_threshold_is_safe_and_hardly_larger_than_it_must_be(
    mechanism: Mechanism, first: int, dim: int, bound: float, weight: float, prior: float
) -> None:
    """E min(1, Σ M_k/x) ≤ α on fresh noise; above 0.75 α, of which the margin of the simulation takes 0.11.

    Draws lie in [0, 1]: by Chernoff's bound false alarms are 1e-6 on either side.
    """
    rng, draws, scale = np.random.default_rng(17), 6000, 1.5
    problem = Problem(dim=dim, parameter_bound=bound)
    noise: dict[str, Any] = {"first": first, "scale": scale, "prior": prior}
    threshold = mixture_threshold(mechanism, _scales(problem, weight), ALPHA, **noise)
    gram, moment = _streams(mechanism, dim, weight, draws, rng)
    direction = rng.normal(size=dim)
    theta = bound * direction / np.linalg.norm(direction)  # any direction: the law is the same
    read = slice(first - 1, None)
    variances = (scale * np.linalg.norm(mechanism.decoder(), axis=1)[read]) ** 2
    sums = _starts((moment - gram @ theta)[:, read], variances, problem, weight, prior)
    mean = float(np.minimum(1.0, sums / math.exp(threshold)).mean())
    margin = 1.1 * math.sqrt(2.0 * SURE * ALPHA / draws)
    assert mean <= ALPHA + margin
    assert mean >= 0.75 * ALPHA - margin
    assert threshold <= math.log((mechanism.releases - first + 1) / ALPHA) + 1e-12
    # A shorter parameter starts lower in every draw's law.
    shorter = _starts((moment - 0.3 * gram @ theta)[:, read], variances, problem, weight, prior)
    assert np.minimum(1.0, shorter / math.exp(threshold)).mean() <= mean


def _exact(threshold: float, ratio: float) -> float:
    """E min(1, M/x) for one release in one dimension, with q = wD̄/Λ: M = (1+q)^(−½) exp(½ g² q/(1+q))."""

    def part(g: float) -> float:
        start = math.exp(0.5 * g * g * ratio / (1.0 + ratio)) / math.sqrt(1.0 + ratio)
        return min(1.0, start / math.exp(threshold)) * float(stats.norm.pdf(g))

    return float(integrate.quad(part, -12.0, 12.0, limit=400)[0])


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.005])
@pytest.mark.parametrize("prior", [0.0, 1.0, 50.0])
def test_one_release_in_one_dimension_by_quadrature(alpha: float, prior: float) -> None:
    """The margin: a mean of N = 32,768 draws must lie √(2α · 20.7/N) below α, relative √(41.4/(Nα))."""
    problem, weight, scale = Problem(dim=1, parameter_bound=1.5), 0.8, 2.0
    noise: dict[str, Any] = {"first": 1, "scale": scale, "prior": prior}
    threshold = mixture_threshold(Dense(1), _scales(problem, weight), alpha, **noise)
    variance = scale**2 * (1.0 / weight**2 + 2.0 * problem.parameter_bound**2)
    found = _exact(threshold, variance / (0.5 * variance + prior))
    assert found <= alpha
    assert found >= alpha * (1.0 - 1.5 * math.sqrt(41.4 / (32_768 * alpha)))


def test_without_noise_worth_speaking_of_a_union_is_all_there_is() -> None:
    """M_k = 1 for all k: x = m/α, and the margin of the simulation cannot make it more."""
    noise: dict[str, Any] = {"first": 3, "scale": 1e-6, "prior": 5.0}
    scales = _scales(Problem(dim=3), 1.0)
    assert mixture_threshold(Dense(8), scales, ALPHA, **noise) == pytest.approx(math.log(6 / ALPHA))


def test_thresholds_grow_as_they_must() -> None:
    noise: dict[str, Any] = {"scale": 4.0, "prior": 5.0}

    def threshold(alpha: float = ALPHA, first: int = 1) -> float:
        return mixture_threshold(Dense(8), _scales(Problem(dim=3), 0.7), alpha, first=first, **noise)

    assert threshold(0.01) > threshold(0.1) > threshold(0.5)
    assert threshold(first=6) < threshold()  # fewer releases that count


@pytest.mark.parametrize(
    ("mechanism", "alpha"), [(Dense(8), 1e-12), (BufferedToeplitz(2000), 0.1)], ids=["small α", "too many"]
)
def test_where_draws_cannot_tell_or_would_take_long_it_is_the_union(
    mechanism: Mechanism, alpha: float
) -> None:
    noise: dict[str, Any] = {"first": 1, "scale": 4.0, "prior": 5.0}
    closed = math.log(mechanism.releases / alpha)
    assert mixture_threshold(mechanism, _scales(Problem(dim=3), 0.7), alpha, **noise) == closed


def test_the_gram_s_noise_stays_above_minus_its_radius() -> None:
    rng = np.random.default_rng(8)
    gram, _ = _streams(Dense(8), 5, 1.0, 1000, rng)
    least = np.linalg.eigvalsh(gram)[..., 0].min(axis=1)
    assert int((least < -LINEAR.gram_radius(5, 8, ALPHA)).sum()) <= binom.isf(1e-6, 1000, ALPHA)
    for first, second in ((0.1, 0.01), (0.5, 0.1)):
        assert LINEAR.gram_radius(3, 8, second) > LINEAR.gram_radius(3, 8, first)


def test_no_direction_of_the_residual_has_more_variance_than_is_said() -> None:
    """D̄ is the variance along θ*, at ‖θ*‖ = S: 1/s² + 2S². Chi-square of 20,000 at 1e-6 on either side."""
    problem, weight = Problem(dim=3, parameter_bound=1.5), 0.6
    gram, moment = _streams(Dense(1), 3, weight, 20_000, np.random.default_rng(3))
    theta = 1.5 * np.array([0.0, 0.6, 0.8])
    residual = (moment - gram @ theta)[:, 0]
    spread = LINEAR.residual_scales(problem, weight)[0]
    low, high = stats.chi2(20_000).ppf([1e-6, 1.0 - 1e-6])
    assert low < float(((residual @ theta) ** 2).sum()) / (2.25 * spread) < high
    across = np.cross(theta, [1.0, 0.0, 0.0])
    assert float(((residual @ across) ** 2).sum()) / (across @ across * spread) < low


@dataclass(frozen=True)
class _Rounded(Mechanism):
    """Another mechanism on a machine that rounds otherwise: last bits of its F are off."""

    name: ClassVar[str] = "rounded"
    exact: Mechanism
    seed: int

    def encoder(self) -> np.ndarray:
        return self.exact.encoder()

    def decoder(self) -> np.ndarray:
        decoder = self.exact.decoder()
        bits = np.random.default_rng(self.seed).choice([-1e-16, 0.0, 1e-16], size=decoder.shape)
        return np.asarray(decoder + bits)


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [(OptimalTree(12), 1), (OptimalTree(13), 4), (BinaryTree(12), 1), (Dense(8, 3, 1.5), 4), (Dense(8), 1)],
    ids=str,
)
def test_rounding_does_not_choose_the_draws(mechanism: Mechanism, first: int) -> None:
    """Machines round otherwise. An optimal tree's threshold once moved by 1e-4 with the last bit of F."""

    def threshold(of: Mechanism) -> float:
        return mixture_threshold(of, (2.0, 1.0), ALPHA, first=first, scale=3.0, prior=1.0)

    for seed in range(4):
        rounded = _Rounded(mechanism.releases, mechanism, seed)
        assert threshold(rounded) == pytest.approx(threshold(mechanism), rel=1e-12)


def test_the_threshold_of_a_season_holds_for_the_noise_of_all_that_it_remembers() -> None:
    """Drawn anew: rows of a mechanism with two columns more, one for each earlier season's noise.

    20,000 draws: at the threshold the mean of min(1, ΣM/x) is below α but for a chance of 1e-9; the same rows
    read as if what is remembered had a quarter of its variance break it.
    """
    problem, alpha, scale, prior = Problem(dim=3), 0.1, 4.0, 5.0
    weight = LINEAR.weight(problem)
    scales = _scales(problem, weight)
    rows = np.zeros((5, 6))
    rows[1:, :4] = 0.7 * Dense(4).decoder()
    rows[:, 4:] = [1.0, 0.8]
    log_threshold = joint_threshold(rows, scales, alpha, scale=scale, prior=prior)
    assert log_threshold < math.log(5 / alpha)

    def broken(believed: np.ndarray) -> float:
        generator, variances = np.random.default_rng(7), scale**2 * np.sum(believed**2, axis=1)
        unit = generator.standard_normal((20_000, 6, 3)) * np.sqrt(scales)
        noise = scale * np.einsum("kr,nrd->nkd", rows, unit)
        prior_of = 0.5 * variances * scales[0] + prior
        logs = 0.5 * np.sum(noise**2, axis=2) / (variances * scales[0] + prior_of)
        logs -= 1.5 * np.log1p(variances * scales[0] / prior_of)
        return float(np.minimum(1.0, np.exp(logs - log_threshold).sum(axis=1)).mean())

    less = rows.copy()
    less[:, 4:] /= 2.0
    assert broken(rows) <= alpha < broken(less)


def test_a_season_that_remembers_nothing_has_the_threshold_it_had() -> None:
    scales = _scales(Problem(dim=3), 0.7)
    noise = {"scale": 3.0, "prior": 1.0}
    alone = mixture_threshold(Dense(8), scales, ALPHA, first=2, **noise)
    assert joint_threshold(Dense(8).decoder()[1:], scales, ALPHA, **noise) == alone

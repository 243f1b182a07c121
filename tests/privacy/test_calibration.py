"""(ε, δ) ↔ μ against a closed form and against the specification's own figure; the sensitivity, attacked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_ndtr

from feducb.config import Budget, Problem
from feducb.models import LINEAR
from feducb.privacy import calibration


def _closed_form_delta(mu: float, epsilon: float) -> float:
    """Balle & Wang 2018, Theorem 8: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    return math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 0.1])
def test_mu_lies_on_the_exact_gaussian_curve(epsilon: float, delta: float) -> None:
    mu = calibration.to_mu(Budget(epsilon=epsilon, delta=delta))
    assert _closed_form_delta(mu, epsilon) == pytest.approx(delta, rel=1e-4)
    assert calibration.to_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 100.0, 1e6])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_machines_without_dp_accounting_simulate_the_same_noise(epsilon: float, delta: float) -> None:
    budget = Budget(epsilon=epsilon, delta=delta)
    mu = calibration.to_mu(budget)
    assert calibration.mu_from_curve(budget) == pytest.approx(mu, rel=1e-5)
    if epsilon <= 100.0:
        assert calibration.epsilon_from_curve(mu, delta) == pytest.approx(epsilon, rel=1e-4)


def test_the_reference_figure() -> None:
    assert 1 / calibration.to_mu(Budget(epsilon=1, delta=1e-6)) == pytest.approx(4.224679, abs=1e-6)


def _move(first: tuple[np.ndarray, float], second: tuple[np.ndarray, float]) -> float:
    """Frobenius distance of two records' released matrices: [x; y][x; y]ᵀ without its corner."""
    matrices = []
    for x, y in (first, second):
        z = np.append(x, y)
        matrix = np.outer(z, z)
        matrix[-1, -1] = 0.0
        matrices.append(matrix)
    return float(np.linalg.norm(matrices[0] - matrices[1]))


@pytest.mark.parametrize(("length", "reward"), [(1.0, 1.0), (1.0, 0.5), (2.0, 1.0), (1.0, 3.0)])
def test_no_pair_of_records_moves_further_than_the_radius_and_one_reaches_it(
    rng: np.random.Generator, length: float, reward: float
) -> None:
    problem = Problem(dim=3, action_bound=length, reward_bound=reward)
    claimed = math.sqrt(2) * LINEAR.radius(problem)
    cosine = min(1.0, reward**2 / length**2)
    x = np.array([length, 0.0, 0.0])
    other = length * np.array([cosine, math.sqrt(1 - cosine**2), 0.0])
    assert _move((x, reward), (other, -reward)) == pytest.approx(claimed)
    for _ in range(4000):
        pair = []
        for _ in range(2):
            direction = rng.normal(size=3)
            size = length if rng.random() < 0.7 else length * rng.random()
            value = reward * rng.choice([-1.0, 1.0]) if rng.random() < 0.7 else rng.uniform(-reward, reward)
            pair.append((size * direction / np.linalg.norm(direction), float(value)))
        assert _move(pair[0], pair[1]) <= claimed * (1 + 1e-12)


def test_the_noise_scale_is_radius_over_mu() -> None:
    assert calibration.noise_scale(LINEAR.radius(Problem(dim=3)), 0.5) == 4.0  # R² = 2
    assert calibration.noise_scale(LINEAR.radius(Problem(dim=3, reward_bound=3.0)), 0.5) == 12.0  # R² = 2·1·3


@pytest.mark.parametrize(
    ("length", "reward", "bound"), [(1.0, 1.0, 1.0), (2.0, 0.5, 1.0), (1.0, 4.0, 0.3), (0.2, 1.0, 5.0)]
)
def test_the_reward_weight_leaves_the_least_noise_in_the_residual(
    length: float, reward: float, bound: float
) -> None:
    problem = Problem(dim=3, action_bound=length, reward_bound=reward, parameter_bound=bound)

    def noise(weight: float) -> float:
        """Deviation of an entry of h − Hθ*, in units of 1/μ."""
        return LINEAR.radius(problem, weight) * math.sqrt(1.0 / weight**2 + bound**2)

    best = LINEAR.weight(problem)
    assert best * reward <= length * (1 + 1e-12)  # where R² = L² + s²B² holds
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert noise(best) < noise(best * factor)


def test_radius_and_noise_follow_the_units() -> None:
    for length, reward in ((1.0, 0.5), (1.0, 1.0), (1.0, 3.0)):
        one = Problem(dim=3, action_bound=length, reward_bound=reward)
        ten = Problem(dim=3, action_bound=10 * length, reward_bound=10 * reward)
        assert LINEAR.radius(ten) == pytest.approx(100 * LINEAR.radius(one))
        assert LINEAR.radius(one, 2.0) == LINEAR.radius(
            Problem(dim=3, action_bound=length, reward_bound=2.0 * reward)
        )
    # The two formulas meet where B = L.
    below, above = (LINEAR.radius(Problem(dim=3, reward_bound=bound)) for bound in (1 - 1e-9, 1 + 1e-9))
    assert below == pytest.approx(above, rel=1e-8)


def test_more_epsilon_or_delta_buys_more_mu() -> None:
    mus = [calibration.to_mu(Budget(epsilon=epsilon, delta=1e-6)) for epsilon in (0.01, 0.1, 1.0, 8.0, 50.0)]
    assert mus == sorted(mus)
    mus = [calibration.to_mu(Budget(epsilon=1.0, delta=delta)) for delta in (1e-12, 1e-9, 1e-6, 1e-3, 0.1)]
    assert mus == sorted(mus)
    for mu in (0.1, 1.0, 5.0):
        assert calibration.to_epsilon(mu, 1e-6) > calibration.to_epsilon(mu, 1e-3)

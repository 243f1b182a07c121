"""The mixture set against what its events allow and against the classic bound; the exact size of an error."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from feducb.config import Problem
from feducb.models.confidence import error_ratio
from feducb.models.mixture import MixtureBound
from feducb.policies.optimistic import upper_confidence_bounds
from feducb.types import Belief

PROBLEM = Problem(dim=2)
NOISY = MixtureBound(
    problem=PROBLEM, log_threshold=math.log(25.0), gram_radius=5.0, residual=3.0, regularizer=2.0
)


def _slack(bound: MixtureBound, values: np.ndarray, variance: float) -> np.ndarray:
    """D_i = r²Σ_i as docs/theory.md, 6, writes it, from A's eigenvalues."""
    noise = variance * bound.residual
    prior = 0.5 * noise + bound.regularizer * bound.problem.noise_scale**2
    lifted = np.maximum(values + bound.gram_radius * math.sqrt(variance), 0.0)
    scatter = bound.problem.noise_scale**2 * lifted + noise + prior
    return np.asarray(scatter * (2.0 * bound.log_threshold + np.log(scatter / prior).sum()))


def _worst(
    bound: MixtureBound, variance: float, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, a and θ* with ‖θ*‖ = S, where ‖a − Aθ*‖_{Σ⁻¹} is ``share`` of what the events allow."""
    dim = bound.problem.dim
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    values = rng.uniform(20.0, 400.0, size=dim)
    theta, away = (one / np.linalg.norm(one) for one in rng.normal(size=(2, dim)))
    theta *= bound.problem.parameter_bound
    gram = axes @ np.diag(values) @ axes.T
    return gram, gram @ theta + share * axes @ (np.sqrt(_slack(bound, values, variance)) * away), theta


def test_the_radius_by_hand() -> None:
    """A = 40 I, w = 4, D̄ = 3, λ = 5, ρ = 2, σ = ½: Λ = 6 + ½, Σ = ¼(40 + 10) + 12 + 6.5 = 31.

    r² = 2 ln 25 + 2 ln(31/6.5) = 9.5620 and D = 31 r² = 296.42: half an axis is √D/40.
    """
    assert float(NOISY.prior(np.array(4.0))) == pytest.approx(6.5)
    assert NOISY.half_axis(40.0, 4.0) == pytest.approx(math.sqrt(296.42) / 40.0, rel=1e-4)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("variance", [0.0, 0.5, 40.0])
def test_the_set_holds_the_worst_that_its_events_allow_and_no_more(
    dim: int, variance: float, rng: np.random.Generator
) -> None:
    """Where ‖θ*‖ = S and the residual is as large as it may be, θ* is on the edge: all of the bound is used.

    So a set that is smaller anywhere would miss it, and one per cent more of a residual is outside.
    """
    bound = replace(NOISY, problem=Problem(dim=dim, parameter_bound=1.5))
    for _ in range(50):
        gram, moment, theta = _worst(bound, variance, 1.0, rng)
        assert error_ratio(bound.belief(gram, moment, np.array(variance)), theta) == pytest.approx(1.0)
        assert not bound.contradicted(gram, moment, np.array(variance))
        gram, moment, theta = _worst(bound, variance, 0.99, rng)
        assert error_ratio(bound.belief(gram, moment, np.array(variance)), theta) < 1.0
        gram, moment, theta = _worst(bound, variance, 1.01, rng)
        assert error_ratio(bound.belief(gram, moment, np.array(variance)), theta) > 1.0


def test_without_noise_it_is_the_classic_self_normalised_ellipsoid(rng: np.random.Generator) -> None:
    """‖u − Gθ‖² in the norm of (G + ρI)⁻¹ is at most σ²(2 ln(1/α) + log det(I + G/ρ)); S so large that it
    says nothing. The least τ of the grid leaves 1e-4 of a width."""
    bound = MixtureBound(
        problem=Problem(dim=3, parameter_bound=1e4), log_threshold=math.log(10.0), regularizer=2.0
    )
    actions, rewards = rng.normal(size=(60, 3)), rng.uniform(size=60)
    gram, moment = actions.T @ actions, actions.T @ rewards
    belief = bound.belief(gram, moment, np.array(0.0))
    inverse = np.linalg.inv(gram)
    radius = 2.0 * math.log(10.0) + np.linalg.slogdet(np.eye(3) + gram / 2.0)[1]
    shape = 0.25 * radius * inverse @ (gram + 2.0 * np.eye(3)) @ inverse
    np.testing.assert_allclose(belief.theta, np.linalg.solve(gram, moment), rtol=1e-5)
    np.testing.assert_allclose(belief.ellipsoid_width**2 * belief.inverse, shape, rtol=2e-3, atol=1e-7)


def test_without_records_the_set_is_the_ball() -> None:
    belief = NOISY.belief(np.zeros((2, 2)), np.zeros(2), np.array(0.0))
    np.testing.assert_array_equal(belief.theta, 0.0)
    width = upper_confidence_bounds(belief, np.array([[0.6, 0.8]]))[0]
    assert 1.0 <= float(width) <= 1.006  # S, and what the largest τ of the grid leaves


@pytest.mark.parametrize(
    "wider", [{"log_threshold": math.log(250.0)}, {"gram_radius": 8.0}], ids=["smaller α", "larger λ"]
)
def test_a_surer_set_holds_the_less_sure_one(wider: dict[str, Any], rng: np.random.Generator) -> None:
    """For every τ ellipsoids are nested, so that the least sum of squared axes grows."""
    for _ in range(20):
        gram, moment, theta = _worst(NOISY, 4.0, 0.7, rng)
        small, large = (one.belief(gram, moment, np.array(4.0)) for one in (NOISY, replace(NOISY, **wider)))
        axes = [float(one.ellipsoid_width**2 * np.trace(one.inverse)) for one in (small, large)]
        assert axes[0] < axes[1]
        assert error_ratio(large, theta) <= 1.0


def test_the_set_ignores_directions_that_are_noise_alone() -> None:
    belief = NOISY.belief(np.diag([400.0, -7.0]), np.array([200.0, 90.0]), np.array(4.0))
    assert belief.theta[1] == 0.0  # nothing is read off a negative eigenvalue
    assert 0.2 < belief.theta[0] < 0.5  # the other is read, and drawn towards zero by ‖θ*‖ ≤ S
    unit = np.array([[0.0, 1.0]])
    width = upper_confidence_bounds(belief, unit)[0] - unit @ belief.theta
    assert 0.866 <= float(width[0]) <= 1.05  # all that ‖θ*‖ ≤ S leaves, the first being about ½: √(1 − ¼)


def test_a_sum_that_no_parameter_explains_is_a_contradiction() -> None:
    """A = 40 I: a parameter of length c S agrees if |c − 1| · 40 ≤ √D, which is 17.2."""
    direction = np.array([0.6, 0.8])
    reach = 1.0 + math.sqrt(296.42) / 40.0
    moments = np.stack([40.0 * factor * direction for factor in (0.99 * reach, 1.01 * reach, 3.0)])
    grams, variances = np.tile(40.0 * np.eye(2), (3, 1, 1)), np.full(3, 4.0)
    assert NOISY.contradicted(grams, moments, variances).tolist() == [False, True, True]


def test_many_sums_are_read_as_one_by_one(rng: np.random.Generator) -> None:
    sums = [_worst(NOISY, 4.0, 0.8, rng)[:2] for _ in range(6)]
    grams = np.stack([gram for gram, _ in sums]).reshape(2, 3, 2, 2)
    moments = np.stack([moment for _, moment in sums]).reshape(2, 3, 2)
    together = NOISY.belief(grams, moments, np.full((2, 3), 4.0))
    for place in np.ndindex(2, 3):
        one = NOISY.belief(grams[place], moments[place], np.array(4.0))
        np.testing.assert_allclose(together.theta[place], one.theta, rtol=1e-12)
        np.testing.assert_allclose(together.inverse[place], one.inverse, rtol=1e-12)
        np.testing.assert_allclose(together.ellipsoid_width[place], one.ellipsoid_width, rtol=1e-12)


def test_scores_are_estimate_plus_both_widths(rng: np.random.Generator) -> None:
    root = rng.normal(size=(2, 3, 4, 4))
    gram = root @ np.swapaxes(root, -1, -2) + np.eye(4)
    belief = Belief(
        theta=rng.normal(size=(2, 3, 4)),
        inverse=np.asarray(np.linalg.inv(gram), dtype=np.float64),
        ellipsoid_width=rng.uniform(1, 2, size=(2, 3)),
        euclidean_width=rng.uniform(1, 2, size=(2, 3)),
    )
    actions = rng.normal(size=(2, 3, 5, 4))
    scores = upper_confidence_bounds(belief, actions, exploration=0.7)
    for place in np.ndindex(2, 3, 5):
        agent, x = place[:2], actions[place]
        direction = np.linalg.solve(gram[agent], x)
        expected = x @ belief.theta[agent] + 0.7 * (
            belief.ellipsoid_width[agent] * math.sqrt(x @ direction)
            + belief.euclidean_width[agent] * np.linalg.norm(direction)
        )
        assert scores[place] == pytest.approx(expected)


def test_error_ratio_is_the_supremum_over_directions(rng: np.random.Generator) -> None:
    root = rng.normal(size=(3, 3))
    belief = Belief(
        theta=rng.normal(size=3),
        inverse=np.asarray(np.linalg.inv(root @ root.T + 0.3 * np.eye(3)), dtype=np.float64),
        ellipsoid_width=np.array(0.8),
        euclidean_width=np.array(0.5),
    )
    truth = rng.normal(size=3)
    exact = float(error_ratio(belief, truth))
    x = rng.normal(size=(200_000, 3))
    width = upper_confidence_bounds(belief, x) - x @ belief.theta
    tried = np.abs(x @ (belief.theta - truth)) / width
    assert tried.max() <= exact * (1 + 1e-12)  # never exceeded …
    assert tried.max() >= 0.999 * exact  # … and nearly reached

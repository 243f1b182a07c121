"""Both forms of the bound against numbers worked out by hand, and the exact size of an error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from feducb.config import Problem
from feducb.models import confidence, ridge
from feducb.policies.optimistic import upper_confidence_bounds
from feducb.types import Belief

PROBLEM = Problem(dim=2)


def test_calibrated_bound_by_hand() -> None:
    # d = 2, α = 0.1, n = 4, ρ = 1, S = 1, σ = ½, w = 9: ln(4n/α) = ln 160 = 5.0751738
    bound = confidence.CalibratedBound(problem=PROBLEM, alpha=0.1, releases=4)
    w = np.array(9.0)
    # λ = 3·(2√2 + 2√5.0751738) = 3·(2.8284271 + 4.5056293) = 22.0021692; c = λ + 1
    assert bound.shift(w) == pytest.approx(23.0021692, abs=1e-6)
    # radius: √(2·2 + 1) + √(2·3·5.0751738) = 2.2360680 + 5.5182463; b = 3·7.7543143 + 23.0021692
    assert bound.euclidean_width(w) == pytest.approx(46.2651122, abs=1e-6)
    # β = ½ √(2 ln 20 + log det V) with log det V = 3: ½ √(5.9914645 + 3)
    assert bound.ellipsoid_width(np.array(3.0)) == pytest.approx(1.4992886, abs=1e-6)


def test_without_noise_all_of_alpha_goes_to_the_rewards() -> None:
    bound = confidence.CalibratedBound(problem=PROBLEM, alpha=0.1, releases=4, private=False)
    zero = np.array(0.0)
    assert (float(bound.shift(zero)), float(bound.euclidean_width(zero))) == (1.0, 1.0)
    assert bound.ellipsoid_width(np.array(3.0)) == pytest.approx(0.5 * math.sqrt(2 * math.log(10) + 3))


@pytest.mark.parametrize("regularizer", [0.5, 1.0, 4.0])
def test_belief_solves_the_shifted_regression(rng: np.random.Generator, regularizer: float) -> None:
    bound = confidence.CalibratedBound(problem=PROBLEM, alpha=0.1, releases=8, regularizer=regularizer)
    actions = rng.normal(size=(50, 2))
    gram, moment, variance = actions.T @ actions, rng.normal(size=2), np.array(2.0)
    belief = bound.belief(gram, moment, variance)
    shifted = gram + float(bound.shift(variance)) * np.eye(2)
    np.testing.assert_allclose(belief.theta, np.linalg.solve(shifted, moment))
    np.testing.assert_allclose(belief.inverse, np.linalg.inv(shifted))
    information = np.linalg.slogdet(shifted)[1] - 2 * math.log(regularizer)
    assert belief.ellipsoid_width == pytest.approx(0.5 * math.sqrt(2 * math.log(20) + information))


def test_a_sum_that_noise_made_indefinite_is_floored_not_refused() -> None:
    bound = confidence.CalibratedBound(problem=PROBLEM, alpha=0.1, releases=1)
    belief = bound.belief(np.diag([-1e6, 5.0]), np.ones(2), np.array(1.0))
    assert np.linalg.eigvalsh(belief.inverse)[-1] == pytest.approx(1.0)  # 1/ρ


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


def test_own_data_bound_is_the_calibrated_one_without_noise(rng: np.random.Generator) -> None:
    actions, rewards = rng.normal(size=(30, 2)), rng.uniform(size=30)
    state = ridge.factorise(2.0 * np.eye(2) + actions.T @ actions, actions.T @ rewards)
    own = confidence.OwnDataBound(problem=PROBLEM, alpha=0.1, regularizer=2.0).belief(state)
    shared = confidence.CalibratedBound(
        problem=PROBLEM, alpha=0.1, releases=1, regularizer=2.0, private=False
    ).belief(actions.T @ actions, actions.T @ rewards, np.array(0.0))
    np.testing.assert_allclose(own.theta, shared.theta)
    np.testing.assert_allclose(own.ellipsoid_width, shared.ellipsoid_width)
    np.testing.assert_allclose(own.euclidean_width, shared.euclidean_width)


def test_error_ratio_is_the_supremum_over_directions(rng: np.random.Generator) -> None:
    root = rng.normal(size=(3, 3))
    belief = Belief(
        theta=rng.normal(size=3),
        inverse=np.asarray(np.linalg.inv(root @ root.T + 0.3 * np.eye(3)), dtype=np.float64),
        ellipsoid_width=np.array(0.8),
        euclidean_width=np.array(0.5),
    )
    truth = rng.normal(size=3)
    exact = float(confidence.error_ratio(belief, truth))
    x = rng.normal(size=(200_000, 3))
    width = upper_confidence_bounds(belief, x) - x @ belief.theta
    tried = np.abs(x @ (belief.theta - truth)) / width
    assert tried.max() <= exact * (1 + 1e-12)  # never exceeded …
    assert tried.max() >= 0.999 * exact  # … and nearly reached


def test_the_released_set_holds_the_worst_that_its_events_allow_and_hardly_more() -> None:
    """Noise and rewards' noise both as large as the events allow, in one direction, and ‖θ*‖ = S: the edge.

    With A = 40 I, w = 4, r = 3, λ = 5, ρ = 2: R = 6, W = (40 + 5·2 + 2) I = 52 I and
    β = ½ √(2 ln(1/0.04) + 2 ln(52/2)). All directions are alike, so that the best κ is exact.
    """
    bound = confidence.ReleasedSetBound(
        problem=PROBLEM, reward_alpha=0.04, residual_radius=3.0, gram_radius=5.0, regularizer=2.0
    )
    theta = np.array([0.6, 0.8])
    beta = 0.5 * math.sqrt(2 * math.log(25.0) + 2 * math.log(26.0))
    reach = 6.0 + beta * math.sqrt(52.0)
    for direction in (np.array([0.6, 0.8]), np.array([0.8, -0.6]), np.array([1.0, 0.0])):
        moment = 40.0 * theta + reach * direction
        ratio = float(confidence.error_ratio(bound.belief(40.0 * np.eye(2), moment, np.array(4.0)), theta))
        assert 0.97 < ratio <= 1.0 + 1e-9
        beyond = 40.0 * theta + 1.05 * reach * direction
        outside = bound.belief(40.0 * np.eye(2), beyond, np.array(4.0))
        assert float(confidence.error_ratio(outside, theta)) > 1.0


def test_the_released_set_ignores_directions_that_are_noise_alone() -> None:
    bound = confidence.ReleasedSetBound(
        problem=PROBLEM, reward_alpha=0.04, residual_radius=3.0, gram_radius=5.0, regularizer=2.0
    )
    belief = bound.belief(np.diag([400.0, -7.0]), np.array([200.0, 90.0]), np.array(4.0))
    assert belief.theta[1] == 0.0  # nothing is read off a negative eigenvalue
    assert 0.2 < belief.theta[0] < 0.5  # the other is read, and drawn towards zero by ‖θ*‖ ≤ S
    unit = np.array([[0.0, 1.0]])
    width = upper_confidence_bounds(belief, unit)[0] - unit @ belief.theta
    assert 0.866 <= float(width[0]) <= 1.0  # all that ‖θ*‖ ≤ S leaves, the first being about ½: √(1 − ¼)

"""The estimate that greed goes by, beside the set that a bonus comes from."""

from __future__ import annotations

import numpy as np
import pytest

from feducb.config import Problem
from feducb.models.mixture import MixtureBound
from feducb.policies import Greedy

PROBLEM = Problem(dim=4, reward_bound=0.5, parameter_bound=1.0)
THETA = np.array([0.5, -0.3, 0.4, 0.1])


def _sums(records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gram and moment of correlated features: most of their length lies along one direction."""
    rng = np.random.default_rng(seed)
    actions = 0.2 * rng.standard_normal((records, 4)) + 0.5
    actions /= np.maximum(np.linalg.norm(actions, axis=1, keepdims=True), 1.0)
    rewards = actions @ THETA + rng.uniform(-0.3, 0.3, records)
    return actions.T @ actions, actions.T @ rewards


def test_without_noise_the_estimate_is_all_but_least_squares_and_closer_than_the_middle_of_the_set() -> None:
    # An agent alone that went by the middle of its set would be easy to beat. Seeded; over 50 logs of 300.
    bound = MixtureBound(problem=PROBLEM, log_threshold=np.log(10.0))
    ridge = PROBLEM.noise_scale**2 / PROBLEM.parameter_bound**2
    closer = 0
    for seed in range(50):
        gram, moment = _sums(300, seed)
        belief = bound.belief(gram, moment, np.zeros(()))
        np.testing.assert_allclose(belief.guess, np.linalg.solve(gram + ridge * np.eye(4), moment), rtol=1e-9)
        closer += np.linalg.norm(belief.guess - THETA) < np.linalg.norm(belief.theta - THETA)
    assert closer >= 40


@pytest.mark.parametrize("variance", [0.0, 4.0])
def test_a_direction_in_which_nothing_was_seen_gets_no_estimate(variance: float) -> None:
    residual = 2.0 + 2.0 * PROBLEM.parameter_bound**2
    bound = MixtureBound(problem=PROBLEM, log_threshold=3.0, gram_radius=5.0, residual=residual)
    gram, moment = np.diag([400.0, 100.0, 0.0, -3.0]), np.array([100.0, -50.0, 0.0, 7.0])
    guess = bound.belief(gram, moment, np.asarray(variance)).guess
    assert guess[2] == guess[3] == 0.0
    assert 0.0 < guess[0] <= 0.25
    assert -0.5 <= guess[1] < 0.0


def test_greed_goes_by_the_estimate() -> None:
    belief = MixtureBound(problem=PROBLEM, log_threshold=3.0).belief(*_sums(300, 0), np.zeros(()))
    candidates = np.random.default_rng(1).standard_normal((20, 5, 4)) / 4
    chosen, _ = Greedy().decide(belief, candidates)
    np.testing.assert_array_equal(chosen, np.argmax(candidates @ belief.guess, axis=-1))

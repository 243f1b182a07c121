"""The paper's environment: bands, bounds, law, and independence of how it is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import FixedArms, PaperEnvironment, bands_for_gap
from feducb.worlds.world import OwnEnvironment


@pytest.mark.parametrize("dim", [1, 2, 10])
@pytest.mark.parametrize("arms", [1, 5])
@pytest.mark.parametrize("norm", [0.8, 1.0])
def test_actions_keep_their_bands_and_bounds(dim: int, arms: int, norm: float) -> None:
    world = PaperEnvironment(problem=Problem(dim=dim), arms=arms, parameter_norm=norm)
    visits = world.open(Streams(3), range(2), range(3))
    contexts = visits.arrive(200)
    assert contexts.actions.shape == (2, 3, 200, arms, dim)
    np.testing.assert_allclose(np.linalg.norm(visits.theta, axis=-1), norm)
    for run in range(2):
        np.testing.assert_allclose(contexts.actions[run] @ visits.theta[run], contexts.means[run], atol=1e-12)
    assert np.linalg.norm(contexts.actions, axis=-1).max() <= 1.0 + 1e-12
    best, others = contexts.means[..., 0], contexts.means[..., 1:]
    assert best.min() >= 0.7 - 1e-12
    assert best.max() <= 0.8 + 1e-12
    if arms > 1:
        assert others.min() >= 0.5 - 1e-12
        assert others.max() <= 0.6 + 1e-12


def test_the_orthogonal_part_is_uniform_in_its_ball() -> None:
    # Kolmogorov–Smirnov at level 1e-6: radius^(d−1) and one direction's angle are uniform.
    dim = 4
    visits = PaperEnvironment(problem=Problem(dim=dim), arms=2).open(Streams(11), range(1), range(1))
    contexts = visits.arrive(10_000)
    unit = visits.theta[0]
    means = contexts.means[0, 0, :, 1]
    rest = contexts.actions[0, 0, :, 1] - means[:, None] * unit
    radius = np.linalg.norm(rest, axis=1) / np.sqrt(1 - means**2)
    assert stats.kstest(radius ** (dim - 1), "uniform").pvalue > 1e-6
    basis = np.linalg.svd(unit[None])[2][1:]
    direction = rest @ basis.T / np.linalg.norm(rest, axis=1, keepdims=True)
    assert stats.kstest(direction[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-6  # Archimedes, d − 1 = 3
    assert stats.kstest(means, stats.uniform(0.5, 0.1).cdf).pvalue > 1e-6


def test_rewards_are_beta_with_the_right_mean() -> None:
    # Level 1e-6, against the law itself.
    world = FixedArms(problem=Problem(dim=1), actions=np.array([[0.7]]), theta=np.array([1.0]))
    visits = world.open(Streams(2), range(1), range(1))
    contexts = visits.arrive(20_000)
    rewards = visits.reward(contexts.chosen(np.zeros((1, 1, 20_000), dtype=np.int64)))
    assert stats.kstest(rewards.ravel(), stats.beta(0.7, 0.3).cdf).pvalue > 1e-6


def test_what_an_agent_meets_does_not_depend_on_how_it_is_drawn() -> None:
    world = PaperEnvironment(problem=Problem(dim=3), arms=4)
    together = world.open(Streams(5), range(3), range(4))
    apart = world.open(Streams(5), range(1, 2), range(4))
    whole = together.arrive(10)
    index = np.ones((3, 4, 10), dtype=np.int64)
    rewards = together.reward(whole.chosen(index))
    parts = [apart.arrive(rounds) for rounds in (1, 7, 2)]
    np.testing.assert_allclose(
        np.concatenate([part.actions for part in parts], axis=2)[0], whole.actions[1], atol=1e-14
    )
    paid = [apart.reward(part.chosen(index[:1, :, : part.means.shape[2]])) for part in parts]
    np.testing.assert_allclose(np.concatenate(paid, axis=2)[0], rewards[1], atol=1e-12)


def test_the_gap_moves_the_other_band() -> None:
    assert bands_for_gap(0.1)[0] == (0.7, 0.8)
    assert bands_for_gap(0.1)[1] == pytest.approx((0.5, 0.6))
    assert bands_for_gap(0.3)[1] == pytest.approx((0.3, 0.4))
    for gap in (-0.1, 0.7, float("nan")):
        with pytest.raises(ConfigurationError, match="gap"):
            bands_for_gap(gap)


def test_a_parameter_too_short_for_the_bands_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"parameter_norm is 0\.5, expected at least 0\.8"):
        PaperEnvironment(problem=Problem(dim=3), arms=4, parameter_norm=0.5)


def test_fixed_arms_check_what_they_are_given() -> None:
    problem, theta = Problem(dim=2), np.array([0.5, 0.5])
    for actions in (np.eye(3), np.zeros((0, 2)), 2 * np.eye(2), -np.eye(2)):
        with pytest.raises(ConfigurationError):
            FixedArms(problem=problem, actions=actions, theta=theta)


def test_an_own_environment_needs_two_functions() -> None:
    theta = np.array([0.6, 0.2])

    def draw(generator: np.random.Generator, agent: int, rounds: int) -> np.ndarray:
        angle = generator.random((rounds, 5)) * (agent + 1)
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    def pay(generator: np.random.Generator, actions: np.ndarray, means: np.ndarray) -> np.ndarray:
        return (generator.random(len(means)) < means).astype(float)

    world = OwnEnvironment(problem=Problem(dim=2), arms=5, theta=theta, draw=draw, pay=pay)
    visits = world.open(Streams(1), range(2), range(3))
    contexts = visits.arrive(4)
    assert contexts.means.shape == (2, 3, 4, 5)
    rewards = visits.reward(contexts.chosen(np.zeros((2, 3, 4), dtype=np.int64)))
    assert set(np.unique(rewards)) <= {0.0, 1.0}

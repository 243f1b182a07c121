"""Worlds beside the paper's: bounds, laws, and their names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import feducb
from feducb.cli.program import app
from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.worlds.family import WORLDS, CorrelatedArms, IsotropicArms, OneHotArms, named_world
from feducb.worlds.streams import Streams

OTHERS = [name for name in WORLDS if name != "paper"]


@pytest.mark.parametrize("problem", [Problem(dim=6), Problem(dim=2, action_bound=2.0, parameter_bound=3.0)])
@pytest.mark.parametrize("name", WORLDS)
def test_public_bounds_truly_hold_and_means_are_linear(name: str, problem: Problem) -> None:
    world = named_world(name, problem)
    visits = world.open(Streams(3), range(4), range(2))
    contexts = visits.arrive(300)
    assert np.linalg.norm(contexts.actions, axis=-1).max() <= problem.action_bound * (1 + 1e-12)
    assert np.linalg.norm(visits.theta, axis=-1).max() <= problem.parameter_bound * (1 + 1e-12)
    for run in range(4):
        np.testing.assert_allclose(contexts.actions[run] @ visits.theta[run], contexts.means[run], atol=1e-12)
    assert contexts.means.min() > 0.0
    assert contexts.means.max() < 1.0
    assert len(np.unique(visits.theta[:, -1])) >= 2  # runs differ; at d = 2 the features have two directions


def _features(world: feducb.Environment, rounds: int) -> np.ndarray:
    """z of x = L (1, z)/√2, (rounds · K, d − 1)."""
    actions = world.open(Streams(11), range(1), range(1)).arrive(rounds).actions[0, 0]
    np.testing.assert_allclose(actions[..., 0], np.sqrt(0.5))
    return np.asarray(np.sqrt(2.0) * actions[..., 1:].reshape(-1, world.problem.dim - 1))


def test_isotropic_features_are_uniform_in_their_ball() -> None:
    # Kolmogorov–Smirnov at level 1e-6: radius³, and a coordinate of the direction (Archimedes, d − 1 = 3).
    features = _features(IsotropicArms(problem=Problem(dim=4), arms=2), 5_000)
    radius = np.linalg.norm(features, axis=1)
    assert stats.kstest(radius**3, "uniform").pvalue > 1e-6
    assert stats.kstest(features[:, 1] / radius, stats.uniform(-1, 2).cdf).pvalue > 1e-6


def test_correlated_features_have_the_spectrum_that_is_said_and_fill_no_axis_of_their_own() -> None:
    """Eigenvalues fall nearly as 1/j; drawing back into the ball shortens the long axes most.

    Over 40,000 candidates an eigenvalue is known to 1 %: the bounds are what clipping may take, not chance.
    """
    features = _features(CorrelatedArms(problem=Problem(dim=6), arms=4), 10_000)
    covariance = features.T @ features / len(features)
    found = np.linalg.eigvalsh(covariance)[::-1]
    stated = 1.0 / np.arange(1, 6)
    stated /= stated.sum()
    assert (found < 1.02 * stated).all()
    assert (found > 0.4 * stated).all()
    assert 3.0 < found[0] / found[-1] < 5.0
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 0.02  # turned: features are correlated


def test_in_the_paper_s_world_the_parameter_lies_along_the_long_axis_and_in_the_others_it_need_not() -> None:
    """The share of ‖θ*‖² along the Gram's longest axis, the intercept left out; mean over 40 runs, d = 6.

    Uniform directions have 1/5 in the mean, 0.16 in deviation: over 40 runs 0.2 ± 0.025.
    """

    def share(name: str) -> float:
        visits = named_world(name, Problem(dim=6), 6).open(Streams(5), range(40), range(1))
        actions, theta = visits.arrive(200).actions.reshape(40, -1, 6), visits.theta
        if name != "paper":
            actions, theta = actions[..., 1:], theta[:, 1:]
        longest = np.linalg.eigh(np.swapaxes(actions, 1, 2) @ actions)[1][..., -1]
        return float(np.mean((longest * theta).sum(1) ** 2 / (theta**2).sum(1)))

    assert share("paper") > 0.99
    assert share("isotropic") < 0.35
    assert share("correlated") < 0.35


def test_one_hot_arms_have_one_best_by_a_clear_gap() -> None:
    visits = OneHotArms(problem=Problem(dim=10)).open(Streams(1), range(50), range(1))
    means = np.sort(visits.arrive(1).means[:, 0, 0], axis=1)
    assert (means[:, -2] <= 0.8 * means[:, -1] + 1e-12).all()
    assert (means[:, 0] >= 0.2 * means[:, -1] - 1e-12).all()
    np.testing.assert_allclose(np.linalg.norm(visits.theta, axis=1), 1.0)
    assert (
        len(set(visits.theta.argmax(axis=1))) >= 8
    )  # any arm may be it: 50 runs miss 3 of 10 by chance 1e-5


def test_what_a_world_cannot_have_is_refused() -> None:
    problem = Problem(dim=4)
    for name, given, match in (
        ("moon", {}, "world is 'moon', expected one of paper, isotropic, one-hot, correlated"),
        ("isotropic", {"gap": 0.1}, "gap"),
        ("one-hot", {"arms": 7}, "arms is 7, expected d = 4"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            named_world(name, problem, **given)
    for name in OTHERS:
        with pytest.raises(ConfigurationError, match="dim"):
            named_world(name, Problem(dim=1))
        with pytest.raises(ConfigurationError, match="reward_bound"):
            named_world(name, Problem(dim=3, reward_bound=0.5))
    with pytest.raises(ConfigurationError, match=r"parameter_bound is 0\.5, expected at least 0\.8382"):
        named_world("isotropic", Problem(dim=3, parameter_bound=0.5))


@pytest.mark.parametrize("name", OTHERS)
def test_the_command_line_plays_it_and_says_so(name: str, tmp_path: Path) -> None:
    written = tmp_path / "result.json"
    lasting = ["--agents", "2", "--dim", "3", "--horizon", "30", "--runs", "2"]
    ended = CliRunner().invoke(app, ["simulate", "--world", name, *lasting, "--json", str(written)])
    assert ended.exit_code == 0, ended.output
    config = json.loads(written.read_text())["config"]
    assert config["environment"] == type(named_world(name, Problem(dim=3))).__name__
    assert config["backend"] == "reference"
    assert config["gap"] is None
    by_name = feducb.simulate(environment=name, agents=2, dim=3, horizon=30, runs=2)
    assert by_name.config["environment"] == config["environment"]

"""Known zeros: actions in blocks carry noise within their block alone, and the confidence set still holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.config import Problem
from feducb.errors import ConfigurationError, RecordOutOfBoundsError
from feducb.models import LINEAR, Blocks, Model, require_model
from feducb.models.mixture import MixtureBound
from feducb.models.play import ReleasedPlay
from feducb.privacy.mechanisms import Dense
from feducb.privacy.privatizer import Privatizer, placed
from feducb.protocol.estimators import calibrated_estimator
from feducb.types import Array

TEN = Blocks(10)


def _spread(model: Model, problem: Problem) -> float:
    """√ of the mean variance of an entry of h − Hθ* at its largest, in units of 1/μ."""
    weight, bound = model.weight(problem), problem.parameter_bound**2
    entries = problem.dim / weight**2 + (problem.dim + 1) * bound
    if isinstance(model, Blocks):  # all of θ* in the longest block
        entries = problem.dim / weight**2 + (max(model.sizes(problem.dim)) + 1) * bound
    return model.radius(problem, weight) * math.sqrt(entries / problem.dim)


@pytest.mark.parametrize(("dim", "coordinates", "entry"), [(10, 0.555, 0.794), (100, 0.355, 0.837)])
def test_known_zeros_leave_less_noise(dim: int, coordinates: float, entry: float) -> None:
    """Ten equal blocks: the length of all noise at the same scale, and an average entry of h − Hθ*."""
    problem = Problem(dim=dim)
    assert math.sqrt(TEN.coordinates(dim) / LINEAR.coordinates(dim)) == pytest.approx(coordinates, abs=0.001)
    assert _spread(TEN, problem) / _spread(LINEAR, problem) == pytest.approx(entry, abs=0.001)
    assert TEN.gram_radius(dim, 8, 0.01) < 0.75 * LINEAR.gram_radius(dim, 8, 0.01)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 2), (1, 3)])
def test_the_noise_of_the_gram_stays_within_its_radius_and_nothing_is_between_blocks(
    sizes: tuple[int, ...], rng: np.random.Generator
) -> None:
    """20,000 draws at α = 0.05: exceeded 1,000 times at most, on average; 1,200 has a chance of 1e-10."""
    model, dim = Blocks(sizes), sum(sizes)
    flat = rng.standard_normal((20_000, model.coordinates(dim)))
    gram, _ = model.read(flat, dim=dim, weight=1.0, unit=math.sqrt(2.0))
    block = np.repeat(np.arange(len(sizes)), sizes)
    assert not gram[:, block[:, None] != block].any()
    beyond = np.linalg.eigvalsh(-gram)[:, -1] > model.gram_radius(dim, 1, 0.05)
    assert beyond.sum() < 1_200


@pytest.mark.parametrize("sizes", [(1,) * 6, (2, 2, 2), (3, 1, 2), (5, 1)])
def test_no_parameter_has_a_larger_residual_than_is_said(
    sizes: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Sorted eigenvalues of D, over many θ* in the ball, sparse ones among them; and never above Linear's."""
    model, dim = Blocks(sizes), sum(sizes)
    problem = Problem(dim=dim, parameter_bound=1.7)
    said, full = model.residual_scales(problem, 0.8), LINEAR.residual_scales(problem, 0.8)
    assert (said <= full + 1e-12).all()
    block = np.repeat(np.arange(len(sizes)), sizes)
    for draw in range(600):
        theta = rng.standard_normal(dim) * (rng.random(dim) < (0.3, 1.0)[draw % 2])
        if draw % 3 == 0:  # as much in several blocks
            theta = np.concatenate(
                [part / max(float(np.linalg.norm(part)), 1e-9) for part in _parts(theta, sizes)]
            )
        theta *= problem.parameter_bound / max(float(np.linalg.norm(theta)), 1e-9)
        own = (block[:, None] == block) * np.outer(theta, theta)
        squares = np.array([theta[block == one] @ theta[block == one] for one in block])
        eigenvalues = np.linalg.eigvalsh(np.diag(1.0 / 0.8**2 + squares) + own)[::-1]
        assert (eigenvalues <= said + 1e-9).all()


def _parts(theta: Array, sizes: tuple[int, ...]) -> list[Array]:
    return np.split(theta, np.cumsum(sizes)[:-1])


def test_what_touches_several_blocks_is_refused_or_loses_all_but_its_longest() -> None:
    model, problem = require_model("blocks:2+1"), Problem(dim=3)
    actions, rewards = np.array([[0.3, 0.4, 0.2], [0.1, 0.0, -0.2], [0.0, 0.0, 0.0]]), np.full(3, 0.5)
    kept = [[0.3, 0.4, 0.0], [0.0, 0.0, -0.2], [0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(model.nearest(actions), kept)
    np.testing.assert_array_equal(
        model.flatten(actions, rewards, 1.0), model.flatten(np.array(kept), rewards, 1.0)
    )
    strict = Privatizer(problem=problem, mechanism=Dense(2), noise_scale=1.0, model=model)
    with pytest.raises(RecordOutOfBoundsError, match="an action does not fit the model blocks:2\\+1"):
        strict.record(strict.start(), actions, rewards)
    strict.record(strict.start(), np.array(kept), rewards)


def test_names_say_the_blocks_and_those_that_cannot_be_are_refused() -> None:
    assert require_model("blocks:3+4+3") == Blocks((3, 4, 3))
    assert require_model("blocks:10").name == "blocks:10"
    for wrong in ("blocks:", "blocks:0", "blocks:3+x", "blocks:-1"):
        with pytest.raises(ConfigurationError, match="blocks is"):
            require_model(wrong)
    with pytest.raises(
        ConfigurationError, match="model is 'blocks:3', expected blocks that add up to dim = 10"
    ):
        Blocks(3).coordinates(10)


@pytest.mark.parametrize("name", ["blocks:6", "blocks:1+2+3", "public:linear"])
@pytest.mark.parametrize("spread", [False, True])
def test_the_mixture_starts_below_its_threshold(name: str, spread: bool, rng: np.random.Generator) -> None:
    """E min(1, Σ M_k/x) ≤ α₁ under the model's own noise, with θ* in one block or in all of them.

    Of 4,000 draws the mean is known to 0.005, so that 0.02 above α₁ is a false alarm of 1e-4; with noise
    twice as large as stated it is missed by far.
    """
    problem, model, rounds = Problem(dim=6), require_model(name), (10, 30, 100, 300)
    federation = feducb.Federation(problem=problem, agents=10, model=model)
    estimator = calibrated_estimator(federation, rounds, range(10), alpha=0.1)
    privatizer, rule = estimator.privatizer, estimator.rule
    assert privatizer is not None
    assert isinstance(rule, ReleasedPlay)
    assert isinstance(rule.bound, MixtureBound)
    mechanism, first, bound = privatizer.mechanism, min(rule.first, len(rounds)), rule.bound
    scale, noisy = float(np.linalg.norm(privatizer.noise_scale)), model.noisy(6)
    theta = np.full(6, 1.0 / math.sqrt(6.0)) if spread else np.eye(6)[5]
    fresh = scale * rng.standard_normal((len(rounds), 4_000, int(noisy.sum())))
    means = {}
    for times in (1.0, 2.0):
        starts = np.full(4_000, -np.inf)
        for number in range(first, len(rounds) + 1):
            noise = placed(np.tensordot(times * mechanism.decoder()[number - 1], fresh, 1), noisy)
            gram, moment = model.read(noise, dim=6, weight=privatizer.reward_weight, unit=math.sqrt(2.0))
            stated = (scale * mechanism.error(number)) ** 2
            prior = float(bound.prior(np.array(stated)))
            squares = ((moment - gram @ theta) ** 2).sum(axis=1)
            own = 0.5 * squares / (stated * bound.residual + prior)
            own -= 3.0 * math.log1p(stated * bound.residual / prior)
            starts = np.logaddexp(starts, own)
        means[times] = float(np.exp(np.minimum(starts - bound.log_threshold, 0.0)).mean())
    assert means[1.0] <= 0.095 + 0.02 < means[2.0]


def test_the_bound_is_made_of_the_models_own_radii() -> None:
    federation = feducb.Federation(problem=Problem(dim=10), agents=100, model=TEN)
    rounds = (10, 30, 100, 300, 1000)
    bounds: dict[str, Any] = {}
    for name in ("linear", "blocks:10", "public:linear"):
        one = feducb.Federation(problem=Problem(dim=10), agents=100, model=require_model(name))
        rule = calibrated_estimator(one, rounds, range(100), alpha=0.1).rule
        assert isinstance(rule, ReleasedPlay)
        bounds[name] = rule.bound
    assert federation.model == TEN
    assert bounds["blocks:10"].gram_radius < bounds["linear"].gram_radius
    assert bounds["blocks:10"].log_threshold < bounds["linear"].log_threshold
    assert (bounds["public:linear"].gram_radius, bounds["public:linear"].residual) == (0.0, 1.0)

"""Thompson sampling's chances: closed forms, brute force, and the stated error up to 1,000 candidates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from policy_checks import some_beliefs
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr

import feducb
from feducb.errors import ConfigurationError
from feducb.policies import Greedy, Thompson, parse_policy
from feducb.policies.optimistic import confidence_widths
from feducb.policies.thompson import chances_to_be_largest
from feducb.types import Belief

Array = NDArray[np.float64]
Generator = np.random.Generator


def _one_by_one(means: Array, spreads: Array) -> Array:
    """The same integrals over each candidate's own range, by an adaptive rule."""

    def density(z: float, i: int) -> float:
        below = log_ndtr((means[i] + spreads[i] * z - means) / spreads)
        return float(np.exp(below.sum() - below[i] - 0.5 * z * z) / np.sqrt(2.0 * np.pi))

    made = []
    for i in range(len(means)):
        steps = sorted(float(np.clip((m - means[i]) / spreads[i], -8.5, 8.5)) for m in means)
        made.append(quad(partial(density, i=i), -9, 9, points=steps, limit=500, epsabs=1e-13)[0])
    return np.array(made)


@pytest.mark.parametrize("ratio", [1.0, 0.3, 1e-3, 1e-5])
def test_two_candidates_have_a_closed_form(rng: Generator, ratio: float) -> None:
    means, spreads = rng.normal(size=(50, 2)), rng.uniform(0.1, 3.0, size=(50, 2)) * [1.0, ratio]
    chances = chances_to_be_largest(means, spreads)
    first = ndtr((means[:, 0] - means[:, 1]) / np.hypot(spreads[:, 0], spreads[:, 1]))
    np.testing.assert_allclose(chances[:, 0], first, rtol=0, atol=1e-12)
    np.testing.assert_allclose(chances[:, 1], 1.0 - first, rtol=0, atol=1e-12)


@pytest.mark.parametrize("arms", [3, 7, 20])
def test_more_candidates_as_another_rule_integrates_them(rng: Generator, arms: int) -> None:
    for powers in (0.0, 1.0, 2.0):
        means, spreads = rng.normal(size=arms), 10.0 ** rng.uniform(-powers, 0.0, size=arms)
        chances = chances_to_be_largest(means[None], spreads[None])[0]
        np.testing.assert_allclose(chances, _one_by_one(means, spreads), rtol=0, atol=1e-9)


def test_brute_force(rng: Generator) -> None:
    """200,000 draws; every frequency within 5.5 standard deviations: a false alarm once in 10⁶."""
    means, spreads, draws = rng.normal(size=8), rng.uniform(0.0, 2.0, size=8), 200_000
    spreads[3] = 0.0
    chances = chances_to_be_largest(means[None], spreads[None])[0]
    winners = np.argmax(means + spreads * rng.normal(size=(draws, 8)), axis=1)
    counts = np.bincount(winners, minlength=8)
    allowed = 5.5 * np.sqrt(draws * chances * (1.0 - chances)) + 1.0
    assert (np.abs(counts - draws * chances) < allowed).all()


@pytest.mark.parametrize("arms", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("case", ["equal", "alike", "wild", "two kinds", "one wide"])
def test_chances_sum_to_one_before_they_are_made_to(rng: Generator, arms: int, case: str) -> None:
    """The sum is the integral of the largest draw's density: its error shows all of theirs."""
    means, spreads = rng.normal(size=(2, arms)), rng.uniform(0.2, 2.0, size=(2, arms))
    if case == "equal":
        means, spreads = np.full((2, arms), 0.7), np.full((2, arms), 0.3)
    elif case == "wild":
        spreads = 10.0 ** rng.uniform(-9.0, 1.0, size=(2, arms))
    elif case == "two kinds":
        means, spreads = np.zeros((2, arms)), np.where(np.arange(arms) % 2, [[1.0], [1e-4]], 1.7)
    elif case == "one wide":
        means, spreads = np.zeros((2, arms)), np.where(np.arange(arms) == 0, [[1.7], [20.0]], 1.0)
    chances = chances_to_be_largest(means, spreads)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=0, atol=1e-11)
    assert chances.min() >= 0.0
    if case == "equal":
        np.testing.assert_allclose(chances, 1.0 / arms, rtol=0, atol=1e-12)


def test_a_thousand_candidates_as_ten_times_the_nodes_integrate_them(
    rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    means, spreads = 0.1 * rng.normal(size=(1, 1000)), rng.uniform(0.9, 1.1, size=(1, 1000))
    chances = chances_to_be_largest(means, spreads)
    monkeypatch.setattr("feducb.policies.thompson._NODES", 1920)
    np.testing.assert_allclose(chances, chances_to_be_largest(means, spreads), rtol=0, atol=1e-12)


def test_neither_units_nor_a_common_shift_matter(rng: Generator) -> None:
    means, spreads = rng.normal(size=(4, 9)), rng.uniform(0.1, 2.0, size=(4, 9))
    plain = chances_to_be_largest(means, spreads)
    for scale in (1e-150, 1e-9, 1e9, 1e150):
        np.testing.assert_allclose(chances_to_be_largest(scale * means, scale * spreads), plain, atol=1e-12)
    np.testing.assert_allclose(chances_to_be_largest(means + 1e3, spreads), plain, atol=1e-11)


def test_without_width_the_best_share_the_chance() -> None:
    means = np.array([[1.0, 3.0, 3.0, 2.0], [5.0, 1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(
        chances_to_be_largest(means, np.zeros((2, 4))), [[0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]]
    )
    # One that is certain beside one that is not: the closed form at a spread of 0, but for a millionth.
    one = chances_to_be_largest(np.array([[0.0, 0.4]]), np.array([[1.0, 0.0]]))[0]
    np.testing.assert_allclose(one, [ndtr(-0.4), ndtr(0.4)], atol=1e-9)
    # Two that are certain and all but equal are told apart only above a millionth of the third's deviation.
    close = chances_to_be_largest(np.array([[0.0, 1e-3, 0.5]]), np.array([[0.0, 0.0, 1.0]]))[0]
    assert close[0] == pytest.approx(0.0, abs=1e-12)


def test_draws_have_the_deviation_that_is_stated(rng: Generator) -> None:
    belief, candidates = some_beliefs(rng, (), 3)[1], rng.normal(size=(1, 2, 3))
    assert belief is not None
    means, widths = candidates[0] @ belief.theta, confidence_widths(belief, candidates[0])
    for scale in (0.1, 0.25, 1.0):
        first = ndtr((means[0] - means[1]) / (scale * np.hypot(*widths)))
        assert Thompson(scale).propensities(belief, candidates)[0, 0] == pytest.approx(first, abs=1e-12)
    np.testing.assert_array_equal(
        Thompson(0.0).propensities(belief, candidates), Greedy().propensities(belief, candidates)
    )


def test_one_dimension() -> None:
    belief = Belief(np.array([1.0]), np.eye(1), np.array(1.0), np.array(0.0))
    chances = Thompson(1.0).propensities(belief, np.array([[[1.0], [-1.0]]]))[0]
    np.testing.assert_allclose(chances, [ndtr(np.sqrt(2.0)), ndtr(-np.sqrt(2.0))], atol=1e-12)


def test_its_number_is_its_scale() -> None:
    assert parse_policy("thompson:0.5") == Thompson(0.5)
    for text in ("thompson:", "thompson:wide", "thompson:-1", "thompson:inf"):
        with pytest.raises(ConfigurationError, match="scale"):
            parse_policy(text)


def test_it_learns_in_a_simulation_on_any_number_of_threads() -> None:
    """Without privacy noise, at the same seed: far less regret than uniform play."""
    world: dict[str, Any] = {"agents": 4, "dim": 2, "arms": 5, "horizon": 400, "runs": 2, "seed": 3}
    one, other = (
        feducb.simulate(**world, baseline="no-privacy", policy="thompson", threads=threads)
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one.regret, other.regret)
    assert one.config["policy"] == "Thompson(scale=0.1)"
    assert one.mean < 0.7 * feducb.simulate(**world, baseline="uniform").mean

"""What every policy must do: asked of each by `test_policies`, and of the skeleton in the guide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feducb.policies import Policy
from feducb.types import Belief

__all__ = ["CHECKS", "some_beliefs"]

Array = NDArray[np.float64]

_DRAWS = 4000
_DEVIATIONS = 5.5  # of a binomial count: a false alarm less than once in 10⁶ per candidate
SHAPES = [((), 3, 5, 4), ((), 1, 1, 1), ((2,), 4, 1, 3), ((2, 3), 2, 6, 1), ((3,), 1, 40, 8)]


def some_beliefs(rng: np.random.Generator, leading: tuple[int, ...], dim: int) -> list[Belief | None]:
    """None, a belief with both widths, and one that is certain."""
    records = rng.normal(size=(*leading, 3 * dim, dim))
    gram = np.swapaxes(records, -1, -2) @ records + np.eye(dim)
    theta, inverse = rng.normal(size=(*leading, dim)), np.asarray(np.linalg.inv(gram), dtype=np.float64)
    zero = np.zeros(leading)
    return [
        None,
        Belief(theta, inverse, rng.uniform(0.5, 3.0, leading), rng.uniform(0.0, 2.0, leading)),
        Belief(theta, inverse, zero, zero),
    ]


def index_and_propensity_fit(policy: Policy) -> None:
    """An index in range, and beside it the chance that `propensities` gives; leading axes are kept."""
    rng = np.random.default_rng(1)
    for leading, visitors, arms, dim in SHAPES:
        candidates, coins = rng.normal(size=(*leading, visitors, arms, dim)), rng.random((*leading, visitors))
        for belief in some_beliefs(rng, leading, dim):
            index, propensity = policy.decide(belief, candidates, coins)
            chances = policy.propensities(belief, candidates)
            assert index.shape == propensity.shape == (*leading, visitors)
            assert chances.shape == (*leading, visitors, arms)
            assert index.dtype == np.int64
            assert index.min() >= 0
            assert index.max() < arms
            assert chances.min() >= 0.0
            np.testing.assert_allclose(chances.sum(axis=-1), 1.0, rtol=0, atol=1e-9)
            own = np.take_along_axis(chances, index[..., None], axis=-1)[..., 0]
            np.testing.assert_allclose(propensity, own, rtol=0, atol=1e-12)
            assert propensity.min() > 0.0


def visitors_are_served_one_by_one(policy: Policy) -> None:
    """Each leading index and each visitor as if it were the only one."""
    rng = np.random.default_rng(2)
    candidates, coins = rng.normal(size=(2, 3, 4, 5, 6)), rng.random((2, 3, 4))
    belief = some_beliefs(rng, (2, 3), 6)[1]
    assert belief is not None
    index, propensity = policy.decide(belief, candidates, coins)
    for place in np.ndindex(2, 3, 4):
        own = place[:2]
        part = Belief(
            belief.theta[own],
            belief.inverse[own],
            np.asarray(belief.ellipsoid_width[own]),
            np.asarray(belief.euclidean_width[own]),
        )
        one, chance = policy.decide(part, candidates[place][None], coins[place][None])
        assert one[0] == index[place]
        np.testing.assert_allclose(chance[0], propensity[place], rtol=0, atol=1e-9)


def frequencies_are_the_propensities(policy: Policy) -> None:
    """4,000 coins; every count within 5.5 standard deviations and 1."""
    rng = np.random.default_rng(3)
    candidates = np.tile(0.3 * rng.normal(size=(6, 4)), (_DRAWS, 1, 1))
    for belief in some_beliefs(rng, (), 4):
        index, _ = policy.decide(belief, candidates, rng.random(_DRAWS))
        chances = policy.propensities(belief, candidates[:1])[0]
        counts = np.bincount(index, minlength=6)
        allowed = _DEVIATIONS * np.sqrt(_DRAWS * chances * (1.0 - chances)) + 1.0
        assert (np.abs(counts - _DRAWS * chances) < allowed).all(), (counts, chances)


def order_does_not_matter(policy: Policy) -> None:
    """Where candidates differ, chances move with them."""
    rng = np.random.default_rng(4)
    candidates, turned = rng.normal(size=(5, 7, 3)), rng.permutation(7)
    for belief in some_beliefs(rng, (), 3):
        chances = policy.propensities(belief, candidates)
        moved = policy.propensities(belief, candidates[:, turned])
        np.testing.assert_allclose(moved, chances[:, turned], rtol=0, atol=1e-9)


def without_a_belief_evenly(policy: Policy) -> None:
    """Before anything was learnt every policy draws uniformly, by its coin."""
    candidates = np.zeros((4, 8, 2))
    np.testing.assert_array_equal(policy.propensities(None, candidates), 0.125)
    index, propensity = policy.decide(None, candidates, np.array([0.0, 0.125, 0.5, 1.0 - 2.0**-53]))
    assert index.tolist() == [0, 1, 4, 7]
    np.testing.assert_array_equal(propensity, 0.125)


def coins_are_read_only_where_it_says_so(policy: Policy) -> None:
    """A policy that needs no coins chooses the same whatever they are, with certainty."""
    rng = np.random.default_rng(5)
    candidates, belief = rng.normal(size=(50, 4, 3)), some_beliefs(rng, (), 3)[1]
    if not policy.needs_coins:
        index, propensity = policy.decide(belief, candidates)
        np.testing.assert_array_equal(index, policy.decide(belief, candidates, rng.random(50))[0])
        np.testing.assert_array_equal(propensity, 1.0)


CHECKS = (
    index_and_propensity_fit,
    visitors_are_served_one_by_one,
    frequencies_are_the_propensities,
    order_does_not_matter,
    without_a_belief_evenly,
    coins_are_read_only_where_it_says_so,
)

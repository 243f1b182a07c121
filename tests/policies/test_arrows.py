"""Shared terms beside each action's own: a decision reads what goes together, and is the policies' own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator

from feducb.models.products import Products
from feducb.policies import Optimistic, Tempered
from feducb.policies.decider import Decider
from feducb.types import Array, Belief


def arrow(rng: Generator, shared: int, own: int, blocks: int) -> tuple[Belief, Array, Array]:
    """A belief, one candidate for each block, and (d, d), which entries never meet in a candidate."""
    dim = shared + own * blocks
    labels = Products(f"{shared}+{own}(a{blocks})").labels(dim)[0]
    records = rng.normal(size=(3 * dim, dim)) * rng.uniform(0.1, 1.0, dim)
    inverse = np.linalg.inv(records.T @ records + np.eye(dim))
    belief = Belief(
        theta=rng.normal(size=dim) / np.sqrt(dim),
        inverse=0.5 * (inverse + inverse.T),
        ellipsoid_width=np.array(rng.uniform(0.5, 5.0)),
        euclidean_width=np.array(0.0),
    )
    levels = np.arange(blocks)[:, None]
    actions = np.where((labels == levels) | (labels < 0), rng.normal(size=(blocks, dim)), 0.0)
    never = (labels[:, None] != labels) & (labels[:, None] >= 0) & (labels >= 0)
    return belief, actions, never


@pytest.mark.parametrize(("shared", "own", "blocks"), [(10, 16, 10), (1, 3, 30), (30, 2, 60), (20, 4, 5)])
def test_choices_chances_and_bounds_are_the_policies(
    rng: Generator, shared: int, own: int, blocks: int
) -> None:
    """The last arrow is so full that candidates are scored whole."""
    policy = Tempered()
    for _ in range(10):
        belief, actions, _ = arrow(rng, shared, own, blocks)
        decider, chances = Decider(belief), policy.propensities(belief, actions[None])[0]
        assert decider.decide(actions) == Optimistic().decide(belief, actions[None])[0][0]
        np.testing.assert_allclose(decider.tempered_chances(actions, policy), chances, rtol=0, atol=1e-9)
        for coin in rng.random(5):
            index, chance = decider.temper(actions, coin, policy)
            assert index == policy.decide(belief, actions[None], np.array([coin]))[0][0]
            assert chance == pytest.approx(chances[index], rel=0, abs=1e-9)
        bounds = [decider.judge(action)[1] for action in actions]
        np.testing.assert_allclose(bounds, decider.score(actions), rtol=1e-9)


@pytest.mark.parametrize(("shared", "own", "blocks"), [(10, 16, 10), (1, 3, 30), (30, 2, 60)])
def test_what_stands_between_blocks_is_not_read(rng: Generator, shared: int, own: int, blocks: int) -> None:
    """Whatever numbers are there, lines and bounds are the same to the last bit: cost goes with one block."""
    lines_of = pytest.importorskip("feducb.policies.lines").lines_of
    belief, actions, never = arrow(rng, shared, own, blocks)
    dim = len(belief.theta)
    first = Decider(belief)
    inverse = first.belief.inverse.copy()
    inverse[never] = 1e3 * rng.normal(size=int(never.sum()))
    lines, left = lines_of(actions, first._state, True)
    state = first._state.copy()
    start = pytest.importorskip("feducb.policies.kernels").HEADER + dim
    state[start : start + dim * dim] = inverse.ravel()
    again, same = lines_of(actions, state, True)
    np.testing.assert_array_equal(lines, again)
    np.testing.assert_array_equal(left, same)
    np.testing.assert_array_equal(left, np.arange(blocks))
    assert len(inverse[never]) > 0.5 * dim * dim  # most of it

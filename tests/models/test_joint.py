"""What an agent makes of its own records and the others' sum together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from feducb.config import Problem
from feducb.models.joint import Hearing, JointBound, Others, weight_of
from feducb.models.mixture import MixtureBound
from feducb.policies import Optimistic, Tempered
from feducb.types import Array, Belief, Statistics, add, zeros

PROBLEM = Problem(dim=4, noise_scale=0.5)
THETA = np.array([0.5, -0.3, 0.4, 0.1])
ALONE = MixtureBound(problem=PROBLEM, log_threshold=math.log(1e6))
JOINT = JointBound(  # all are taken to be alike
    alone=ALONE,
    variance=25.0,
    evenly=1e6,
    weight=0.5,
    distance=0.0,
    tolerance=0.0,
    looks=0,
    log_threshold=math.log(1e6),
    gram_radius=8.0,
    residual=4.0,
)
AGENTS = 100


# Of 100 honest agents that are asked once, more are thought to contradict the others with a chance below
# 1e-5: two tests, of 15 % and of 3 %, where rewards scatter as far as they may.
BY_CHANCE = 37


def _own(
    rng: np.random.Generator, records: int, *, scatter: float = 0.5, squares: bool = False
) -> Statistics:
    """Of agents that saw all directions; how far rewards scatter is not known if it is not asked for."""
    actions = rng.standard_normal((AGENTS, records, 4)) / 4.0
    rewards = actions @ THETA + scatter * rng.standard_normal((AGENTS, records))
    known = add(zeros(4, (AGENTS,)), actions, rewards)
    return known if squares else replace(known, squares=math.inf)


def _anything(rng: np.random.Generator) -> Others:
    """Sums of all sizes, with less than nothing in some directions, of a θ that is anybody's choice."""
    factor = rng.standard_normal((AGENTS, 4, 4)) * 10.0 ** rng.uniform(0.0, 3.0, (AGENTS, 1, 1))
    gram = factor @ np.swapaxes(factor, -1, -2) - 10.0 * np.eye(4)
    said = THETA + rng.standard_normal((AGENTS, 4)) * 10.0 ** rng.uniform(-2.0, 0.0, (AGENTS, 1))
    return Others.of(gram, (gram @ said[..., None])[..., 0])


def _widths(belief: Belief, actions: Array) -> Array:
    """(agents, n), of actions (agents, n, d)."""
    squared = np.einsum("and,ade,ane->an", actions, belief.inverse, actions)
    return np.asarray(belief.ellipsoid_width[:, None] * np.sqrt(squared))


def test_whatever_others_send_a_choice_loses_no_more_than_own_records_leave_open() -> None:
    # docs/theory.md, 10. At α = 1e-6 all 300 of alone's sets hold θ* but for a chance of 3e-4; seeded.
    for seed, records in enumerate((50, 1000, 20_000)):
        rng = np.random.default_rng(seed)
        own, others = _own(rng, records), _anything(rng)
        alone, played = ALONE.belief(own.gram, own.moment, np.zeros(AGENTS)), JOINT.belief(own, others)
        off = THETA - alone.theta
        inside = np.einsum("ad,ad->a", off, np.linalg.solve(alone.inverse, off[..., None])[..., 0])
        assert (inside <= alone.ellipsoid_width**2).all()
        read = (played.theta != alone.theta).any(axis=-1)
        assert 5 <= read.sum() <= AGENTS - 5  # others' sums are neither all read nor all left

        directions = rng.standard_normal((AGENTS, 200, 4))
        assert (_widths(played, directions) <= (1.1 + 1e-9) * _widths(alone, directions)).all()
        candidates = rng.standard_normal((AGENTS, 30, 4)) / 4.0
        best = np.argmax(candidates @ THETA, axis=-1)[:, None]
        for policy in (Optimistic(), Tempered()):
            index, _ = policy.decide(played, candidates[:, None], rng.random((AGENTS, 1)))
            chosen, right = (np.take_along_axis(candidates, at[..., None], 1) for at in (index, best))
            left_open = 1.1 * _widths(alone, chosen) + 2.0 * _widths(alone, right - chosen)
            assert ((right - chosen) @ THETA <= left_open + 1e-9).all()


def test_what_own_records_contradict_is_not_read() -> None:
    # Others who swear by −θ*, against 2,000 own records: alone's play. By θ* itself: a far narrower set.
    own = _own(np.random.default_rng(3), 2000)
    alone = ALONE.belief(own.gram, own.moment, np.zeros(AGENTS))
    gram = 1e6 * np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    lied, told = (JOINT.belief(own, Others.of(gram, sign * (gram @ THETA))) for sign in (-1.0, 1.0))
    np.testing.assert_array_equal(lied.theta, alone.theta)
    np.testing.assert_array_equal(lied.inverse, alone.inverse)
    axes = np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    narrow = (_widths(told, axes) < 0.2 * _widths(alone, axes)).all(axis=-1)
    assert narrow.sum() >= AGENTS - BY_CHANCE


def test_sites_half_as_keen_are_not_followed_once_own_records_tell() -> None:
    # Others whose θ is half of this agent's point the same way, and lie in what 300 own records leave open:
    # only χ² tells.
    own = _own(np.random.default_rng(4), 300)
    gram = 1e5 * np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    half, same = (Others.of(gram, scale * (gram @ (3.0 * THETA))) for scale in (0.5, 1.0))
    keen = Statistics(own.gram, own.moment + (own.gram @ (2.0 * THETA)), own.count)  # of 3θ
    assert JOINT.contradicted(keen, half).mean() > 0.9
    assert JOINT.contradicted(keen, same).sum() <= BY_CHANCE
    far = replace(JOINT, tolerance=2.0)  # who expects sites to differ by that much is not surprised
    assert not far.contradicted(keen, half).any()


def test_rewards_that_scatter_less_than_they_may_speak_sooner() -> None:
    # Others whose θ is 0.7 of this agent's; 150 records say so if they are known to scatter by 0.15 in place
    # of 0.5, and honest others are not taken for such.
    own = _own(np.random.default_rng(12), 150, scatter=0.15, squares=True)
    gram = 1e5 * np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    less, same = (Others.of(gram, scale * (gram @ THETA)) for scale in (0.7, 1.0))
    unknown = replace(own, squares=math.inf)
    assert JOINT.contradicted(own, less).mean() > 0.9
    assert JOINT.contradicted(unknown, less).mean() < 0.1
    assert JOINT.contradicted(own, same).sum() <= BY_CHANCE
    assert not JOINT.contradicted(unknown, same).any()


def test_squares_never_make_rewards_scatter_further_than_they_may() -> None:
    # As where they are not known: rewards beyond their bound, or too few records to tell.
    others = _anything(np.random.default_rng(14))
    for records, scatter in ((300, 1.5), (4, 0.01)):
        own = _own(np.random.default_rng(13), records, scatter=scatter, squares=True)
        found = JOINT.contradicted(own, others)
        np.testing.assert_array_equal(found, JOINT.contradicted(replace(own, squares=math.inf), others))
        assert found.any()
        least = np.asarray(
            np.linalg.solve(own.gram + 1e-3 * np.eye(4), own.moment[..., None])[..., 0], np.float64
        )
        assert (JOINT._scatter(own, least) == PROBLEM.noise_scale**2).all()


def test_sites_that_differ_are_tolerated_less_while_an_agent_may_still_look_around() -> None:
    own = _own(np.random.default_rng(15), 500)
    gram = 1e5 * np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    off = Others.of(gram, gram @ (THETA + np.array([0.2, -0.2, 0.0, 0.2])))
    tolerant = replace(JOINT, tolerance=0.6, looks=1000)
    early, late = (tolerant.contradicted(replace(own, count=count), off) for count in (649, 650))
    assert early.mean() > 0.8
    assert late.mean() < 0.2
    for tolerance, found in ((0.15, early), (0.6, late)):
        always = replace(JOINT, tolerance=tolerance, looks=0)
        np.testing.assert_array_equal(always.contradicted(own, off), found)


def test_rewards_that_fall_short_of_what_others_promise_are_noticed_in_that_direction() -> None:
    # Records along what others promise, and rewards of 0.72 of it: what is short is short in one direction,
    # and χ² of all four finds it in fewer than four of five.
    rng = np.random.default_rng(8)
    actions = 0.9 * THETA / np.linalg.norm(THETA) + rng.standard_normal((AGENTS, 80, 4)) / 50.0
    across = np.swapaxes(actions, -1, -2)
    rewards = actions @ (0.72 * THETA) + 0.5 * rng.standard_normal((AGENTS, 80))
    own = Statistics(across @ actions, (across @ rewards[..., None])[..., 0], 80)
    gram = 1e5 * np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    told = Others.of(gram, gram @ THETA)
    off = np.linalg.solve(own.gram, own.moment[..., None])[..., 0] - THETA
    squared = np.einsum("ad,ade,ae->a", off, own.gram, off) / 0.25
    assert (squared > 9.49).mean() < 0.8  # the upper 5 % of χ² of 4: a test of the test
    assert JOINT.contradicted(own, told).mean() > 0.85


def test_whoever_was_misled_looks_around_before_it_acts_on_few_directions() -> None:
    # 40 records along one direction, which others swear by wrongly. It plays what own records say least of,
    # around a set that holds θ* if alone's does; with records of all directions, or after a public number of
    # them, alone's own set.
    looking = replace(JOINT, looks=100)
    rng = np.random.default_rng(7)
    actions = np.array([0.8, 0.0, 0.0, 0.0]) + rng.standard_normal((AGENTS, 40, 4)) / 20.0
    across = np.swapaxes(actions, -1, -2)
    rewards = actions @ THETA + 0.5 * rng.standard_normal((AGENTS, 40))
    own = Statistics(across @ actions, (across @ rewards[..., None])[..., 0], 40)
    gram = 1e5 * np.broadcast_to(np.eye(4), (AGENTS, 4, 4))
    lie = Others.of(gram, -(gram @ THETA))
    belief, hearing = looking.weigh(own, lie)
    assert (hearing == Hearing.CONTRADICTED).all()
    for policy in (Optimistic(), Tempered()):
        index, chance = policy.decide(
            belief, np.broadcast_to(np.eye(4), (AGENTS, 1, 4, 4)), np.full((AGENTS, 1), 0.3)
        )
        assert (index != 0).all()
        np.testing.assert_array_equal(chance, 1.0)
    alone = ALONE.belief(own.gram, own.moment, np.zeros(AGENTS))
    directions = rng.standard_normal((AGENTS, 200, 4))
    reach = np.abs(directions @ alone.theta[..., None])[..., 0] + _widths(alone, directions)
    assert (reach <= _widths(belief, directions) + 1e-9).all()  # it holds all that alone's set does
    later = looking.belief(replace(own, count=100), lie)
    np.testing.assert_array_equal(later.theta, alone.theta)
    spread = _own(rng, 20_000)
    enough = replace(spread, count=40)
    np.testing.assert_array_equal(
        looking.belief(enough, lie).theta, ALONE.belief(spread.gram, spread.moment, np.zeros(AGENTS)).theta
    )


def test_an_exact_gram_of_few_directions_is_one_that_records_can_have() -> None:
    # Contexts are public, or nothing is private: the Gram has no noise. Total less own records then rounds to
    # less than nothing in directions that nobody saw, and others' sums were left wherever that was so.
    exact = replace(JOINT, gram_radius=0.0, evenly=250.0)
    seen = np.random.default_rng(5).standard_normal((AGENTS, 1000, 2)) @ np.random.default_rng(
        6
    ).standard_normal((2, 4))
    seen /= np.linalg.norm(seen, axis=-1, keepdims=True)
    each = np.swapaxes(seen, -1, -2) @ seen
    total = each.sum(axis=0)
    others = Others.of(total - (total - each), each @ THETA)
    assert (others.values[:, 0] < 0.0).any()  # a test of the test
    assert exact.possible(others).all()
    less = Others.of(each - np.eye(4), each @ THETA)  # a record less than none
    assert not exact.possible(less).any()


def test_nobody_else_weighs_nothing() -> None:
    assert weight_of(PROBLEM, 0.0, 0.0, 0.0) == 0.0
    assert weight_of(PROBLEM, 0.0, 100.0, 0.3) == 0.0

"""The one way out, in both arithmetics: bounds, sums, noise, a count, a seal; and nothing else leaves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
    ReleasesExhaustedError,
    UnsealedReleaseError,
)
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.mechanisms import BinaryTree, Dense, SquareRootToeplitz
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer, Release, within_bounds
from feducb.privacy.terms import Terms

PROBLEM = Problem(dim=2)
TERMS = Terms(problem=PROBLEM, budget=Budget(epsilon=1e4, delta=0.5), releases=3, excess="refuse")
SOME, PAID = np.array([[0.6, 0.8], [0.5, -0.5]]), np.array([0.5, -1.0])


class Silent:
    """A source that must not be asked."""

    def draw(self, rows: int, count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")


class Noted:
    """Unit noise, and a note of what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def draw(self, rows: int, count: int) -> np.ndarray:
        self.asked.append((rows, count))
        return np.ones((rows, count))


class InFloats:
    """A stream of a simulated agent without noise, used as a deployed one is."""

    def __init__(self, excess: str = "refuse") -> None:
        self.privatizer = Privatizer(
            problem=PROBLEM,
            mechanism=Dense(3),
            noise_scale=0.0,
            excess=excess,  # type: ignore[arg-type]
        )
        self.state = self.privatizer.start()

    def record(self, actions: np.ndarray, rewards: np.ndarray) -> None:
        self.state = self.privatizer.record(self.state, actions, rewards)

    def release(self) -> tuple[int, np.ndarray, np.ndarray]:
        self.state, made = self.privatizer.release(self.state, Silent())
        return made.number, made.gram, made.moment

    def kept(self) -> object:
        return self.state.released, self.state.total.gram.tolist(), self.state.total.moment.tolist()


class OnGrid:
    """The same stream as it is deployed; noise is tiny at ε = 10⁴."""

    def __init__(self, excess: str = "refuse") -> None:
        self.door = DeployedPrivatizer(replace(TERMS, excess=excess))  # type: ignore[arg-type]

    def record(self, actions: np.ndarray, rewards: np.ndarray) -> None:
        self.door.record(actions, rewards)

    def release(self) -> tuple[int, np.ndarray, np.ndarray]:
        made = self.door.release()
        values = np.ldexp(made.values.astype(np.float64), made.exponent)
        return made.number, *TERMS.model.read(values, dim=2, weight=made.weight)

    def kept(self) -> object:
        return self.door.dump()


BOTH = pytest.mark.parametrize("make", [InFloats, OnGrid])
Make = Callable[..., Any]


@BOTH
def test_releases_are_of_everything_so_far_and_are_counted(make: Make) -> None:
    """Release k replaces release k − 1. Twelve deviations of the grid's noise are below 0.7."""
    stream, gram, moment = make(), np.zeros((2, 2)), np.zeros(2)
    for number in (1, 2, 3):
        stream.record(SOME, PAID)
        gram, moment = gram + SOME.T @ SOME, moment + SOME.T @ PAID
        counted, its_gram, its_moment = stream.release()
        assert counted == number
        np.testing.assert_allclose(its_gram, gram, atol=0.7)
        np.testing.assert_allclose(its_moment, moment, atol=0.7)


@BOTH
def test_after_the_last_release_nothing_leaves_and_nothing_changes(make: Make) -> None:
    stream = make()
    for _ in range(3):
        stream.release()
    stream.record(SOME, PAID)  # may still come in; it just never leaves
    before = stream.kept()
    for _ in range(2):
        with pytest.raises(ReleasesExhaustedError, match="release 4 was asked for, but the budget covers 3"):
            stream.release()
    assert stream.kept() == before


@BOTH
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("action", "reward"), [([0.9, 0.9], 0.0), ([0.0, 0.0], 1.1), ([0.0, 0.0], -1.1), ([math.inf, 0.0], 0.0)]
)
def test_one_record_beyond_the_bounds_keeps_all_that_came_with_it_out(
    make: Make, place: int, action: list[float], reward: float
) -> None:
    stream = make()
    stream.record(SOME, PAID)
    before, actions, rewards = stream.kept(), SOME.copy(), PAID.copy()
    actions[place], rewards[place] = action, reward
    with pytest.raises(RecordOutOfBoundsError):
        stream.record(actions, rewards)
    assert stream.kept() == before


@BOTH
def test_clipped_records_count_as_the_nearest_within_the_bounds(make: Make) -> None:
    wild, tame = make("clip"), make("clip")
    wild.record(np.array([[30.0, 40.0], [0.3, 0.4], [math.nan, 0.1]]), np.array([-9.0, 0.2, 1.0]))
    tame.record(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]), np.array([-1.0, 0.2, 0.0]))
    for one, other in zip(wild.release()[1:], tame.release()[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=0.7)


@BOTH
def test_no_records_are_no_error(make: Make) -> None:
    stream = make()
    before = stream.kept()
    stream.record(np.empty((0, 2)), np.empty(0))
    assert stream.kept() == before


def test_the_grid_takes_shapes_for_what_they_are() -> None:
    door = DeployedPrivatizer(TERMS)
    door.record(np.array([0.6, 0.8]), np.array(0.5))  # one record, as it comes
    assert door.pending == 1
    for actions, rewards in (
        (SOME, PAID[:1]),
        (SOME[:, :1], PAID),
        (SOME[None], PAID),
        (SOME, PAID[None]),
    ):
        with pytest.raises(RecordOutOfBoundsError, match=r"records have shapes .* expected \(n, 2\)"):
            door.record(actions, rewards)
    assert door.pending == 1


# What only floats have: leading axes, any source of noise, a state that is handed on.


def test_a_state_is_never_written_into() -> None:
    privatizer = Privatizer(problem=PROBLEM, mechanism=Dense(3), noise_scale=1.0)
    first = privatizer.record(privatizer.start(), SOME, PAID)
    gram, moment = first.total.gram.copy(), first.total.moment.copy()
    privatizer.record(first, SOME, PAID)
    second, _ = privatizer.release(first, Noted())
    privatizer.release(second, Noted())
    assert (first.released, first.memory) == (0, ())
    assert second.released == 1
    np.testing.assert_array_equal(first.total.gram, gram)
    np.testing.assert_array_equal(first.total.moment, moment)


def test_without_noise_none_is_drawn_and_with_it_a_draw_for_every_coordinate() -> None:
    bare = Privatizer(problem=PROBLEM, mechanism=Dense(2), noise_scale=0.0)
    _, release = bare.release(bare.record(bare.start(), SOME, PAID), Silent())
    np.testing.assert_array_equal(release.gram, SOME.T @ SOME)
    assert release.variance == 0.0
    noted, noisy = Noted(), Privatizer(problem=Problem(dim=4), mechanism=Dense(2), noise_scale=1.0)
    noisy.release(noisy.start(), noted)
    assert noted.asked == [(1, 14)]


def test_each_part_of_the_noise_lands_where_it_belongs() -> None:
    """Unit draws, scale 3, s = ½, one release: √2·3 on the diagonal, 3 off it, 3/s in the moment."""
    privatizer = Privatizer(
        problem=PROBLEM, mechanism=BinaryTree(1), noise_scale=3.0, reward_weight=0.5, shift=100.0
    )
    _, release = privatizer.release(privatizer.start(), Noted())
    np.testing.assert_allclose(release.gram, [[100 + 3 * math.sqrt(2), 3], [3, 100 + 3 * math.sqrt(2)]])
    np.testing.assert_allclose(release.moment, [6.0, 6.0])
    assert release.variance == pytest.approx(9.0)  # of one off-diagonal entry: the shift is no noise


def test_agents_side_by_side_have_scales_shifts_and_draws_of_their_own() -> None:
    scales, shifts = np.array([1.0, 2.0, 5.0]), np.array([0.0, 10.0, 20.0])
    generators = [[np.random.default_rng([9, agent]) for agent in range(3)]]
    together = Privatizer(problem=PROBLEM, mechanism=SquareRootToeplitz(2), noise_scale=scales, shift=shifts)
    state, source = together.start((1, 3)), SeededNoise(generators)
    actions = np.broadcast_to(SOME, (1, 3, 2, 2)) * np.array([1.0, 0.5, 0.1])[:, None, None]
    for _ in range(2):
        state = together.record(state, actions, np.broadcast_to(PAID, (1, 3, 2)))
        state, release = together.release(state, source)
    for agent in range(3):
        alone = Privatizer(
            problem=PROBLEM,
            mechanism=SquareRootToeplitz(2),
            noise_scale=scales[agent],
            shift=shifts[agent],
        )
        own, single = alone.start((1, 1)), SeededNoise([[np.random.default_rng([9, agent])]])
        for _ in range(2):
            own = alone.record(own, actions[:, agent : agent + 1], PAID[None, None])
            own, made = alone.release(own, single)
        np.testing.assert_allclose(release.gram[0, agent], made.gram[0, 0], atol=1e-12)
        np.testing.assert_allclose(release.moment[0, agent], made.moment[0, 0], atol=1e-12)
        assert release.variance[0, agent] == pytest.approx(float(made.variance[0, 0]))


def test_seeded_noise_is_the_agents_own_and_goes_on() -> None:
    def source(agents: list[int]) -> SeededNoise:
        return SeededNoise([[np.random.default_rng([run, agent]) for agent in agents] for run in (5, 6)])

    drawn = source([0, 1, 2]).draw(4, 7)
    assert drawn.shape == (4, 2, 3, 7)
    np.testing.assert_array_equal(drawn, source([0, 1, 2]).draw(4, 7))  # reproducible
    np.testing.assert_array_equal(drawn[:, :, 2:], source([2]).draw(4, 7))  # whoever stands beside it
    goes_on = source([0, 1, 2])
    assert not np.array_equal(goes_on.draw(4, 7), goes_on.draw(4, 7))
    flat = drawn.reshape(4 * 6, 7)
    assert len(np.unique(flat[:, 0])) == 24  # no two rows, runs or agents share a draw


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"noise_scale": -1.0}, "noise_scale is -1.0, expected finite numbers, all positive or all 0"),
        ({"noise_scale": math.nan}, "noise_scale is nan"),
        ({"noise_scale": math.inf}, "noise_scale is inf"),
        ({"noise_scale": np.array([1.0, 0.0])}, r"noise_scale is \[1.0, 0.0\]"),
        ({"noise_scale": 1.0, "excess": "shrug"}, "excess is 'shrug', expected clip or refuse"),
    ],
)
def test_settings_that_would_let_data_out_are_refused(changes: dict[str, Any], complaint: str) -> None:
    """One agent without noise beside others with it would be bare, and nobody would see."""
    with pytest.raises(ConfigurationError, match=complaint):
        Privatizer(problem=PROBLEM, mechanism=Dense(2), **changes)


@pytest.mark.parametrize("seal", [None, object(), 1])
def test_nobody_else_builds_what_may_leave(seal: object) -> None:
    with pytest.raises(UnsealedReleaseError, match="only a Privatizer builds a Release"):
        Release(number=1, gram=np.eye(2), moment=np.zeros(2), variance=np.ones(()), seal=seal)
    with pytest.raises(UnsealedReleaseError, match="only a DeployedPrivatizer builds a GridRelease"):
        GridRelease(
            number=1, dim=2, exponent=0, weight=1.0, values=np.zeros(5, np.int64), variance=1.0, seal=seal
        )


# Bounds.


def test_a_rounding_error_is_no_excess_and_a_little_more_is() -> None:
    for excess in ("clip", "refuse"):
        actions, rewards = within_bounds(
            PROBLEM, excess, np.array([[1.0 + 1e-10, 0.0]]), np.array([-1.0 - 1e-10])
        )
        assert np.linalg.norm(actions) <= 1.0
        assert rewards.tolist() == [-1.0]
    with pytest.raises(RecordOutOfBoundsError, match="an action has length 1, expected at most 1"):
        within_bounds(PROBLEM, "refuse", np.array([[1.0 + 1e-8, 0.0]]), np.zeros(1))
    with pytest.raises(RecordOutOfBoundsError, match="a reward is 1, expected -1 to 1"):
        within_bounds(PROBLEM, "refuse", np.zeros((1, 2)), np.array([1.0 + 1e-8]))


@pytest.mark.parametrize("bound", [1e-6, 1.0, 1e6])
def test_clipping_keeps_directions_and_leaves_nothing_beyond(bound: float) -> None:
    """Lengths over 600 powers of ten; what comes out fits by the very test that lets records in."""
    rng = np.random.default_rng(8)
    directions = rng.normal(size=(400, 5))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = 10.0 ** rng.uniform(-300, 300, size=400)
    problem = Problem(dim=5, action_bound=bound, reward_bound=bound)
    actions, rewards = within_bounds(problem, "clip", directions * lengths[:, None], lengths)
    squared = np.einsum("nd,nd->n", actions, actions)
    assert squared.max() <= bound**2
    assert np.abs(rewards).max() <= bound
    long = lengths > bound
    np.testing.assert_allclose(actions[long], bound * directions[long], rtol=1e-12)
    np.testing.assert_array_equal(actions[~long], (directions * lengths[:, None])[~long])
    np.testing.assert_array_equal(rewards, np.minimum(lengths, bound))


def test_what_is_not_finite_is_nothing_and_no_reward_decides_about_its_action() -> None:
    """Actions may be public, and their sums exact: one that left with its reward would tell of it."""
    actions = np.array([[math.nan, 0.5], [0.5, 0.5], [-math.inf, 0.0], [0.1, 0.2]])
    rewards = np.array([0.5, math.inf, 0.5, 0.3])
    kept, paid = within_bounds(PROBLEM, "clip", actions, rewards)
    np.testing.assert_array_equal(kept, [[0, 0], [0.5, 0.5], [0, 0], [0.1, 0.2]])
    np.testing.assert_array_equal(paid, [0.5, 0, 0.5, 0.3])


# What only what is deployed has: a state on disk.


def test_a_written_state_holds_all_that_the_next_release_needs() -> None:
    """The pending batch, the counts of releases and of uploads, and the encoder: each would be missed."""
    door = DeployedPrivatizer(replace(TERMS, trust="controller"))  # type: ignore[arg-type]
    door.record(SOME, PAID)
    door.release()
    door.record(SOME[:1], PAID[:1])
    door._uploads = 5
    again = DeployedPrivatizer(door.terms)
    again.load(door.dump())
    assert (again.released, again.pending, again._uploads) == (1, 1, 5)
    assert again._batch.tolist() == door._batch.tolist()
    assert again._encoder.dump() == door._encoder.dump()
    size = int.from_bytes(door.dump()[:8], "little")
    assert set(json.loads(door.dump()[8 : 8 + size])) == {"released", "pending", "uploads", "batch"}


def test_what_waits_is_written_alone_too() -> None:
    door, again = DeployedPrivatizer(TERMS), DeployedPrivatizer(TERMS)
    state = door.dump()
    door.record(SOME, PAID)
    again.load(state)
    again.load_batch(door.dump_batch())
    assert (again.pending, again._batch.tolist()) == (2, door._batch.tolist())
    assert again.dump() == door.dump()


def test_a_release_that_does_not_fit_leaves_the_stream_as_it_was() -> None:
    door = DeployedPrivatizer(TERMS)
    door.record(SOME, PAID)
    door._batch[1] += 2**90
    before = door.dump()
    with pytest.raises(OverflowError, match="does not fit the grid"):
        door.release()
    assert door.dump() == before


def test_noise_that_does_not_reach_the_claim_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = replace(TERMS.certificate(), sigma=TERMS.certificate().sigma // 2)
    monkeypatch.setattr(Terms, "certificate", lambda self: weak)
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        DeployedPrivatizer(TERMS)

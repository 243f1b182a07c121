"""Own play: what leaves is a function of the shared phase, in the reference and around compiled kernels.

Everything here is exact: the same seeds, so the same noise, and no statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.audit.invariance import ReplacedRecord
from feducb.models.play import JointPlay, OwnDataPlay
from feducb.protocol.federation import Tuning
from feducb.protocol.schedules import Explicit
from feducb.simulation.backends import teams
from feducb.simulation.backends.backend import Kernels, OwnPlay, Stretch, Sums
from feducb.simulation.backends.cpu import CpuBackend
from feducb.simulation.plan import Plan, make_plan
from feducb.simulation.reference import Step, run_block
from feducb.trust import TRUSTS, Trust
from feducb.types import Array, Belief, ReleasedSum
from feducb.worlds.streams import Streams
from feducb.worlds.world import Chosen, Contexts, Environment, Visits

ROUNDS, CLOSE, HORIZON = (10, 25, 40), 40, 90
WORLD = feducb.PaperEnvironment(problem=feducb.Problem(dim=3), arms=6)


def _plan(world: Environment, trust: Trust, agents: int = 4) -> Plan:
    federation = feducb.Federation(
        problem=world.problem,
        agents=agents,
        budget=feducb.Budget(epsilon=30.0, delta=1e-5),
        schedule=Explicit(ROUNDS),
        trust=trust,
        play="own",
        tuning=Tuning(patience=0.0),  # every sum is read, so that the shared phase has decisions to look at
    )
    return make_plan(federation, world, horizon=HORIZON, runs=2, seed=5)


@dataclass(frozen=True)
class _OtherLater:
    """A world that is another one after a round: candidates turned around, and other rewards."""

    inner: Environment
    after: int

    @property
    def problem(self) -> feducb.Problem:
        return self.inner.problem

    @property
    def arms(self) -> int:
        return self.inner.arms

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        return _Later(self.inner.open(streams, runs, agents), self.after)


class _Later:
    def __init__(self, inner: Visits, after: int) -> None:
        self._inner, self._after, self._arrived, self._paid = inner, after, 0, 0
        self.theta = inner.theta

    def arrive(self, rounds: int) -> Contexts:
        contexts = self._inner.arrive(rounds)
        later = np.arange(self._arrived, self._arrived + rounds) >= self._after
        self._arrived += rounds
        return Contexts(np.where(later[:, None, None], -1.0, 1.0) * contexts.actions, contexts.means)

    def reward(self, chosen: Chosen) -> Array:
        rewards = self._inner.reward(chosen)
        later = np.arange(self._paid, self._paid + rewards.shape[2]) >= self._after
        self._paid += rewards.shape[2]
        return np.where(later, 0.5 - 0.5 * rewards, rewards)


@dataclass
class _Seen:
    """What left each agent, or all together, the sums, and all decisions (runs, agents, T)."""

    left: list[tuple[Array, Array]]
    sums: list[tuple[Array, Array]]
    decided: np.ndarray


def _watch(plan: Plan) -> _Seen:
    left, sums, decided = [], [], []

    def look(step: Step) -> None:
        decided.append(step.chosen.index)
        if step.release is not None and step.total is not None:
            left.append((step.release.gram, step.release.moment))
            sums.append((step.total.gram, step.total.moment))

    played = run_block(plan, range(plan.runs), observer=look)
    assert played.release_rounds == (ROUNDS,) * plan.runs
    return _Seen(left, sums, np.concatenate(decided, axis=2))


def _same(one: Sequence[tuple[Array, Array]], other: Sequence[tuple[Array, Array]]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        a.tobytes() == b.tobytes() for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True)
    )


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_streams_that_differ_after_the_close_release_the_same_bits(trust: Trust) -> None:
    plain = _watch(_plan(WORLD, trust))
    later = _watch(_plan(_OtherLater(WORLD, CLOSE), trust))
    assert len(plain.sums) == len(ROUNDS)
    assert _same(plain.left, later.left)
    assert _same(plain.sums, later.sums)
    np.testing.assert_array_equal(plain.decided[:, :, :CLOSE], later.decided[:, :, :CLOSE])
    assert (plain.decided[:, :, CLOSE:] != later.decided[:, :, CLOSE:]).any()
    earlier = _watch(
        _plan(_OtherLater(WORLD, CLOSE - 1), trust)
    )  # its last round is the one before the close
    assert not _same(plain.sums, earlier.sums)
    assert _same(plain.sums[:-1], earlier.sums[:-1])


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
@pytest.mark.parametrize("at", [1, 10, 11, 40])
def test_a_record_before_the_close_moves_what_leaves_by_no_more_than_noise_was_made_for(
    at: int, trust: Trust
) -> None:
    # One candidate a visitor: all other records stay as they are, and what moves is the replaced one's doing.
    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=3), arms=1)
    plan = _plan(world, trust)
    other = ReplacedRecord(world, 1, at, action=np.array([0.0, 0.0, -1.0]), reward=-1.0)
    plain, moved = _watch(plan), _watch(_plan(other, trust))
    way_out = plan.estimators[0].privatizer
    assert way_out is not None
    bound = math.sqrt(2.0) * plan.federation.model.radius(world.problem, way_out.reward_weight)
    moment_weight = math.sqrt(2.0) * way_out.reward_weight
    steps = np.array(
        [
            np.concatenate(
                [(b[0] - a[0])[0].sum(axis=0).ravel(), moment_weight * (b[1] - a[1])[0].sum(axis=0)]
            )
            for a, b in zip(plain.left, moved.left, strict=True)
        ]
    )  # (n, d² + d), of the first run; nobody else's release moves
    first = next(number for number, when in enumerate(ROUNDS) if when >= at)
    assert not steps[:first].any()
    assert 0.0 < np.linalg.norm(steps[first]) <= bound * (1.0 + 1e-9)
    np.testing.assert_allclose(steps[first:], np.broadcast_to(steps[first], steps[first:].shape), atol=1e-9)
    rows = np.linalg.solve(way_out.mechanism.decoder(), steps)  # as they are before noise is added
    assert np.linalg.norm(rows) <= bound * (1.0 + 1e-9)
    if len(plain.left[0][0][0]) > 1:
        for a, b in zip(plain.left, moved.left, strict=True):
            for mine, theirs in zip(a, b, strict=True):
                np.testing.assert_array_equal(np.delete(mine, 1, axis=1), np.delete(theirs, 1, axis=1))


@pytest.mark.parametrize("at", [41, 60])
def test_a_record_after_the_close_shows_at_its_own_agent_alone(at: int) -> None:
    plan = _plan(WORLD, TRUSTS["nobody"])
    plain = _watch(plan)
    other = ReplacedRecord(WORLD, 1, at, action=np.array([0.0, 0.0, -1.0]), reward=-1.0)
    moved = _watch(_plan(other, TRUSTS["nobody"]))
    assert _same(plain.left, moved.left)
    np.testing.assert_array_equal(np.delete(plain.decided, 1, axis=1), np.delete(moved.decided, 1, axis=1))


class _Tampered:
    """Kernels whose sums are others for one player of the first run, in one call, or after a round."""

    def __init__(self, inner: Kernels, *, place: int, more: Array, since: int, until: int = HORIZON) -> None:
        self._inner, self._place, self._more = inner, place, more
        self._when = range(since, until + 1)
        self.work_at_once = inner.work_at_once
        self.beliefs: dict[int, Belief | None] = {}

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        assert (stretch.agents, len(stretch.runs)) == (1, 8)  # every agent by itself
        self.beliefs |= dict.fromkeys(range(stretch.first_round, stretch.first_round + rounds), belief)
        sums = self._inner.fixed(belief, stretch, rounds)
        if stretch.first_round in self._when:
            gram, moment = sums.gram.copy(), sums.moment.copy()
            gram[self._place] += np.outer(self._more, self._more)
            moment[self._place] -= self._more
            sums = replace(sums, gram=gram, moment=moment)
        return sums

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        return self._inner.own(rule, stretch)


def _compiled(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, **changed: Any
) -> tuple[list[ReleasedSum], dict[int, Belief | None]]:
    sums: list[ReleasedSum] = []
    release = teams._Out.release

    def kept(out: teams._Out) -> ReleasedSum | None:
        total = release(out)
        assert total is not None
        sums.append(total)
        return total

    usual: dict[str, Any] = {"place": 1, "more": np.zeros(3), "since": 1}
    kernels = _Tampered(CpuBackend().kernels(plan, threads=1), **(usual | changed))
    with monkeypatch.context() as patched:
        patched.setattr(teams._Out, "release", kept)
        (played,) = teams.play_teams(plan, kernels, progress=lambda steps: None, checkpoint=None)
    assert played.release_rounds == (ROUNDS,) * 2
    return sums, kernels.beliefs


def _equal(one: Belief | None, other: Belief | None) -> bool:
    if one is None or other is None:
        return one is other
    names = ("theta", "inverse", "ellipsoid_width")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_compiled_play_lets_nothing_out_after_the_close(
    trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, more = _plan(WORLD, trust), np.array([0.6, -0.8, 0.0])
    plain, beliefs = _compiled(plan, monkeypatch)
    later, others = _compiled(plan, monkeypatch, more=more, since=CLOSE + 1)
    assert len(plain) == len(later) == len(ROUNDS)
    for one, other in zip(plain, later, strict=True):
        assert one.gram.tobytes() == other.gram.tobytes()
        assert one.moment.tobytes() == other.moment.tobytes()
    assert all(_equal(beliefs[at], others[at]) for at in range(1, CLOSE + 2))  # the first is read at once
    assert not _equal(beliefs[CLOSE + 2], others[CLOSE + 2])


def test_compiled_play_before_the_close_looks_at_released_sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, more = _plan(WORLD, TRUSTS["nobody"]), np.array([0.6, -0.8, 0.0])
    plain, beliefs = _compiled(plan, monkeypatch)
    moved, others = _compiled(plan, monkeypatch, more=more, since=11, until=11)
    step = [other.gram - one.gram for one, other in zip(plain, moved, strict=True)]
    assert not step[0].any()
    np.testing.assert_allclose(step[1][0], np.outer(more, more), atol=1e-12)  # the record, and no more of it
    assert not step[1][1].any()  # another run
    np.testing.assert_allclose((moved[1].moment - plain[1].moment)[0], -more, atol=1e-12)
    assert all(_equal(beliefs[at], others[at]) for at in range(1, 26))
    changed, kept = beliefs[26], others[26]
    assert changed is not None
    assert kept is not None
    assert not np.array_equal(changed.theta[:4], kept.theta[:4])
    np.testing.assert_array_equal(changed.theta[4:], kept.theta[4:])
    assert (changed.theta[:4] == changed.theta[0]).all()  # the shared phase has one belief for all


def test_the_close_is_the_last_release_and_until_then_one_belief_is_everybody_s() -> None:
    plan = _plan(WORLD, TRUSTS["nobody"])
    rule = plan.estimators[0].rule
    assert isinstance(rule, JointPlay)
    assert (rule.first, rule.last) == (CLOSE, len(ROUNDS))
    believers: dict[int, int] = {}

    def look(step: Step) -> None:
        if step.knowledge.belief is not None:
            believers[step.first_round] = step.knowledge.belief.theta.shape[1]
            assert (step.knowledge.others is not None) == (step.first_round >= CLOSE)

    run_block(plan, range(2), observer=look)
    assert {at for at, count in believers.items() if count == 1} == set(range(10, CLOSE))
    assert {at for at, count in believers.items() if count == 4} == set(range(CLOSE, HORIZON + 1))

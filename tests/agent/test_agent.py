from __future__ import annotations

import itertools
import json
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings, Outcome
from feducb.agent.upkeep import erase, export
from feducb.agent.view import look
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, FeducbError, StoreError, StoreInUseError
from feducb.models import LINEAR
from feducb.models.mixture import MixtureBound
from feducb.protocol import messages
from feducb.protocol.federation import EVERYTHING
from feducb.storage import AgentStore, events
from feducb.trust import CONTROLLER

SETTINGS = AgentSettings(
    name="north",
    problem=Problem(dim=3),
    budget=Budget(epsilon=1.0, delta=1e-6),
    decisions=10_000,
    releases=8,
    schedule="periodic",
    season=800.0,
    window=60.0,
    start=0.0,
    policy="optimistic",
)
GENEROUS = replace(SETTINGS, budget=Budget(epsilon=1e4, delta=1e-3), decisions=1_000_000)


def release_when_due(agent: Agent, clock: Clock) -> bytes:
    """The next release, as soon as its time has come."""
    made = agent.settings.releases - agent.snapshot()["releases_left"]
    clock.now = max(clock.now, agent.started_at + agent.settings.release_times[made])
    return agent.release()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Agent]]:
    """Opens the agent's file; the one opened before is given back."""
    agents: list[Agent] = []

    def anew(settings: AgentSettings | None = SETTINGS, start: float | None = None) -> Agent:
        while agents:
            agents.pop().close()
        if settings is not None:
            settings = replace(settings, start=clock.now if start is None else start)
        agents.append(Agent.open(tmp_path / "agent.db", settings, clock=clock))
        return agents[0]

    yield anew
    for agent in agents:
        agent.close()


def _candidates(rng: np.random.Generator, count: int = 4) -> np.ndarray:
    drawn = rng.standard_normal((count, 3))
    return np.asarray(0.9 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _batch(agent: Agent, group: int = 0) -> list[int]:
    """What waits for the release: exact sums."""
    return [int(value) for value in agent.store._privatizers[group]._batch]


def _sums_of(records: list[tuple[np.ndarray, float]]) -> list[int]:
    """What a new agent's batch would be for these records."""
    from feducb.privacy.deployed import DeployedPrivatizer

    privatizer = DeployedPrivatizer(SETTINGS.terms)
    for action, reward in records:
        privatizer.record(action[None], np.array([reward]))
    return [int(value) for value in privatizer._batch]


def test_a_record_enters_with_the_reward_that_came_in_time_or_with_the_default(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    rng = np.random.default_rng(1)
    agent = opened(replace(SETTINGS, default_reward=-0.25))
    seen, expected = [_candidates(rng) for _ in range(40)], []
    decisions = [agent.decide(actions) for actions in seen]
    for number in rng.permutation(40):  # out of order
        if number % 4 == 0:
            continue  # never comes
        clock.now += 0.01
        assert agent.reward(decisions[number].id, number / 40) is Outcome.RECORDED
        if number % 3 == 0:
            assert agent.reward(decisions[number].id, 0.999) is Outcome.REPEATED
    for number, (actions, decision) in enumerate(zip(seen, decisions, strict=True)):
        expected.append((actions[decision.index], number / 40 if number % 4 else -0.25))
    clock.now += 59.0
    agent.tick()
    assert _batch(agent) == [0] * 9  # no window has closed
    clock.now += 1.0
    assert (
        agent.reward(decisions[0].id, 1.0) is Outcome.LATE
    )  # by the clock, although nothing was settled yet
    agent.tick()
    assert _batch(agent) == _sums_of(expected)
    assert agent.reward(decisions[1].id, 1.0) is Outcome.LATE
    agent.tick()
    assert _batch(agent) == _sums_of(expected)
    counts = agent.snapshot()["counts"]
    assert counts["late_rewards"] == 2
    assert counts["defaulted"] == 10
    assert counts["settled"] == counts["decisions"] == 40


def test_opened_anew_at_every_step_it_goes_on_as_if_it_never_closed(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    rng = np.random.default_rng(2)
    expected, waiting = [], []
    for step in range(30):
        agent = opened(start=1_000_000.0)
        actions = _candidates(rng)
        decision = agent.decide(actions, id=f"visitor {step}")
        again = opened(start=1_000_000.0).decide(actions, id=f"visitor {step}")
        assert (again.index, again.repeated) == (decision.index, True)
        waiting.append((decision.id, actions[decision.index]))
        if step % 2:
            name, action = waiting[-2]
            assert opened(start=1_000_000.0).reward(name, 0.5) is Outcome.RECORDED
            expected.append((action, 0.5))
        clock.now += 1.0
    clock.now += 60.0
    expected += [(action, 0.0) for number, (_, action) in enumerate(waiting) if number % 2]
    agent = opened(start=1_000_000.0 + 0.0)
    while agent.settle_some():
        agent = opened(start=1_000_000.0)
    assert _batch(agent) == _sums_of(expected)
    assert agent.snapshot()["counts"]["decisions"] == 30


def test_it_learns_from_released_sums_alone_and_says_on_which(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    rng, theta = np.random.default_rng(3), np.array([0.8, -0.4, 0.2])
    agent = opened(GENEROUS)
    first = agent.decide(_candidates(rng))
    assert (first.model, first.propensity) == ("1.0", 0.25)
    for _ in range(600):
        actions = _candidates(rng)
        decision = agent.decide(actions)
        agent.reward(decision.id, float(actions[decision.index] @ theta))
    clock.now += 60.0
    agent.tick()
    assert agent.decide(_candidates(rng)).model == "1.0"  # in the batch, but not released
    clock.now += 40.0
    assert agent.tick(alone=False) == 1
    (item,) = agent.outbox()
    assert agent.absorb(messages.decode(item.body))
    assert not agent.absorb(messages.decode(item.body))  # nothing newer
    agent.mark_sent(item)
    assert agent.outbox() == []
    right = 0
    for _ in range(200):
        actions = _candidates(rng)
        decision = agent.decide(actions, scores=True, top=2)
        assert (decision.model, decision.propensity) == ("1.1", 1.0)
        assert decision.scores is not None
        assert decision.ranking is not None
        assert decision.index == int(np.argmax(decision.scores)) == decision.ranking[0]
        right += decision.index == int(np.argmax(actions @ theta))
    assert right > 150  # 50 by chance
    assert opened(None).decide(_candidates(rng)).model == "1.1"  # the sum is in the file


def test_no_record_changes_a_decision_before_its_release(tmp_path: Path, clock: Clock) -> None:
    """Two agents whose rewards differ decide alike until the next sum."""
    chosen = []
    payloads: list[bytes] = []
    for sign in (1.0, -1.0):
        with Agent.open(tmp_path / f"{sign}.db", replace(GENEROUS, start=clock.now), clock=clock) as agent:
            rng = np.random.default_rng(4)
            if not payloads:
                for _ in range(50):
                    decision = agent.decide(_candidates(rng))
                    agent.reward(decision.id, 0.5)
                clock.now += 100.0
                agent.tick(alone=False)
                payloads += [item.body for item in agent.outbox()]
                rng = np.random.default_rng(4)
            agent.absorb(messages.decode(payloads[0]))
            rng, mine = np.random.default_rng(5), []
            for _ in range(100):
                decision = agent.decide(_candidates(rng))
                agent.reward(decision.id, sign)
                mine.append(decision.index)
            clock.now += 60.0
            agent.settle_some()
            mine += [agent.decide(_candidates(rng)).index for _ in range(100)]
            chosen.append(mine)
    assert chosen[0] == chosen[1]


def test_releases_come_by_the_clock_and_never_twice(opened: Callable[..., Agent], clock: Clock) -> None:
    agent = opened()
    begun = clock.now
    agent.decide(_candidates(np.random.default_rng(6)))
    made: list[int] = []
    for passed in (99.0, 100.0, 100.5, 350.0, 799.0, 800.0, 899.0, 900.0, 1600.0):
        clock.now = begun + passed
        made.append(agent.tick())
        agent = opened(start=begun)
    assert made == [0, 1, 0, 2, 4, 1, 0, 1, 7]
    named = [(entry.season, entry.number) for one in agent.ledger().accounts for entry in one.entries]
    assert named == [(season, number) for season in (1, 2) for number in range(1, 9)]
    assert (agent.store.season, agent.started_at) == (3, begun + 1600.0)


@pytest.mark.parametrize("seconds", [0.0, 7.0])
def test_a_batch_is_cut_when_its_release_was_due_however_late_and_slowly_it_is_made(
    opened: Callable[..., Agent], clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Releases are due at 100, 200, 300; 2,400 windows close from 60 to 299, and all is made up for at 320.

    Each chunk that is taken in takes some seconds: who was there must not move others to another batch.
    """
    agent, start = opened(replace(SETTINGS, keep_events=10_000.0)), clock.now
    for step in range(240):
        clock.now = start + step
        with agent.writing():
            for _ in range(10):
                agent.decide(np.eye(3))
    taken = events.due

    def slowly(*args: Any, **options: Any) -> Any:
        clock.now += seconds
        return taken(*args, **options)

    monkeypatch.setattr(events, "due", slowly)
    clock.now = start + 320.0
    while agent.settle_some():
        pass
    assert agent.tick() == 3
    rows = agent.store.database.execute("SELECT closes_at, batch FROM decisions").fetchall()
    closed = [(closes_at / 1000 - start, batch) for closes_at, batch in rows]
    assert {batch for _, batch in closed} == {1, 2, 3}
    assert all(100.0 * (batch - 1) < at <= 100.0 * batch for at, batch in closed)


def test_where_the_controller_is_trusted_uploads_come_by_the_clock(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    agent = opened(replace(SETTINGS, trust=CONTROLLER))
    begun = clock.now
    agent.decide(_candidates(np.random.default_rng(16)))
    made = []
    for passed in (99.0, 100.0, 350.0, 350.5, 800.0, 879.0, 5000.0):
        clock.now = begun + passed
        made.append(agent.tick())
    assert made == [0, 1, 2, 0, 5, 0, 0]
    assert [item.number for item in agent.outbox()] == list(range(1, 9))
    for item in agent.outbox():
        agent.mark_sent(item)
    assert agent.outbox() == []
    assert agent.snapshot()["releases_left"] == 0


def test_logged_propensities_are_the_frequencies(opened: Callable[..., Agent], clock: Clock) -> None:
    """4,000 draws; each frequency within 5 standard deviations: a false alarm less than once in 300,000."""
    agent = opened(replace(GENEROUS, uniform_share=0.3, exploration=0.0))
    rng, actions = np.random.default_rng(7), _candidates(np.random.default_rng(8))
    agent._state.coins = random.Random(7)
    for _ in range(50):
        agent.reward(agent.decide(_candidates(rng)).id, 0.5)
    clock.now += 100.0
    agent.tick()  # the only agent: its release is its sum
    assert agent.outbox() == []
    with agent.writing():
        decisions = [agent.decide(actions) for _ in range(4000)]
    counts, told = Counter(one.index for one in decisions), {one.index: one.propensity for one in decisions}
    assert sorted(told) == [0, 1, 2, 3]
    assert sorted(one or 0.0 for one in told.values()) == pytest.approx([0.075, 0.075, 0.075, 0.775])
    for index, chance in told.items():
        assert chance is not None
        assert abs(counts[index] / 4000 - chance) < 5 * np.sqrt(chance * (1 - chance) / 4000)


@pytest.mark.parametrize("policy", ["optimistic", "tempered", "thompson:0.5", "greedy", "uniform"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_every_policy_logs_the_chances_it_plays(
    opened: Callable[..., Agent], clock: Clock, policy: str, share: float
) -> None:
    """2,000 draws; each frequency within 5.5 standard deviations and 1: a false alarm once in 10⁶ each."""
    agent = opened(replace(GENEROUS, policy=policy, uniform_share=share))
    rng, actions = np.random.default_rng(7), _candidates(np.random.default_rng(8))
    agent._state.coins = random.Random(7)
    for _ in range(50):
        assert agent.decide(_candidates(rng)).propensity == 0.25  # nothing is known yet
    clock.now += 100.0
    agent.tick()
    drawn = agent.snapshot()["counts"]["drawn_uniformly"]
    with agent.writing():
        decisions = [agent.decide(actions, scores=True) for _ in range(2000)]
    belief = agent._state.chooser.deciders[0].belief
    chances = agent.settings.chooses.propensities(belief, actions[None])[0]
    counts = np.bincount([one.index for one in decisions], minlength=4)
    assert (np.abs(counts - 2000 * chances) < 5.5 * np.sqrt(2000 * chances * (1 - chances)) + 1).all()
    assert all(one.propensity == pytest.approx(chances[one.index], abs=1e-12) for one in decisions)
    clock.now += 100.0
    agent.tick()
    judged = agent.overview()["curve"]["points"][-1]["uniform"] is not None
    assert judged == (share > 0.0 or policy == "uniform")  # only if every candidate had a chance
    evenly = agent.snapshot()["counts"]["drawn_uniformly"] - drawn
    assert abs(evenly - 2000 * share) <= 5.5 * np.sqrt(2000 * share * (1 - share))


def test_a_file_from_before_there_were_policies_is_optimistic() -> None:
    plain = json.loads(SETTINGS.to_json())
    del plain["policy"]
    assert AgentSettings.from_json(json.dumps(plain)) == SETTINGS
    with pytest.raises(ConfigurationError, match="exploration"):
        replace(SETTINGS, policy="greedy", exploration=0.5)


def test_a_followed_policy_that_may_learn_moves_nothing_that_leaves(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    """The application shows what paid best so far: one reward moves all later records, and no release."""
    agent = opened(replace(SETTINGS, shadow=True, keep_events=1000.0))
    rng, paid = np.random.default_rng(9), np.zeros(4)
    for _ in range(20):
        follow = int(np.argmax(paid))
        decision = agent.decide(_candidates(rng), follow=follow)
        assert agent.reward(decision.id, 0.5) is Outcome.RECORDED
        paid[follow] += rng.uniform(-1, 1)
    clock.now += 60.0
    agent.tick()
    assert _batch(agent) == [0] * 9
    counts = agent.snapshot()["counts"]
    assert (counts["settled"], counts["only_followed"]) == (20, 20)
    rows = list(export(agent.store.path))
    assert [(row["reward"], row["batch"]) for row in rows] == [(0.5, None)] * 20  # for evaluation
    clock.now += 40.0
    assert agent.tick() == 1  # releases go on by the clock, over nothing


def test_a_followed_policy_that_is_public_and_fixed_is_learnt_from(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    agent = opened(replace(SETTINGS, shadow=True, follow_policy="fixed"))
    rng, expected, agreed = np.random.default_rng(9), [], 0
    for _ in range(30):
        actions = _candidates(rng)
        decision = agent.decide(actions, follow=2, follow_propensity=0.5)
        assert (decision.index, decision.propensity) == (2, 0.5)
        agreed += decision.would_choose == 2
        agent.reward(decision.id, 0.5)
        expected.append((actions[2], 0.5))
    clock.now += 60.0
    agent.tick()
    assert _batch(agent) == _sums_of(expected)
    assert agent.snapshot()["counts"]["agreed"] == agreed
    for wrong in ({}, {"follow": 4}, {"follow": -1}, {"follow": 0, "follow_propensity": 0.0}):
        with pytest.raises(ConfigurationError, match="follow"):
            agent.decide(actions, **wrong)
    agent.new_season(replace(SETTINGS, start=None), drop_open=True)  # from shadow to live: a new season
    with pytest.raises(ConfigurationError, match="not in shadow mode"):
        agent.decide(actions, follow=1)


def test_discarded_decisions_never_enter(opened: Callable[..., Agent], clock: Clock) -> None:
    agent = opened()
    rng = np.random.default_rng(10)
    kept, gone = [(actions := _candidates(rng), agent.decide(actions)) for _ in range(2)]
    assert agent.discard(gone[1].id) is Outcome.DISCARDED
    assert agent.discard(gone[1].id) is Outcome.REPEATED
    assert agent.reward(gone[1].id, 1.0) is Outcome.DISCARDED
    assert agent.discard("nobody") is Outcome.UNKNOWN
    clock.now += 60.0
    assert agent.discard(kept[1].id) is Outcome.LATE
    agent.tick()
    assert _batch(agent) == _sums_of([(kept[0][kept[1].index], 0.0)])


@pytest.mark.parametrize(
    ("actions", "complaint"),
    [
        ([[0.1, 0.2]], "shape"),
        ([], "shape"),
        ([[0.1, 0.2, float("nan")]], "actions.0."),
        ([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], "actions.1."),
        ([[0.1, 0.2, 0.3], [0.1]], "ragged"),
        ([["a", "b", "c"]], "numbers"),
        (np.zeros((10_001, 3)), "10000"),
    ],
)
def test_what_cannot_be_decided_is_refused_without_a_trace(
    opened: Callable[..., Agent], actions: object, complaint: str
) -> None:
    agent = opened()
    with pytest.raises(ConfigurationError, match=complaint):
        agent.decide(actions)  # type: ignore[arg-type]
    for value in (float("nan"), float("inf"), 1.5, -2.0, "1", True):
        with pytest.raises(ConfigurationError, match="reward"):
            agent.reward("x", value)  # type: ignore[arg-type]
    assert agent.snapshot()["counts"]["decisions"] == 0


def test_one_refused_call_does_not_take_others_of_its_commit_along(opened: Callable[..., Agent]) -> None:
    agent, rng = opened(), np.random.default_rng(11)
    with agent.writing():
        first = agent.decide(_candidates(rng))
        with pytest.raises(ConfigurationError):
            agent.decide([[2.0, 0.0, 0.0]])
        second = agent.decide(_candidates(rng))
    assert opened().reward(first.id, 0.1) is Outcome.RECORDED
    assert opened().reward(second.id, 0.1) is Outcome.RECORDED


def test_a_repeated_id_must_be_asked_for_alike(opened: Callable[..., Agent]) -> None:
    agent, actions = opened(), _candidates(np.random.default_rng(17))
    first = agent.decide(actions, id="visit")
    assert agent.decide(actions, id="visit").index == first.index
    for others in (actions[:2], -actions, actions + 1e-6):
        with pytest.raises(ConfigurationError, match=r"id is 'visit', expected .* same candidates"):
            agent.decide(others, id="visit")
    assert opened().decide(actions.tolist(), id="visit").index == first.index  # after a restart
    agent = opened()
    made_up = agent.decide(actions).id
    with pytest.raises(ConfigurationError, match="are taken"):
        agent.decide(actions, id=made_up)
    agent.discard("visit")
    with pytest.raises(ConfigurationError, match="is over"):
        agent.decide(actions, id="visit")
    for odd in ("\ud800", "", "x" * 129, 5):
        with pytest.raises(ConfigurationError, match="id"):
            agent.decide(actions, id=odd)  # type: ignore[arg-type]


def test_a_new_season_does_not_start_in_the_past(opened: Callable[..., Agent], clock: Clock) -> None:
    agent = opened()
    clock.now += 500.0
    with pytest.raises(ConfigurationError, match="after the last season"):
        agent.new_season(replace(SETTINGS, start=agent.started_at))
    assert agent.new_season() == 2
    assert agent.tick() == 0
    assert agent.started_at == clock.now


def test_what_an_earlier_season_left_in_the_outbox_does_no_harm(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    agent = opened()
    agent.store.release()
    agent.new_season()
    clock.now += 100.0
    assert agent.tick() == 1
    assert agent.outbox() == []
    assert agent.snapshot()["model"] == ["2.1"]


def test_retention_that_is_lowered_holds_at_once(opened: Callable[..., Agent], clock: Clock) -> None:
    agent = opened(replace(SETTINGS, keep_events=1000.0))
    agent.decide(_candidates(np.random.default_rng(18)))
    clock.now += 60.0
    agent.tick()
    count = "SELECT count(*) FROM decisions WHERE action IS NOT NULL"
    assert agent.store.database.execute(count).fetchone() == (1,)
    assert opened(SETTINGS, start=1_000_000.0).store.database.execute(count).fetchone() == (0,)


def test_a_commit_that_fails_leaves_nothing_and_the_agent_goes_on(opened: Callable[..., Agent]) -> None:
    agent, rng = opened(), np.random.default_rng(12)
    kept = agent.decide(_candidates(rng))
    made = []

    def decide_and_fail() -> None:
        with agent.writing():
            made.append(agent.decide(_candidates(rng)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        decide_and_fail()
    assert agent.reward(made[0].id, 0.1) is Outcome.UNKNOWN
    assert agent.reward(kept.id, 0.1) is Outcome.RECORDED
    assert agent.decide(_candidates(rng)).id
    assert agent.snapshot()["counts"]["decisions"] == 2


def test_raw_content_is_gone_once_it_is_in_the_sums(
    opened: Callable[..., Agent], tmp_path: Path, clock: Clock
) -> None:
    agent = opened(replace(SETTINGS, records_per_person=3))
    marked = np.array([[0.123456789, 0.2, 0.3]])
    decision = agent.decide(marked, id="order 4711", person="ada@example.org")
    agent.reward(decision.id, 0.31415926)
    agent.reward(agent.decide(marked, person="bob@example.org").id, 0.1)  # only their sum stays
    clock.now += 60.0
    agent.tick()
    agent.sweep()  # tick does it every ten seconds
    everything = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    for secret in (b"ada@example.org", b"order 4711", marked.tobytes(), np.float64(0.31415926).tobytes()):
        assert secret not in everything
        assert secret[::-1] not in everything  # SQLite writes numbers the other way round


def test_ids_are_forgotten_a_window_later(opened: Callable[..., Agent], tmp_path: Path, clock: Clock) -> None:
    agent = opened()
    decision = agent.decide(_candidates(np.random.default_rng(13)))
    clock.now += 60.0
    agent.tick()
    clock.now += 59.9
    agent.tick()
    assert agent.reward(decision.id, 0.1) is Outcome.LATE
    clock.now += 0.2
    agent.tick()
    assert agent.reward(decision.id, 0.1) is Outcome.UNKNOWN
    rows = agent.store.database.execute("SELECT count(*) FROM decisions").fetchone()
    assert rows == (0,)


def test_promises_stay_until_a_new_season_and_habits_may_change(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    waiting = opened().decide(_candidates(np.random.default_rng(14)))
    for change in ({"window": 61.0}, {"default_reward": 0.5}, {"season": 900.0}, {"releases": 9}):
        with pytest.raises(ConfigurationError, match=next(iter(change))):
            opened(replace(SETTINGS, **change))
    agent = opened(replace(SETTINGS, keep_events=10.0))
    with pytest.raises(StoreError, match="agree to lose them"):
        agent.new_season(replace(SETTINGS, window=61.0, start=None))
    assert agent.new_season(replace(SETTINGS, window=61.0, start=None), drop_open=True) == 2
    assert agent.reward(waiting.id, 0.1) is Outcome.UNKNOWN  # ids are those of a season
    assert agent.snapshot()["open_decisions"] == 0
    clock.now += 61.0
    agent.tick()
    assert _batch(agent) == [0] * 9


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("policy", "greedy", "optimistic"),
        ("exploration", 0.5, 1.0),
        ("uniform_share", 0.1, 0.0),
        ("shadow", True, False),
        ("follow_policy", "fixed", "learning"),
        ("alpha", 0.2, 0.1),
        ("agents", 3, 2),
        ("decisions", 10_001, 10_000),
        ("quorum", 1, None),
        ("start", 1_000_000.5, "1970-01-12T13:46:40.000+00:00"),
    ],
)
def test_what_decides_about_visitors_stays_for_a_season(
    opened: Callable[..., Agent], name: str, value: object, kept: object
) -> None:
    """Whoever sees raw rewards must not decide by them what later visitors are shown."""
    settings = replace(SETTINGS, agents=2, start=1_000_000.0)
    agent = opened(settings, start=1_000_000.0)
    changed = replace(settings, **{name: value})  # type: ignore[arg-type]
    decision = agent.decide(_candidates(np.random.default_rng(15)))
    with pytest.raises(ConfigurationError) as refused:
        opened(changed, start=changed.start)
    said = f", expected {kept!r} until a new season opens (`feducb agent new-season`)"
    assert str(refused.value).startswith(f"{name} is ")
    assert said in str(refused.value)
    later = replace(changed, start=1_000_001.0)
    agent = opened(settings, start=1_000_000.0)
    agent.discard(decision.id)
    assert agent.new_season(later) == 2


@pytest.mark.parametrize("season", [1, 2])
def test_before_anything_happens_in_a_season_an_edited_file_is_simply_taken(
    opened: Callable[..., Agent], clock: Clock, season: int
) -> None:
    agent = opened()
    if season == 2:
        agent.decide(_candidates(np.random.default_rng(16)))
        clock.now += 61.0
        agent.tick()
        agent.new_season(replace(SETTINGS, start=None), drop_open=True)
    for change in (
        {"uniform_share": 0.5, "exploration": 2.0, "window": 61.0},
        {"releases": 9, "groups": 2, "problem": Problem(dim=3, reward_bound=2.0)},
        {"budget": Budget(epsilon=2.0, delta=1e-7), "season": 900.0, "name": "south"},
    ):
        changed = replace(SETTINGS, **change)
        agent = opened(changed)
        first = agent.settings.first_season  # in a later season the file knows the start's number
        assert agent.settings == replace(changed, start=clock.now, first_season=first)
        assert (agent.store.season, agent.store.terms) == (season, changed.terms)
        assert agent.snapshot()["releases_left"] == changed.groups * changed.releases
    agent = opened(None)  # what was taken is in the file
    assert (agent.store.terms, agent.started_at) == (changed.terms, clock.now)
    agent.decide(_candidates(np.random.default_rng(17)))
    with pytest.raises(ConfigurationError, match=r"season is 800.0, expected 900.0 until a new season"):
        opened()


@pytest.mark.parametrize("happens", ["a record", "a release", "a sum", "what is followed"])
def test_whatever_happens_first_in_a_season_makes_its_promises_hold(
    opened: Callable[..., Agent], clock: Clock, happens: str
) -> None:
    settings = replace(SETTINGS, shadow=happens == "what is followed")
    agent = opened(settings)
    if happens == "a record":
        agent.store.record(np.array([[0.1, 0.2, 0.3]]), np.array([0.5]))
    elif happens == "a release":
        agent.store.release()
    elif happens == "a sum":
        agent.absorb(messages.decode(_first_release(settings, clock)))
    else:
        agent.decide(_candidates(np.random.default_rng(18)), follow=0)
        clock.now += 200.0
        agent.tick()
        clock.now += 200.0
        agent.tick()  # its row is forgotten by now
    with pytest.raises(ConfigurationError, match=r"uniform_share is 0.5, expected 0.0 until a new season"):
        opened(replace(settings, uniform_share=0.5), start=agent.started_at)


@pytest.mark.parametrize("how", ["discarded", "erased"])
def test_what_was_taken_back_has_happened_all_the_same(opened: Callable[..., Agent], how: str) -> None:
    agent = opened()
    made = agent.decide(_candidates(np.random.default_rng(19)), person="ann")
    agent.reward(made.id, 1.0)
    assert (agent.discard(made.id) if how == "discarded" else erase(agent, "ann")) is not None
    assert agent.snapshot()["counts"].keys() >= {"decisions"}
    assert not any(name.startswith("_") for name in agent.snapshot()["counts"])
    with pytest.raises(ConfigurationError, match=r"uniform_share is 0.5, expected 0.0 until a new season"):
        opened(replace(SETTINGS, uniform_share=0.5), start=agent.started_at)


def test_an_agent_made_of_a_store_holds_promises_too(opened: Callable[..., Agent], clock: Clock) -> None:
    agent = opened()
    agent.decide(_candidates(np.random.default_rng(20)))
    changed = replace(agent.settings, exploration=2.0)
    with pytest.raises(ConfigurationError, match=r"exploration is 2.0, expected 1.0 until a new season"):
        Agent(agent.store, changed, clock)


def test_an_unused_season_does_not_move_before_the_last(opened: Callable[..., Agent], clock: Clock) -> None:
    agent, first = opened(), clock.now
    agent.decide(_candidates(np.random.default_rng(21)))
    clock.now += 100.0
    agent.new_season(replace(SETTINGS, start=clock.now), drop_open=True)
    with pytest.raises(ConfigurationError, match="expected after the last season's"):
        opened(start=first - 801.0)  # of season 1: the second would start before the first did
    assert opened(start=clock.now + 5.0).started_at == clock.now + 5.0


def _first_release(settings: AgentSettings, clock: Clock) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "other.db"
        with Agent.open(path, replace(settings, start=clock.now), clock=clock) as agent:
            return agent.store.release()


def test_more_agents_than_could_be_planned_for_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="agents is 2147483647, expected at most 1000000"):
        replace(SETTINGS, agents=2**31 - 1)


def test_several_agents_name_the_common_start_of_their_season(
    tmp_path: Path, opened: Callable[..., Agent], clock: Clock
) -> None:
    with pytest.raises(ConfigurationError, match="start is None, expected when the season starts, the same"):
        replace(SETTINGS, agents=2, start=None)
    agent = opened(replace(SETTINGS, agents=2))
    with pytest.raises(ConfigurationError, match="start is None"):
        agent.new_season()
    with agent.store.writing() as db:  # as a file of an earlier version has it
        body = json.loads(agent.settings.to_json())
        del body["follow_policy"]
        db.execute("UPDATE settings SET body = ?", (json.dumps(body | {"start": None}),))
    assert opened(None).settings.start == clock.now
    assert look(tmp_path / "agent.db")["season"] == 1


def test_a_sum_that_does_not_fit_is_refused(
    opened: Callable[..., Agent], tmp_path: Path, clock: Clock
) -> None:
    agent = opened(replace(SETTINGS, agents=2))
    other = replace(SETTINGS, problem=Problem(dim=2), start=clock.now)
    with Agent.open(tmp_path / "other.db", other, clock=clock) as stranger:
        stranger.store.release()
        payload = stranger.outbox()[0].body
    own = messages.decode(agent.store.release())
    three = messages.encode(messages.combine([own, own, own]))
    for wrong in (payload, b"", b"x" * 1000, payload[:-1], three):
        with pytest.raises(ValueError, match=r"sum|message"):
            agent.absorb(messages.decode(wrong))
    assert agent.absorb(messages.combine([own, own]))


def test_a_second_opener_a_newer_file_and_a_damaged_one_are_refused(
    opened: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = opened()
    with pytest.raises(StoreInUseError, match="one opener at a time"):
        Agent.open(tmp_path / "agent.db", SETTINGS)
    agent.close()
    with sqlite3.connect(tmp_path / "agent.db") as db:
        db.execute(f"PRAGMA user_version = {len(AgentStore.migrations) + 1}")
    db.close()
    with pytest.raises(StoreError, match="update"):
        Agent.open(tmp_path / "agent.db", SETTINGS)
    (tmp_path / "noise.db").write_bytes(bytes(range(256)) * 64)
    with pytest.raises(StoreError, match="not a store"):
        Agent.open(tmp_path / "noise.db", SETTINGS)
    with pytest.raises(ConfigurationError, match="settings"):
        Agent.open(tmp_path / "nothing.db")


def test_another_thread_is_refused(opened: Callable[..., Agent]) -> None:
    agent, found = opened(), []

    def use() -> None:
        try:
            agent.decide([[0.1, 0.1, 0.1]])
        except FeducbError as error:
            found.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "another process or thread" in found[0]


def test_groups_have_sums_of_their_own(opened: Callable[..., Agent], clock: Clock) -> None:
    agent = opened(replace(SETTINGS, groups=2, agents=2))
    rng, shown = np.random.default_rng(15), []
    for _ in range(10):
        actions = _candidates(rng)
        shown.append((actions[agent.decide(actions).index], 0.0))
    kept = agent.store.database.execute('SELECT "group" FROM decisions ORDER BY number')
    groups = [group for (group,) in kept]
    clock.now += 60.0
    agent.tick()
    for group in (0, 1):
        own = [record for record, home in zip(shown, groups, strict=True) if home == group]
        assert _batch(agent, group) == _sums_of(own)
    clock.now += 40.0
    assert agent.tick() == 2
    assert [(item.group, item.number) for item in agent.outbox()] == [(0, 1), (1, 1)]


def test_who_was_there_before_does_not_say_in_which_group_a_record_is(
    tmp_path: Path, clock: Clock, opened: Callable[..., Agent]
) -> None:
    """Every visitor has coins of her own; without one of them all others are in the same groups."""
    settings = replace(SETTINGS, groups=3, agents=2, start=clock.now)

    def groups(absent: int | None) -> dict[int, int]:
        found = {}
        with Agent.open(tmp_path / f"{absent}.db", settings, clock=clock) as agent:
            for visitor in range(12):
                agent._state.coins = random.Random(visitor)
                if visitor != absent:
                    agent.decide(_candidates(np.random.default_rng(visitor)), id=str(visitor))
                    query = 'SELECT "group" FROM decisions ORDER BY number DESC LIMIT 1'
                    (found[visitor],) = agent.store.database.execute(query).fetchone()
        return found

    everybody = groups(None)
    assert set(everybody.values()) == {0, 1, 2}
    for absent in (0, 5, 11):
        assert groups(absent) == {who: group for who, group in everybody.items() if who != absent}


def test_groups_are_drawn_evenly(opened: Callable[..., Agent]) -> None:
    """3,000 coins of the operating system; χ² with 2 degrees above 35: a false alarm once in 4e7."""
    agent = opened(replace(SETTINGS, groups=3, agents=2))
    counts = Counter(agent.draw_group() for _ in range(3000))
    assert sum((counts[group] - 1000) ** 2 / 1000 for group in range(3)) < 35.0


def test_made_up_ids_do_not_show_how_many_decisions_there_were(opened: Callable[..., Agent]) -> None:
    """1,000 ids in a row: neither half rises or falls with the number.

    A rank correlation beyond 6/√1000 in one of two halves: a false alarm less than once in 1e8; numbers in
    the open have 1.
    """
    agent, actions = opened(), [[0.1, 0.2, 0.3]]
    with agent.writing():
        ids = [agent.decide(actions).id for _ in range(1000)]
    halves = np.array([[int(half, 16) for half in name.split("-")] for name in ids], dtype=np.float64).T
    assert all(len(name) == 33 for name in ids)
    assert len(set(ids)) == 1000
    for half in halves:
        ranks = np.argsort(np.argsort(half))
        assert abs(np.corrcoef(ranks, np.arange(1000))[0, 1]) < 6 / np.sqrt(1000)
    assert [agent.reward(name, 0.1) for name in ids[::100]] == [Outcome.RECORDED] * 10
    for odd in ("f" * 16 + "-" + ids[0][17:], ids[0][:17] + ids[1][17:], f"1-{ids[0][17:-1]}0"):
        assert agent.reward(odd, 0.1) is Outcome.UNKNOWN


def test_numbers_cannot_be_tried_with_half_of_a_made_up_id(opened: Callable[..., Agent]) -> None:
    """In the form of an earlier version, number and tag, an id of this one finds nothing."""
    agent = opened()
    ids = [agent.decide([[0.1, 0.2, 0.3]]).id for _ in range(5)]
    for name in ids:
        for half in name.split("-"):
            assert {agent.reward(f"{number}-{half}", 0.1) for number in range(1, 8)} == {Outcome.UNKNOWN}
    assert {agent.reward(name, 0.1) for name in ids} == {Outcome.RECORDED}


def test_ids_of_an_earlier_version_are_still_understood(opened: Callable[..., Agent]) -> None:
    """Its file kept the tag that it showed."""
    agent = opened()
    agent.decide([[0.1, 0.2, 0.3]])
    number, tag = agent.store.database.execute("SELECT number, tag FROM decisions").fetchone()
    assert agent.reward(f"{number}-{tag.hex()}", 0.5) is Outcome.RECORDED
    assert agent.reward(f"{number + 1}-{tag.hex()}", 0.5) is Outcome.UNKNOWN


def test_a_quorum_widens_the_bound_by_the_sets_that_may_meet_it() -> None:
    whole = replace(SETTINGS, agents=4, start=0.0)
    assert (whole.sets_of_agents, replace(whole, quorum=3).sets_of_agents) == (1, 5)
    several = [replace(whole, quorum=quorum) for quorum in (None, 4, 3, 2)]
    bounds = [one.rule.bound for one in several]
    for one, bound, sets in zip(several, bounds, (1, 1, 5, 11), strict=True):
        assert isinstance(bound, MixtureBound)
        read, share = one.releases - one.rule.first + 1, EVERYTHING.shares[1] * one.alpha / sets
        assert bound.gram_radius == pytest.approx(LINEAR.gram_radius(3, read, share), rel=1e-12)
    thresholds = [bound.log_threshold for bound in bounds]  # type: ignore[attr-defined]
    assert thresholds[0] == thresholds[1] < thresholds[2] < thresholds[3]
    with pytest.raises(ConfigurationError, match="quorum"):
        replace(SETTINGS, agents=2000, quorum=1000)


def test_numbers_that_no_bound_could_be_computed_with_are_refused_at_once() -> None:
    """Each hung, or ended in another error than a named setting."""
    many = {"start": 0.0, "decisions": 10**6}
    for agents, quorum in ((20_000, 2), (10**6, 2**19), (1000, 1)):
        with pytest.raises(ConfigurationError, match=r"^quorum is"):
            replace(SETTINGS, agents=agents, quorum=quorum, **many)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^alpha is"):
        replace(SETTINGS, agents=800, quorum=1, alpha=1e-300, **many)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^groups is"):
        replace(SETTINGS, groups=0)
    for start in (-1.0, float("nan"), 253_402_300_799.0):
        with pytest.raises(ConfigurationError, match=r"^start is"):
            replace(SETTINGS, start=start)
    assert replace(SETTINGS, agents=800, quorum=1, **many).sets_of_agents == 2**800 - 1  # type: ignore[arg-type]


def test_settings_that_cannot_be_are_named() -> None:
    wrong = {
        "name": "no spaces",
        "agents": 0,
        "window": 0.0,
        "season": float("inf"),
        "quorum": 2,
        "alpha": 0.0,
        "default_reward": 2.0,
        "uniform_share": 1.5,
        "policy": "boldest",
        "schedule": "determinant",
        "follow_policy": "clever",
        "releases": 0,
    }
    for name, value in wrong.items():
        with pytest.raises(ConfigurationError, match=name):
            replace(SETTINGS, **{name: value})  # type: ignore[arg-type]
    assert AgentSettings.from_json(SETTINGS.to_json()) == SETTINGS
    geometric = replace(SETTINGS, schedule="geometric", first_release=8.0)
    times = geometric.release_times
    assert (times[0], times[-1]) == (8.0, 800.0)
    ratios = [later / earlier for earlier, later in itertools.pairwise(times)]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-3)

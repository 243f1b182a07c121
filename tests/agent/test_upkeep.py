from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_agent import SETTINGS, Clock, _batch, _candidates, _sums_of, release_when_due

from feducb.agent import Agent, AgentSettings, Decision, Outcome
from feducb.agent.health import with_trouble
from feducb.agent.upkeep import Loaded, backup, erase, export, restore, warm_start
from feducb.config import Problem
from feducb.errors import ConfigurationError, ReleasesExhaustedError, StoreError
from feducb.protocol import messages
from feducb.trust import require_trust
from typed import typed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def agent(path: Path, clock: Clock) -> Iterator[Agent]:
    with Agent.open(path, replace(SETTINGS, start=clock.now), clock=clock) as opened:
        yield opened


def _open(path: Path, clock: Clock, settings: AgentSettings | None = None) -> Agent:
    return Agent.open(path, settings, clock=clock)


def test_own_logs_enter_once(agent: Agent) -> None:
    rng = np.random.default_rng(1)
    actions, rewards = _candidates(rng, 50), rng.uniform(-1, 1, 50)
    found = warm_start(agent, actions, rewards, policy="fixed")
    assert found == Loaded(entered=50, clipped=0, dropped=0, excluded=0)
    expected = _sums_of(list(zip(actions, rewards.tolist(), strict=True)))
    assert _batch(agent) == expected
    with pytest.raises(StoreError, match="twice"):
        warm_start(agent, actions, rewards, policy="fixed")
    assert _batch(agent) == expected
    with pytest.raises(ConfigurationError, match="log"):
        warm_start(agent, actions[:, :2], rewards, policy="fixed")
    for _ in range(8):
        agent.store.release()
    with pytest.raises(StoreError, match="never leave"):
        warm_start(agent, -actions, rewards, policy="fixed")


def test_a_bad_record_of_an_own_log_decides_about_itself_alone(agent: Agent) -> None:
    """Each is taken, clipped as the privatizer clips, or dropped; all the others enter as they are."""
    rng = np.random.default_rng(6)
    good = list(zip(_candidates(rng, 20), rng.uniform(-1, 1, 20).tolist(), strict=True))
    short = np.array([0.3, 0.4, 0.0])
    clipped: list[tuple[np.ndarray, float]] = [(short * 1e3, 0.5), (short, -7.0), (short * 1e200, 1e300)]
    dropped: list[tuple[object, object]] = [
        (np.array([0.1, np.nan, 0.1]), 0.5),
        (short, float("inf")),
        ([0.1, 0.2], 0.5),
        ([0.1, 0.2, 0.3, 0.4], 0.5),
        (["a", "b", "c"], 0.5),
        (short, None),
    ]
    log: list[tuple[object, object]] = [*good[:10], *clipped, *dropped, *good[10:]]
    found = warm_start(agent, [one for one, _ in log], [one for _, one in log], policy="fixed")  # type: ignore[misc]
    assert found == Loaded(entered=23, clipped=3, dropped=6, excluded=0)
    assert _batch(agent) == _sums_of([*good, *clipped])
    with pytest.raises(ConfigurationError, match="log is '1 record that cannot be read'"):
        warm_start(agent, [[0.1]], [0.1], policy="fixed")
    with pytest.raises(ConfigurationError, match="as many of each"):
        warm_start(agent, np.zeros((2, 3)), np.zeros(3), policy="fixed")


def test_persons_of_an_own_log_are_bounded_and_must_be_named(path: Path, clock: Clock) -> None:
    settings = replace(SETTINGS, records_per_person=2, start=clock.now)
    with Agent.open(path, settings, clock=clock) as agent:
        log, rewards = np.full((5, 3), 0.1), np.zeros(5)
        found = warm_start(agent, log, rewards, ["ada", "ada", None, "ada", "bob"], policy="fixed")
        assert found == Loaded(entered=3, clipped=0, dropped=1, excluded=1)
        found = warm_start(agent, 2 * log[:3], rewards[:3], ["b\ud800", "eve", "\udfffb"], policy="fixed")
        assert found == Loaded(entered=1, clipped=0, dropped=2, excluded=0)
        for ask in (lambda: agent.decide(log, person="b\ud800"), lambda: erase(agent, "b\ud800")):
            with pytest.raises(ConfigurationError, match="person is 'half a character'"):
                ask()


def test_a_person_who_comes_again_too_soon_gets_a_decision_and_enters_no_sum(
    path: Path, clock: Clock
) -> None:
    """By decisions, and by an own log as well; after a restart too."""
    settings = replace(SETTINGS, records_per_person=3, spacing=2, start=clock.now)
    rng, hers = np.random.default_rng(3), list[int]()
    for number in range(5):
        with Agent.open(path, settings, clock=clock) as agent:
            for _ in range(2):
                agent.decide(_candidates(rng), person="ada")
            clock.now += settings.window + 1.0
            while agent.settle_some():
                pass
            hers.append(agent.store.pending)
            found = warm_start(agent, np.full((1, 3), 0.1 + number / 100), [0.5], ["ada"], policy="fixed")
            assert found.excluded == 1
            agent.store.release()
    assert hers == [1, 0, 1, 0, 1]


def test_an_own_log_needs_the_statement_that_its_policy_did_not_learn(agent: Agent) -> None:
    for policy in (None, "learning", "Fixed", True):
        with pytest.raises(ConfigurationError, match=r"policy is .* did not learn from these rewards$"):
            warm_start(agent, np.full((5, 3), 0.1), np.zeros(5), policy=policy)  # type: ignore[arg-type]
    assert _batch(agent) == [0] * 9


@pytest.mark.parametrize("shadow", [True, False])
def test_what_is_exported_says_whether_it_was_followed(path: Path, clock: Clock, shadow: bool) -> None:
    settings = replace(SETTINGS, shadow=shadow, keep_events=1000.0, start=clock.now)
    with Agent.open(path, settings, clock=clock) as agent:
        agent.decide(_candidates(np.random.default_rng(8)), follow=1 if shadow else None)
        (row,) = export(path)
    assert (row["followed"], row["follow_policy"]) == (shadow, "learning" if shadow else None)


def test_an_own_log_of_a_policy_that_may_learn_does_not_enter(path: Path, clock: Clock) -> None:
    with Agent.open(path, replace(SETTINGS, shadow=True, start=clock.now), clock=clock) as agent:
        with pytest.raises(StoreError, match="may learn from rewards"):
            warm_start(agent, np.full((5, 3), 0.1), np.zeros(5), policy="fixed")
        assert _batch(agent) == [0] * 9


def test_records_of_an_own_log_keep_their_groups_without_one_of_them(tmp_path: Path, clock: Clock) -> None:
    """By coins, record by record: without the last, what came before stays where it was."""
    settings = replace(SETTINGS, groups=2, agents=2, start=clock.now)
    log, rewards = _candidates(np.random.default_rng(7), 12), np.linspace(-1, 1, 12)
    batches = []
    for count in (12, 11):
        with Agent.open(tmp_path / f"{count}.db", settings, clock=clock) as agent:
            agent._state.coins = random.Random(3)
            warm_start(agent, log[-count:][::-1], rewards[-count:][::-1], policy="fixed")
            batches.append([np.array(_batch(agent, group), dtype=object) for group in (0, 1)])
    moved = [bool((one != other).any()) for one, other in zip(*batches, strict=True)]
    assert sum(moved) == 1
    (group,) = (place for place, one in enumerate(moved) if one)
    assert (batches[0][group] - batches[1][group]).tolist() == _sums_of([(log[0], -1.0)])


def test_erasure_undoes_what_it_can_and_says_what_it_cannot(path: Path, clock: Clock) -> None:
    settings = replace(SETTINGS, records_per_person=5, keep_events=1000.0, start=clock.now)
    with Agent.open(path, settings, clock=clock) as agent:
        rng = np.random.default_rng(2)
        shown: dict[str, np.ndarray] = {}

        def decide(person: str) -> Decision:
            actions = _candidates(rng)
            decision = agent.decide(actions, person=person)
            shown[decision.id] = actions[decision.index]
            return decision

        before = decide("ada")
        agent.reward(before.id, 0.5)
        clock.now += 60.0
        agent.tick()
        entered = _batch(agent)
        waiting, other = decide("ada"), decide("bob")
        found = erase(agent, "ada")
        assert (found.removed, found.content_removed, found.in_sums) == (1, 1, 1)
        assert "cannot be taken out" in found.said
        assert agent.reward(waiting.id, 0.5) is Outcome.DISCARDED
        assert _batch(agent) == entered
        assert [row["number"] for row in export(path)] == [3]  # bob's
        assert agent.reward(other.id, 0.5) is Outcome.RECORDED
        everything = b"".join(one.read_bytes() for one in path.parent.iterdir())
        for row in (before, waiting):
            assert shown[row.id].tobytes() not in everything  # not in the log either
        nobody = erase(agent, "carol")
        assert (nobody.removed, nobody.in_sums) == (0, 0)
        assert "Nothing" in nobody.said


def test_the_export_holds_what_was_decided_and_can_be_read_while_the_agent_runs(
    path: Path, clock: Clock
) -> None:
    settings = replace(SETTINGS, keep_events=1000.0, start=clock.now)
    with Agent.open(path, settings, clock=clock) as agent:
        rng = np.random.default_rng(3)
        seen = []
        for number in range(20):
            actions = _candidates(rng)
            decision = agent.decide(actions)
            if number % 2:
                agent.reward(decision.id, 0.25)
            seen.append((actions, decision))
        clock.now += 60.0
        agent.tick()
        rows = list(export(path))
        assert len(rows) == 20
        for number, (row, (actions, decision)) in enumerate(zip(rows, seen, strict=True)):
            assert row["features"] == actions.tolist()
            assert row["action"] == actions[decision.index].tolist()
            assert (row["index"], row["propensity"]) == (decision.index, 0.25)
            assert row["reward"] == (0.25 if number % 2 else None)
            assert (row["agent"], row["default_reward"]) == ("north", 0.0)
            assert Problem(**row["problem"]) == settings.problem
        clock.now += 1000.0
        agent.tick()
        assert list(export(path)) == []  # retention is over


def test_by_default_nothing_raw_is_left_to_export(agent: Agent, path: Path, clock: Clock) -> None:
    agent.decide(_candidates(np.random.default_rng(4)))
    assert [row["features"] for row in export(path)] == [None]
    clock.now += 60.0
    agent.tick()
    assert list(export(path)) == []


def test_a_backup_opens_only_as_a_new_season_that_costs_anew(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock
) -> None:
    agent.decide(_candidates(np.random.default_rng(5)))
    backup(path, tmp_path / "copy.db")
    agent.store.release()  # made after the backup was taken
    with pytest.raises(StoreError, match="backup"):
        _open(tmp_path / "copy.db", clock, SETTINGS)
    with pytest.raises(ConfigurationError, match="exist"):
        backup(path, tmp_path / "copy.db")
    assert restore(tmp_path / "copy.db", tmp_path / "new.db", season=7, clock=clock).season == 7
    with _open(tmp_path / "new.db", clock) as restored:
        first, *between, last = restored.ledger().accounts
        assert (first.season, first.continued_elsewhere, first.mu_spent) == (1, True, first.mu)
        assert [(one.season, one.continued_elsewhere) for one in between] == [(n, True) for n in range(2, 7)]
        assert (last.season, last.mu_spent) == (7, 0.0)
        assert _batch(restored) == [0] * 9
        assert restored.snapshot()["open_decisions"] == 0
        release_when_due(restored, clock)
        assert restored.outbox()[0].season == 7
    with pytest.raises(StoreError, match="no backup"):
        restore(tmp_path / "new.db", tmp_path / "newer.db", season=8)
    (tmp_path / "third.db-wal").write_bytes(b"the log of a file that was lost")
    with pytest.raises(StoreError, match=r"third\.db-wal"):
        restore(tmp_path / "copy.db", tmp_path / "third.db", season=8)
    with pytest.raises(ConfigurationError, match="season"):  # one that the agent had
        restore(tmp_path / "copy.db", tmp_path / "fourth.db", season=1, clock=clock)


def test_a_restored_agent_goes_on_in_its_season_if_nothing_can_have_left_since(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock
) -> None:
    """Until a minute before the next release is due, it cannot have been made on the file that was lost."""
    clock.now = agent.started_at + agent.settings.release_times[0] + 1.0
    assert agent.tick(alone=False) == 1
    agent.decide(_candidates(np.random.default_rng(5)))
    backup(path, tmp_path / "copy.db")
    before = agent.outbox()
    agent.close()
    clock.now = agent.started_at + agent.settings.release_times[1] - 61.0
    opened = restore(tmp_path / "copy.db", tmp_path / "new.db", clock=clock)
    assert (opened.season, opened.sends) == (1, True)
    with _open(tmp_path / "new.db", clock, agent.settings) as restored:
        assert restored.outbox() == before  # the same bytes
        clock.now += 62.0
        assert restored.tick(alone=False) == 1
        assert [item.number for item in restored.outbox()] == [1, 2]
        (account,) = restored.ledger().accounts
        assert not account.continued_elsewhere


@pytest.mark.parametrize("late", [-59.0, 1.0])
def test_a_restored_agent_that_may_have_sent_more_says_nothing_and_plays_by_the_sums_of_others(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock, late: float
) -> None:
    draws = np.random.default_rng(5)
    agent.decide(_candidates(draws))
    backup(path, tmp_path / "copy.db")
    clock.now = agent.started_at + agent.settings.release_times[0] + 1.0
    agent.tick(alone=False)
    total = messages.decode(agent.outbox()[0].released())  # others have it
    agent.close()
    clock.now = agent.started_at + agent.settings.release_times[0] + late
    opened = restore(tmp_path / "copy.db", tmp_path / "new.db", clock=clock)
    assert (opened.season, opened.sends) == (1, False)
    assert opened.next_at == agent.started_at + agent.settings.season
    with _open(tmp_path / "new.db", clock, agent.settings) as restored:
        told = restored.snapshot()
        assert told["open_decisions"] == 0
        assert (told["releases_left"], told["next_due_at"]) == (0, None)  # so that none is late
        assert restored.absorb(total)
        assert restored.snapshot()["model"] == ["1.1"]
        for _ in range(3):
            restored.decide(_candidates(draws))
        clock.now = agent.started_at + agent.settings.season - 1.0
        assert (restored.tick(alone=False), restored.outbox()) == (0, [])
        with pytest.raises(ReleasesExhaustedError, match="may have gone on after the backup"):
            restored.release()
        (account,) = restored.ledger().accounts
        assert (account.continued_elsewhere, account.mu_spent) == (True, account.mu)
        clock.now += 10.0
        assert restored.new_season(replace(agent.settings, start=clock.now, promised=None)) == 2
        release_when_due(restored, clock)
        assert [item.season for item in restored.outbox()] == [2]


def test_a_backup_of_a_season_that_is_over_needs_a_new_one(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock
) -> None:
    backup(path, tmp_path / "copy.db")
    clock.now += agent.settings.season + 1.0
    with pytest.raises(ConfigurationError, match="season 1, that of the backup, is over"):
        restore(tmp_path / "copy.db", tmp_path / "new.db", clock=clock)
    assert sorted(one.name for one in tmp_path.glob("new*")) == []


@pytest.mark.parametrize("early", [1.0, 45.0])
def test_a_season_that_is_over_by_a_clock_a_minute_ahead_needs_a_new_one(
    tmp_path: Path, clock: Clock, early: float
) -> None:
    """By that clock the lost file opened the next season, where noise would be drawn a second time."""
    settings = replace(SETTINGS, start=clock.now, season=80.0, window=1.0)
    ends, path = clock.now + settings.season, tmp_path / "a.db"
    with _open(path, clock, settings) as agent:
        agent.decide(_candidates(np.random.default_rng(6)))
        backup(path, tmp_path / "copy.db")
        clock.now = ends - early + 60.0  # of the machine that is lost
        agent.tick(alone=False)
        agent.tick(alone=False)
        assert agent.outbox()[-1].season == 2
    clock.now = ends - early
    with pytest.raises(ConfigurationError, match="may be by the lost machine's clock"):
        restore(tmp_path / "copy.db", tmp_path / "new.db", clock=clock)
    with pytest.raises(ConfigurationError, match="at least 3"):
        restore(tmp_path / "copy.db", tmp_path / "new.db", season=2, clock=clock)
    clock.now = ends - 61.0
    assert restore(tmp_path / "copy.db", tmp_path / "new.db", clock=clock).season == 1


def test_a_season_that_the_lost_file_may_have_opened_since_its_backup_is_refused(
    tmp_path: Path, clock: Clock
) -> None:
    """It rolled by the clock: in a season that it may have had, noise would be drawn a second time."""
    settings = replace(SETTINGS, start=clock.now)
    with _open(tmp_path / "a.db", clock, settings):
        backup(tmp_path / "a.db", tmp_path / "copy.db")
    started, length = clock.now, settings.season
    for late, number in ((0.5, 1), (2.5, 3), (3 - 30 / length, 4)):  # half a minute may be the clock's fault
        clock.now = started + late * length
        with pytest.raises(ConfigurationError, match=f"at least {number + 1}: by its clock"):
            restore(tmp_path / "copy.db", tmp_path / "new.db", season=number, clock=clock)
    assert restore(tmp_path / "copy.db", tmp_path / "new.db", season=5, clock=clock).season == 5
    with _open(tmp_path / "new.db", clock, settings) as restored:
        restored.decide(_candidates(np.random.default_rng(6)))
        assert (restored.tick(alone=False), restored.outbox()) == (0, [])  # its season is still to come
        clock.now = started + 4 * length + settings.release_times[0] + 1.0
        assert restored.tick(alone=False) == 1
        assert [(item.season, item.number) for item in restored.outbox()] == [(5, 1)]


def test_a_release_is_not_made_before_it_is_due(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock
) -> None:
    """Else a backup would go on in its season, and make the same number again with other noise."""
    due = agent.started_at + agent.settings.release_times[0]
    clock.now = due - 0.5
    for _ in range(2):
        with pytest.raises(StoreError, match=r"release 1 of season 1 is not due before 1970-01-12T"):
            agent.release()
    assert agent.outbox() == []
    clock.now = due
    agent.release()
    with pytest.raises(StoreError, match="release 2 of season 1 is not due"):
        agent.release()
    assert [item.number for item in agent.outbox()] == [1]


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        ({"season": 100.0, "start": 800.0, "first_season": 2}, 8),
        ({"season": 100.0, "start": 800.0}, 8),
        ({"season": 100.0, "start": 0.0}, 15),
        ({"season": 100.0, "start": None}, 8),
        ({"season": 1600.0, "start": 0.0}, 2),
        ({"first_season": 5, "start": 0.0}, 6),
        ({"start": 2000.0, "first_season": 9}, 2),
    ],
    ids=str,
)
def test_a_season_that_the_lost_file_may_have_opened_by_another_calendar_is_refused(
    tmp_path: Path, clock: Clock, changes: dict[str, Any], reached: int
) -> None:
    """At a boundary after the backup it took another start, length or number, as agent.toml has them."""
    began, settings, path = clock.now, replace(SETTINGS, start=clock.now), tmp_path / "a.db"
    told = {"start": None} if changes["start"] is None else {"start": began + changes["start"]}
    later = replace(settings, **(changes | told))
    with _open(path, clock, settings) as agent:
        agent.decide(_candidates(np.random.default_rng(6)))
        backup(path, tmp_path / "copy.db")
        agent.renewal = lambda _: (later, None)
        while clock.now < began + 1400.0:
            clock.now += 10.0
            agent.tick(alone=False)
        assert max(item.season for item in agent.outbox()) <= reached
    for number in range(2, reached + 1):
        with pytest.raises(ConfigurationError, match=f"at least {reached + 1}: by its clock"):
            restore(tmp_path / "copy.db", tmp_path / "new.db", settings=later, season=number, clock=clock)
    opened_anew = restore(
        *(tmp_path / "copy.db", tmp_path / "new.db"),
        settings=later,
        season=reached + 1,
        never_opened=True,
        clock=clock,
    )
    assert opened_anew.between == range(2, reached + 1)


def test_seasons_that_changed_twice_since_a_backup_need_the_word_that_a_new_one_is_new(
    tmp_path: Path, clock: Clock
) -> None:
    """Neither the backup nor agent.toml knows those in between, by which the lost file opened more."""
    began, path = clock.now, tmp_path / "a.db"
    settings = replace(SETTINGS, start=began)
    second = replace(settings, start=began + 800.0, season=100.0, first_season=2)
    third = replace(settings, start=began + 1600.0, first_season=4)  # a slip, in agent.toml by now
    with _open(path, clock, settings) as agent:
        agent.decide(_candidates(np.random.default_rng(6)))
        backup(path, tmp_path / "copy.db")
        agent.renewal = lambda _: (second, None)
        while clock.now < began + 1590.0:
            clock.now += 10.0
            agent.tick(alone=False)
        assert max(item.season for item in agent.outbox()) == 9
    given: dict[str, Any] = {"settings": third, "clock": clock}
    with pytest.raises(ConfigurationError, match="never opened it"):
        restore(tmp_path / "copy.db", tmp_path / "new.db", season=6, **given)
    assert sorted(one.name for one in tmp_path.glob("new*")) == []
    given |= {"season": 10, "never_opened": True}
    assert restore(tmp_path / "copy.db", tmp_path / "new.db", **given).season == 10


def test_an_unused_season_in_a_backup_says_nothing_where_its_releases_are_others_by_now(
    tmp_path: Path, clock: Clock
) -> None:
    """There may have been others in between, which were due already."""
    settings = replace(SETTINGS, start=clock.now)
    with _open(tmp_path / "a.db", clock, settings):
        backup(tmp_path / "a.db", tmp_path / "copy.db")
    clock.now += 10.0
    for name, releases in (("same", settings.releases), ("other", 4)):
        later = replace(settings, releases=releases)
        opened = restore(tmp_path / "copy.db", tmp_path / f"{name}.db", settings=later, clock=clock)
        assert opened.sends == (name == "same")


@pytest.mark.parametrize("length", [800.0, 100.0])
def test_an_unused_season_in_a_backup_does_not_go_on_by_other_seasons(
    tmp_path: Path, clock: Clock, length: float
) -> None:
    """Before anything happens in a season an agent takes another start, length or number of releases."""
    path, settings = tmp_path / "a.db", replace(SETTINGS, start=clock.now + 500.0)
    later = replace(settings, start=clock.now, season=length, releases=4, window=10.0)
    with _open(path, clock, settings):
        backup(path, tmp_path / "copy.db")
    with _open(path, clock, later) as agent:
        for _ in range(25):
            clock.now += 10.0
            agent.tick(alone=False)
        assert agent.outbox()
    with pytest.raises(ConfigurationError, match="the lost file may have opened others"):
        restore(tmp_path / "copy.db", tmp_path / "new.db", settings=later, clock=clock)


def test_seasons_that_a_lost_file_may_have_opened_are_spent(tmp_path: Path, clock: Clock) -> None:
    """Whatever it released in them counts: for the year's limit, in status, ledger and statement."""
    settings = replace(SETTINGS, start=clock.now, most_epsilon=1.8, most_delta=SETTINGS.budget.delta)
    with _open(tmp_path / "a.db", clock, settings) as agent:
        mu = agent.ledger().current.mu
        backup(tmp_path / "a.db", tmp_path / "copy.db")
    started, length = clock.now, settings.season
    for number, spent in ((2, False), (5, True)):
        clock.now = started + (number - 1.5) * length
        path = tmp_path / f"{number}.db"
        opened = restore(tmp_path / "copy.db", path, season=number, clock=clock)
        assert opened.between == range(2, number)
        with _open(path, clock, settings) as restored:
            ledger = restored.ledger()
            assert ledger.mu_of_a_regular == pytest.approx(mu * math.sqrt(number - 1))
            assert [one.releases_left for one in ledger.accounts[:-1]] == [0] * (number - 1)
            stands = restored.snapshot()["all_seasons"]
            assert (stands["seasons"], stands["presumed"]) == (number - 1, number - 1)
            assert stands["epsilon"] == pytest.approx(ledger.epsilon_of_a_regular(settings.budget.delta))
            assert ("beyond most_epsilon" in restored.trouble) == spent
            clock.now = started + (number - 1) * length + settings.release_times[0] + 1.0
            assert restored.tick(alone=False) == (0 if spent else 1)
        page = typed("privacy", "statement", "--store", str(path), "--out", "-", cwd=tmp_path).stdout
        assert ("Seasons 1, 2, 3, 4: this file was restored" in page) == spent
        assert ("Season 1: this file was restored" in page) != spent
    for far in (1003, 10**30):
        with pytest.raises(ConfigurationError, match=f"season is {far}, expected at most 1002"):
            restore(tmp_path / "copy.db", tmp_path / "far.db", season=far, clock=clock)


@pytest.mark.parametrize("decided", [0, 1])
def test_a_file_that_is_restored_into_a_new_season_starts_with_what_was_changed_since(
    tmp_path: Path, clock: Clock, decided: int
) -> None:
    """As after a join, by which there are more agents; nothing has happened in the new season."""
    trust, began, path = require_trust("controller"), clock.now, tmp_path / "a.db"
    before = replace(SETTINGS, start=began, agents=2, trust=trust)
    later = replace(before, agents=3)
    assert later.terms != before.terms
    with _open(path, clock, before) as agent:
        for _ in range(decided):
            agent.decide(_candidates(np.random.default_rng(6)))
        backup(path, tmp_path / "copy.db")
    clock.now += 1.5 * before.season
    restore(tmp_path / "copy.db", tmp_path / "new.db", settings=later, season=3, clock=clock)
    with _open(tmp_path / "new.db", clock, later) as restored:
        assert restored.store.terms == later.terms
        clock.now = began + 2 * before.season + before.release_times[0] + 1.0
        assert restored.tick(alone=False) == 1
        assert [(item.season, item.number) for item in restored.outbox()] == [(3, 1)]


@pytest.mark.parametrize("larger", ["in the backup", "in agent.toml"])
@pytest.mark.parametrize("unused", [True, False])
def test_seasons_that_a_lost_file_may_have_opened_cost_the_larger_of_two_budgets(
    tmp_path: Path, clock: Clock, larger: str, unused: bool
) -> None:
    """In none of them a person has paid more than the restored file says."""
    began, path = clock.now, tmp_path / "a.db"
    small = replace(SETTINGS, start=began, releases=4)
    large = replace(small, budget=replace(small.budget, epsilon=4 * small.budget.epsilon))
    before, later = (large, small) if larger == "in the backup" else (small, large)
    with _open(path, clock, before) as agent:
        if not unused:
            agent.decide(_candidates(np.random.default_rng(6)))
        backup(path, tmp_path / "copy.db")
    with _open(path, clock, later if unused else before) as agent:
        agent.renewal = lambda _: (later, None)
        while clock.now < began + 2.5 * small.season:
            clock.now += 20.0
            agent.tick(alone=False)
        spent = [one.mu_spent for one in agent.ledger().accounts]
    restore(tmp_path / "copy.db", tmp_path / "new.db", settings=later, season=5, clock=clock)
    with _open(tmp_path / "new.db", clock, later) as restored:
        presumed = [one.mu_spent for one in restored.ledger().accounts]
        assert all(one <= now for one, now in zip(spent, presumed, strict=False))
        dearer = large.terms.certificate().mu
        assert presumed[1:] == [dearer] * 3 + [0.0]
        assert presumed[0] == (dearer if unused else before.terms.certificate().mu)
        assert restored.ledger().current.terms == later.terms


def test_an_unused_season_in_a_backup_costs_the_larger_budget_where_it_goes_on_in_silence(
    tmp_path: Path, clock: Clock
) -> None:
    """The lost file took the budget of agent.toml and released; the restored one starts with it."""
    path, settings = tmp_path / "a.db", replace(SETTINGS, start=clock.now)
    larger = replace(settings, budget=replace(settings.budget, epsilon=4 * settings.budget.epsilon))
    with _open(path, clock, settings):
        backup(path, tmp_path / "copy.db")
    clock.now += settings.release_times[0] + 1.0
    opened = restore(tmp_path / "copy.db", tmp_path / "new.db", settings=larger, clock=clock)
    assert (opened.season, opened.sends) == (1, False)
    with _open(tmp_path / "new.db", clock, larger) as restored:
        assert restored.ledger().mu_of_a_regular == larger.terms.certificate().mu
        assert (restored.tick(alone=False), restored.outbox()) == (0, [])


def test_a_log_that_a_lost_file_may_have_released_is_loaded_only_on_the_word_that_it_did_not(
    tmp_path: Path, clock: Clock
) -> None:
    """Else its records are in releases of two seasons, and a person in it pays twice."""
    path, began = tmp_path / "a.db", clock.now
    settings = replace(SETTINGS, start=began)
    draws = np.random.default_rng(6)
    log, rewards = _candidates(draws, 20), draws.uniform(-1, 1, 20)
    with _open(path, clock, settings) as agent:
        backup(path, tmp_path / "copy.db")
        warm_start(agent, log, rewards, policy="fixed")
    opened = restore(tmp_path / "copy.db", tmp_path / "at_once.db", settings=settings, clock=clock)
    with _open(tmp_path / "at_once.db", clock, settings) as restored:
        assert opened.sends  # so that nothing has left since: not the log either
        assert warm_start(restored, log, rewards, policy="fixed").entered == 20
    with _open(path, clock, settings) as agent:
        clock.now += settings.release_times[0] + 1.0
        assert agent.tick(alone=False) == 1
    restore(tmp_path / "copy.db", tmp_path / "new.db", settings=settings, clock=clock)
    for number in (2, 3):
        with _open(tmp_path / "new.db", clock, settings) as restored:
            clock.now = began + (number - 1) * settings.season + 1.0
            while restored.store.season < number:
                clock.now += 10.0
                restored.tick(alone=False)
            with pytest.raises(StoreError, match="the one that was lost may have loaded"):
                warm_start(restored, log, rewards, policy="fixed")
            assert _batch(restored) == [0] * 9
    with _open(tmp_path / "new.db", clock, settings) as restored:
        assert warm_start(restored, log, rewards, policy="fixed", never_loaded=True).entered == 20
        with pytest.raises(StoreError, match="loaded before"):
            warm_start(restored, log, rewards, policy="fixed", never_loaded=True)


def test_a_restored_agent_that_sends_nothing_more_says_so_and_owes_nothing(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock
) -> None:
    backup(path, tmp_path / "copy.db")
    agent.close()
    clock.now = agent.started_at + agent.settings.release_times[1] + 1.0
    assert not restore(tmp_path / "copy.db", tmp_path / "new.db", clock=clock).sends
    with _open(tmp_path / "new.db", clock, agent.settings) as restored:
        stands = restored.snapshot()
        assert [stands[name] for name in ("releases_left", "next_due_at", "next_release_at")] == [
            0,
            None,
            None,
        ]
        found = with_trouble(stands | {"running": True, "engine": None, "keeper": None, "misfit": None})
        (one,) = found["trouble"]
        assert one["kind"] == "restored"
        assert "may have gone on in the file that was lost" in one["says"]


def test_an_agent_alone_that_is_restored_has_spent_nothing(tmp_path: Path, clock: Clock) -> None:
    alone = AgentSettings(problem=SETTINGS.problem, decisions=100, trust=require_trust("self"))
    with _open(tmp_path / "a.db", clock, alone):
        backup(tmp_path / "a.db", tmp_path / "copy.db")
    restore(tmp_path / "copy.db", tmp_path / "new.db", season=4, clock=clock)
    with _open(tmp_path / "new.db", clock) as restored:
        assert restored.ledger().mu_of_a_regular == 0.0
        assert restored.snapshot()["all_seasons"]["seasons"] == 0


def test_a_backup_is_private_and_so_is_what_is_restored_from_it_at_any_moment(
    agent: Agent, path: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chmod(path: Path, mode: int) -> None:
        assert path.stat().st_mode & 0o077 == 0, "others could read it until now"
        change(path, mode)

    change = Path.chmod
    monkeypatch.setattr(Path, "chmod", chmod)
    backup(path, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "copy.db").chmod(0o400)
    restore(tmp_path / "copy.db", tmp_path / "new.db", season=2, clock=clock)
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600

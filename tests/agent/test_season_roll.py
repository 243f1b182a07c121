"""Seasons roll by the clock: numbers, starts, what goes along, and clocks that jump."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings, Outcome
from feducb.agent.upkeep import erase
from feducb.carriers.local import AgentMailbox, LocalController
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.errors import ConfigurationError, StoreError
from feducb.protocol import calendar
from feducb.protocol.calendar import Calendar
from feducb.storage import RowBook, events
from feducb.trust import require_trust

START = 1_000_000.0
SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    decisions=1000,
    releases=4,
    schedule="periodic",
    season=100.0,
    window=10.0,
    start=START,
)
ACTIONS = np.eye(2) / 2


class World:
    """One agent and its clock."""

    def __init__(self, folder: Path) -> None:
        self.now, self.path = START, folder / "agent.db"
        self.agent: Agent | None = None

    def open(self, settings: AgentSettings | None = SETTINGS) -> Agent:
        if self.agent is not None:
            self.agent.close()
        self.agent = Agent.open(self.path, settings, clock=lambda: self.now)
        return self.agent

    def tick(self, now: float) -> Agent:
        assert self.agent is not None
        self.now = START + now
        self.agent.tick()
        return self.agent


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    if made.agent is not None:
        made.agent.close()


@pytest.fixture
def believing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendar, "BELIEVED_AFTER", 0.0)


def _taken(path: Path) -> list[tuple[int, int]]:
    """Season and batch of the decisions that are in one, in order."""
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT season, batch FROM decisions WHERE batch IS NOT NULL ORDER BY number"
        return [(season, batch) for season, batch in db.execute(query)]


def _records(agent: Agent) -> int:
    return agent.store.pending


@pytest.mark.parametrize("first", [1, 7])
@pytest.mark.parametrize("length", [0.1, 3.3, 86400.0 / 7])
def test_a_season_runs_from_its_start_to_the_next_one_whatever_is_rounded(first: int, length: float) -> None:
    calendar = Calendar(1.7e9 + 0.3, length, first)
    assert calendar.number_at(0.0) == first
    for number in range(first, first + 1000, 37):
        assert calendar.number_at(calendar.starts(number)) == number
        assert calendar.number_at(np.nextafter(calendar.starts(number + 1), 0.0)) == number
        assert calendar.ends(number) == calendar.starts(number + 1)


def test_a_late_starter_joins_the_running_season(world: World) -> None:
    world.now = START + 250.0
    agent = world.open()
    assert (agent.store.season, agent.started_at) == (3, START + 200.0)
    assert agent.snapshot()["next_release_at"] == START + 275.0


def test_no_reward_is_lost_at_the_boundary_and_none_enters_twice(world: World) -> None:
    agent, ids = world.open(replace(SETTINGS, keep_events=1000.0)), []
    for moment in np.arange(0.5, 399.0, 1.0):
        world.tick(float(moment))
        ids.append(agent.decide(ACTIONS).id)
        if len(ids) > 5:
            assert agent.reward(ids[-5], 1.0) is Outcome.RECORDED  # across the boundary too
    for moment in (450.0, 450.1):
        world.tick(moment)
    counts = agent.snapshot()["counts"]
    assert counts["decisions"] == counts["settled"] == 399
    assert counts["rewards"] == 399 - 5
    closes = np.arange(0.5, 399.0, 1.0) + 10.0
    due = [(int(at // 100) + 1, int(at % 100 // 25) + 1) for at in closes]  # the first release after it
    assert _taken(world.path) == due
    made = [(entry.season, entry.number) for one in agent.ledger().accounts for entry in one.entries]
    assert made == [(season, number) for season in range(1, 5) for number in range(1, 5)] + [(5, 1), (5, 2)]
    assert counts.get("dropped", 0) == 0


def test_after_the_last_release_records_wait_for_the_next_season(world: World) -> None:
    agent = world.open(replace(SETTINGS, schedule="planned", releases=2, first_release=25.0))
    assert agent.settings.release_times == (25.0, 50.0)
    world.tick(60.0)
    agent.reward(agent.decide(ACTIONS).id, 0.5)
    world.tick(90.0)
    assert agent.season_over
    assert _records(agent) == 1
    world.tick(100.0)
    assert (agent.store.season, _records(agent)) == (2, 1)
    world.open(None)
    assert _records(world.open(None)) == 1  # on disk
    world.tick(125.0)
    agent = world.open(None)
    assert _records(agent) == 0
    assert agent.ledger().accounts[0].dropped == 0


def test_who_lingers_for_the_last_sum_cuts_the_next_season_by_its_own_times(world: World) -> None:
    """Whatever keeps the last sum away, a record is in the first release due after its window closed."""
    settings = replace(SETTINGS, agents=2, agents_per_person=1, releases=20, window=1.0, keep_events=1000.0)
    agent = world.open(settings)
    for moment in (100.0, 101.0, 104.5, 107.0, 109.9):  # it lingers until 110
        world.now = START + moment
        agent.tick(alone=False)
        agent.decide(ACTIONS)
    assert agent.store.season == 1
    for moment in (110.0, 112.0):
        world.now = START + moment
        agent.tick(alone=False)
    assert agent.store.season == 2
    assert _taken(world.path) == [(2, 1), (2, 1), (2, 2), (2, 2), (2, 3)]


def test_ids_stay_known_over_the_boundary_and_a_repeated_question_has_the_same_answer(world: World) -> None:
    agent = world.open()
    world.now += 95.0
    first = agent.decide(ACTIONS, id="visit")
    made_up = agent.decide(ACTIONS)
    world.tick(101.0)
    assert agent.store.season == 2
    again = agent.decide(ACTIONS, id="visit")
    assert (again.repeated, again.index) == (True, first.index)
    assert agent.reward("visit", 1.0) is Outcome.RECORDED
    assert agent.reward(made_up.id, 1.0) is Outcome.RECORDED
    world.tick(106.0)
    assert agent.reward(made_up.id, 1.0) is Outcome.LATE
    assert _records(agent) == 2


@pytest.mark.parametrize("limit", [1, 2])
def test_a_person_has_no_more_records_in_a_season_for_having_come_at_its_boundary(
    world: World, limit: int
) -> None:
    agent = world.open(replace(SETTINGS, records_per_person=limit))
    for moment in (91.0, 95.0, 96.0, 97.0):  # all of them wait for season 2
        world.tick(moment)
        agent.decide(ACTIONS, person="ann")
    world.tick(105.0)  # the first window has closed in season 2, under the old hash
    for moment in (106.0, 107.0, 108.0):
        world.tick(moment)
        agent.decide(ACTIONS, person="ann")
    world.tick(124.0)
    assert agent.store.season == 2
    assert _records(agent) == limit
    assert erase(agent, "ann").in_sums == limit
    hashes = agent.store.database.execute("SELECT count(*) FROM people").fetchone()
    assert hashes == (1,)


def test_who_does_not_come_again_counts_with_what_she_had_at_the_boundary(world: World) -> None:
    agent = world.open()
    for moment in (95.0, 96.0):
        world.tick(moment)
        agent.decide(ACTIONS, person="ann")
    world.tick(124.0)
    assert _records(agent) == 1
    assert erase(agent, "ann").in_sums == 1


@pytest.mark.parametrize("keep", [0.0, 250.0])
def test_a_person_is_found_for_as_long_as_an_event_of_hers_is_kept(world: World, keep: float) -> None:
    """Hashes have a key a season; where events are kept for longer, so are the keys, and no longer."""
    agent = world.open(replace(SETTINGS, keep_events=keep))
    world.tick(5.0)
    agent.decide(ACTIONS, person="ann")
    for moment in range(10, 240, 5):
        world.tick(float(moment))
    assert agent.store.season == 3
    assert erase(agent, "ann").content_removed == (1 if keep else 0)
    assert erase(agent, "ann").content_removed == 0
    for moment in range(240, 700, 5):
        world.tick(float(moment))
    (keys,) = agent.store.database.execute("SELECT count(*) FROM person_keys").fetchone()
    assert keys == (4 if keep else 1)  # of seasons of whose visitors something may still be here


def test_a_raw_upload_that_nobody_took_does_not_outlive_its_season(world: World) -> None:
    agent = world.open(replace(SETTINGS, agents=2, trust=require_trust("controller")))
    world.tick(5.0)
    agent.reward(agent.decide(ACTIONS).id, 0.5)
    world.now = START + 26.0
    agent.tick(alone=False)
    (upload,) = agent.outbox()
    assert any(upload.body in file.read_bytes() for file in _files(world.path))
    world.now = START + 99.0
    agent.tick(alone=False)
    assert upload in agent.outbox()
    world.now = START + 111.0  # nobody came, in its season or the tenth after it
    agent.tick(alone=False)
    assert (agent.store.season, agent.outbox()) == (2, [])
    assert not any(upload.body in file.read_bytes() for file in _files(world.path))


def _files(path: Path) -> list[Path]:
    """The agent's, and those that SQLite has beside it."""
    return list(path.parent.glob(f"{path.name}*"))


def test_an_agent_that_slept_through_seasons_skips_them_and_loses_nothing(
    world: World, believing: None
) -> None:
    agent = world.open()
    world.tick(30.0)
    ids = [agent.decide(ACTIONS).id for _ in range(5)]
    assert agent.reward(ids[0], 1.0) is Outcome.RECORDED
    world.now = START + 730.0
    agent = world.open()
    agent.tick()
    agent.tick()
    assert (agent.store.season, agent.started_at) == (8, START + 700.0)
    assert [account.season for account in agent.ledger().accounts] == [1, 8]
    assert [len(account.entries) for account in agent.ledger().accounts] == [1, 1]
    assert agent.snapshot()["counts"]["settled"] == 5


def test_a_clock_that_jumps_is_believed_after_it_stood_and_no_season_is_opened_twice(world: World) -> None:
    agent = world.open()
    world.tick(50.0)
    agent.decide(ACTIONS)
    made = len(agent.ledger().current.entries)
    world.tick(1e8)  # three years ahead
    assert agent.store.season == 1
    assert len(agent.ledger().current.entries) == made
    world.tick(51.0)  # and back
    world.tick(-500.0)
    assert (agent.store.season, len(agent.ledger().current.entries)) == (1, made)
    assert agent.decide(ACTIONS).index in (0, 1)
    world.tick(101.0)
    assert agent.store.season == 2
    world.tick(60.0)  # back before the boundary: season 2 stays open, and nothing of it is due
    assert (agent.store.season, agent.ledger().current.entries) == (2, ())
    world.tick(130.0)
    assert [entry.number for entry in agent.ledger().current.entries] == [1]


def test_settings_for_the_next_season_are_taken_at_its_start_and_bad_ones_are_not(world: World) -> None:
    agent = world.open()
    agent.renewal = lambda _: (replace(SETTINGS, uniform_share=0.5), None)
    agent.decide(ACTIONS)
    world.tick(99.0)
    assert agent.settings.uniform_share == 0.0
    world.tick(100.0)
    assert (agent.settings.uniform_share, agent.trouble) == (0.5, "")
    assert world.open(None).settings.uniform_share == 0.5

    def broken(season: int) -> tuple[AgentSettings, None]:
        raise ConfigurationError("config", "agent.toml", "a TOML file")

    agent = world.open(replace(SETTINGS, uniform_share=0.5))
    agent.renewal = broken
    world.tick(200.0)
    assert (agent.store.season, agent.settings.uniform_share) == (3, 0.5)
    assert "a TOML file" in agent.trouble


def test_a_federation_may_agree_on_another_length_from_some_number_on(world: World) -> None:
    agent = world.open()
    weekly = replace(SETTINGS, season=50.0, start=START + 100.0, first_season=2)
    agent.renewal = lambda _: (weekly, None)
    for now, number in ((100.0, 2), (149.0, 2), (150.0, 3), (200.0, 4)):
        world.tick(now)
        assert agent.store.season == number
    assert world.open(weekly).started_at == START + 200.0


def test_what_cannot_be_added_up_in_the_next_season_is_dropped_and_said(world: World) -> None:
    agent = world.open()
    agent.renewal = lambda _: (replace(SETTINGS, problem=Problem(dim=3)), None)
    world.tick(95.0)
    agent.decide(ACTIONS)
    world.tick(100.0)
    assert "dropped" in agent.trouble
    assert agent.snapshot()["counts"]["dropped"] == 1
    assert agent.decide(np.eye(3)).index in (0, 1, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": Budget(epsilon=2.0, delta=1e-6)},
        {"trust": require_trust("controller")},
        {"records_per_person": 2},
        {"play": "own", "schedule": "planned", "releases": 2, "first_release": 20.0, "last_release": 50.0},
        {"shadow": True, "follow_policy": "fixed"},
        {"holdout": 0.05},
        {"default_reward": 0.5},
    ],
    ids=str,
)
def test_what_waits_is_released_under_no_other_promise_than_its_own(
    world: World, changes: dict[str, object]
) -> None:
    """Of open decisions and of a batch, at a boundary at which the settings change."""
    world.open()
    agent = world.tick(80.0)
    agent.decide(ACTIONS, person="she")
    agent = world.tick(95.0)
    agent.decide(ACTIONS, person="he")
    assert _records(agent) == 1
    agent.renewal = lambda _: (replace(SETTINGS, **changes), None)  # type: ignore[arg-type]
    agent = world.tick(112.0)
    assert agent.store.season == 2
    assert _records(agent) == 0
    assert "dropped" in agent.trouble
    world.tick(180.0)
    assert _taken(world.path) == [] or {season for season, _ in _taken(world.path)} == {1}


@pytest.mark.parametrize(("then", "counted"), [(0.5, 2), (0.25, 1)])
def test_who_was_drawn_into_a_lane_by_other_shares_does_not_count_in_the_next_season(
    world: World, then: float, counted: int
) -> None:
    """With the new chance in place of the one that she had, what lanes come to would not be true."""
    agent = world.open(replace(SETTINGS, uniform_share=0.5))
    world.now = START + 95.0
    agent.decide(ACTIONS)
    agent.renewal = lambda _: (replace(SETTINGS, uniform_share=then), None)
    agent = world.tick(101.0)
    assert agent.store.season == 2
    agent.decide(ACTIONS)
    with agent.writing() as db:
        db.execute("UPDATE decisions SET lane = ?", (events.UNIFORM,))  # as where something is learnt
    agent = world.tick(112.0)
    assert agent.snapshot()["gain"]["visits"] == counted


def test_a_limit_on_all_seasons_holds_for_one_that_is_opened_by_hand(world: World) -> None:
    limited = replace(SETTINGS, most_epsilon=1.2, most_delta=1e-6)
    world.open(limited)
    agent = world.tick(99.0)
    assert len(agent.ledger().accounts[0].entries) == 3
    agent.new_season(replace(limited, start=START + 100.0), drop_open=True)
    for now in (130.0, 160.0, 199.0):
        agent = world.tick(now)
    assert "most_epsilon = 1.2" in agent.trouble
    assert not agent.ledger().accounts[-1].entries
    with pytest.raises(StoreError, match="beyond most_epsilon"):
        agent.release()
    assert agent.decide(ACTIONS).index in (0, 1)
    agent = world.open(limited)  # nor is it forgotten
    assert agent.releases_due() == 0
    assert agent.ledger().epsilon_of_a_regular(1e-6) <= 1.2


def test_windows_close_where_nothing_may_leave_any_more(world: World) -> None:
    """What waits for a release that is never made would stay raw in the file for ever."""
    limited = replace(SETTINGS, most_epsilon=1.2, most_delta=1e-6)
    world.open(limited)
    agent = world.tick(99.0)
    agent.new_season(replace(limited, start=START + 100.0), drop_open=True)
    for now in range(110, 190, 10):
        agent = world.tick(float(now))
        agent.decide(ACTIONS)
    agent = world.tick(199.0)
    assert not agent.ledger().accounts[-1].entries
    assert agent.snapshot()["open_decisions"] == 0


def test_a_file_of_a_season_opened_by_hand_goes_on_from_its_own_start(world: World) -> None:
    """Its start was moved along with its number, as one had to before seasons rolled by themselves."""
    agent = world.open()
    world.now = START + 130.0
    moved = replace(SETTINGS, start=START + 120.0)
    assert agent.new_season(moved) == 2
    agent = world.open(moved)
    world.tick(220.0)
    assert (agent.store.season, agent.started_at) == (3, START + 220.0)
    agent = world.open(moved)
    world.tick(320.0)
    assert agent.store.season == 4


def test_an_agent_without_a_common_start_rolls_from_when_it_was_opened(world: World) -> None:
    world.now = START + 7.0
    agent = world.open(replace(SETTINGS, start=None))
    world.tick(107.0)
    assert (agent.store.season, agent.started_at) == (2, START + 107.0)
    agent = world.open(None)
    world.tick(207.0)
    assert (agent.store.season, agent.started_at) == (3, START + 207.0)


def test_the_year_has_a_limit_at_which_nothing_leaves_any_more(world: World) -> None:
    agent = world.open(replace(SETTINGS, most_epsilon=1.8, most_delta=1e-6))
    for now in np.arange(1.0, 1000.0, 7.0):
        world.tick(float(now))
        agent.decide(ACTIONS)
    ledger = agent.ledger()
    opened = len(ledger.accounts)
    assert 1 < opened < 10
    assert "most_epsilon = 1.8" in agent.trouble
    assert ledger.epsilon_of_a_regular(1e-6) <= 1.8
    assert np.sqrt(opened + 1) * ledger.accounts[0].mu > ledger.mu_of_a_regular
    spent = agent.snapshot()["all_seasons"]
    assert spent.pop("epsilon_with_next") > 1.8
    assert spent == {
        "seasons": opened,
        "presumed": 0,
        "epsilon": ledger.epsilon_of_a_regular(1e-6),
        "delta": 1e-6,
        "most_epsilon": 1.8,
    }
    assert all(len(account.entries) == 4 for account in ledger.accounts)
    with pytest.raises(ConfigurationError, match="at least what one season costs"):
        replace(SETTINGS, most_epsilon=0.9)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"window": 100.0}, "window is 100.0, expected less than the season's 100 seconds"),
        ({"schedule": "geometric", "first_release": 101.0}, "first_release is 101.0"),
        ({"start": None, "first_season": 2}, "first_season is 2"),
        ({"most_delta": 1e-5}, "most_delta"),
    ],
)
def test_impossible_clocks_are_refused(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        replace(SETTINGS, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_five_agents_made_up_to_ten_minutes_apart_are_in_every_sum(tmp_path: Path, trust: str) -> None:
    """Seasons of half an hour; each agent is made when it is, and rolls by its own clock's tick."""
    names, now = "abcde", [START]
    shared = replace(SETTINGS, agents=5, trust=require_trust(trust), season=1800.0, releases=3, window=60.0)
    with ExitStack() as stack:
        live: dict[str, Agent] = {}
        terms = dict.fromkeys(names, shared.terms)
        calendar = shared.common_calendar
        collector = open_collector(tmp_path / "controller.db", terms, calendar=calendar)
        assert not isinstance(collector, RowBook)
        stack.callback(collector.close)
        sums: dict[tuple[int, int], int] = {}
        for second in range(0, 3 * 1800 + 30, 15):
            now[0] = START + second
            if second % 150 == 0 and len(live) < 5:
                name = names[len(live)]
                settings = replace(shared, name=name)
                file = tmp_path / f"{name}.db"
                live[name] = stack.enter_context(Agent.open(file, settings, clock=lambda: now[0]))
            for agent in live.values():
                agent.reward(agent.decide(ACTIONS).id, 0.5)
                agent.tick(alone=False)
            boxes = {name: AgentMailbox(agent) for name, agent in live.items()}
            asyncio.run(LocalController(collector, boxes).step(now=now[0]))
            if (newest := collector.newest()) is not None:
                sums[newest.season, newest.number] = len(newest.names)
        for agent in live.values():
            agent.tick(alone=False)
            assert agent.store.season == 4
            assert agent.snapshot()["counts"].get("refused_sums", 0) == 0
    assert sums == {(season, number): 5 for season in (1, 2, 3) for number in (1, 2, 3)}

"""What is wrong is found by one list of conditions: each says so when it is, and is silent when it is not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings, warning
from feducb.agent.health import AGENT, with_trouble
from feducb.agent.view import look
from feducb.carriers.controller_process import season_times
from feducb.carriers.nats.link_status import EngineStatus
from feducb.config import Budget, Problem
from feducb.controller.controller_health import judge_controller, judge_keeper
from feducb.protocol.calendar import Calendar
from feducb.protocol.trouble import News, exit_status

DAY = 86400.0
GREEN: dict[str, Any] = {
    "at": 10 * DAY,
    "name": "north",
    "running": True,
    "started_at": 0.0,
    "opened_at": 3.0,
    "season": 1,
    "season_ends_at": 30 * DAY,
    "next_due_at": 11 * DAY,
    "reads": True,
    "agents": 3,
    "team": 3,
    "quorum": 2,
    "outbox": 0,
    "oldest_unsent_at": None,
    "awaited": None,
    "sums": [],
    "own": None,
    "warnings": {},
    "disk": None,
    "misfit": None,
    "all_seasons": None,
    "keeper": None,
    "engine": {
        "connected": True,
        "failures": 0,
        "last_error": None,
        "last_receipt_at": 9 * DAY,
        "last_refusal_at": None,
        "last_refusal": None,
        "refusing": {},
        "sum_refused": None,
        "unanswered": 0,
        "rows": None,
        "newest": [1, 4],
        "members": ["east", "north", "south"],
        "clock_off": 0.0,
    },
}
KEEPER = {"keeper": "west", "halted": None, "second_lists": 0}
NOW = GREEN["at"]


def _engine(**facts: Any) -> dict[str, Any]:
    return {"engine": GREEN["engine"] | facts}


def _spent(most: float | None, epsilon: float, with_next: float) -> dict[str, Any]:
    spent = {"most_epsilon": most, "epsilon": epsilon, "epsilon_with_next": with_next}
    return {"all_seasons": spent | {"seasons": 2}}


# What is changed, and what must be said then. Patience is 15 min in a season of 30 days.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "stopped": ({"running": False}, "does not run"),
    "hangs": ({"seconds_ago": 31.0}, "not said how it stands since 1970-01-10 23:59 UTC"),
    "disk": ({"disk": "the disk is full"}, "no decision is made: the disk is full"),
    "misfit": ({"misfit": "agents is 2, expected 3"}, "waits for the next one: agents is 2"),
    "halted": (
        {"warnings": {"halted": "a copy is there"}},
        "This agent has halted: a copy is there.",
    ),
    "keeper_halted": ({"keeper": KEEPER | {"halted": "its file is old"}}, "Keeper west has halted"),
    "second_list": ({"keeper": KEEPER | {"second_lists": 1}}, "two lists"),
    "season_over": ({"at": 33 * DAY, "next_due_at": None}, "over since 1970-01-31 00:00 UTC"),
    "never_reads": ({"reads": False}, "drawn uniformly"),
    "not_in_roster": ({"joins": {"season": None, "at": None}}, "not in the roster of season 1, nor"),
    "late_release": ({"next_due_at": NOW - 901}, "due at 1970-01-10 23:44 UTC"),
    "broker": (_engine(connected=False, failures=1, last_error="refused"), "not reached. refused"),
    "refused": (_engine(last_refusal_at=NOW, last_refusal="variance: 3"), "refused. variance: 3"),
    "neighbours": (_engine(refusing={"b": "variance"}), "of neighbours are refused here. b: variance"),
    "sum_refused": (_engine(sum_refused="over 1 agent"), "Sums are refused here. over 1 agent"),
    "unanswered": (_engine(unanswered=2), "nobody answers"),
    "row_waits": (_engine(rows={"waiting": "Row 3 waits for keeper west."}), "waits for keeper west"),
    "outbox": ({"outbox": 2, "oldest_unsent_at": NOW - 901}, "2 messages wait to be sent"),
    "no_sum": ({"awaited": {"number": 4, "sent_at": NOW - 901}}, "it needs 2 of 3 agents"),
    "not_in_sum": (_engine(members=["east", "south", "west"]), "not in the newest sum"),
    "clock": (_engine(clock_off=-120.0), "120 s or more behind"),
    "clock, set back": ({"at": -901.0} | _engine(clock_off=0.0), "at 1970-01-01 00:00 UTC, which lies ahead"),
    "restored": ({"restored": True}, "until it ends at 1970-01-31 00:00 UTC nothing more of it leaves"),
    "others_missing": (_engine(members=["north", "south"]), "2 of 3 agents"),
    "year": (_spent(4.0, 3.7, 3.9), "ε = 3.7 is spent"),
    "changed": ({"warnings": {"changed": "seasons disagree"}}, "Seasons disagree."),
    "keep_events": ({"warnings": {"keep_events": "nothing comes of them"}}, "Nothing comes"),
    "last_sum": ({"warnings": {"last_sum": "published with 2 of 3"}}, "Published with 2 of 3."),
    "parameter_bound": ({"warnings": {"parameter_bound": "no parameter"}}, "No parameter."),
    "reward_bound": ({"warnings": {"reward_bound": "one decision in 20"}}, "One decision in 20."),
}
# Likewise, and nothing must be said: what is late by less than the patience, or is no trouble.
WELL: tuple[dict[str, Any], ...] = (
    {},
    {"at": -899.0},
    {"at": -9 * DAY, "opened_at": -10 * DAY},  # it was started before the federation's first season
    {"next_due_at": NOW - 899},
    {"next_due_at": None},
    {"at": 32 * DAY, "next_due_at": None},  # it waits for the last sum
    {"outbox": 1, "oldest_unsent_at": NOW - 899},
    {"agents": 1, "outbox": 1, "oldest_unsent_at": NOW - 901},
    {"awaited": {"number": 4, "sent_at": NOW - 899}},
    {"at": 40 * DAY, "next_due_at": None, "own": {"phase": "closed"}},
    {"at": 40 * DAY, "next_due_at": None, "own": {"phase": "alone"}},
    {"engine": None},
    {"keeper": KEEPER},
    _spent(4.0, 3.5, 3.9),
    _spent(None, 3.5, 5.0),
    _engine(connected=False),  # it has not tried yet
    _engine(last_refusal_at=8 * DAY, last_refusal="before the last receipt"),
    _engine(unanswered=1),
    _engine(clock_off=None),
    _engine(clock_off=89.0),
    _engine(members=[]),
    # A newcomer's first season: the newest sum is of the season before, which did not have it.
    {"season": 2, "agents": 4, "team": 4},
    {"season": 2, "name": "west", "agents": 4, "team": 4},
)


@pytest.mark.parametrize("kind", sorted(WRONG))
def test_each_condition_says_what_is_wrong_and_nothing_else_is_said(kind: str) -> None:
    change, words = WRONG[kind]
    (found,) = with_trouble(GREEN | change)["trouble"]
    assert found["kind"] == kind.partition(",")[0]
    assert words in found["says"]
    assert exit_status([found]) == (1 if kind == "stopped" else 3)


@pytest.mark.parametrize("change", WELL)
def test_nothing_is_said_while_all_is_well(change: dict[str, Any]) -> None:
    stands = with_trouble(GREEN | change)
    assert stands["trouble"] == []
    assert exit_status(stands["trouble"]) == 0
    assert not {"warnings", "disk", "misfit"} & set(stands)  # they are in the one list


def test_every_kind_has_a_case_here_and_every_warning_of_the_file_has_a_condition() -> None:
    assert {one.partition(",")[0] for one in WRONG} == {one.kind for one in AGENT}
    assert set(warning.KINDS) <= set(WRONG)


def test_what_does_not_happen_comes_before_what_is_doubtful() -> None:
    stands = GREEN | {"warnings": {"reward_bound": "doubted"}, "next_due_at": 0.0}
    assert [one["severity"] for one in with_trouble(stands)["trouble"]] == ["wrong", "doubtful"]


def test_a_log_hears_of_trouble_when_it_comes_and_when_it_is_over() -> None:
    late, none = with_trouble(GREEN | {"next_due_at": 0.0})["trouble"], list[dict[str, str]]()
    news = News()
    assert [list(map(len, news.since(one))) for one in (none, late, late, none)] == [
        [0, 0],
        [1, 0],
        [0, 0],
        [0, 1],
    ]


SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=50.0, delta=1e-6),
    releases=8,
    schedule="periodic",
    season=800.0,
    window=10.0,
)


def _kinds(agent: Agent) -> list[str]:
    return [one["kind"] for one in with_trouble(agent.snapshot())["trouble"]]


def test_an_agent_is_green_through_its_season_and_not_after_it(tmp_path: Path) -> None:
    """A deployed one, by its clock: on time all is well, but not when it was away, nor after the end."""
    now = [1000.0]
    with Agent.open(tmp_path / "agent.db", SETTINGS, clock=lambda: now[0]) as agent:
        for _ in range(7):
            assert _kinds(agent) == []
            agent.decide(0.5 * np.eye(2))
            now[0] += 100.0
            agent.tick()
        now[0] += 99.0
        assert _kinds(agent) == []
        now[0] += 18.0  # a fiftieth of the season is 16 s
        assert _kinds(agent) == ["late_release"]
        now[0] += 64.0  # a tenth is 80 s: by then the clock opens the next one, where somebody looks at it
        assert _kinds(agent) == ["season_over", "late_release"]
        agent.tick()
        assert agent.store.season == 2
        assert _kinds(agent) == []


def test_the_last_season_that_the_year_s_budget_allows_says_so_while_it_runs(tmp_path: Path) -> None:
    """Of few seasons that fit, the last may leave more than a tenth of the limit: yet no other opens."""
    now, last = [1000.0], ""
    settings = replace(SETTINGS, budget=Budget(epsilon=1.0, delta=1e-6), most_epsilon=1.75)
    with Agent.open(tmp_path / "agent.db", settings, clock=lambda: now[0]) as agent:
        while not agent.trouble:
            said = {one["kind"]: one["says"] for one in with_trouble(agent.snapshot())["trouble"]}
            season, last = agent.store.season, said.get("year", "")
            now[0] += 50.0
            agent.tick()
        spent = agent.snapshot()["all_seasons"]
    assert season > 1
    assert spent["epsilon"] < 0.9 * 1.75 < 1.75 < spent["epsilon_with_next"]
    assert "and so does not open" in last


def test_settings_under_which_nothing_is_ever_read_are_said(tmp_path: Path) -> None:
    settings = replace(SETTINGS, budget=Budget(epsilon=0.01, delta=1e-6), decisions=100)
    assert not settings.reads
    with Agent.open(tmp_path / "agent.db", settings) as agent:
        assert _kinds(agent) == ["never_reads"]
    assert [one["kind"] for one in look(tmp_path / "agent.db")["trouble"]] == ["stopped", "never_reads"]


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_a_message_waits_to_be_sent_and_then_for_its_sum(tmp_path: Path, trust: str) -> None:
    """Two agents, one of which is watched: nobody takes its message, then nobody makes a sum of it."""
    began = time.time()
    settings = replace(SETTINGS, agents=2, start=began, releases=4, season=4000.0, trust=trust)  # type: ignore[arg-type]
    clock = [began]
    with Agent.open(tmp_path / "agent.db", settings, clock=lambda: clock[0]) as agent:
        clock[0] += 1000.0
        agent.decide(0.5 * np.eye(2))
        agent.tick(alone=False)  # what it makes is dated by the machine's clock: now
        clock[0] = time.time() + 79.0
        assert _kinds(agent) == []
        clock[0] += 2.0  # a fiftieth of the season is 80 s
        assert _kinds(agent) == ["outbox"]
        (item,) = agent.outbox()
        agent.mark_sent(item)
        assert _kinds(agent) == ["no_sum"]


ASKED: dict[str, Any] = {
    "at": NOW,
    "running": True,
    "connected": True,
    "season": 1,
    "watches_since": 0.0,
    "season_started_at": 0.0,
    "season_ends_at": 30 * DAY,
    "agents": ["a", "b", "c"],
    "quorum": 2,
    "deadline": 60.0,
    "newest_sum": [1, 4],
    "agents_in_it": ["a", "b", "c"],
    "last_seen": {"a": NOW, "b": NOW, "c": NOW},
    "last_stored": {"a": NOW - 5, "b": NOW - 5},
    "arrivals": {"a": 100.0, "b": 159.0, "c": 101.0},
    "waits": None,
    "last_refusals": {"a": {"at": NOW - 10, "text": "before its last message was stored"}},
    "rows": None,
}
ALL_SEEN = dict.fromkeys("abc", 100 * DAY)
THIRD = {"season": 3, "season_started_at": 8 * DAY, "season_ends_at": 12 * DAY}  # of four days each
CONTROLLER_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "stopped": ({"running": False, "seconds_ago": 31.0}, "does not run"),
    "hangs": ({"seconds_ago": 31.0}, "not said how it stands since 1970-01-10 23:59 UTC: it hangs"),
    "broker": ({"connected": False, "last_error": "refused"}, "not reached. refused"),
    "season_over": ({"at": 33 * DAY + 300, "last_seen": ALL_SEEN}, "over since 1970-01-31 00:00 UTC"),
    "no_sum": (THIRD | {"newest_sum": [1, 4]}, "without a sum: the newest is of season 1, and season 3"),
    "no_sum, ever": (THIRD | {"newest_sum": None}, "without a sum: there is none at all"),
    "quorum": ({"waits": {"number": 5, "since": NOW - 361, "here": ["a"]}}, "needs 2. Missing: b, c."),
    "row_waits": ({"rows": {"since": NOW - 11, "waiting": "Row 5 waits for keeper b."}}, "keeper b"),
    "refused": ({"last_refusals": {"b": {"at": NOW, "text": "variance 3"}}}, "b: variance 3"),
    "missing": ({"agents_in_it": ["a", "b"]}, "lacks c"),
    "late": ({"arrivals": {"a": 100.0, "b": 161.0}}, "b (61 s)"),
    "silent": ({"last_seen": {"a": NOW - 901, "b": NOW, "c": NOW}}, "for a quarter of an hour: a."),
    "silent, since it runs": ({"last_seen": {}, "watches_since": NOW - 901}, "of an hour: a, b, c."),
}


@pytest.mark.parametrize("kind", sorted(CONTROLLER_WRONG))
def test_a_controller_s_conditions(kind: str) -> None:
    change, words = CONTROLLER_WRONG[kind]
    (found,) = judge_controller(ASKED | change)
    assert (found["kind"], words in found["says"]) == (kind.partition(",")[0], True)


def test_a_controller_is_green_while_all_is_well() -> None:
    well: tuple[dict[str, Any], ...] = (
        {},
        {"waits": {"number": 5, "since": NOW - 359, "here": ["a"]}},
        {"rows": {"since": NOW - 9, "waiting": "Row 5 waits for keeper b."}},
        {"newest_sum": None, "agents_in_it": []},
        {"season": 2, "agents": ["a", "b", "c", "d"], "last_seen": dict.fromkeys("abcd", NOW)},  # d is new
        {"seconds_ago": 30.0},
        {"at": 33 * DAY + 299, "last_seen": ALL_SEEN},  # it waits for the last sum
        THIRD | {"newest_sum": [2, 4], "agents_in_it": ["a"]},
        THIRD | {"newest_sum": None, "watches_since": 4 * DAY + 1},  # it has not seen a whole season
        {"newest_sum": None, "last_seen": {}, "watches_since": NOW - 899},
        {"newest_sum": None, "last_seen": {"a": NOW, "b": NOW}, "season_started_at": NOW - 899},  # c is new
        {"connected": False, "failures": 0},  # it has just started
    )
    for change in well:
        assert judge_controller(ASKED | change) == []
    everybody = judge_controller(
        ASKED | {"deadline": None, "waits": {"number": 5, "since": 0.0, "here": ["a"]}}
    )
    assert "needs all of them. Missing: b, c." in everybody[0]["says"]


def test_a_controller_knows_its_seasons_times_and_since_when_agents_could_come() -> None:
    """By its calendar: before the first season's start nobody need be there."""
    calendar = Calendar(start=2 * DAY, length=4 * DAY)
    for began, watches in ((DAY, 2 * DAY), (9 * DAY, 9 * DAY)):
        times = {"watches_since": watches, "season_started_at": 6 * DAY, "season_ends_at": 10 * DAY}
        assert season_times(calendar, 2, began) == times
    assert season_times(None, 2, DAY) == {"watches_since": DAY}


def test_a_keeper_s_conditions() -> None:
    well = {"at": NOW, "running": True, "connected": True, **KEEPER}
    assert judge_keeper(well) == []
    for change, kind in (
        ({"running": False}, "stopped"),
        ({"seconds_ago": 31.0}, "hangs"),
        ({"halted": "its file is old"}, "keeper_halted"),
        ({"second_lists": 2}, "second_list"),
        ({"connected": False, "failures": 3}, "broker"),
        ({"last_refusal_at": NOW, "last_refusal": "key: another"}, "refused"),
        ({"unanswered": 2}, "unanswered"),
    ):
        assert [one["kind"] for one in judge_keeper(well | change)] == [kind]


def test_clocks_are_compared_as_far_as_a_round_trip_tells() -> None:
    """The other clock was read between sending and receiving: what is certain is counted, and no more."""
    status = EngineStatus()
    for theirs, sent, received, off in (
        (100.0, 99.0, 101.0, 0.0),  # may be equal
        (100.0, 130.0, 132.0, 30.0),  # at least 30 s ahead
        (100.0, 60.0, 64.0, -36.0),  # at least 36 s behind
    ):
        status.compare_clocks(theirs, sent, received)
        assert status.as_dict()["clock_off"] == off

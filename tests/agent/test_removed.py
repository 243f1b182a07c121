"""An agent that is out of the roster: nothing leaves it, nothing is paid, and it says so, until it is in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from test_newcomer import SEASON, START, _budgets, _file, _judged, _open

from feducb.agent import Agent
from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.agent.roster_place import NEVER
from feducb.agent.view import look
from feducb.carriers import nats_keys as keys
from feducb.carriers.key_requests import make_request, read_request
from feducb.cli.watch_frames import agent_facts
from feducb.errors import StoreError
from feducb.protocol.trouble import exit_status
from own_sites import Sites, visitors

ACTIONS = [[1.0, 0.0], [0.0, 1.0]]


def _give(folder: Path, file: AgentFile) -> None:
    """What the controller tells while the agent runs."""
    for path in folder.glob("federation.*.json"):
        shutil.copyfile(path, file.path.with_name(path.name))


def _let_in(folder: Path, *, season: int) -> None:
    request = read_request(make_request(folder / f"again-{season}", "west", federation="tests"))
    keys.add(folder, request, season=season)


def _play(agent: Agent, now: list[float], until: float) -> None:
    while now[0] < until:
        agent.decide(ACTIONS)
        now[0] += SEASON / 20
        agent.tick(alone=False)


def _left(agent: Agent) -> list[tuple[int, int]]:
    """All that was made for others, whether it was taken or not."""
    return list(agent.store.database.execute("SELECT season, number FROM outgoing ORDER BY season, number"))


@pytest.mark.parametrize("trust", ["nobody", "controller"])
@pytest.mark.parametrize("restarts", [False, True])
def test_it_pays_nothing_while_it_is_out_and_all_it_saw_is_in_its_first_release_after(
    tmp_path: Path, trust: str, *, restarts: bool
) -> None:
    """In seasons 3 and 4 it is in, then out; in season 5 it is let in again for season 7."""
    file, now = _file(tmp_path, trust=trust), [START + 2 * SEASON + 1.0]
    file = read_agent_file(file.path, season=3)
    agent = _running(file, now, first_season=3)
    _play(agent, now, START + 3.5 * SEASON)
    keys.remove(tmp_path, "west", season=5)
    _give(tmp_path, file)
    _play(agent, now, START + 4.2 * SEASON)
    left = [(season, number) for season in (3, 4) for number in (1, 2, 3, 4)]
    assert (agent.store.season, _left(agent)) == (5, left)
    if restarts:
        agent.close()
        agent = _running(read_agent_file(file.path), now)
    _play(agent, now, START + 4.9 * SEASON)
    stands = _judged(agent)
    assert [one["kind"] for one in stands["trouble"]] == ["not_in_roster"]
    assert exit_status(stands["trouble"]) == 3
    with pytest.raises(StoreError, match="not in the roster"):
        agent.release()
    seen = look(file.store, over_time=True, joins=read_agent_file(file.path).joins())
    assert ("waits", "to be in the roster again; until then nothing leaves") in agent_facts(seen)

    _let_in(tmp_path, season=7)
    _give(tmp_path, file)
    _play(agent, now, START + 5.9 * SEASON)
    stands = _judged(agent)
    assert (stands["joins"]["season"], stands["trouble"]) == (7, [])
    assert (_left(agent), stands["all_seasons"]["seasons"]) == (left, 2)
    _play(agent, now, START + 6.3 * SEASON)
    assert (_left(agent), _judged(agent)["joins"]) == ([*left, (7, 1)], None)
    agent.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_limit_on_all_seasons_holds_none_back_in_which_it_is_out(tmp_path: Path, *, restarts: bool) -> None:
    """Three seasons would be beyond it: while the agent is out it goes on, and back in nothing leaves."""
    file, now = _file(tmp_path), [START + 2 * SEASON + 1.0]
    file.path.write_text(file.path.read_text() + "[seasons]\nmost_epsilon = 12.5\n")
    file = read_agent_file(file.path, season=3)
    agent = _running(file, now, first_season=3)
    _play(agent, now, START + 3.5 * SEASON)
    keys.remove(tmp_path, "west", season=5)
    _give(tmp_path, file)
    left = [(season, number) for season in (3, 4) for number in (1, 2, 3, 4)]
    for season in (5, 6):
        _play(agent, now, START + (season - 0.7) * SEASON)
        if restarts:
            agent.close()
            agent = _running(read_agent_file(file.path), now)
        assert (agent.store.season, agent.trouble, _left(agent)) == (season, "", left)
        assert {one["kind"] for one in _judged(agent)["trouble"]} >= {"not_in_roster"}
    _let_in(tmp_path, season=7)
    _give(tmp_path, file)
    _play(agent, now, START + 6.5 * SEASON)
    assert "beyond most_epsilon" in agent.trouble
    assert (agent.store.season, _left(agent)) == (6, left)
    agent.close()


def _running(file: AgentFile, now: list[float], **first: Any) -> Agent:
    """As its service runs it."""
    if first:
        Agent.open(file.store, file.agent, clock=lambda: now[0], **first).close()
    agent = _open(file, now)
    agent.comes_in = file.place()
    return agent


def test_who_was_removed_may_be_restarted_where_agents_have_budgets_of_their_own(tmp_path: Path) -> None:
    file = _file(tmp_path, agents=3)
    keys.remove(tmp_path, "west", season=5)
    _give(tmp_path, file)
    file.path.write_text(file.path.read_text() + _budgets("north", "south", "west"))
    read = read_agent_file(file.path, season=6)
    assert (read.joins(), set(read.agent.budgets)) == (NEVER, {"north", "south", "west"})


def test_a_roster_that_comes_half_is_not_taken(tmp_path: Path) -> None:
    file, now = _file(tmp_path), [START + 1.0]
    with _running(file, now, first_season=1) as agent:
        (file.path.parent / "federation.3.json").write_text("{")
        agent.tick(alone=False)
        assert _judged(agent)["joins"] == {"season": 3, "at": START + 2 * SEASON}


def test_under_own_play_who_has_shared_goes_on_to_the_end_of_the_season(tmp_path: Path) -> None:
    """A roster that came late: what is among the sums' records is subtracted from them at the close."""
    sites = Sites(tmp_path)
    agent, visits = sites.open("west"), visitors(7)
    agent.wait_for(NEVER)
    assert agent.waits
    agent.wait_for(None)
    for _ in range(20):
        agent.decide(next(visits)[0])
        sites.run(1)
        agent.tick(alone=False)
    agent.comes_in = lambda _: NEVER
    agent.tick(alone=False)
    assert not agent.waits
    assert agent.snapshot()["joins"] is None
    assert look(agent.store.path, joins=NEVER)["joins"] is None
    agent.close()
    sites.close()

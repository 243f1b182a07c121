"""A newcomer whose first season has not begun: it says so, nothing leaves it, and what it saw goes along."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from feducb.agent import Agent
from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.agent.health import with_trouble
from feducb.agent.upkeep import warm_start
from feducb.agent.view import look
from feducb.carriers import nats_keys as keys
from feducb.carriers.key_requests import make_request, read_request
from feducb.cli.agent import app
from feducb.cli.program import app as program
from feducb.cli.watch_frames import agent_facts
from feducb.controller.controller_file import ControllerSettings
from feducb.errors import ConfigurationError, StoreError
from feducb.models.joint import Others
from feducb.storage import own_sums
from feducb.types import Statistics
from own_sites import THETA, Sites, visitors

START, SEASON = 1_800_000_000.0, 3600.0
FILE = """
version = 2
[agent]
name = "west"
store = "west.db"
[problem]
dim = 2
[privacy]
epsilon = 8.0
delta = 1e-6
trust = "{trust}"
[federation]
agents = {agents}
decisions = 100_000
[releases]
season = "1h"
start = 2027-01-15T08:00:00Z
schedule = "periodic"
releases = 4
[rewards]
window = "1s"
[engine]
kind = "nats"
roster = "federation.json"
ca = "ca.pem"
"""
PLANNED = 'releases = 2\nfirst_release = "2h"\nlast_release = "3h"'
ENGINE = {"connected": True, "failures": 0, "members": ["north", "south"], "refused": {}, "errors": {}}


def _file(folder: Path, *, trust: str = "nobody", agents: int = 2) -> AgentFile:
    """Of west, which is in version 2 of the roster: from season 3 on."""
    keys.init(folder, ["north", "south"], federation="tests")
    request = read_request(make_request(folder / "new", "west", federation="tests"))
    keys.add(folder, request, season=3)
    own = folder / "agents" / "west"
    shutil.copyfile(folder / "new" / "agent.seed", own / "agent.seed")
    (own / "agent.toml").write_text(FILE.format(trust=trust, agents=agents))
    return read_agent_file(own / "agent.toml", season=1)


def _open(file: AgentFile, now: list[float]) -> Agent:
    agent = Agent.open(file.store, file.agent, clock=lambda: now[0])
    agent.renewal = file.renewed
    agent.wait_for(file.joins())
    return agent


def _judged(agent: Agent) -> dict[str, Any]:
    """As its service shows it."""
    return with_trouble(agent.overview() | {"running": True, "engine": ENGINE, "keeper": None})


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_it_says_for_which_season_it_waits_and_spends_nothing(tmp_path: Path, trust: str) -> None:
    file, now = _file(tmp_path, trust=trust), [START + 1.0]
    with _open(file, now) as agent:
        for _ in range(20):
            agent.reward(agent.decide([[1.0, 0.0], [0.0, 1.0]]).id, 0.5)
            now[0] += SEASON / 20
            assert agent.tick(alone=False) == 0
            stands = _judged(agent)
            assert stands["trouble"] == []
        assert stands["joins"] == {"season": 3, "at": START + 2 * SEASON}
        assert (agent.outbox(), stands["all_seasons"]["seasons"]) == ([], 0)
        with pytest.raises(StoreError, match="nothing leaves before season 3"):
            agent.release()
        own = read_agent_file(file.path)
        rows = agent_facts(look(file.store, over_time=True, joins=own.joins()))
        assert any(name == "waits" and words.startswith("for season 3") for name, words in rows)
        assert not any(name in ("spent", "runs out") for name, _ in rows)


def test_what_it_saw_before_is_in_its_first_release(tmp_path: Path) -> None:
    file, now = _file(tmp_path), [START + 1.0]
    with _open(file, now) as agent:
        for season in (1, 2, 3):
            now[0] = START + (season - 1) * SEASON * 1.1 + 1.0
            agent.tick(alone=False)
            assert agent.store.season == season
            for _ in range(10):
                agent.decide([[1.0, 0.0], [0.0, 1.0]])
        assert (_judged(agent)["joins"], agent.settings.agents) == (None, 3)
        now[0] = START + 2 * SEASON + SEASON / 4 + 2.0
        assert agent.tick(alone=False) == 1
        snapshot = agent.snapshot()
        assert (snapshot["counts"]["settled"], snapshot["in_batch"]) == (30, 0)
        assert [(one.season, one.number) for one in agent.outbox()] == [(3, 1)]


@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_it_does_not_matter_whether_its_number_of_agents_counts_it(
    tmp_path: Path, trust: str, agents: int
) -> None:
    """A sum of the seasons before is over the others alone, and it may hear it."""
    file = _file(tmp_path, trust=trust, agents=agents)
    assert [read_agent_file(file.path, season=one).agent.agents for one in (1, 2, 3)] == [2, 2, 3]
    text = file.path.read_text().replace(f"agents = {agents}", f"agents = {agents}\nquorum = {agents - 1}")
    file.path.write_text(text)
    assert [read_agent_file(file.path, season=one).agent.quorum for one in (1, 2, 3)] == [1, 1, 2]


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_under_own_play_all_of_a_sum_is_the_others_and_its_records_stay_its_own(
    tmp_path: Path, trust: str
) -> None:
    sites = Sites(tmp_path, trust=trust)
    newcomer, visits = sites.open("west"), visitors(7)
    newcomer.wait_for(2)
    for second in range(120):
        candidates, noise = next(visits)
        decision = newcomer.decide(candidates)
        newcomer.reward(decision.id, float(candidates[decision.index] @ THETA) + noise)
        if second == 60:
            assert newcomer.overview()["own"]["says"] == "waiting for the last sum of all 3 agents"
            warm_start(newcomer, [[0.4, 0.3]], [0.5], policy="fixed")
        sites.run(1)
        newcomer.tick(alone=False)
        if (named := sites.collector.newest()) is not None:
            newcomer.absorb(named.total, agents=len(named.names), sealed=named.sealed)
    stands = newcomer.overview()
    assert (newcomer.outbox(), stands["all_seasons"]["seasons"]) == ([], 0)
    assert [stands["own"][one] for one in ("phase", "hearing", "shared")] == ["closed", "heard", 0]

    def own(part: own_sums.Part) -> Statistics:
        found = own_sums.read(newcomer.store.database, part)
        assert found is not None
        return newcomer.store.read_own(found)

    assert named is not None
    total = named.total.read()
    bound = newcomer.settings.joint_for(total)
    expected = bound.belief(own("read"), Others.of(total.gram, total.moment))
    known = newcomer._state.chooser.deciders[0].belief
    for name in ("theta", "inverse", "ellipsoid_width", "estimate"):
        np.testing.assert_allclose(getattr(known, name), getattr(expected, name), rtol=1e-9)

    everything = own("kept")
    assert everything.count == 117  # windows of the last are open
    newcomer.new_season(replace(newcomer.settings, start=sites.now, promised=None), drop_open=True)
    assert not newcomer.waits
    np.testing.assert_array_equal(own("before").gram, everything.gram)
    assert not newcomer.closed
    newcomer.close()
    sites.close()


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_commands_for_a_stopped_newcomer_know_that_it_waits(tmp_path: Path, trust: str) -> None:
    """Under own play: what they took in was counted as shared, and subtracted from sums without it."""
    file = _file(tmp_path, trust=trust)
    text = file.path.read_text().replace('season = "1h"', 'season = "10h"').replace("periodic", "planned")
    started = datetime.fromtimestamp(time.time() - 3600.0, UTC).isoformat(timespec="seconds")
    text = text.replace("2027-01-15T08:00:00Z", started).replace("releases = 4", PLANNED)
    text = text.replace("[rewards]", '[decisions]\nplay = "own"\n[rewards]').replace('"1s"', '"0.01s"')
    file.path.write_text(text.replace("[federation]", "agents_per_person = 1\n[federation]"))
    with _open(read_agent_file(file.path, season=1), [time.time()]) as agent:
        agent.decide([[1.0, 0.0], [0.0, 1.0]], person="somebody")
    time.sleep(0.05)  # its window
    (tmp_path / "log.csv").write_text("0.6,0.1,0.5\n" * 20)
    config = ["--config", str(file.path)]
    told = CliRunner().invoke(app, ["warm-start", str(tmp_path / "log.csv"), *config, "--policy", "fixed"])
    assert told.output.startswith("20 records will not leave"), told.output
    assert CliRunner().invoke(app, ["erase", "somebody", *config]).exit_code == 0
    with _open(read_agent_file(file.path, season=1), [time.time()]) as agent:
        assert agent.store.pending == 0
        assert own_sums.read(agent.store.database, "shared") is None
        kept = own_sums.read(agent.store.database, "kept")
        assert kept is not None
        assert kept.records == 21


def test_the_page_to_sign_knows_that_a_newcomer_waits(tmp_path: Path) -> None:
    """It is none of those who release in this season, and nothing has left it."""
    file, now = _file(tmp_path), [START + 10.0]

    def page() -> str:
        given = ["privacy", "statement", "--store", str(file.store), "--out", "-"]
        told = CliRunner().invoke(program, given)
        assert told.exit_code == 0, told.output
        return told.output

    with _open(file, now):
        said = page()
    assert "comes in with season 3: it releases nothing before, and nothing has left it so far" in said
    assert "Season 1, from 2027-01-15 08:00 UTC to 2027-01-15 09:00 UTC |" in said  # no release is due
    assert "one of" not in said.split("Parties")[1].split("\n")[0]
    with _open(file, now) as agent:
        while agent.store.season < 3:
            now[0] += 300.0
            agent.tick(alone=False)
    said = page()
    assert "agent west, one of 3 agents" in said
    assert "the last release is due 2027-01-15 11:00 UTC" in said


def test_who_is_one_of_them_waits_for_nothing(tmp_path: Path) -> None:
    file = _file(tmp_path)
    own = tmp_path / "agents" / "north" / "agent.toml"
    own.write_text(file.path.read_text().replace("west", "north"))
    assert read_agent_file(own, season=1).joins() is None
    assert [read_agent_file(file.path, season=one).joins() for one in (2, 3, 4)] == [3, None, None]


def _budgets(*names: str) -> str:
    return "".join(f"\n[budgets.{name}]\nepsilon = 8.0\ndelta = 1e-6\n" for name in names)


def test_budgets_of_their_own_may_be_in_the_files_before_and_after_their_seasons(tmp_path: Path) -> None:
    """Who was restarted meanwhile did not start, nor a newcomer that was made before its first season."""
    file = _file(tmp_path)
    keys.remove(tmp_path, "south", season=5)
    everybody = file.path.read_text() + _budgets("north", "south", "west")
    own = {name: tmp_path / "agents" / name / "agent.toml" for name in ("north", "west")}
    shutil.copyfile(tmp_path / "federation.3.json", file.path.with_name("federation.3.json"))
    for name, path in own.items():
        path.write_text(everybody.replace('"west"', f'"{name}"', 1))
    for season, names in ((1, "north south"), (3, "north south west"), (5, "north west")):
        north = read_agent_file(own["north"], season=season).agent
        assert (set(north.budgets), north.agents) == (set(names.split()), len(names.split()))
    for season in (1, 2, 3):  # before its first it reads no sum: those are not of all its agents
        west = read_agent_file(own["west"], season=season).agent
        assert (set(west.budgets), west.agents, west.quorum) == ({"north", "south", "west"}, 3, None)
    for listed in ("north south", "north south west east"):
        own["north"].write_text(
            file.path.read_text().split("[budgets")[0].replace("west", "north") + _budgets(*listed.split())
        )
        with pytest.raises(ConfigurationError, match="as in the roster"):
            read_agent_file(own["north"], season=3)


def test_a_newcomer_with_a_budget_of_its_own_waits_and_comes_in(tmp_path: Path) -> None:
    file, now = _file(tmp_path, agents=3), [START + 1.0]
    file.path.write_text(file.path.read_text() + _budgets("north", "south", "west"))
    with _open(read_agent_file(file.path, season=1), now) as agent:
        for season in (1, 2, 3):
            now[0] = START + (season - 1) * SEASON * 1.1 + 1.0
            agent.tick(alone=False)
            assert (agent.store.season, agent.outbox(), agent.trouble) == (season, [], "")
            agent.decide([[1.0, 0.0], [0.0, 1.0]])
        now[0] = START + 2 * SEASON + SEASON / 4 + 2.0
        assert agent.tick(alone=False) == 1
        assert (agent.snapshot()["counts"]["settled"], agent.snapshot()["in_batch"]) == (3, 0)
    assert read_agent_file(file.path).joins() is None


CONTROLLER = """
[controller]
state = "controller.db"
[engine]
kind = "nats"
servers = ["tls://localhost:4222"]
federation = "tests"
roster = "federation.json"
seed = "controller.seed"
ca = "ca.pem"
[seasons]
start = 2027-01-15T08:00:00Z
season = 3600.0
[terms]
dim = 2
releases = 4
trust = "nobody"
"""


def test_a_controller_takes_the_budgets_of_a_season_too(tmp_path: Path) -> None:
    _file(tmp_path)
    path = tmp_path / "controller" / "controller.toml"
    path.write_text(CONTROLLER + _budgets("north", "south", "west"))
    for season, names in ((1, ["north", "south"]), (3, ["north", "south", "west"])):
        assert list(ControllerSettings.read(path, season=season).terms) == names
    for wrong, named in ((_budgets("north", "south", "east"), "budgets.east"), ("", "budgets is 3")):
        path.write_text(("" if wrong else "budgets = 3") + CONTROLLER + wrong)
        with pytest.raises(ConfigurationError, match=named):
            ControllerSettings.read(path, season=1)

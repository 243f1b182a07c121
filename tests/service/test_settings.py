from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from feducb.agent import Agent
from feducb.agent.agent_file import CURRENT_VERSION, read_agent_file
from feducb.agent.kept import misfit
from feducb.carriers.nats_keys import init as make_keys
from feducb.errors import ConfigurationError
from feducb.protocol.graphs import parse_topology
from feducb.service.api_keys import add_key

LEAST = """
version = 1
[problem]
dim = 4
[privacy]
epsilon = 1
delta = 1e-6
"""


def _read(folder: Path, text: str) -> object:
    (folder / "agent.toml").write_text(text)
    return read_agent_file(folder / "agent.toml")


def test_the_least_file_gets_sensible_defaults(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(LEAST)
    told = read_agent_file(tmp_path / "agent.toml")
    assert (told.agent.releases, told.agent.window, told.agent.season) == (64, 3600.0, 30 * 86400.0)
    assert told.store == tmp_path / "agent.db"
    assert told.service.keys == tmp_path / "agent.keys"
    assert told.service.host == "127.0.0.1"


def test_everything_is_read(tmp_path: Path) -> None:
    privacy = 'epsilon = 1\nrecords_per_person = 3\nagents_per_person = 2\ntrust = "controller"\n'
    text = LEAST.replace("epsilon = 1\n", privacy) + (
        '[agent]\nname = "south"\nstore = "data/south.db"\n'
        "[federation]\nagents = 7\ndecisions = 5000\nquorum = 5\n"
        '[releases]\nreleases = 20\nseason = "7d"\nschedule = "geometric"\nfirst_release = "1h"\n'
        'start = 2027-01-01T00:00:00Z\n[rewards]\nwindow = "90m"\ndefault_reward = -0.5\n'
        '[decisions]\nuniform_share = 0.05\nshadow = true\nfollow_policy = "fixed"\n'
        "[retention]\nkeep_events = 60\n"
        '[service]\nport = 9000\ncertificate = "c.pem"\nprivate_key = "c.key"\n[engine]\nkind = "none"\n'
    )
    (tmp_path / "agent.toml").write_text(text)
    told = read_agent_file(tmp_path / "agent.toml")
    assert (told.agent.name, told.agent.agents, told.agent.quorum, told.agent.trust.name) == (
        "south",
        7,
        5,
        "controller",
    )
    assert (told.agent.window, told.agent.start, told.agent.keep_events) == (5400.0, 1798761600.0, 60.0)
    assert (told.agent.shadow, told.agent.follow_policy) == (True, "fixed")
    assert told.agent.release_times[0] == pytest.approx(3600.0, rel=1e-3)
    assert (told.agent.terms.agents_per_person, told.agent.terms.records_covered) == (2, 6)
    assert told.store == tmp_path / "data" / "south.db"
    assert told.service.certificate == tmp_path / "c.pem"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "version is None"),
        (LEAST.replace("version = 1", f"version = {CURRENT_VERSION + 1}"), "update feducb"),
        (LEAST.replace("version = 1", 'version = "1"'), "version"),
        (LEAST.replace("dim = 4", ""), "problem.dim is None"),
        (LEAST.replace("epsilon = 1", ""), "privacy.epsilon is None"),
        (LEAST + "[surprise]\n", "surprise"),
        ("budgets = 3\n" + LEAST, "budgets is 3, expected a table [budgets.NAME] for each agent"),
        ("budgets = true\n" + LEAST, "budgets is True"),
        ("budgets = 1.5\n" + LEAST, "budgets is 1.5"),
        (LEAST + "[releases]\nstart = 9999-12-31T23:59:59Z\n", "start is 253402300799.0, expected seconds"),
        (LEAST + "[releases]\nstart = 0001-01-01T00:00:00Z\n", "start is -62135596800.0"),
        (LEAST + "[rewards]\nwindov = 3\n", "rewards.windov is 3, expected one of window"),
        (LEAST + '[rewards]\nwindow = "soon"\n', "rewards.window is 'soon', expected a number of seconds"),
        (LEAST + "[rewards]\nwindow = true\n", "rewards.window"),
        (LEAST + "[releases]\nreleases = 0\n", "releases is 0"),
        (LEAST + "[releases]\nstart = 2027-01-01T00:00:00\n", "with its zone"),
        (LEAST + "[federation]\nagents = 2\n", "start is None, expected when the season starts, the same at"),
        (LEAST + '[decisions]\nfollow_policy = "clever"\n', "follow_policy is 'clever'"),
        (LEAST + "[service]\nport = 70000\n", "service.port"),
        (LEAST + '[service]\ncertificate = "x"\n', "private_key"),
        (LEAST + "[federation]\nagents = 2\nquorum = 3\n", "quorum is 3"),
        ("version = ", "a TOML file"),
        (LEAST + "engine = 3\n", "engine"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint.replace("[", r"\[")):
        _read(tmp_path, text)


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="agent init"):
        read_agent_file(tmp_path / "agent.toml")


def test_a_trusted_controllers_agents_are_as_many_as_the_roster_has(tmp_path: Path) -> None:
    """The noise of the total covers a person at all of them: an agent that knows of fewer promises less."""
    make_keys(tmp_path / "keys", list("abc"), federation="tests")
    text = LEAST.replace("epsilon = 1\n", 'epsilon = 1\ntrust = "controller"\n') + (
        "[federation]\nagents = 3\n[releases]\nstart = 2027-01-01T00:00:00Z\n"
        '[engine]\nkind = "nats"\nfederation = "tests"\nroster = "keys/federation.json"\n'
    )
    path = tmp_path / "agent.toml"
    path.write_text(text)
    assert read_agent_file(path).agent.terms.agents_per_person == 3
    path.write_text(text.replace("agents = 3", "agents = 2"))
    with pytest.raises(ConfigurationError, match=r"agents is 2, expected 3, as many as the roster has"):
        read_agent_file(path)


def test_on_a_graph_the_clique_is_read_off_the_roster(tmp_path: Path) -> None:
    topology = parse_topology("line:5", ttl=2)
    roster = make_keys(tmp_path / "keys", list("abcde"), federation="tests", topology=topology)
    text = LEAST + (
        '[agent]\nname = "e"\n[federation]\nagents = 5\n[releases]\nstart = 2027-01-01T00:00:00Z\n'
        '[engine]\nkind = "nats"\nfederation = "tests"\nroster = "keys/federation.json"\n'
    )
    (tmp_path / "agent.toml").write_text(text)
    told = read_agent_file(tmp_path / "agent.toml").agent
    assert (told.clique, told.cliques) == (("d", "e"), 2)
    assert [len(clique) for clique in roster.topology().cliques] == [3, 2]
    _read(tmp_path, text.replace('kind = "nats"', 'kind = "nats"\nagent = "a"'))
    for before, after, complaint in (
        ("agents = 5", "agents = 4", r"federation\.agents is 4, expected 5, as many as the roster has"),
        ("agents = 5", "agents = 5\nquorum = 4", "quorum is 4, expected none on a graph"),
        ("federation.json", "nothing.json", "roster is .*, expected a file that can be read"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            _read(tmp_path, text.replace(before, after))


def test_a_carrier_comes_and_goes_within_a_season_but_a_place_on_a_graph_stays(tmp_path: Path) -> None:
    """A carrier moves parcels and promises nothing; the roster of a graph decides how sums are read."""
    make_keys(tmp_path / "keys", list("abcde"), federation="tests")
    make_keys(tmp_path / "graph", list("abcde"), federation="tests", topology=parse_topology("line:5", ttl=2))
    alone = LEAST + (
        '[agent]\nname = "e"\n[federation]\nagents = 5\n[releases]\nstart = 2027-01-01T00:00:00Z\n'
    )
    carried = alone + '[engine]\nkind = "nats"\nfederation = "tests"\nroster = "keys/federation.json"\n'
    placed, path = carried.replace("keys/", "graph/"), tmp_path / "agent.db"

    def fits(text: str) -> str | None:
        (tmp_path / "agent.toml").write_text(text)
        return misfit(path, read_agent_file(tmp_path / "agent.toml").agent)

    (tmp_path / "agent.toml").write_text(alone)
    settings = read_agent_file(tmp_path / "agent.toml").agent
    with Agent.open(path, settings) as agent:
        agent.decide(np.full((1, settings.problem.dim), 0.1))
    assert (fits(alone), fits(carried), fits(placed)) == (None, None, None)
    Agent.open(path, read_agent_file(tmp_path / "agent.toml").agent).close()  # now it knows its place
    assert fits(placed) is None
    for text in (alone, carried):
        assert "clique is (), expected ('d', 'e') until a new season" in str(fits(text))


def test_a_file_of_version_1_means_what_it_meant(tmp_path: Path) -> None:
    """Left out, releases were periodic, 64 of them, and choices optimistic."""
    before = _read(tmp_path, LEAST).agent  # type: ignore[attr-defined]
    assert (before.schedule, before.releases, before.policy) == ("periodic", 64, "optimistic")
    now = _read(tmp_path, LEAST.replace("version = 1", f"version = {CURRENT_VERSION}")).agent  # type: ignore[attr-defined]
    assert (now.schedule, now.policy) == ("planned", "tempered")
    assert now.releases < 64


def test_an_address_where_nothing_can_listen_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for service, said in (
            (
                f"port = {port}",
                f"service.port is {port}, expected one on which this process may listen at 127.0.0.1",
            ),
            ('host = "203.0.113.1"', "service.host is '203.0.113.1', expected an address of this machine"),
            (
                'host = "no.such.invalid"',
                "service.host is 'no.such.invalid', expected an address of this machine",
            ),
        ):
            (tmp_path / "agent.toml").write_text(f"{LEAST}[service]\n{service}\n")
            file = read_agent_file(tmp_path / "agent.toml")
            if not file.store.exists():
                Agent.open(file.store, file.agent).close()
                add_key(file.service.keys, "application")
            command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(file.path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            assert done.returncode == 2
            assert done.stderr.startswith(f"feducb: {said} (")
            assert len(done.stderr.splitlines()) == 1

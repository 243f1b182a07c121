"""Agents on a graph whose rows are masked in pairs: what they promise, and that they act on their sum."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import feducb
from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys as keys
from feducb.carriers.local import AgentMailbox, LocalPeers
from feducb.errors import ConfigurationError
from feducb.protocol.graphs import parse_topology
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from secure_net import SEASON, START

NAMES = tuple("abcde")
SETTINGS = AgentSettings(
    name="a",
    problem=feducb.Problem(dim=2),
    budget=feducb.Budget(epsilon=8.0, delta=1e-6),
    releases=3,
    schedule="periodic",
    window=1.0,
    decisions=2000,
    agents=5,
    agents_per_person=1,
    clique=NAMES,
    trust="keepers",  # type: ignore[arg-type]
    start=START,
    season=SEASON,
)


def test_a_clique_divides_the_noise_of_one_among_those_who_do_not_collude() -> None:
    """c = 5 and C = 1: the sum of five shares has 1.118 times the noise of a trusted controller."""
    assert SETTINGS.trust.name == "keepers:0:1"
    assert SETTINGS.terms.agents == 5
    alone = replace(SETTINGS, trust="nobody").terms.certificate()  # type: ignore[arg-type]
    share = SETTINGS.terms.certificate()
    assert share.shares == 4
    assert 5**0.5 * share.sigma / alone.sigma == pytest.approx(1.118, rel=0.01)
    two = replace(SETTINGS, trust="keepers:0:2")  # type: ignore[arg-type]
    assert two.terms.certificate().shares == 3
    assert SETTINGS.sizes_of_sums == (5, 5)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"trust": "keepers:1:1"}, "away is 1, expected 0 on a graph"),
        ({"trust": "keepers:0:4"}, "at least 2 honest shares"),
        ({"clique": ("a", "b"), "cliques": 2}, "at least 2 honest shares"),
        ({"quorum": 5}, "quorum is 5, expected none on a graph"),
        ({"budgets": dict.fromkeys(NAMES, SETTINGS.budget)}, "budgets"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(SETTINGS, **changes)  # type: ignore[arg-type]


def _file(folder: Path, graph: str, ttl: int, agents: int) -> Path:
    names = [f"n{number}" for number in range(agents)]
    keys.init(folder / "keys", names, federation="tests", topology=parse_topology(graph, ttl=ttl))
    file = folder / "agent.toml"
    file.write_text(
        'version = 2\n[agent]\nname = "n0"\n[problem]\ndim = 2\n'
        '[privacy]\nepsilon = 8.0\ndelta = 1e-6\ntrust = "keepers"\nagents_per_person = 1\n'
        f"[federation]\nagents = {agents}\ndecisions = 2000\n"
        '[releases]\nschedule = "periodic"\nreleases = 3\nseason = "1h"\nstart = 2027-01-01T00:00:00Z\n'
        '[rewards]\nwindow = "60s"\n'
        '[engine]\nkind = "nats"\nservers = ["tls://127.0.0.1:1"]\nfederation = "tests"\n'
        'roster = "keys/federation.json"\nseed = "keys/agents/n0/agent.seed"\nca = "keys/ca.pem"\n'
    )
    return file


def test_agent_toml_says_the_trust_and_the_roster_the_clique(tmp_path: Path) -> None:
    file = read_agent_file(_file(tmp_path, "ring:6", 2, 6))
    assert (file.agent.trust.name, file.agent.clique) == ("keepers:0:1", ("n0", "n1", "n2"))
    member = file.member()
    assert member is not None
    assert member.clique == file.agent.clique
    with Agent.open(tmp_path / "agent.db", file.agent, member=member) as agent:
        assert agent.snapshot()["rows"]["says"] == "Row 1 is the next to be built."
    elsewhere = replace(file.agent, clique=("n0", "n1", "n5"))
    with pytest.raises(ConfigurationError, match="clique is 'n0, n1, n5', expected n0, n1, n2"):
        Agent.open(tmp_path / "other.db", elsewhere, member=member)


def test_a_graph_with_a_clique_that_is_too_small_is_refused_by_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"at least 2 honest shares .* of 2 agents"):
        read_agent_file(_file(tmp_path, "ring:8", 2, 8))


def test_agents_decide_by_the_sum_of_their_clique_and_say_whom_they_wait_for(tmp_path: Path) -> None:
    signers = {name: Signer.fresh() for name in NAMES}
    edges = tuple((one, other) for one in NAMES for other in NAMES if one < other)
    nkeys = {name: signer.nkey for name, signer in signers.items()}
    roster = Roster(federation="tests", agents=nkeys, edges=edges)
    now = START
    agents = {
        name: Agent.open(
            tmp_path / f"{name}.db",
            replace(SETTINGS, name=name),
            clock=lambda: now,
            member=Member(name, roster, signers[name]),
        )
        for name in NAMES
    }
    boxes = {name: AgentMailbox(agent) for name, agent in agents.items()}
    local = LocalPeers(roster.topology(), dict.fromkeys(NAMES, SETTINGS.terms), boxes, roster=roster)
    draws = np.random.default_rng(2)
    for number in range(1, 4):
        for agent in agents.values():
            for _ in range(30):
                candidates = draws.normal(size=(4, 2))
                candidates /= np.linalg.norm(candidates, axis=1)[:, None]
                decision = agent.decide(candidates)
                agent.reward(decision.id, float(np.clip(candidates[decision.index] @ [0.7, 0.2], -1, 1)))
        now += SEASON / 3 + 2.0  # windows have closed
        made = {name: agent.tick(alone=False) for name, agent in agents.items() if name != "e"}
        assert set(made.values()) == {1}
        assert agents["a"].tick(alone=False) == 0  # one at a time
        asyncio.run(local.step())
        rows = agents["a"].snapshot()["rows"]
        assert list(rows["open"][0]["waits_for"]) == ["e"]
        assert rows["says"] == f"Row {number} waits for e."
        assert agents["a"].snapshot()["model"] == [f"1.{number - 1}"]  # decisions go on
        agents["e"].tick(alone=False)
        asyncio.run(local.step())
        sums = {agent._state.inbox._sums[0].values.tobytes() for agent in agents.values()}
        assert len(sums) == 1
        for agent in agents.values():
            stands = agent.snapshot()
            assert (stands["model"], stands["agents_in_sum"]) == ([f"1.{number}"], [5])
            assert stands["warnings"] == {}
    assert agents["a"].snapshot()["rows"]["says"] == "All rows of this season are over."
    assert agents["a"].snapshot()["season_over"]
    for agent in agents.values():
        assert agent.ledger().current.releases_made == 3
        agent.close()

"""What `trust = "keepers"` takes from a file, and holds to for a season."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.trust import KEEPERS, NOBODY, Keepers

SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    agents=6,
    trust=Keepers(1, 1),
    agents_per_person=1,
    start=1_000_000.0,
    releases=8,
    schedule="periodic",
    season=800.0,
    window=10.0,
)


def _feducb(*arguments: str, status: int = 0, where: Path) -> str:
    command = [sys.executable, "-m", "feducb", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=where)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


def _init(where: Path, *options: str, status: int = 0) -> str:
    start = ("--start", "2027-01-01T00:00:00Z")
    return _feducb("agent", "init", "--name", "north", *start, *options, status=status, where=where)


@pytest.mark.parametrize(
    ("options", "trust"),
    [
        (("--trust", "keepers"), Keepers(2, 4)),
        (("--trust", "keepers", "--away", "3", "--colluding", "5"), Keepers(3, 5)),
        ((), NOBODY),
    ],
)
def test_init_writes_whom_agents_trust_and_both_numbers(
    tmp_path: Path, options: tuple[str, ...], trust: object
) -> None:
    _init(tmp_path, "--agents", "20", *options)
    assert read_agent_file(tmp_path / "agent.toml").agent.trust == trust


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--agents", "4", "--trust", "keepers", "--away", "2"), "at least 2 honest shares of noise a row"),
        (("--agents", "1", "--trust", "keepers"), "at least 2 honest shares of noise a row"),
        (("--agents", "5", "--trust", "keepers", "--colluding", "0"), "colluding is 0, expected at least 1"),
        (("--agents", "5", "--trust", "keepers", "--away", "-1"), "away is -1"),
        (("--agents", "5", "--away", "1"), "away is 1, expected nothing under trust nobody"),
        (("--agents", "5", "--trust", "friends"), "trust is 'friends'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    refused = _init(tmp_path, *options, status=2)
    assert said in refused
    assert len(refused.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_before_a_roster_is_named_status_says_what_it_can(tmp_path: Path) -> None:
    """`agent init` comes before the [engine] table does."""
    _init(tmp_path, "--agents", "5", "--trust", "keepers")
    stands = json.loads(_feducb("agent", "status", "--json", "-", where=tmp_path))
    assert (stands["rows"]["missing_cards"], stands["rows"]["built"]) == (None, 0)


@pytest.mark.parametrize("changed", [Keepers(2, 1), Keepers(1, 2), NOBODY])
def test_who_may_be_away_and_collude_stays_for_a_season(tmp_path: Path, changed: object) -> None:
    path, other = tmp_path / "agent.db", replace(SETTINGS, trust=changed)  # type: ignore[arg-type]
    Agent.open(path, SETTINGS).close()
    Agent.open(path, other).close()  # nothing has happened yet
    with Agent.open(path, SETTINGS, clock=lambda: 1_000_001.0) as agent:
        agent.decide([[0.1, 0.2]])
    with pytest.raises(ConfigurationError, match=r"a new season") as refused:
        Agent.open(path, other)
    assert refused.value.setting in ("trust", "terms.trust")
    assert "keepers" in str(refused.value)


def test_a_file_of_an_agent_on_its_own_noise_can_go_over_to_keepers(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    Agent.open(path, replace(SETTINGS, trust=NOBODY)).close()
    with Agent.open(path, replace(SETTINGS, trust=KEEPERS)) as agent:
        rows = agent.snapshot()["rows"]
    assert (rows["built"], rows["halted"]) == (0, None)

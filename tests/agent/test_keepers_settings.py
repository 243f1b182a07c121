"""What `trust = "keepers"` takes from a file, and holds to for a season."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

import nkeys
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.protocol.roster import Roster, Signer
from feducb.trust import KEEPERS, NOBODY, Keepers
from typed import typed

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
    done = typed(*arguments, cwd=where)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if status == 2 else done.stdout


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
    stands = json.loads(_feducb("agent", "status", "--json", "-", status=1, where=tmp_path))
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


def _roster(where: Path, names: str, *keepers: str) -> None:
    """federation.json, and north's seed once."""
    seed = where / "north.seed"
    if not seed.exists():
        seed.write_bytes(bytes(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)))
    agents = {name: Signer(seed).nkey if name == "north" else Signer.fresh().nkey for name in names.split()}
    kept = {name: Signer.fresh().nkey for name in keepers}
    roster = Roster(
        federation="shops", agents=agents, keepers=kept, controller=Signer.fresh().nkey, sealing="00" * 32
    )
    (where / "federation.json").write_text(roster.to_json(), encoding="utf-8")


def test_a_new_season_takes_a_new_roster_and_none_without_keepers(tmp_path: Path) -> None:
    """The roster is the next season's when the command runs; it need not go with the season before."""
    _init(tmp_path, "--agents", "4", "--trust", "keepers")
    config, names = tmp_path / "agent.toml", "north east south west"
    engine = '\n[engine]\nkind = "door"\nroster = "federation.json"\nseed = "north.seed"\n'
    config.write_text(config.read_text(encoding="utf-8") + engine, encoding="utf-8")
    _roster(tmp_path, names, "east", "west")
    file = read_agent_file(config)
    with Agent.open(file.store, file.agent, member=file.member()) as agent:
        agent.decide([[0.1] * file.agent.problem.dim] * 2)
    later = (
        config.read_text(encoding="utf-8").replace("agents = 4", "agents = 5").replace("2027-01", "2027-06")
    )
    config.write_text(later, encoding="utf-8")
    _roster(tmp_path, f"{names} centre")
    said = _feducb("agent", "new-season", "--drop-open", status=2, where=tmp_path)
    assert "roster is 'shops', expected one with keepers" in said
    _roster(tmp_path, f"{names} centre", "east", "west")
    assert "season 2 is open" in _feducb("agent", "new-season", "--drop-open", where=tmp_path)
    file = read_agent_file(config)
    with Agent.open(file.store, file.agent, member=file.member()) as agent:
        assert (agent.store.season, agent.store.terms.agents) == (2, 5)

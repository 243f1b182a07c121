"""An agent whose file had to be given up is opened again by what holds by then, not by what held at first."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys
from feducb.carriers.key_requests import make_request, read_request
from feducb.service import server
from feducb.service.api_keys import add_key

AGENT = """
version = 2
[agent]
name = "north"
[problem]
dim = 2
[privacy]
epsilon = 1.0
delta = 1e-6
[federation]
agents = 2
[releases]
season = "1h"
start = {start}
releases = 4
schedule = "periodic"
[rewards]
window = "1s"
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:4222"]
federation = "tests"
roster = "federation.json"
seed = "agent.seed"
ca = "ca.pem"
"""


def test_after_a_season_with_a_new_roster_an_agent_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    nats_keys.init(keys, ["north", "south"], federation="tests")
    folder = keys / "agents" / "north"
    start = datetime.fromtimestamp(int(time.time()) - 60, UTC).isoformat()
    (folder / "agent.toml").write_text(AGENT.format(start=start))
    file = read_agent_file(folder / "agent.toml")
    Agent.open(file.store, file.agent).close()
    add_key(file.service.keys, "shop", "application")
    opens: list[Callable[[], Agent]] = []
    monkeypatch.setattr(server, "create_app", lambda open_agent, *_, **__: opens.append(open_agent))
    monkeypatch.setattr(server, "run", lambda *_: None)
    monkeypatch.setattr(server, "set_up_logs", lambda: None)
    server.serve(file, None, None)

    nats_keys.add(keys, read_request(make_request(tmp_path, "west", federation="tests")), season=2)
    agent = opens[0]()
    agent._state.clock = agent._state.watch._clock = lambda: time.time() + 3600.0 * 1.2
    agent.tick(alone=False)
    assert (agent.store.season, agent.settings.agents) == (2, 3)
    agent.decide([[1.0, 0.0], [0.0, 1.0]])
    agent.close()
    with opens[0]() as again:
        assert (again.store.season, again.settings.agents) == (2, 3)

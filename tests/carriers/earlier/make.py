"""Made `files.tar.xz`, with feducb as of commit c8d6c51: a federation in its first season, after one sum.

    python tests/carriers/earlier/make.py files.tar.xz

Two agents and a controller, all keys that they need, and no signed roster yet. The clock stands at START.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys as keys
from feducb.controller.controller_file import ControllerSettings
from feducb.protocol.sums import NamedSum

START, SEASON, RELEASES = 1_800_000_000.0, 3600.0, 4
AGENT = """version = 2
[agent]
name = "{name}"
store = "{name}.db"
[problem]
dim = 2
[privacy]
epsilon = 1.0
delta = 1e-6
[federation]
agents = 2
[releases]
season = "1h"
start = 2027-01-15T08:00:00Z
schedule = "periodic"
releases = 4
[rewards]
window = "1s"
"""
ENGINE = """
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:4222"]
federation = "tests"
roster = "federation.json"
seed = "{seed}"
ca = "ca.pem"
timeout = 2.0
retry = 0.05
refresh = 0.3
"""


def make(folder: Path) -> None:
    """Everything, in a folder."""
    keys.init(folder, ["north", "south"], federation="tests", server=keys.Server(days=3650))
    agents, now = {}, START
    for name in ("north", "south"):
        path = folder / "agents" / name / "agent.toml"
        path.write_text(AGENT.format(name=name) + ENGINE.format(seed="agent.seed"))
        file = read_agent_file(path)
        agents[name] = Agent.open(file.store, file.agent, clock=lambda: now)
        for _ in range(3):
            agents[name].reward(agents[name].decide([[1.0, 0.0], [0.0, 1.0]]).id, 0.5)
    command = [sys.executable, "-m", "feducb", "agent", "terms", "--config", str(path)]
    terms = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    path = folder / "controller" / "controller.toml"
    path.write_text(f'[controller]\nstate = "controller.db"\n{terms}' + ENGINE.format(seed="controller.seed"))
    now = START + SEASON / RELEASES + 1
    sent = []
    for name, agent in agents.items():
        agent.tick(alone=False)
        (item,) = agent.outbox()
        sent.append((name, item.released()))
        agent.mark_sent(item)
    collector = ControllerSettings.read(path).open()
    (named,) = collector.exchange(sent, now=now)[1]
    collector.close()
    assert isinstance(named, NamedSum)
    for agent in agents.values():
        agent.absorb(named.total)
        agent.decide([[1.0, 0.0], [0.0, 1.0]])
        agent.close()
    for path in (*folder.rglob("*.lock"), *folder.rglob("*.status.json")):
        path.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        make(Path(where) / "keys")
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            archive.add(Path(where) / "keys", "keys")

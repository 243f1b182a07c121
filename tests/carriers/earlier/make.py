"""Made `VERSION.tar.xz`, with feducb of that version: federations in their first season, after a sum.

    PYTHONPATH=OLD/src python tests/carriers/earlier/make.py tests/carriers/earlier/VERSION.tar.xz

Agents with a controller that nobody trusts (`keys`), under own play before and after its close (`own`,
`closed`), with a controller that all trust, and with keepers; all keys that they need, and no signed roster
yet. An earlier form of this script made `c8d6c51.tar.xz`: `keys` alone, with the noise of ε = 1 and no record
that waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys as keys
from feducb.controller.controller_file import ControllerSettings
from feducb.protocol.sums import NamedSum

START, SEASON, RELEASES = 1_800_000_000.0, 3600.0, 4
REWARD = 0.25  # no other records have it: what sums tell says how many of these are in them
EPSILON = 1e7  # so that it can be told
PERIODIC = f'schedule = "periodic"\nreleases = {RELEASES}\n'
OWN = 'releases = 2\nfirst_release = "15m"\nlast_release = "30m"\n[decisions]\nplay = "own"\n'
KEEPERS = 'trust = "keepers"\naway = 0\ncolluding = 1\n'
KINDS = {  # agents, keepers, more lines of [privacy], those of [releases], and after which sum
    "keys": (("north", "south"), (), "", PERIODIC, 1),
    "own": (("north", "south"), (), "", OWN, 1),
    "closed": (("north", "south"), (), "", OWN, 2),
    "uploads": (("north", "south"), (), 'trust = "controller"\n', PERIODIC, 1),
    "keepers": (("north", "south", "east"), ("north", "south"), KEEPERS, PERIODIC, 1),
}
AGENT = """version = 2
[agent]
name = "{name}"
store = "{name}.db"
[problem]
dim = 2
[privacy]
epsilon = {epsilon}
delta = 1e-6
{privacy}[federation]
agents = {agents}
[releases]
season = "1h"
start = 2027-01-15T08:00:00Z
{releases}[rewards]
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


class Federation:
    """Agents with their files; after a sum some records wait for the next, and some decisions are open."""

    def __init__(self, folder: Path, kind: str) -> None:
        names, self.keepers, privacy, releases, _ = KINDS[kind]
        keys.init(folder, names, federation="tests", keepers=self.keepers, server=keys.Server(days=3650))
        self.folder, self.now, self.agents = folder, START, {}
        for name in names:
            path = folder / "agents" / name / "agent.toml"
            known = {"epsilon": EPSILON, "privacy": privacy, "releases": releases}
            text = AGENT.format(name=name, agents=len(names), **known)
            path.write_text(text + ENGINE.format(seed="agent.seed"))
            file = read_agent_file(path)
            self.agents[name] = Agent.open(
                file.store, file.agent, clock=lambda: self.now, member=file.member()
            )
        command = [sys.executable, "-m", "feducb", "agent", "terms", "--config", str(path)]
        self.terms = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        text = f'[controller]\nstate = "controller.db"\n{self.terms}' + ENGINE.format(seed="controller.seed")
        text += 'sealing = "controller.x25519"\n'
        self.controller = folder / "controller" / "controller.toml"
        self.controller.write_text(text)
        self.visit()

    def visit(self) -> None:
        for agent in self.agents.values():
            for _ in range(3):
                agent.reward(agent.decide([[1.0, 0.0], [0.0, 1.0]]).id, REWARD)

    def sum_of(self, number: int) -> None:
        """Everybody sends a release, and hears the sum."""
        self.now = START + number * SEASON / RELEASES + 1
        if self.keepers:
            asyncio.run(self._open_row())
        else:
            self._exchange()
        for agent in self.agents.values():
            assert agent.snapshot()["model"] == [f"1.{number}"]
        self.visit()
        self.now += 10.0
        for agent in self.agents.values():
            agent.tick(alone=False)
        self.visit()

    def _exchange(self) -> None:
        sent = []
        for name, agent in self.agents.items():
            agent.tick(alone=False)
            (item,) = agent.outbox()
            sent.append((name, item.body))
            agent.mark_sent(item)
        collector = ControllerSettings.read(self.controller).open()
        (named,) = collector.exchange(sent, now=self.now)[1]
        collector.close()
        assert isinstance(named, NamedSum)
        for agent in self.agents.values():
            agent.absorb(named.total, agents=len(named.names))

    async def _open_row(self) -> None:
        from feducb.carriers.local import AgentMailbox, LocalKeepers
        from feducb.controller.keeper_file import KeeperSettings
        from feducb.storage import RowBook

        books = {}
        for name in self.keepers:
            path = self.folder / "keepers" / name / "keeper.toml"
            engine = ENGINE.format(seed="keeper.seed") + f'agent = "{name}"\n'
            path.write_text(f'[keeper]\nstate = "keeper.db"\n{self.terms}' + engine)
            books[name] = KeeperSettings.read(path).open()
        rows = ControllerSettings.read(self.controller).open()
        assert isinstance(rows, RowBook)
        link = LocalKeepers(rows, {name: AgentMailbox(agent) for name, agent in self.agents.items()}, books)
        await link.step(now=self.now)
        for agent in self.agents.values():
            agent.tick(alone=False)
        await link.step(now=self.now)
        for file in (rows, *books.values()):
            file.close()


def make(folder: Path, kind: str = "keys") -> None:
    """A federation of some kind, in a folder; it says nothing of the machine that made it."""
    federation = Federation(folder, kind)
    for number in range(1, KINDS[kind][-1] + 1):
        federation.sum_of(number)
    for agent in federation.agents.values():
        agent.close()
    for path in folder.rglob("*.db"):
        with closing(sqlite3.connect(path)) as db:
            db.execute("VACUUM")
    for path in (*folder.rglob("*.lock"), *folder.rglob("*.status.json")):
        path.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where, tarfile.open(sys.argv[1], "w:xz") as archive:
        for kind in KINDS:
            make(Path(where) / kind, kind)
            archive.add(Path(where) / kind, kind)

"""A whole federation under load, over NATS: agents, controller and broker are killed with SIGKILL at random.

    python benchmarks/chaos_federation.py --kills 100     # a few minutes; needs nats-server

Three decision services with callers, one controller, one broker with TLS and nkeys. At the end everything
that a caller was told is compared with the agents' files, every release with its bytes, and all agents must
have the same last sum.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from chaos_service import Chaos, check, settled

from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys as keys
from feducb.protocol import messages

NAMES = ("north", "south", "west")
AGENT = """
version = 1
[agent]
name = "{name}"
store = "agent.db"
[problem]
dim = 3
[privacy]
epsilon = 1.0
delta = 1e-6
mechanism = "toeplitz"
[federation]
agents = 3
[releases]
releases = 400
season = "600s"
start = {start}
[rewards]
window = "2s"
default_reward = 0.25
[retention]
keep_events = "1d"
[service]
port = 0
keys = "agent.keys"
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:{port}"]
federation = "chaos"
roster = "{keys}/federation.json"
seed = "{keys}/agents/{name}/agent.seed"
ca = "{keys}/ca.pem"
timeout = 1.0
retry = 0.1
refresh = 1.0
"""
CONTROLLER = """
[controller]
state = "controller.db"
quorum = 3

{terms}
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:{port}"]
federation = "chaos"
roster = "{keys}/federation.json"
seed = "{keys}/controller/controller.seed"
ca = "{keys}/ca.pem"
timeout = 1.0
retry = 0.1
"""
CALLERS = 2
PATIENCE = 300.0
ANSWERS = 40  # decisions of all agents that are answered between two kills, at least


class Federation:
    """Everybody, and who kills them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._rng = folder, random.Random(seed)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        made = folder / "keys"
        keys.init(made, NAMES, federation="chaos", server=keys.Server(port=port))
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.agents: dict[str, Chaos] = {}
        for name in NAMES:
            (folder / name).mkdir()
            text = AGENT.format(name=name, start=start, port=port, keys=made)
            self.agents[name] = Chaos(folder / name, seed, text)
        terms = self._feducb("agent", "terms", "--config", str(folder / NAMES[0] / "agent.toml"))
        text = CONTROLLER.format(terms=terms, port=port, keys=made)
        (folder / "controller.toml").write_text(text)
        self.kills: Counter[str] = Counter()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @staticmethod
    def _feducb(*arguments: str) -> str:
        command = [sys.executable, "-m", "feducb", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def start(self, role: str) -> None:
        """Start somebody; an agent is waited for until it listens."""
        if role in self.agents:
            self._processes[role] = self.agents[role].start()
            return
        commands = {
            "broker": (["nats-server", "-c", "nats-server.conf"], self.folder / "keys" / "server"),
            "controller": (
                [sys.executable, "-m", "feducb", "controller", "serve", "--config", "controller.toml"],
                self.folder,
            ),
        }
        command, where = commands[role]
        with (self.folder / f"{role}.log").open("ab") as log:
            self._processes[role] = subprocess.Popen(command, cwd=where, stdout=log, stderr=log)

    async def run(self, kills: int, *, pause: float = 1.0) -> None:
        """Kill so often, soon after some calls were answered; then leave everybody alone until all agree."""
        loop = asyncio.get_running_loop()
        roles = ("broker", "controller", *NAMES)
        for role in roles:
            await loop.run_in_executor(None, self.start, role)
        callers = [caller for agent in self.agents.values() for caller in agent.call(CALLERS)]
        starting: dict[str, asyncio.Future[None]] = {}
        while self.kills.total() < kills:
            await asyncio.sleep(self._rng.uniform(0.0, 2 * pause))
            enough = (self.kills.total() + 1) * ANSWERS
            while sum(len(agent.seen.decisions) for agent in self.agents.values()) < enough:
                await asyncio.sleep(0.01)
            there = [one for one in roles if one not in starting or starting[one].done()]
            (role,) = self._rng.choices(
                there, [3 if one in NAMES else 1 for one in there]
            )  # slow to come back
            self._processes[role].kill()
            self._processes[role].wait()
            self.kills[role] += 1
            starting[role] = asyncio.ensure_future(loop.run_in_executor(None, self.start, role))
        await asyncio.gather(*starting.values())
        await asyncio.sleep(1.0)
        for agent in self.agents.values():
            agent.hang_up()
        await asyncio.gather(*callers)
        for name in NAMES:
            await settled(self.folder / name / "agent.db")
        self.agreed_after = await self._agreement()
        for role in (*NAMES, "controller", "broker"):
            self._processes[role].send_signal(signal.SIGTERM)
            self._processes[role].wait(timeout=PATIENCE)

    async def _agreement(self) -> float:
        """Seconds until all agents have the same sum, of the release that is due."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            newest = {self._newest(name) for name in NAMES}
            if len(newest) == 1 and None not in newest:
                return time.monotonic() - begun
            await asyncio.sleep(0.05)
        raise AssertionError("the agents do not agree on the last sum")

    def _newest(self, name: str) -> bytes | None:
        db = sqlite3.connect(f"file:{self.folder / name / 'agent.db'}?mode=ro", uri=True)
        try:
            row = db.execute("SELECT payload FROM inbox").fetchone()
            (made,) = db.execute("SELECT max(number) FROM outgoing").fetchone()
        finally:
            db.close()
        if row is None or made is None or messages.decode(row[0]).number < made:
            return None
        return bytes(row[0])

    def check(self) -> dict[str, str]:
        """Compare; raises AssertionError at the first difference."""
        counts: Counter[str] = Counter()
        for name, agent in self.agents.items():
            counts.update(check(self.folder / name, agent.seen))
        total = messages.decode(self._last_sum())
        assert total.agents == len(NAMES)
        shown = {name: str(count) for name, count in counts.items() if not name.startswith("kills")}
        kills = ", ".join(f"{role} {count}" for role, count in sorted(self.kills.items()))
        return {
            "kills": f"{self.kills.total()} ({kills})",
            **shown,
            "last sum": f"{total.number}, the same at all agents {self.agreed_after:.1f} s after the load",
        }

    def _last_sum(self) -> bytes:
        db = sqlite3.connect(self.folder / NAMES[0] / "agent.db")
        try:
            return bytes(db.execute("SELECT payload FROM inbox").fetchone()[0])
        finally:
            db.close()


def chaos(folder: Path, *, kills: int, seed: int = 0, pause: float = 1.0) -> dict[str, str]:
    """Run and check."""
    made = Federation(folder, seed)
    read_agent_file(folder / NAMES[0] / "agent.toml")
    asyncio.run(made.run(kills, pause=pause))
    return made.check()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name, value in chaos(Path(temporary), kills=arguments.kills, seed=arguments.seed).items():
            print(f"{name:28} {value}")
    print("nothing lost, nothing counted twice, no release with two contents")

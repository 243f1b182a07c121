"""A whole federation under load, over NATS: everybody is killed with SIGKILL at random.

    python benchmarks/chaos_federation.py --kills 100                      # a few minutes; needs nats-server
    python benchmarks/chaos_federation.py --kills 200 --trust keepers --json docs/figures/chaos-keepers.json

Three decision services with callers, one controller, one broker with TLS and nkeys. With keepers there are
four services and three keepers, one of them in its agent's process. At the end everything that a caller was
told is compared with the agents' files, every release with its bytes, and all agents must have the same last
sum. With keepers every file is compared with every other (`row_checks`), too.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from chaos_service import Chaos, check, settled, start
from row_checks import RowFiles, newest_over, require_quiet_logs

from feducb.carriers import nats_keys as keys
from feducb.controller.controller_file import ControllerSettings
from feducb.protocol import messages
from feducb_lab.experiments.measured import write_tables

NAMES = {"nobody": ("north", "south", "west"), "keepers": ("north", "south", "west", "east")}  # by trust
RELEASES = {"nobody": 20, "keepers": 100}
SEASONS = {"nobody": "60s", "keepers": "600s"}  # the first roll by the clock, whatever the number of kills
BESIDE = "north"  # a keeper in its agent's process
APART = ("south", "west")  # keepers that are processes of their own
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
trust = "{trust}"
[federation]
agents = {agents}
[releases]
releases = {releases}
season = "{season}"
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
KEEPER_BESIDE = """
[keeper]
state = "keeper.db"
seed = "{keys}/keepers/{name}/keeper.seed"
"""
CONTROLLER = """
[controller]
state = "controller.db"
{times}
"""
TIMES = {
    "nobody": "",
    "keepers": "deadline = 1.0\nclose_after = 4.0",
}  # so that rows open without some, or empty
KEEPER = """
[keeper]
state = "keeper-{name}.db"
"""
TERMS_AND_ENGINE = """
{terms}
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:{port}"]
federation = "chaos"
roster = "{keys}/federation.json"
seed = "{keys}/{seed}"
ca = "{keys}/ca.pem"
timeout = 1.0
retry = 0.1
"""
CALLERS = 2
REST = 0.05  # seconds between calls of a caller, so that whoever was killed finds time to come back
PATIENCE = 300.0
ANSWERS = 30  # decisions of all agents that are answered between two kills, at least
LEFT_ALONE = 20  # kills after which everybody is left alone until a row has opened


class Federation:
    """Everybody, and who kills them."""

    def __init__(self, folder: Path, seed: int, trust: str = "nobody") -> None:
        self.folder, self._rng, self._trust = folder, random.Random(seed), trust
        self._names = NAMES[trust]
        self._keepers = {name: f"keeper-{name}" for name in APART if trust == "keepers"}
        self._port, self._keys = _free_port(), folder / "keys"
        kept = (BESIDE, *APART) if trust == "keepers" else ()
        server = keys.Server(port=self._port)
        keys.init(self._keys, self._names, federation="chaos", keepers=kept, server=server)
        self.agents = self._make_agents(seed)
        terms = self._feducb("agent", "terms", "--config", str(folder / self._names[0] / "agent.toml"))
        seed_file = "controller/controller.seed"
        self._write("controller", CONTROLLER.format(times=TIMES[trust]), terms, seed_file)
        for name, role in self._keepers.items():
            self._write(role, KEEPER.format(name=name), terms, f"keepers/{name}/keeper.seed", agent=name)
        self.kills: Counter[str] = Counter()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def _make_agents(self, seed: int) -> dict[str, Chaos]:
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        shared = {"start": start, "port": self._port, "keys": self._keys, "releases": RELEASES[self._trust]}
        shared["season"] = SEASONS[self._trust]
        agents = {}
        for name in self._names:
            (self.folder / name).mkdir()
            text = AGENT + (KEEPER_BESIDE if self._trust == "keepers" and name == BESIDE else "")
            text = text.format(name=name, trust=self._trust, agents=len(self._names), **shared)
            agents[name] = Chaos(self.folder / name, seed, text)
        return agents

    def _write(self, role: str, head: str, terms: str, seed_file: str, *, agent: str | None = None) -> None:
        rest = TERMS_AND_ENGINE.format(terms=terms, port=self._port, keys=self._keys, seed=seed_file)
        (self.folder / f"{role}.toml").write_text(head + rest + (f'agent = "{agent}"\n' if agent else ""))

    @staticmethod
    def _feducb(*arguments: str) -> str:
        command = [sys.executable, "-m", "feducb", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def start(self, role: str) -> None:
        """Start somebody and wait until they are at work."""
        if role in self.agents:
            self._processes[role] = self.agents[role].start()
            return
        log = self.folder / f"{role}.log"
        if role == "broker":
            command, said, where = ["nats-server", "-c", "nats-server.conf"], "ready", self._keys / "server"
        else:
            kind, file, said = role.partition("-")[0], f"{role}.toml", '"started"'
            command, where = [sys.executable, "-m", "feducb", kind, "serve", "--config", file], self.folder
        self._processes[role], _ = start(command, log, said, cwd=where)

    async def run(self, kills: int, *, pause: float = 1.0) -> None:
        """Kill so often, soon after some calls were answered; then leave everybody alone until all agree."""
        loop = asyncio.get_running_loop()
        roles = ("broker", "controller", *self._keepers.values(), *self._names)
        loop.set_default_executor(ThreadPoolExecutor(len(roles)))  # all may be on their way back at once
        await asyncio.gather(*(loop.run_in_executor(None, self.start, role) for role in roles))
        callers = [one for agent in self.agents.values() for one in agent.call(CALLERS, rest=REST)]
        starting: dict[str, asyncio.Future[None]] = {}
        while self.kills.total() < kills:
            await asyncio.sleep(self._rng.uniform(0.0, 2 * pause))
            await self._progress()
            there = [one for one in roles if one not in starting or starting[one].done()]
            if not there:
                continue
            (role,) = self._rng.choices(there, [self._weight(one) for one in there])
            self._require_running(role)
            self._processes[role].kill()
            self._processes[role].wait()
            self.kills[role] += 1
            starting[role] = asyncio.ensure_future(loop.run_in_executor(None, self.start, role))
        await asyncio.gather(*starting.values())
        await asyncio.sleep(1.0)
        for agent in self.agents.values():
            agent.hang_up()
        await asyncio.gather(*callers)
        for name in self._names:
            await settled(self._file(name))
        self.agreed_after = await self._agreement()
        for role in reversed(roles):
            self._processes[role].send_signal(signal.SIGTERM)
            self._processes[role].wait(timeout=PATIENCE)

    def end(self) -> None:
        """Leave nobody behind, whatever went wrong."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _require_running(self, role: str) -> None:
        status = self._processes[role].poll()
        assert status is None, f"{role} ended by itself, with status {status}"

    async def _progress(self) -> None:
        """Until some calls were answered since the last kill; now and then, until a row more has opened."""
        enough = (self.kills.total() + 1) * ANSWERS
        while sum(len(agent.seen.decisions) for agent in self.agents.values()) < enough:
            await asyncio.sleep(0.01)
        if self._trust == "keepers" and self.kills.total() % LEFT_ALONE == LEFT_ALONE - 1:
            (before, over), begun = self._rows_over(), time.monotonic()
            opened = before
            while opened == before and over < RELEASES[self._trust]:
                opened, over = self._rows_over()
                assert time.monotonic() - begun < PATIENCE, "no row opens though everybody is left alone"
                await asyncio.sleep(0.05)

    def _rows_over(self) -> tuple[int, int]:
        """The newest row that opened, and the newest that is over."""
        rows = "SELECT coalesce(max(row) FILTER (WHERE names != '[]'), 0), coalesce(max(row), 0) FROM opened"
        try:
            with closing(sqlite3.connect(f"file:{self.folder / 'controller.db'}?mode=ro", uri=True)) as db:
                opened, over = db.execute(rows).fetchone()
        except sqlite3.OperationalError:  # it is not made yet
            return 0, 0
        return opened, over

    def _weight(self, role: str) -> int:
        """How often somebody is killed: each kind about as often, though there are more agents."""
        if role in self.agents:
            return 1
        return 2 if role in self._keepers.values() else 3

    async def _agreement(self) -> float:
        """Seconds until all agents have the same sum, of the release that is due, with everybody in it."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            for role in self._processes:
                self._require_running(role)
            newest = {self._newest(name) for name in self._names}
            if len(newest) == 1 and None not in newest:
                return time.monotonic() - begun
            await asyncio.sleep(0.05)
        raise AssertionError("the agents do not agree on the last sum")

    def _newest(self, name: str) -> bytes | None:
        """The sum that an agent has; None if there is a later release of it, or somebody is not in it."""
        if self._trust == "keepers":
            over = newest_over(self._file(name))
            if over is None or over[1] < len(self._names):
                return None
        with closing(sqlite3.connect(f"file:{self._file(name)}?mode=ro", uri=True)) as db:
            row = db.execute("SELECT payload FROM inbox").fetchone()
            (made,) = db.execute(
                "SELECT max(number) FROM outgoing JOIN open_season USING (season)"
            ).fetchone()
        if row is None or made is None or messages.decode(row[0]).number < made:
            return None
        self._last_sum = messages.decode(row[0])
        return bytes(row[0])

    def _file(self, name: str) -> Path:
        return self.folder / name / "agent.db"

    def check(self) -> dict[str, float]:
        """Compare; raises AssertionError at the first difference."""
        counts: Counter[str] = Counter()
        seasons = 0
        for name, agent in self.agents.items():
            found = check(self.folder / name, agent.seen)
            seasons = max(seasons, found.pop("seasons"))  # all agents go through the same ones
            counts.update(found)
        assert self._last_sum.agents == len(self._names)
        killed = {f"kills, {kind}": count for kind, count in sorted(self._kills_by_kind().items())}
        shown = {name: count for name, count in counts.items() if not name.startswith("kills")}
        return {
            "kills": self.kills.total(),
            **killed,
            **shown,
            "seasons": seasons,
            **(self._check_rows() if self._trust == "keepers" else {}),
            "last sum": self._last_sum.number,
            "seconds until all had it": round(self.agreed_after, 1),
        }

    def _kills_by_kind(self) -> Counter[str]:
        kinds = {"broker": "broker", "controller": "controller"}
        kinds |= dict.fromkeys(self._keepers.values(), "keepers") | dict.fromkeys(self._names, "agents")
        counts = Counter(dict.fromkeys(kinds.values(), 0))
        for role, count in self.kills.items():
            counts[kinds[role]] += count
        return counts

    def _check_rows(self) -> dict[str, int]:
        logs = [*(self.folder / name / "log" for name in self._names), *self.folder.glob("*.log")]
        require_quiet_logs(logs)
        settings = ControllerSettings.read(self.folder / "controller.toml")
        apart = {name: self.folder / f"{role}.db" for name, role in self._keepers.items()}
        files = RowFiles(
            settings.engine.read_roster(),
            settings.terms[BESIDE],
            agents={name: self._file(name) for name in self._names},
            keepers={BESIDE: self.folder / BESIDE / "keeper.db"} | apart,
            controller=settings.state,
        )
        return files.check()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def chaos(
    folder: Path, *, kills: int, trust: str = "nobody", seed: int = 0, pause: float = 1.0
) -> dict[str, float]:
    """Run and check."""
    made = Federation(folder, seed, trust)
    try:
        asyncio.run(made.run(kills, pause=pause))
    finally:
        made.end()
    return made.check()


def main() -> None:
    """Printed, and written if asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trust", choices=tuple(NAMES), default="nobody")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = chaos(Path(temporary), kills=asked.kills, trust=asked.trust, seed=asked.seed)
    for name, value in found.items():
        print(f"{name:34} {value}")
    print("nothing lost, nothing counted twice, no release with two contents")
    if asked.json:
        played = ["feducb.agent", "feducb.carriers.nats", "feducb.controller", "feducb.service.app"]
        write_tables(asked.json, {"killed": {asked.trust: found}}, played)


if __name__ == "__main__":
    main()

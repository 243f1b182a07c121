"""`feducb tour`: a whole federation on this machine, to look at and to disturb.

Three agents run as services of their own, with simulated visitors; this process is their controller, and
carries what they send, and sums, through the agents' doors. With keepers each agent is one too. Nothing
leaves the machine, nothing stays when it ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.agent.agent_http import ServiceError
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.cli.output import counted
from feducb.errors import ConfigurationError
from feducb.service.api_keys import add_key
from feducb.service.controller_page import Watcher, create_controller_page
from feducb_lab.tour_controller import KeepersTable, RowCarrier, SumCarrier

__all__ = ["AGENTS", "Tour"]

AGENTS = ("north", "south", "west")
_CONFIG = """
version = 1
[agent]
name = "{name}"
store = "agent.db"
[problem]
dim = 4
[privacy]
epsilon = {epsilon}
delta = 1e-6
{privacy}
[federation]
agents = 3
decisions = 20000
[releases]
releases = 240
season = "20m"
start = {start}
[rewards]
window = "2s"
[decisions]
uniform_share = 0.1
[service]
port = 0
keys = "agent.keys"
[engine]
kind = "door"
{engine}
"""
_BACK_SECONDS = 4.0  # until somebody who was killed is started again
_CARRY_SECONDS = 0.5
_PAUSE_SECONDS = 0.06  # between two visitors of an agent


class _Running:
    """One agent: its process, its door, and where it listens."""

    def __init__(self, folder: Path, epsilon: float, start: str, table: KeepersTable | None) -> None:
        folder.mkdir()
        self.name, self.folder = folder.name, folder
        words = {"name": self.name, "epsilon": epsilon, "start": start, "privacy": "", "engine": ""}
        if table is not None:
            words |= {"privacy": table.privacy(), "engine": table.engine(self.name)}
        (folder / "agent.toml").write_text(_CONFIG.format(**words))
        self.file = read_agent_file(folder / "agent.toml")
        Agent.open(self.file.store, self.file.agent).close()
        self.key = add_key(folder / "agent.keys", "tour", "operator")
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        log = self.folder / "log"
        with log.open("ab") as opened:
            begun = opened.tell()
            command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(self.file.path)]
            self.process = subprocess.Popen(command, stderr=opened, start_new_session=True)
        while self.process.poll() is None:
            for line in log.read_bytes()[begun:].splitlines():
                if b'"listening"' in line:
                    self.url = f"http://127.0.0.1:{json.loads(line)['port']}"
                    return
            time.sleep(0.05)
        raise RuntimeError(f"agent {self.name} did not start; see {log}")

    def kill(self) -> None:
        """With SIGKILL, as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.url = ""

    def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.kill()

    def door(self) -> AgentDoor:
        """Where its releases are taken and sums handed in; ServiceError if it does not run."""
        if not self.url:
            raise ServiceError(f"{self.name} is not running")
        return AgentDoor(self.url, key=self.key, timeout=5.0)

    @property
    def page(self) -> str:
        """Its dashboard; the key travels behind the #, which browsers keep to themselves."""
        return f"{self.url}/#key={self.key}"


class _PageServer(uvicorn.Server):
    """Signals are the tour's own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Tour:
    """Agents, controller and visitors; made for an empty folder.

    Attributes:
        agents: by name.
        page: the controller's dashboard, once `run` has started it.
    """

    def __init__(
        self, folder: Path, *, epsilon: float, trust: str = "nobody", say: Callable[[str], None] = print
    ) -> None:
        if trust not in ("nobody", "keepers"):
            raise ConfigurationError("trust", trust, "nobody or keepers, on the tour")
        self._say = say
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        table = KeepersTable(folder / "keys", AGENTS) if trust == "keepers" else None
        self.agents = {name: _Running(folder / name, epsilon, start, table) for name in AGENTS}
        terms = {name: one.file.agent.terms for name, one in self.agents.items()}
        path = folder / "controller.db"
        self._carrier = SumCarrier(path, terms) if table is None else RowCarrier(path, terms, table)
        self._key = add_key(folder / "controller.keys", "tour", "operator")
        self._watcher = Watcher(self._status, name="tour", agents=AGENTS, releases=240, trust=trust)
        self._app = create_controller_page(self._watcher, folder / "controller.keys")
        self._lately, self._steps = 0.0, 0
        self.page = ""

    async def run(self, until: asyncio.Event, ready: Callable[[], None]) -> None:
        """Everything, until it is told to end; ``ready`` is called once there is something to see."""
        quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "ws": "none"}
        server = _PageServer(uvicorn.Config(self._app, host="127.0.0.1", port=0, **quiet))
        tasks = [asyncio.create_task(server.serve())]
        try:
            await asyncio.gather(*(asyncio.to_thread(one.start) for one in self.agents.values()))
            while not server.started:
                if tasks[0].done():
                    tasks[0].result()
                await asyncio.sleep(0.05)
            port = server.servers[0].sockets[0].getsockname()[1]
            self.page = f"http://127.0.0.1:{port}/#key={self._key}"
            tasks += [asyncio.create_task(self._visit(one)) for one in self.agents.values()]
            tasks.append(asyncio.create_task(self._carry()))
            ready()
            await until.wait()
        finally:
            self._app.state.stopping = True
            server.should_exit = True
            for task in tasks[1:]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(asyncio.to_thread(one.stop) for one in self.agents.values()))
            self._carrier.book.close()

    async def kill(self, name: str) -> None:
        """Kill an agent, and bring it back a few seconds later."""
        agent = self.agents[name]
        agent.kill()
        self._say(f"{name} is dead (SIGKILL); the others go on. It comes back in {_BACK_SECONDS:g} s …")
        await asyncio.sleep(_BACK_SECONDS)
        begun = time.monotonic()
        await asyncio.to_thread(agent.start)
        self._say(f"{name} is back after {time.monotonic() - begun:.1f} s of starting, at {agent.page}")

    def summary(self) -> str:
        """How well visitors fared, in one line."""
        newest = "none" if self._carrier.newest is None else str(self._carrier.newest[1])
        lately = f"{100 * self._lately:.0f} % of what the best candidates pay lately"
        return f"{counted(self._steps, 'visitor', 'd')}; {lately}; newest sum: {newest}"

    async def _visit(self, agent: _Running) -> None:
        """Visitors of one agent: four numbers a candidate, a click or none."""
        rng, theta = np.random.default_rng(len(agent.name)), np.array([0.5, -0.3, 0.6, 0.1])
        headers = {"authorization": f"Bearer {agent.key}"}
        async with httpx.AsyncClient(headers=headers, timeout=5.0) as http:
            while True:
                await asyncio.sleep(_PAUSE_SECONDS)
                drawn = rng.standard_normal((5, 4))
                actions = 0.9 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
                means = 0.5 + 0.5 * actions @ theta
                with suppress(httpx.HTTPError, KeyError):  # it may be dead just now
                    asked = {"actions": actions.round(6).tolist()}
                    decision = (await http.post(f"{agent.url}/v1/decisions", json=asked)).json()
                    reward = {"id": decision["id"], "value": float(rng.random() < means[decision["index"]])}
                    await http.post(f"{agent.url}/v1/rewards", json={"rewards": [reward]})
                    self._steps += 1
                    weight = max(1.0 / self._steps, 0.003)  # the last few hundred
                    self._lately += weight * (means[decision["index"]] / means.max() - self._lately)

    async def _carry(self) -> None:
        """Be the controller: outboxes in, sums back."""
        while True:
            await asyncio.sleep(_CARRY_SECONDS)
            for agent in self.agents.values():
                with suppress(ServiceError), agent.door() as door:
                    await self._carrier.visit(agent.name, door)
            self._carrier.publish()

    def _status(self) -> dict[str, Any]:
        book = self._carrier.book
        return {
            "at": time.time(),
            "connected": True,
            "season": 1,
            "newest_sum": self._carrier.newest,
            "agents_in_it": self._carrier.members,
            "newest_message": book.progress(),
            "last_seen": book.last_received(),
            "sums": book.sums(),
            "rows": self._carrier.rows(),
        }

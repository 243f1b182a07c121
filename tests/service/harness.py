"""The service as a user runs it: a process, a port, keys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.service.api_keys import add_key

CONFIG = """
version = 1
[agent]
name = "north"
store = "agent.db"
[problem]
dim = 3
[privacy]
epsilon = 1.0
delta = 1e-6
{privacy}
[releases]
releases = 64
season = "{season}"
[rewards]
window = "{window}"
[decisions]
{decisions}
[retention]
keep_events = "{keep}"
[service]
port = 0
keys = "agent.keys"
largest_body = 262144
{service}
"""
ACTIONS = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.0, 0.5, 0.0], [0.4, 0.0, 0.4]]


def write_config(folder: Path, **changes: str) -> Path:
    # So long a season makes no release, which loads libraries and counts, however long the tests take.
    given = {"season": "30d", "window": "60s", "keep": "0s", "service": "", "privacy": "", "decisions": ""}
    path = folder / "agent.toml"
    path.write_text(CONFIG.format(**(given | changes)))
    return path


class Running:
    """A service, from its start to its end."""

    def __init__(
        self, config: Path, *, scheme: str = "http", verify: Any = True, wrapper: Sequence[str] = ()
    ) -> None:
        self.config, self._scheme, self._verify, self._wrapper = config, scheme, verify, list(wrapper)
        told = read_agent_file(config)
        if not told.store.exists():
            Agent.open(told.store, told.agent).close()
        keys = config.parent / "agent.keys"
        self.application = add_key(keys, f"application-{time.time_ns()}")
        self.operator = add_key(keys, f"operator-{time.time_ns()}", "operator")
        self.log = config.parent / "log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            begun = log.tell()
            command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(self.config)]
            self.process = subprocess.Popen([*self._wrapper, *command], stderr=log)
        for _ in range(6000):
            for line in self.log.read_bytes()[begun:].splitlines():
                if b'"listening"' in line:
                    self.port = int(json.loads(line)["port"])
                    self.url = f"{self._scheme}://127.0.0.1:{self.port}"
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"the service did not start: {self.log.read_text()[begun:]}")

    def http(self, key: str | None = None) -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, verify=self._verify, timeout=120)

    def until(self, key: str, status: int) -> None:
        """Until this key gets this answer: keys are read again now and then."""
        with self.http(key) as http:
            while http.get("/v1/status").status_code != status:
                time.sleep(0.05)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

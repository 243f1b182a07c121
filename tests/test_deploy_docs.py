"""docs/deploy.md, command by command, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "engines"))

from nats_world import free_port, record_streams, require_server, running, until  # noqa: E402

from feducb.engines.controller import terms_from_table  # noqa: E402
from feducb.engines.local import MemoryMailbox  # noqa: E402
from feducb.engines.nats import NatsEngine  # noqa: E402
from feducb.engines.settings import NatsSettings  # noqa: E402

PAGE = (ROOT / "docs" / "deploy.md").read_text()
EXAMPLES = ROOT / "examples" / "deploy"
COMMANDS = [
    line.strip() for line in re.findall(r"^    ((?:feducb|cd|nats-server) .*)$", PAGE, flags=re.MULTILINE)
]


def _commands(start: str) -> str:
    """The one command of the page that starts so, without its comment."""
    found = [line.partition("  #")[0].strip() for line in COMMANDS if line.startswith(start)]
    assert found, start
    return str(found[0])


class Machine:
    """Runs commands of the page in a folder, with its server on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()

    def _translated(self, command: str) -> list[str]:
        command = command.replace("broker.example:4222", f"127.0.0.1:{self.port}")
        command = command.replace("broker.example", f"127.0.0.1 --port {self.port}")
        words = command.split()
        return [sys.executable, "-m", "feducb", *words[1:]] if words[0] == "feducb" else words

    def run(self, command: str, *, where: str = ".") -> str:
        done = subprocess.run(
            self._translated(command), cwd=self.folder / where, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @contextmanager
    def service(self, command: str, *, where: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on until it is told to end."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                self._translated(command),
                cwd=self.folder / where,
                stdout=log,
                stderr=log,
                env=dict(os.environ),
            )
        try:
            yield process
            assert process.poll() is None, (self.folder / "log").read_text()
        finally:
            process.terminate()
            process.wait(timeout=30)

    def example(self, name: str, to: str, change: Callable[[str], str] = lambda text: text) -> Path:
        text = (EXAMPLES / name).read_text().replace("broker.example:4222", f"127.0.0.1:{self.port}")
        path = self.folder / to
        path.write_text(change(text))
        return path


def test_from_nothing_to_three_machines(tmp_path: Path) -> None:
    require_server()
    machine = Machine(tmp_path)
    machine.run(_commands("feducb keys init federation --federation"))
    config = machine.example(
        "controller.toml",
        "federation/controller/controller.toml",
        lambda text: text.replace("releases = 200", "releases = 8"),  # the mechanism for 200 takes seconds
    )
    terms = terms_from_table(tomllib.loads(config.read_text())["terms"])
    streams = record_streams(("north", "south"), terms, 1)
    boxes, engines = {}, {}
    for name in ("north", "south"):
        table = machine.example(
            "agent-engine.toml",
            f"federation/agents/{name}/agent.toml",
            lambda text, name=name: text.replace("north", name),  # type: ignore[misc]
        )
        settings = NatsSettings.from_table(tomllib.loads(table.read_text())["engine"], base=table.parent)
        engines[name] = NatsEngine(settings, terms)
        boxes[name] = MemoryMailbox(streams[name])
    serve = _commands("feducb controller serve")

    async def agents() -> None:
        async with running(*(engine.run(boxes[name]) for name, engine in engines.items())):
            await until(lambda: all(box.newest for box in boxes.values()))

    server = _commands("cd federation/server").partition("&& ")[2]
    with (
        machine.service(server, where="federation/server"),
        machine.service(serve, where="federation/controller"),
    ):
        asyncio.run(agents())
        time.sleep(2.5)  # it says how it is every two seconds
        status = re.search(r"`(feducb controller status [^`]*)`", PAGE)
        assert status is not None
        told = json.loads(machine.run(status[1], where="federation/controller"))
    assert boxes["north"].newest == boxes["south"].newest
    assert engines["north"].status.members == ("north", "south")
    assert told["agents_in_it"] == ["north", "south"]
    for command in (line for line in COMMANDS if line.startswith("feducb keys rotate")):
        machine.run(command.partition("  #")[0])


def test_without_a_controller(tmp_path: Path) -> None:
    require_server()
    machine = Machine(tmp_path)
    machine.run(_commands("feducb keys init federation --agents"))
    server = _commands("cd federation/server").partition("&& ")[2]
    with machine.service(server, where="federation/server"):
        time.sleep(0.5)
        for _ in range(2):  # once more changes nothing
            machine.run(_commands("feducb keys streams"))


def test_examples_are_complete() -> None:
    for name in re.findall(r"\.\./examples/deploy/([\w.-]+)", PAGE):
        assert (EXAMPLES / name).is_file()
    for name in ("feducb-broker.service", "feducb-controller.service"):
        text = (EXAMPLES / name).read_text()
        assert "[Unit]" in text
        assert "Restart=always" in text


def test_units_are_ones_that_systemd_reads(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed, so the units were not read by systemd")
    for name in ("feducb-broker.service", "feducb-controller.service"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(EXAMPLES / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        complaints = [line for line in done.stderr.splitlines() if "not executable" not in line]
        assert not any(name in line for line in complaints), done.stderr

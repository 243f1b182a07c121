"""docs/deploy.md, command by command, on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "carriers"))

from nats_world import free_port, require_server  # noqa: E402

PAGE = (ROOT / "docs" / "deploy.md").read_text()
EXAMPLES = ROOT / "examples" / "deploy"
UNITS = ("feducb-broker.service", "feducb-controller.service", "feducb-keeper.service")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
KEEPERS = SECTIONS["Nobody trusted, noise added once: keepers"]
SECOND = "--season 1h", "--season 64s"  # a sum every second in place of every 56 seconds


def _all_commands(text: str) -> list[str]:
    found = re.findall(r"^    ((?:feducb|cd|cat|\(umask) .*|\(umask .*)$", text, flags=re.MULTILINE)
    return [line.partition("    #")[0].strip() for line in found]


COMMANDS = _all_commands(PAGE)


def _commands(start: str, text: str = PAGE) -> str:
    """The first command of the page, or of a part of it, that starts so, without its comment."""
    return next(line for line in _all_commands(text) if line.startswith(start))


class Machine:
    """Runs commands of the page in a folder, with its server on loopback."""

    def __init__(self, folder: Path, *, season: tuple[str, str] = SECOND) -> None:
        self.folder, self.port, self._season = folder, free_port(), season
        self.start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def _translated(self, command: str) -> list[str]:
        command = command.replace("broker.example:4222", f"127.0.0.1:{self.port}")
        command = command.replace("$START", self.start)
        command = command.replace("0.0.0.0:4222", f"127.0.0.1:{self.port}").replace(
            "broker.example", "127.0.0.1"
        )
        command = command.replace("feducb ", f"{sys.executable} -m feducb ").replace(*self._season)
        return ["bash", "-euc", command if command.startswith("(") else f"exec {command}"]

    def run(self, command: str, *, where: str = ".") -> str:
        done = subprocess.run(
            self._translated(command), cwd=self.folder / where, capture_output=True, text=True, check=False
        )
        fine = (0, 3) if " status " in command else (0,)  # 3: it says that something is not green
        assert done.returncode in fine, f"{command}: {done.stderr}"
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
            process.wait(timeout=120)

    def wait_for_broker(self) -> None:
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text())

    def example(self, name: str, to: str, change: Callable[[str], str] = lambda text: text) -> Path:
        text = (EXAMPLES / name).read_text().replace("broker.example:4222", f"127.0.0.1:{self.port}")
        path = self.folder / to
        path.write_text(change(text))
        return path


def _prepare_agents(machine: Machine) -> None:
    """Section 2, at two folders in place of two machines; they need a port each."""
    for name in ("north", "south"):
        where = f"federation/agents/{name}"
        machine.example(
            "agent-engine.toml",
            f"{where}/agent-engine.toml",
            lambda text, name=name: text.replace("north", name),  # type: ignore[misc]
        )
        init = _commands("(umask").replace("north", name)
        machine.run(init.replace("agent init", f"agent init --port {free_port()}"), where=where)
        machine.run(_commands("cat agent-engine.toml"), where=where)
        machine.run(_commands("feducb agent terms"), where=where)
        assert (machine.folder / where / "keys.txt").stat().st_mode & 0o077 == 0


def test_from_nothing_to_three_machines(tmp_path: Path) -> None:
    require_server()
    machine, page = Machine(tmp_path), free_port()
    machine.run(_commands("feducb keys init federation --federation"))
    _prepare_agents(machine)
    north, south, controller = (
        f"federation/{name}" for name in ("agents/north", "agents/south", "controller")
    )
    assert (tmp_path / north / "terms.toml").read_text() == (tmp_path / south / "terms.toml").read_text()
    machine.example(
        "controller.toml", f"{controller}/controller.toml", lambda text: text.replace("8760", str(page))
    )
    shutil.copy(tmp_path / north / "terms.toml", tmp_path / controller)
    machine.run(_commands("cat terms.toml"), where=controller)
    key = machine.run(_commands("feducb controller key add"), where=controller).strip()
    server = _commands("cd federation/server").partition("&& ")[2]
    serve, status = _commands("feducb agent serve"), _commands("feducb controller status")
    told: dict[str, Any] = {}
    with (
        machine.service(server, where="federation/server"),
        machine.service(_commands("feducb controller serve"), where=controller),
        machine.service(serve, where=north),
        machine.service(serve, where=south),
    ):
        for _ in range(600):  # a bound for a busy machine, not an expectation
            if (tmp_path / controller / "controller.db.status.json").exists():
                told = json.loads(machine.run(status, where=controller))
                if told["newest_sum"]:
                    break
            time.sleep(0.5)
        assert told.get("newest_sum"), (tmp_path / "log").read_text()
        assert (told["agents_in_it"], told["refused"]) == (["north", "south"], {})
        assert "newest sum" in machine.run(_commands("feducb agent status"), where=north)
        asked = httpx.post(f"http://127.0.0.1:{page}/v1/session", json={"key": key})
        assert asked.json() == {"open": True}
    settings = tmp_path / north / "agent.toml"
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    text = settings.read_text().replace('"64s"', '"30d"').replace('"10s"', '"1h"')
    settings.write_text(re.sub(r"^start = \S+", f"start = {later}", text, flags=re.MULTILINE))
    said = machine.run(_commands("feducb agent new-season"), where=north)
    assert re.search(r"season \d+ is open", said)  # the clock may have opened some meanwhile
    for command in (line for line in COMMANDS if line.startswith("feducb keys rotate")):
        machine.run(command)


class KeepersMachine(Machine):
    """The section on keepers: a row every ten seconds, so that few are over before a keeper is stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, season=("--season 1h", "--season 640s"))
        self.controller = "federation/controller"
        self.agents = {name: f"federation/agents/{name}" for name in ("north", "south", "east", "west")}

    def prepare(self) -> None:
        self.run(_commands("feducb keys init", KEEPERS))
        for name, where in self.agents.items():
            engine = f"{where}/agent-engine.toml"
            self.example("agent-engine.toml", engine, partial(_engine_of, name))
            init = _commands("(umask", KEEPERS).replace("--name north", f"--name {name}")
            self.run(init.replace("agent init", f"agent init --port {free_port()}"), where=where)
            for command in ("cat agent-engine.toml", "feducb agent terms"):
                self.run(_commands(command, KEEPERS), where=where)
        terms = self.folder / self.agents["west"] / "terms.toml"
        self.example("agent-keeper.toml", f"{self.agents['north']}/agent-keeper.toml")
        shutil.copy(self.folder / "federation/keepers/north/keeper.seed", self.folder / self.agents["north"])
        self.run(_commands("cat agent-keeper.toml", KEEPERS), where=self.agents["north"])
        self.example("keeper.toml", "federation/keepers/south/keeper.toml")
        shutil.copy(terms, self.folder / "federation/keepers/south")
        self.run(_commands("cat terms.toml", KEEPERS), where="federation/keepers/south")
        self.example("controller.toml", f"{self.controller}/controller.toml", _without_quorum)
        shutil.copy(terms, self.folder / self.controller)
        self.run(_commands("cat terms.toml >> controller.toml"), where=self.controller)

    def rows(self) -> dict[str, Any]:
        """What the controller says of its rows, by the file that `feducb controller status` reads."""
        path = self.folder / self.controller / "controller.db.status.json"
        told: dict[str, Any] = json.loads(path.read_text())["rows"] if path.exists() else {}
        return told

    def waits(self, where: str) -> bool:
        """Whether an agent has heard that a row waits, by the file that `feducb agent status` reads."""
        (path,) = (self.folder / where).glob("*.engine.json")
        return bool((json.loads(path.read_text())["rows"] or {}).get("waiting"))

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(3000):  # a bound for a busy machine, not an expectation
            if holds():
                return
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-4000:])


def _engine_of(name: str, text: str) -> str:
    """The table of one agent, which asks for news more often."""
    return text.replace("north", name).replace("# refresh = 30.0", "refresh = 1.0")


def _without_quorum(text: str) -> str:
    without_page = text.partition("[page]")[0]
    return "\n".join(line for line in without_page.splitlines() if not line.startswith("quorum")) + "\n"


def test_keepers_answer_and_a_row_waits_for_one_that_is_away(tmp_path: Path) -> None:
    require_server()
    machine = KeepersMachine(tmp_path)
    machine.prepare()
    keep = machine.service(_commands("feducb keeper serve", KEEPERS), where="federation/keepers/south")
    server = _commands("cd federation/server").partition("&& ")[2]
    with ExitStack() as stack:
        stack.enter_context(machine.service(server, where="federation/server"))
        stack.enter_context(machine.service(_commands("feducb controller serve"), where=machine.controller))
        for where in machine.agents.values():
            stack.enter_context(machine.service(_commands("feducb agent serve"), where=where))
        with keep:
            machine.until(lambda: machine.rows().get("opened", 0) > 0)
            told = json.loads(
                machine.run(_commands("feducb keeper status", KEEPERS), where="federation/keepers/south")
            )
            assert (told["keeper"], told["halted"], told["second_lists"]) == ("south", "", 0)
        machine.until(lambda: machine.rows()["waits_for_keepers"] == ["south"])
        told = json.loads(
            machine.run(_commands("feducb controller status", KEEPERS), where=machine.controller)
        )
        opened, sentence = told["rows"]["opened"], "waits for keeper south"
        assert sentence in told["rows"]["waiting"]
        machine.until(lambda: all(machine.waits(where) for where in machine.agents.values()))
        assert sentence in machine.run(_commands("feducb agent status"), where=machine.agents["east"])
        with machine.service(_commands("feducb keeper serve", KEEPERS), where="federation/keepers/south"):
            machine.until(lambda: machine.rows()["opened"] > opened)
    rotate = next(one for one in re.findall(r"`(feducb keys rotate[^`]*)`", KEEPERS))
    machine.run(rotate)


def test_without_a_controller(tmp_path: Path) -> None:
    require_server()
    machine = Machine(tmp_path)
    machine.run(_commands("feducb keys init federation --agents"))
    server = _commands("cd federation/server").partition("&& ")[2]
    with machine.service(server, where="federation/server"):
        machine.wait_for_broker()
        for _ in range(2):  # once more changes nothing
            machine.run(_commands("feducb keys streams"))


def test_examples_are_complete() -> None:
    for name in re.findall(r"\.\./examples/deploy/([\w.-]+)", PAGE):
        assert (EXAMPLES / name).is_file()
    for name in UNITS:
        text = (EXAMPLES / name).read_text()
        assert "[Unit]" in text
        assert "Restart=always" in text


def test_units_are_ones_that_systemd_reads(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed, so the units were not read by systemd")
    for name in UNITS:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(EXAMPLES / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        complaints = [line for line in done.stderr.splitlines() if "not executable" not in line]
        assert not any(name in line for line in complaints), done.stderr

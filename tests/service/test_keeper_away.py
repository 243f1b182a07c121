"""A keeper that is away: everybody says which row waits for whom, and decisions go on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import ACTIONS, Running, write_config

from feducb.service.api_keys import add_key
from feducb.service.client import Client

sys.path.insert(0, str(Path(__file__).parents[1] / "carriers"))

from nats_world import Broker, free_port

from troubles import troubles

NAMES = ("north", "south", "east", "west")
FEDUCB = [sys.executable, "-m", "feducb"]
WAITS = "waits for keeper south."
PATIENCE = 300.0  # seconds; reached only where something is broken


def _until(holds: Callable[[], Any]) -> Any:
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError("what was waited for did not happen")


class Federation:
    """Four agents, of whom north is a keeper in its own process; south's keeper runs by itself."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder, self.page = broker, folder, free_port()
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.configs = {name: self._agent(name, start) for name in NAMES}
        command = [*FEDUCB, "agent", "terms", "--config", str(self.configs["east"])]
        terms = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.key = add_key(folder / "page.keys", "office", "viewer")
        self.controller, self.keeper = folder / "controller.toml", folder / "keeper.toml"
        page = f'[page]\nkeys = "page.keys"\nport = {self.page}\n'
        controller = (
            f'[controller]\nstate = "controller.db"\n{page}{self._engine("controller/controller.seed")}'
        )
        self.controller.write_text(controller + terms)
        keeper = f'[keeper]\nstate = "keeper.db"\n{self._engine("keepers/south/keeper.seed", "south")}'
        self.keeper.write_text(keeper + terms)

    def _engine(self, seed: str, agent: str = "") -> str:
        keys = self.broker.folder
        named = f'agent = "{agent}"\n' if agent else ""
        return (
            f'[engine]\nkind = "nats"\nservers = ["tls://127.0.0.1:{self.broker.port}"]\n{named}'
            f'federation = "{self.broker.roster.federation}"\nroster = "{keys}/federation.json"\n'
            f'seed = "{keys}/{seed}"\nca = "{keys}/ca.pem"\nretry = 0.2\nrefresh = 0.5\n'
        )

    def _agent(self, name: str, start: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        tables = f"[federation]\nagents = {len(NAMES)}\n{self._engine(f'agents/{name}/agent.seed', name)}"
        if name == "north":
            seed = self.broker.folder / "keepers" / name / "keeper.seed"
            tables += f'[keeper]\nstate = "keeper.db"\nseed = "{seed}"\n'
        config = write_config(
            folder,
            service=tables,
            season="640s",  # a row every ten seconds: few are over before the keeper is stopped
            privacy='trust = "keepers"\naway = 1\ncolluding = 1\nagents_per_person = 1',
        )
        told = config.read_text().replace('name = "north"', f'name = "{name}"')
        config.write_text(told.replace("[releases]", f"[releases]\nstart = {start}"))
        return config

    @contextmanager
    def process(self, what: str, config: Path) -> Iterator[None]:
        """A controller or a keeper."""
        with (self.folder / f"{what}.log").open("ab") as log:
            process = subprocess.Popen([*FEDUCB, what, "serve", "--config", str(config)], stderr=log)
        try:
            yield
            assert process.poll() is None, (self.folder / f"{what}.log").read_text()
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)

    def controller_snapshot(self) -> dict[str, Any]:
        """What the controller's page draws."""
        headers = {"authorization": f"Bearer {self.key}"}
        return _first_event(httpx.Client(base_url=f"http://127.0.0.1:{self.page}", headers=headers))


def _first_event(http: httpx.Client) -> dict[str, Any]:
    with http, http.stream("GET", "/v1/events", timeout=PATIENCE) as stream:
        line = next(one for one in stream.iter_lines() if one.startswith("data: "))
    told: dict[str, Any] = json.loads(line[6:])
    return told


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    broker = Broker(tmp_path / "keys", NAMES, keepers=("north", "south"))
    broker.start()
    yield Federation(broker, tmp_path)
    broker.stop()


def _status(agent: Running) -> dict[str, Any]:
    with agent.http(agent.operator) as http:
        told: dict[str, Any] = http.get("/v1/status").json()
    return told


def _metrics(agent: Running) -> str:
    with agent.http(agent.operator) as http:
        return http.get("/metrics").text


def test_everybody_says_for_whom_a_row_waits_and_decisions_go_on(federation: Federation) -> None:
    with ExitStack() as stack:
        stack.enter_context(federation.process("controller", federation.controller))
        agents = {name: stack.enter_context(Running(one)) for name, one in federation.configs.items()}
        missing = _until(
            lambda: (rows := _status(agents["east"])["rows"])["missing_cards"] == ["south"] and rows
        )
        assert (
            missing["says"]
            == "The next row cannot be built before keeper south has shown its key of this season."
        )
        with federation.process("keeper", federation.keeper):
            _until(lambda: all(_status(agent)["rows"]["opened"] for agent in agents.values()))
        _until(lambda: all(WAITS in troubles(_status(one)).get("row_waits", "") for one in agents.values()))
        before = _status(agents["west"])["rows"]["opened"]
        for agent in agents.values():
            assert 'feducb_waits_for_keeper{keeper="south"} 1.0' in _metrics(agent)
            with Client(agent.url, key=agent.application, timeout=120.0) as client:
                assert client.reward(client.decide(ACTIONS).id, 0.5)
            assert WAITS in troubles(_first_event(agent.http(agent.operator)))["row_waits"]
        rows = federation.controller_snapshot()["rows"]
        assert (rows["waits_for_keepers"], rows["answered"], rows["listed"]) == (["south"], ["north"], True)
        assert rows["waiting"].endswith(WAITS)
        own = _status(agents["north"])["keeper"]
        assert (own["keeper"], own["answered"], own["halted"]) == ("north", before + 1, None)
        assert f"feducb_keeper_answered {before + 1}.0" in _metrics(agents["north"])
        assert _status(agents["east"])["keeper"] is None
        with federation.process("keeper", federation.keeper):
            _until(lambda: all(_status(agent)["rows"]["opened"] > before for agent in agents.values()))
            _until(lambda: not any("row_waits" in troubles(_status(one)) for one in agents.values()))
        assert "waits_for_keeper{" not in _metrics(agents["east"])
        assert all(_status(agent)["counts"]["decisions"] == 1 for agent in agents.values())

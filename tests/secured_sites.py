"""A federation with keepers whose agents' services run in this process, each in a thread of its own.

So tests see rows before they are hidden, and set the agents' clock; all else is as it is deployed: agent.toml
and the roster's file, seeds, keys of the API, HTTP.
"""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import nkeys
import numpy as np
import pytest
import uvicorn
from numpy.typing import NDArray

from feducb.agent import Agent
from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.privacy.terms import Terms
from feducb.protocol.hiding import Cover
from feducb.protocol.keeping import quorum_of
from feducb.protocol.pads import Charter, Label
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import KeyCard, Opened, PaddedRow
from feducb.service.api_keys import ApiKeys, add_key
from feducb.service.app import create_app

Ints = NDArray[np.int64]
START = 1_800_000_000.0  # 2027-01-15T08:00:00Z
GAP = 601.0  # seconds, in which one row falls due
ACTIONS = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.0, 0.5, 0.0]]
_AGENT = """
version = 2
[agent]
name = "{name}"
[problem]
dim = 3
[privacy]
epsilon = 8.0
delta = 1e-6
trust = "keepers"
away = 1
colluding = 1
agents_per_person = 1
[federation]
agents = 4
decisions = 2000
[releases]
start = 2027-01-15T08:00:00Z
season = "1h"
schedule = "periodic"
releases = 6
[rewards]
window = "1s"
[service]
port = 0
keys = "agent.keys"
[engine]
kind = "door"
roster = "../federation.json"
seed = "agent.seed"
"""
_KEEPER = """
[keeper]
state = "keeper.db"
seed = "keeper.seed"
"""


def write_seed(path: Path) -> str:
    """A new seed in a file; returns its public nkey."""
    path.write_bytes(bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)))
    return Signer(path).nkey


class Secured:
    """Names, keys and files of a federation of four, and its agents' rows before they were hidden."""

    def __init__(self, folder: Path, *, keepers: str = "abc") -> None:
        self.folder, self.now = folder, START
        self.bare: dict[tuple[str, Label], Ints] = {}
        for name in "abcd":
            (folder / name).mkdir()
            table = _KEEPER if name in keepers else ""
            (folder / name / "agent.toml").write_text(_AGENT.format(name=name) + table, encoding="utf-8")
        self.roster = Roster(
            federation="tests",
            agents={name: write_seed(folder / name / "agent.seed") for name in "abcd"},
            controller=write_seed(folder / "controller.seed"),
            sealing="00" * 32,
            keepers={name: write_seed(folder / name / "keeper.seed") for name in keepers},
        )
        (folder / "federation.json").write_text(self.roster.to_json(), encoding="utf-8")

    @property
    def terms(self) -> Terms:
        return read_agent_file(self.folder / "a" / "agent.toml").agent.terms

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is hidden in this process."""
        hide = Cover.hide

        def noted(cover: Cover, label: Label, row: Ints, cards: Mapping[str, KeyCard]) -> PaddedRow:
            self.bare[cover.agent, label] = row.copy()
            return hide(cover, label, row, cards)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cover, "hide", noted)
            yield

    def read(self, body: bytes) -> Opened:
        charter = Charter.of(self.roster, self.terms, 1)
        return Opened.read(body, charter, self.roster, coordinates=9, quorum=quorum_of(self.terms))

    def require_exact(self, opened: Opened) -> None:
        """What opened is the sum of the rows in its list, bit for bit."""
        rows = [self.bare[name, opened.label] for name in opened.names(self.roster)]
        assert opened.values is not None
        assert opened.values.tolist() == np.sum(rows, axis=0).tolist()


class SecuredSite:
    """One agent's service, with its keeper if it has one."""

    def __init__(self, world: Secured, name: str) -> None:
        folder = world.folder / name
        self.name, self.key_file = name, folder / "carrier.key"
        self._world, file = world, read_agent_file(folder / "agent.toml")
        keys = folder / "agent.keys"
        self.key_file.write_text(add_key(keys, "carrier", "carrier"), encoding="utf-8")
        self._application = add_key(keys, "shop")
        with self._open(file) as agent:
            open_keeper = partial(file.open_keeper, agent.store.terms, agent.store.season)
        app = create_app(
            partial(self._open, file),
            ApiKeys(keys),
            engine=_wait,
            open_keeper=None if file.keeper is None else open_keeper,
        )
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            self._thread.join(0.02)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self._http = httpx.Client(base_url=self.url, timeout=120, trust_env=False)

    def _open(self, file: AgentFile) -> Agent:
        return Agent.open(file.store, file.agent, member=file.member(), clock=lambda: self._world.now)

    def door(self) -> AgentDoor:
        return AgentDoor(self.url, key=self.key_file.read_text(encoding="utf-8"))

    def decide(self) -> str:
        """A visitor; returns the sum that the decision rests on, season.number."""
        return str(self._call("POST", "/v1/decisions", self._application, {"actions": ACTIONS})["model"])

    def place(self) -> Label | None:
        """The newest row that is over here."""
        key = self.key_file.read_text(encoding="utf-8")
        place = base64.b64decode(self._call("GET", "/v1/outbox", key)["place"])
        return Label.from_bytes(place) if place else None

    def _call(self, method: str, path: str, key: str, asked: object = None) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {key}"}
        response = self._http.request(method, path, headers=headers, json=asked)
        assert response.is_success, response.text
        return dict(response.json())

    def close(self) -> None:
        self._http.close()
        self._server.should_exit = True
        self._thread.join()


async def _wait(mailbox: object) -> None:
    await asyncio.Event().wait()


@contextmanager
def running(world: Secured) -> Iterator[dict[str, SecuredSite]]:
    """All four services."""
    sites: dict[str, SecuredSite] = {}
    with world.watched():
        try:
            for name in "abcd":
                sites[name] = SecuredSite(world, name)
            yield sites
        finally:
            for site in sites.values():
                site.close()

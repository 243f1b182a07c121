"""Agents, keepers and a controller over a real nats-server with TLS and nkeys."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import secure_sums
from nats_world import PATIENCE, Broker, make_terms, running, until
from typer.testing import CliRunner

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import StoreMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsController, NatsEngine, NatsKeeper, keeper_talk
from feducb.cli.program import app
from feducb.controller.controller_file import ControllerSettings, terms_from_table
from feducb.controller.keeper_file import KeeperSettings
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.hiding import Member
from feducb.protocol.pads import Charter, Label
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import row_size
from feducb.service.api_keys import add_key
from feducb.storage import AgentStore, RowBook
from feducb.storage.keeper_book import KeeperBook

NAMES = ("a", "b", "c", "d", "e")
KEEPERS = ("b", "c", "d")
RELEASES = 6


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES, keepers=KEEPERS)
    one.start()
    yield one
    one.stop()


def _terms() -> Terms:
    return Terms(
        problem=make_terms().problem,
        budget=make_terms().budget,
        releases=RELEASES,
        trust="keepers:1:1",  # type: ignore[arg-type]
        agents=len(NAMES),
    )


class Federation:
    """Everybody's files; agents record two visitors a row."""

    def __init__(self, broker: Broker, folder: Path, terms: Terms) -> None:
        self.broker, self.folder, self.terms = broker, folder, terms
        self.stores: dict[str, AgentStore] = {}
        for name in NAMES:
            store = AgentStore.open(folder / f"{name}.db", self.terms)
            seed = broker.folder / "agents" / name / "agent.seed"
            store.member = Member(name, broker.roster, Signer(seed))
            self.stores[name] = store
        self.boxes = {name: StoreMailbox(store, keep_all=True) for name, store in self.stores.items()}
        self.engines = {name: NatsEngine(broker.settings(name), self.terms) for name in NAMES}

    def agents(self, *names: str) -> list[Awaitable[None]]:
        """These, at work."""
        return [self.engines[name].run(self.boxes[name]) for name in names]

    def keeper_book(self, name: str) -> KeeperBook:
        signer = Signer(self.broker.keeper_settings(name).seed)
        return KeeperBook(self.folder / f"{name}.keeper", name, self.broker.roster, self.terms, signer)

    def row_book(self, **times: Any) -> RowBook:
        signer = Signer(self.broker.controller_settings().seed)
        return RowBook(self.folder / "controller.db", self.broker.roster, self.terms, signer, **times)

    @asynccontextmanager
    async def keeping(self, *names: str) -> AsyncIterator[dict[str, NatsKeeper]]:
        books = {name: self.keeper_book(name) for name in names}
        links = {name: NatsKeeper(self.broker.keeper_settings(name), book) for name, book in books.items()}
        try:
            async with running(*(link.run() for link in links.values())):
                yield links
        finally:
            for book in books.values():
                book.close()

    @asynccontextmanager
    async def controlling(self, **times: float) -> AsyncIterator[tuple[NatsController, RowBook]]:
        with self.row_book(**times) as book:
            link = NatsController(self.broker.controller_settings(), book)
            async with running(link.run()):
                yield link, book

    async def build(self, names: tuple[str, ...] = NAMES) -> None:
        """These agents build their next row as soon as they may."""
        for name in names:
            store = self.stores[name]
            await until(store.may_build)
            store.record(np.full((2, 3), 0.3), np.full(2, 0.5))
            store.build_row()
            self.boxes[name].notify()

    async def over(self, label: Label, names: tuple[str, ...] = NAMES) -> None:
        """Until these agents have heard that a row is over."""
        place = label.to_bytes()
        await until(lambda: all(self.stores[name].place() == place for name in names))

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


@pytest.fixture
def federation(broker: Broker, tmp_path: Path) -> Iterator[Federation]:
    one = Federation(broker, tmp_path, _terms())
    yield one
    one.close()


def test_rows_open_end_to_end_and_everybody_reads_the_same_sums(federation: Federation) -> None:
    """The last sum is within 8 of its deviations of the truth: false alarm below 9 coordinates × 2e-15."""

    async def run() -> None:
        async with (
            federation.controlling() as (controller, book),
            federation.keeping(*KEEPERS) as keepers,
            running(*federation.agents(*NAMES)),
        ):
            for number in range(1, RELEASES + 1):
                await federation.build()
                await federation.over(Label(1, 0, number))
            await until(lambda: all(engine.status.sent == RELEASES for engine in federation.engines.values()))
            assert all([await box.outbox() == [] for box in federation.boxes.values()])
            assert controller.status.newest == (1, RELEASES)
            assert federation.engines["a"].status.members == NAMES
            await until(lambda: all(link.status.sent >= RELEASES for link in keepers.values()))
            assert book.facts()["row"] is None
            assert controller.refusals.total == 0

    asyncio.run(run())
    first, *others = (box.history for box in federation.boxes.values())
    assert len(first) == RELEASES
    assert all(history == first for history in others)  # byte for byte
    told = messages.decode(first[1, 0, RELEASES])
    assert told.agents == len(NAMES)
    truth = RELEASES * len(NAMES) * 2 * np.full((3, 3), 0.09)
    assert np.abs((told.read().gram - truth) / np.sqrt(2 * told.variance)).max() < 8


def test_a_keeper_that_is_away_holds_its_row_up_and_everybody_says_so(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_talk, "_WORTH_SAYING", 0.0)

    async def run() -> None:
        status = federation.engines["a"].status
        sentence = "Row 2 of season 1 waits for keeper d."
        async with federation.controlling() as (_, book), running(*federation.agents(*NAMES)):
            async with federation.keeping(*KEEPERS):
                await federation.build()
                await federation.over(Label(1, 0, 1))
            async with federation.keeping("b", "c"):
                await federation.build()
                await until(lambda: book.facts()["waits_for_keepers"] == ["d"])
                assert book.facts()["waiting"] == sentence
                await until(lambda: (status.rows or {}).get("waiting") == sentence)
                assert status.as_dict()["rows"]["waits_for_keepers"] == ["d"]
                asks = book.asks()
                assert federation.stores["a"].place() == Label(1, 0, 1).to_bytes()
                async with federation.keeping("d"):
                    await federation.over(Label(1, 0, 2))
                assert set(asks) == {"d"}
                assert book.asks() == {}
            await until(lambda: not (status.rows or {}).get("waiting"))

    asyncio.run(run())


def test_controller_broker_and_keepers_may_end_at_any_point_and_rows_open_all_the_same(
    federation: Federation,
) -> None:
    async def run() -> None:
        async with running(*federation.agents(*NAMES)):
            async with federation.keeping(*KEEPERS):
                async with federation.controlling():
                    await federation.build()
                    await federation.over(Label(1, 0, 1))
                await federation.build()  # there is no controller
            async with federation.controlling() as (_, book):  # there are no keepers
                await until(lambda: set(book.asks()) == set(KEEPERS))
                asked = book.asks()
                async with federation.keeping("b"):
                    await until(lambda: set(book.asks()) == {"c", "d"})
            federation.broker.kill()
            federation.broker.start()
            async with federation.controlling() as (_, book):
                assert book.asks() == {name: asked[name] for name in ("c", "d")}
                async with federation.keeping("c", "d"):
                    await federation.over(Label(1, 0, 2))
        with federation.row_book() as book:
            assert len(book.since(None)) == 2

    asyncio.run(run())


def test_who_was_away_hears_all_rows_in_their_order_and_is_in_the_next(federation: Federation) -> None:
    """Also where they do not fit into one reply."""
    here = NAMES[:4]

    async def run() -> None:
        async with (
            federation.controlling(deadline=0.05) as (_, book),
            federation.keeping(*KEEPERS),
            running(*federation.agents(*here)),
        ):
            for number in (1, 2, 3):
                await federation.build(here)
                await federation.over(Label(1, 0, number), here)
            federation.stores["e"].record(np.full((2, 3), 0.3), np.full(2, 0.5))
            async with running(*federation.agents("e")):
                await federation.over(Label(1, 0, 3))
                await federation.build()
                await federation.over(Label(1, 0, 4))
            newest = book.newest()
            assert newest is not None
            assert newest.names[-1] == "e" or len(newest.names) == 4  # the deadline may be sooner

    few = keeper_talk._NEWS_BYTES
    try:
        keeper_talk._NEWS_BYTES = 2600  # a row or two in each reply
        asyncio.run(run())
    finally:
        keeper_talk._NEWS_BYTES = few
    for key, payload in federation.boxes["e"].history.items():
        assert federation.boxes["a"].history[key] == payload
    assert (1, 0, 4) in federation.boxes["e"].history


def test_messages_of_others_and_in_others_names_are_refused_and_counted(federation: Federation) -> None:
    async def run() -> None:
        broker, fed = federation.broker, federation.broker.roster.federation
        async with (
            federation.controlling() as (controller, _),
            federation.keeping(*KEEPERS) as keepers,
            running(*federation.agents(*NAMES)),
        ):
            await federation.build()
            await federation.over(Label(1, 0, 1))
            counts = controller.refusals.counts
            (answer,) = keepers["b"]._book.database.execute("SELECT answer FROM answers").fetchone()
            as_b = Link(broker.keeper_settings("b"), subjects.keeper_user("b"), EngineStatus())
            async with as_b.connected() as client:
                await client.request(subjects.topic(fed, "answer", "b"), b"what?" * 50, timeout=5)
                await client.request(subjects.topic(fed, "answer", "b"), answer, timeout=5)
            assert counts[subjects.keeper_user("b"), "malformed"] == 1
            assert counts.total() == 1  # the old answer is known
            row = federation.stores["a"].rows()
            assert row == []
            as_a = Link(broker.settings("a"), "a", EngineStatus())
            async with as_a.connected() as client:
                await client.request(subjects.topic(fed, "row", "a"), b"what?", timeout=5)
                await client.request(subjects.topic(fed, "release", "a"), b"x" * 99, timeout=5)
                await client.request(subjects.topic(fed, "ask", "a"), b"nowhere", timeout=5)
            assert counts["a", "size"] == 1
            assert counts["a", "signature"] == 1
            assert counts["a", "malformed"] == 1
            # An agent's key says nothing as a keeper, nor in another's name: the server does not pass it on.
            async with as_a.connected() as client:
                await client.publish(subjects.topic(fed, "list", "b"), b"a list")
                await client.publish(subjects.topic(fed, "row", "b"), b"a row")
                await client.flush()
            assert counts.total() == 4
            assert not keepers["b"]._book.refusals
            await federation.build()
            await federation.over(Label(1, 0, 2))

    asyncio.run(run())


TERMS_TABLE = """
[terms]
dim = 3
epsilon = 1.0
delta = 1e-6
releases = 6
trust = "keepers"
away = 1
colluding = 1
agents_per_person = 1

[engine]
kind = "nats"
servers = ["{url}"]
federation = "tests"
roster = "federation.json"
seed = "{seed}"
ca = "ca.pem"
retry = 0.1
"""


def _write_configs(broker: Broker) -> None:
    table = TERMS_TABLE.format(url=broker.url, seed="controller.seed")
    controller = '[controller]\nstate = "controller.db"\ndeadline = 2.0\nclose_after = 60.0\n' + table
    (broker.folder / "controller" / "controller.toml").write_text(controller)
    for name in KEEPERS:
        table = TERMS_TABLE.format(url=broker.url, seed="keeper.seed") + f'agent = "{name}"\n'
        (broker.folder / "keepers" / name / "keeper.toml").write_text(
            '[keeper]\nstate = "keeper.db"\n' + table
        )


def _feducb(broker: Broker, who: str, *arguments: str) -> subprocess.Popen[str]:
    kind = "keeper" if who.startswith("keepers") else "controller"
    command = [sys.executable, "-m", "feducb", kind, *arguments, "--config", f"{kind}.toml"]
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=broker.folder / who, env=dict(os.environ), **pipe)


def test_keepers_and_controller_as_processes_are_killed_go_on_and_say_how_they_are(
    federation: Federation,
) -> None:
    broker = federation.broker
    _write_configs(broker)
    works: dict[str, subprocess.Popen[str]] = {}

    def start(who: str) -> None:
        works[who] = _feducb(broker, who, "serve")

    def kill(who: str) -> None:
        works[who].kill()
        works[who].communicate()

    async def run() -> None:
        everybody = ("controller", *(f"keepers/{name}" for name in KEEPERS))
        for who in everybody:
            start(who)
        async with running(*federation.agents(*NAMES)):
            for number, who in enumerate(everybody, start=1):
                kill(who)
                await asyncio.gather(federation.build(), _later(start, who))
                await federation.over(Label(1, 0, number))

    try:
        asyncio.run(run())
        told = json.loads(_feducb(broker, "keepers/b", "status").communicate(timeout=PATIENCE)[0])
        assert (told["running"], told["keeper"], told["season"]) == (True, "b", 1)
        works["keepers/b"].send_signal(signal.SIGTERM)
        _, log = works["keepers/b"].communicate(timeout=PATIENCE)
        assert works["keepers/b"].returncode == 0
        events = [json.loads(line)["event"] for line in log.splitlines()]
        assert (events[0], events[-1]) == ("started", "stopped")
        ended = _feducb(broker, "keepers/b", "status")
        said, complaint = ended.communicate(timeout=PATIENCE)
        assert (ended.returncode, json.loads(said)["answered"]) == (1, 4)
        assert complaint.startswith("the keeper does not run; it said this ")
        works["controller"].send_signal(signal.SIGTERM)
        works["controller"].communicate(timeout=PATIENCE)
        status = json.loads(_feducb(broker, "controller", "status").communicate(timeout=PATIENCE)[0])
        assert (status["newest_sum"], status["rows"]["row"], status["rows"]["quorum"]) == ([1, 4], 5, 4)
    finally:
        for work in works.values():
            work.kill()
            work.communicate()


async def _later(start: Any, who: str) -> None:
    await asyncio.sleep(0.2)
    start(who)


def test_settings_of_keepers_that_cannot_be_are_named(broker: Broker) -> None:
    _write_configs(broker)
    path = broker.folder / "keepers" / "b" / "keeper.toml"
    usual = path.read_text()
    for before, after, named in (
        ('agent = "b"', 'agent = "a"', "keeper is 'a', expected one of b, c, d"),
        ('agent = "b"', 'agent = "c"', "expected that of keeper c, as in the roster"),
        ('agent = "b"', "", "engine.agent is None, expected the keeper's name"),
        ('seed = "keeper.seed"', 'seed = "../../agents/b/agent.seed"', "expected that of keeper b"),
        ('trust = "keepers"', 'trust = "nobody"', "away is 1, expected nothing under trust nobody"),
        ('state = "keeper.db"', 'stat = "keeper.db"', "keeper.state is None, expected a value"),
        ('state = "keeper.db"', 'state = "keeper.db"\nseason = 0', "keeper.season is 0, expected"),
        ("away = 1", "away = 3", "expected at least 2 honest shares"),
    ):
        assert before in usual
        path.write_text(usual.replace(before, after, 1))
        with pytest.raises(ConfigurationError) as found:
            KeeperSettings.read(path).open().close()
        assert named in str(found.value)
    path = broker.folder / "controller" / "controller.toml"
    usual = path.read_text()
    path.write_text(usual.replace("deadline = 2.0", "deadline = 2.0\nquorum = 5"))
    with pytest.raises(ConfigurationError, match="quorum is 5, expected 4"):
        ControllerSettings.read(path).open()


AGENT = """
version = 1
[agent]
name = "b"
store = "agent.db"
[problem]
dim = 3
[privacy]
epsilon = 1.0
delta = 1e-6
trust = "keepers"
away = 1
colluding = 1
agents_per_person = 1
[federation]
agents = 5
[releases]
releases = 6
season = "1d"
start = 2100-01-01T00:00:00Z
[service]
port = 0
keys = "agent.keys"
[keeper]
state = "keeper.db"
seed = "{keys}/keepers/b/keeper.seed"
[engine]
kind = "nats"
servers = ["{url}"]
federation = "tests"
roster = "{keys}/federation.json"
seed = "{keys}/agents/b/agent.seed"
ca = "{keys}/ca.pem"
retry = 0.05
"""


def test_an_agent_is_its_own_keeper_in_one_process_and_promises_what_the_controller_reads(
    broker: Broker, tmp_path: Path
) -> None:
    """Its own rows are not waited for: one agent may be away."""
    config = tmp_path / "b" / "agent.toml"
    config.parent.mkdir()
    config.write_text(AGENT.format(url=broker.url, keys=broker.folder))
    file = read_agent_file(config)
    Agent.open(file.store, file.agent, member=file.member()).close()
    add_key(file.service.keys, "operator", "operator")
    printed = CliRunner().invoke(app, ["agent", "terms", "--config", str(config)]).stdout
    terms = terms_from_table(tomllib.loads(printed)["terms"], agents=5)
    for roster in (broker.roster, Roster.read(broker.folder / "federation.json")):
        assert Charter.of(roster, terms, 1) == Charter.of(broker.roster, file.agent.terms, 1)
    others = ("a", "c", "d", "e")
    federation = Federation(broker, tmp_path, terms)

    async def run() -> None:
        async with (
            federation.controlling(deadline=0.05) as (controller, book),
            federation.keeping("c", "d"),
            running(*federation.agents(*others)),
        ):
            for number in (1, 2):
                await federation.build(others)
                await federation.over(Label(1, 0, number), others)
            assert set(book.progress()) == set(others)
            assert subjects.keeper_user("b") in controller.heard
            while b"listening" not in (tmp_path / "log").read_bytes():  # from then on it stops when asked to
                await asyncio.sleep(0.05)

    command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(config)]
    with (tmp_path / "log").open("wb") as log:
        served = subprocess.Popen(command, stderr=log)
    try:
        asyncio.run(run())
    finally:
        served.terminate()
        assert served.wait(timeout=PATIENCE) == 0, (tmp_path / "log").read_text()
        federation.close()
    told = json.loads((config.parent / "keeper.db.status.json").read_text())
    assert (told["keeper"], told["answered"], told["refused"]) == ("b", 2, {})


def test_the_benchmark_of_secure_sums_runs_and_an_upload_has_700_bytes_at_most() -> None:
    """With few agents; the long one has a thousand."""
    found = secure_sums.measure(4, 2, 1)
    assert found["keepers_message_bytes"] == row_size(65) <= 700
    assert found["nobody_last_agent"] > 0.0
    assert found["keepers_last_agent"] > 0.0

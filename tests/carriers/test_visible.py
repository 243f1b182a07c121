"""Who is cut off or refused says so, in its log, status and metrics: real processes, a real broker."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from nats_world import PATIENCE, Broker, free_port, make_terms, record_streams, running, until

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys as keys
from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsController, NatsEngine, make_streams
from feducb.privacy.terms import Terms
from feducb.protocol.engine_health import BROKER, REFUSED, UNANSWERED
from feducb.protocol.graphs import parse_topology
from feducb.protocol.trouble import find
from feducb.service.api_keys import add_key
from feducb.storage import ReleaseBook
from feducb.system import quieten_asyncio
from troubles import troubles

NAMES = ("a", "b")
AGENT = """
version = 1
[agent]
name = "a"
store = "agent.db"
[problem]
dim = 3
[privacy]
epsilon = 1.0
delta = 1e-6
[federation]
agents = 2
[releases]
releases = 64
season = "64s"
start = {start}
[rewards]
window = "1s"
[service]
port = 0
keys = "agent.keys"
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:{port}"]
federation = "tests"
roster = "{keys}/federation.json"
seed = "{keys}/agents/a/agent.seed"
ca = "{ca}/ca.pem"
timeout = 2.0
retry = 0.05
refresh = 1.0
"""
CONTROLLER = """
[controller]
state = "controller.db"
[terms]
dim = 3
epsilon = {epsilon}
delta = 1e-6
releases = 64
{noise}
[engine]
kind = "nats"
servers = ["tls://127.0.0.1:{port}"]
federation = "tests"
roster = "{keys}/federation.json"
seed = "{keys}/controller/controller.seed"
ca = "{keys}/ca.pem"
retry = 0.05
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES)  # not started
    yield one
    one.stop()


class Served:
    """`feducb agent serve`, from its start to its end."""

    def __init__(self, folder: Path, broker: Broker, *, known_by: Path | None = None, more: str = "") -> None:
        folder.mkdir()
        self.config, self._log = folder / "agent.toml", folder / "log"
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        keys = known_by or broker.folder
        self.config.write_text(
            AGENT.format(port=broker.port, keys=keys, ca=broker.folder, start=start) + more
        )
        told = read_agent_file(self.config)
        Agent.open(told.store, told.agent).close()
        self.key = key = add_key(folder / "agent.keys", "operator", "operator")
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(self.config)]
            self.process = subprocess.Popen(command, stderr=log)
        self.wait(lambda: bool(self.events("listening")))
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.events('listening')[0]['port']}",
            headers={"authorization": f"Bearer {key}"},
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return [one for one in told if one["event"] == name]

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = self.http.get("/v1/status").raise_for_status().json()
        return told

    def metric(self, name: str) -> float:
        lines = self.http.get("/metrics").raise_for_status().text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    def wait(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=PATIENCE)


def _feducb(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "feducb", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_an_agent_says_that_the_broker_is_not_reached_and_when_it_is(broker: Broker, tmp_path: Path) -> None:
    with Served(tmp_path / "a", broker) as agent:
        agent.wait(lambda: len(agent.events("disconnected")) > 2)
        told = agent.status()
        assert troubles(told)["broker"].startswith("The broker is not reached. ")
        assert (told["engine"]["connected"], told["engine"]["sessions"]) == (False, 0)
        assert "Connection refused" in told["engine"]["last_error"]
        assert f"127.0.0.1:{broker.port}" in agent.events("disconnected")[0]["error"]
        assert agent.metric("feducb_engine_connected") == 0.0
        assert agent.http.get("/readyz").status_code == 200  # decisions need no broker
        failures = [one["failures"] for one in agent.events("disconnected")]
        assert failures == [2**place for place in range(len(failures))]  # not every attempt
        broker.start()
        agent.wait(lambda: bool(agent.status()["engine"]["connected"]))
        assert (agent.metric("feducb_engine_connected"), len(agent.events("connected"))) == (1.0, 1)
        agent.wait(
            lambda: "nobody answers" in troubles(agent.status()).get("unanswered", "")
        )  # there is no controller
        agent.wait(lambda: "NoRespondersError" in str(agent.events("no_answer")))
        agent.wait(
            lambda: json.loads(_feducb("agent", "status", "--json", "-", "-c", str(agent.config)).stdout)[
                "engine"
            ]["connected"]
        )
        shown = _feducb("watch", "--once", "--config", str(agent.config)).stdout
        assert [line for line in shown.splitlines() if "broker" in line and "  reached" in line]
    stopped = _feducb("agent", "status", "--config", str(agent.config)).stdout
    assert [line for line in stopped.splitlines() if " runs " in line and " no " in line]
    assert [line for line in stopped.splitlines() if " broker " in line and " not reached " in line]


def test_a_key_that_the_broker_does_not_know_is_named_and_nothing_else_is_said(
    broker: Broker, tmp_path: Path
) -> None:
    keys.init(tmp_path / "others", NAMES, federation="tests")
    broker.start()
    with Served(tmp_path / "a", broker, known_by=tmp_path / "others") as agent:
        agent.wait(lambda: len(agent.events("disconnected")) > 2)
        assert "the broker does not know this key" in agent.events("disconnected")[0]["error"]
        assert troubles(agent.status())["broker"].startswith("The broker is not reached. ")
    assert "eof_received" not in (tmp_path / "a" / "log").read_text()


def test_only_the_one_warning_of_asyncio_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    quieten_asyncio()
    quieten_asyncio()
    with caplog.at_level(logging.WARNING, "asyncio"):
        logging.getLogger("asyncio").warning(
            "returning true from eof_received() has no effect when using ssl"
        )
        logging.getLogger("asyncio").warning("something else")
    assert [one.getMessage() for one in caplog.records] == ["something else"]


def test_an_agent_whose_releases_are_refused_is_told_why_and_when_it_is_over(
    broker: Broker, tmp_path: Path
) -> None:
    broker.start()
    config = tmp_path / "controller.toml"

    def serve(epsilon: float, noise: str = "") -> subprocess.Popen[bytes]:
        where = {"port": broker.port, "keys": broker.folder}
        config.write_text(CONTROLLER.format(epsilon=epsilon, noise=noise, **where))
        with (tmp_path / "controller.log").open("ab") as log:
            command = [sys.executable, "-m", "feducb", "controller", "serve", "--config", str(config)]
            return subprocess.Popen(command, stderr=log)

    began, controller = time.time(), serve(8.0)
    try:
        with Served(tmp_path / "a", broker) as agent:
            agent.wait(lambda: bool(agent.events("release_refused")))
            refused = agent.events("release_refused")[0]
            assert (refused["number"], refused["reason"], refused["count"]) == (1, "variance", 1)
            assert "the sender's terms differ from those known here in epsilon" in refused["text"]
            told = agent.status()
            assert troubles(told)["refused"].startswith("Releases are refused. variance: ")
            assert (told["engine"]["sent"], told["engine"]["last_receipt_at"]) == (0, None)
            assert agent.metric('feducb_engine_refused_total{reason="variance"}') >= 1.0
            seen: dict[str, Any] = {}

            def written() -> bool:
                seen.update(json.loads(_feducb("controller", "status", "--config", str(config)).stdout))
                return "a" in seen["last_refusals"]

            agent.wait(written)  # it writes its status now and then
            assert (seen["running"], seen["connected"]) == (True, True)
            assert seen["last_refusals"]["a"]["text"].startswith("variance ")
            assert began <= seen["last_seen"]["a"] <= time.time()
            controller.kill()
            controller.wait()
            dead = _feducb("controller", "status", "--config", str(config))
            assert (dead.returncode, json.loads(dead.stdout)["connected"]) == (1, False)
            assert "the controller does not run" in dead.stderr
            known = read_agent_file(agent.config).agent.terms
            # nothing was taken in under the others
            controller = serve(1.0, f"quiet = {known.quiet}\ndecay = {known.decay}")
            agent.wait(lambda: bool(agent.status()["engine"]["last_receipt_at"]))
            agent.wait(lambda: "refused" not in troubles(agent.status()))
            assert agent.metric("feducb_engine_sent_total") >= 1.0
            assert agent.status()["engine"]["clock_off"] == 0.0  # it is the same machine's
            assert [one["kind"] for one in agent.events("trouble")].count("refused") == 1
            agent.wait(lambda: "refused" in [one["kind"] for one in agent.events("trouble_over")])
    finally:
        controller.kill()
        controller.wait()


def test_an_agent_that_refuses_a_neighbour_says_whom_and_why_and_when_it_is_over(tmp_path: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    broker = Broker(tmp_path / "keys", NAMES, topology=parse_topology("complete:2"))
    broker.start()
    asyncio.run(make_streams(broker.admin_settings()))

    def send(terms: Terms, number: int) -> None:
        """Release ``number`` of b, made under these terms."""
        engine = NatsEngine(broker.settings("b"), terms)
        box = MemoryMailbox(record_streams(["b"], terms, number)["b"][-1:])

        async def run() -> None:
            async with running(engine.run(box)):
                await until(lambda: engine.status.sent == 1)

        asyncio.run(run())

    try:
        with Served(tmp_path / "a", broker, more='state = "peers.db"\n') as agent:
            terms = read_agent_file(agent.config).agent.terms
            send(replace(terms, budget=replace(terms.budget, epsilon=8.0)), 1)
            agent.wait(lambda: bool(agent.events("neighbour_refused")))
            (refused,) = agent.events("neighbour_refused")
            assert (refused["agent"], refused["brought_by"], refused["reason"]) == ("b", "b", "variance")
            assert "the sender's terms differ from those known here in epsilon" in refused["text"]
            told = agent.status()
            assert troubles(told)["neighbours"].startswith(
                "Releases of neighbours are refused here. b: variance: variance "
            )
            assert told["engine"]["refused_neighbours"]["b"].keys() == {"variance"}
            metric = 'feducb_engine_neighbour_refused_total{agent="b",reason="variance"}'
            assert agent.metric(metric) >= 1.0  # b is told, and offers it again
            agent.wait(
                lambda: "b (variance " in _feducb("agent", "status", "--config", str(agent.config)).stdout
            )
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                page = browser.new_page()
                page.goto(f"{agent.http.base_url}/#key={agent.key}")
                expect(page.locator("#sync-said")).to_contain_text(
                    re.compile(r"Refused here, of neighbours: b \(variance \d+\)\.")
                )
                expect(page.locator("#trouble")).to_contain_text("Releases of neighbours are refused here. b")
                browser.close()
            send(terms, 2)
            agent.wait(lambda: "neighbours" not in troubles(agent.status()))
            counted = agent.status()["engine"]["refused_neighbours"]["b"]["variance"]  # it stays
            assert 1 <= len(agent.events("neighbour_refused")) <= counted
    finally:
        broker.stop()


def test_a_sum_below_the_quorum_is_refused_visibly(broker: Broker, tmp_path: Path) -> None:
    """A controller with a lower quorum than the agent's: its sums are counted, and not acted on."""
    broker.start()
    with Served(tmp_path / "a", broker) as agent:  # both of two agents, as no quorum is given
        terms = read_agent_file(agent.config).agent.terms

        async def run() -> None:
            everybody = dict.fromkeys(NAMES, terms)
            with ReleaseBook(tmp_path / "c.db", everybody, quorum=1, deadline=0.0) as book:
                async with running(NatsController(broker.controller_settings(), book).run()):
                    await until(lambda: bool(agent.events("sum_refused")))

        asyncio.run(run())
        assert "is over 1 agent, expected 2" in agent.events("sum_refused")[0]["error"]
        told = agent.status()
        assert told["model"] == ["1.0"]
        assert told["counts"]["refused_sums"] >= 1
        assert agent.metric('feducb_events_total{event="refused_sums"}') >= 1.0


def test_trouble_is_said_when_it_changes_and_ever_more_rarely(broker: Broker) -> None:
    said: list[tuple[str, int]] = []
    status = EngineStatus()
    settings = replace(broker.settings("a"), retry=0.005, servers=(f"tls://127.0.0.1:{free_port()}",))
    link = Link(settings, "a", status, lambda event, **facts: said.append((event, facts.get("failures", 0))))

    async def session(_: object) -> None:
        raise AssertionError("there is nobody")

    async def run() -> None:
        async with running(link.keep(session)):
            await until(lambda: status.failures > 20)

    asyncio.run(run())
    assert said[:5] == [("disconnected", count) for count in (1, 2, 4, 8, 16)]
    assert find([BROKER], {"engine": status.as_dict()})


def test_sessions_that_end_at_once_do_not_fill_the_log(broker: Broker) -> None:
    broker.start()
    said: list[str] = []
    status = EngineStatus()
    settings = replace(broker.settings("a"), retry=0.02)
    link = Link(settings, "a", status, lambda event, **facts: said.append(event))

    async def session(_: object) -> None:
        raise OSError("the disk is full")

    async def run() -> None:
        async with running(link.keep(session)):
            await until(lambda: status.sessions > 9)

    asyncio.run(run())
    assert said.count("disconnected") == said.count("connected") or said[-1] == "connected"
    assert 3 < said.count("disconnected") <= math.log2(status.sessions) + 1  # the 1st, 2nd, 4th, … time


def test_a_link_that_is_stopped_while_a_session_fails_stops(broker: Broker) -> None:
    broker.start()
    link = Link(broker.settings("a"), "a", EngineStatus(), lambda event, **facts: None)
    failing: list[asyncio.Future[None]] = []

    async def session(_: object) -> None:
        failing[0].cancel()  # delivered at the next await, when the error is already on its way
        raise OSError("the disk is full")

    async def run() -> None:
        failing.append(asyncio.ensure_future(link.keep(session)))
        done, _ = await asyncio.wait(failing, timeout=PATIENCE)
        assert done

    asyncio.run(run())
    assert failing[0].cancelled()


def test_a_controller_that_waits_for_the_broker_knows_its_newest_sum_and_when_agents_were_there(
    broker: Broker, tmp_path: Path
) -> None:
    terms = make_terms(releases=8)
    everybody = dict.fromkeys(NAMES, terms)
    with ReleaseBook(tmp_path / "c.db", everybody) as book:
        batch = [(name, one.body) for name, (one,) in record_streams(NAMES, terms, 1).items()]
        book.exchange(batch[:1], now=1000.0)
        book.exchange(batch[1:], now=2000.0)
    with ReleaseBook(tmp_path / "c.db", everybody) as book:
        controller = NatsController(broker.controller_settings(), book)
        assert (controller.status.newest, controller.status.members) == ((1, 1), NAMES)
        assert book.last_received() == {"a": 1000.0, "b": 2000.0}
        assert [(one["number"], one["published_at"], one["names"]) for one in book.sums()] == [
            (1, 2000.0, ["a", "b"])
        ]


def test_an_engine_counts_what_arrived_and_when(broker: Broker, tmp_path: Path) -> None:
    broker.start()
    terms = make_terms(releases=8)
    box = MemoryMailbox(record_streams(["a"], terms, 2)["a"])
    began = time.time()

    async def run() -> EngineStatus:
        with ReleaseBook(tmp_path / "c.db", dict.fromkeys(NAMES, terms)) as book:
            controller = NatsController(broker.controller_settings(), book)
            engine = NatsEngine(broker.settings("a"), terms)
            async with running(controller.run(), engine.run(box)):
                await until(lambda: engine.status.sent == 2)
            assert set(controller.heard) == {"a"}
            assert began <= controller.heard["a"] <= time.time()
            return engine.status

    status = asyncio.run(run())
    assert status.last_receipt_at is not None
    assert began <= status.last_receipt_at <= time.time()
    assert find([REFUSED, UNANSWERED], {"engine": status.as_dict() | {"connected": True}}) == []

"""`feducb controller` as a user runs it: real processes, a real server, killed and started again."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from nats_world import (
    PATIENCE,
    Broker,
    make_terms,
    record_streams,
    require_server,
    run_agents,
    running,
    until,
)

from feducb.carriers import nats_keys as keys
from feducb.carriers.controller_process import InForce, JsonLog
from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import EngineStatus, Link
from feducb.carriers.nats.link import KeyRefusedError
from feducb.controller.controller_file import ControllerSettings
from feducb.errors import ConfigurationError
from feducb.protocol import messages
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.parcels import Parcel
from feducb.service.json_logs import set_up_logs
from troubles import troubles

NAMES = ("a", "b", "c")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CONFIG = """
[controller]
state = "controller.db"
quorum = 2
deadline = 0.2

[terms]
dim = 3
epsilon = 1.0
delta = 1e-6
releases = 8

[engine]
kind = "nats"
servers = ["{url}"]
federation = "tests"
roster = "federation.json"
seed = "controller.seed"
ca = "ca.pem"
retry = 0.1
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES)
    one.start()
    (one.folder / "controller" / "controller.toml").write_text(CONFIG.format(url=one.url))
    yield one
    one.stop()


def _feducb(broker: Broker, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "feducb", "controller", *arguments, "--config", "controller.toml"]
    where = broker.folder / "controller"
    return subprocess.Popen(
        command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def _number(box: MemoryMailbox) -> int:
    return messages.decode(box.newest[0]).number if box.newest else 0


def test_a_controller_is_killed_goes_on_says_how_it_is_and_ends_on_sigterm(broker: Broker) -> None:
    terms = make_terms(releases=8)
    streams = record_streams(NAMES, terms, 3)
    boxes = {name: MemoryMailbox(keep_all=True) for name in NAMES}

    async def run() -> subprocess.Popen[str]:
        controller = _feducb(broker, "serve")
        _, agents = run_agents(broker, dict(boxes), terms)
        async with running(*agents):
            for number in range(3):
                for name in NAMES:
                    boxes[name].put(streams[name][number])
                await until(lambda number=number: all(_number(box) == number + 1 for box in boxes.values()))  # type: ignore[misc]
                if number < 2:
                    controller.kill()
                    controller.communicate()
                    controller = _feducb(broker, "serve")
        return controller

    controller = asyncio.run(run())
    second = _feducb(broker, "serve")
    _, complaint = second.communicate()
    assert second.returncode == 2
    assert "is open elsewhere" in complaint
    controller.send_signal(signal.SIGTERM)
    _, log = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 0
    events = [json.loads(line) for line in log.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["started", "stopped"]
    assert {"at": events[-3]["at"]} | {"event": "sum", "season": 1, "number": 3, "agents": 3} == {
        key: events[-3][key] for key in ("at", "event", "season", "number", "agents")
    }
    ended = _feducb(broker, "status")
    said, complaint = ended.communicate()
    told = json.loads(said)
    assert (ended.returncode, told["running"], told["connected"]) == (1, False, False)
    assert complaint.startswith("the controller does not run; it said this ")
    assert told["newest_sum"] == [1, 3]
    assert told["newest_message"] == dict.fromkeys(NAMES, 3)
    assert told["agents_in_it"] == list(NAMES)
    for name in NAMES:
        assert {key: len(value) for key, value in boxes[name].history.items()}.keys() == {
            (1, 0, 1),
            (1, 0, 2),
            (1, 0, 3),
        }


def test_controller_and_agents_log_times_in_one_form(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = io.StringIO(), io.StringIO()
    before = datetime.now(UTC).replace(microsecond=0)
    JsonLog(streams[0])("started")
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        monkeypatch.setattr(sys, "stderr", streams[1])
        set_up_logs()
        logging.getLogger("feducb").info("started")
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
        logging.captureWarnings(False)
    controller, agent = (json.loads(stream.getvalue())["at"] for stream in streams)
    for at in (controller, agent):
        moment = datetime.fromisoformat(at)
        assert moment.tzinfo == UTC
        assert before <= moment <= datetime.now(UTC)
    assert len(controller) == len(agent) == len("2027-01-31T12:00:00.000+00:00")


def test_a_new_key_of_an_agent_counts_at_once_though_nobody_else_is_restarted(
    broker: Broker, tmp_path: Path
) -> None:
    """Broker and controller take over what `feducb keys rotate --agent` wrote while they run."""
    terms = make_terms(releases=8)
    first, second = record_streams(["a"], terms, 2)["a"]

    async def send(item: Parcel) -> tuple[int, int]:
        """As a fresh agent with what lies in its folder; returns how often it was taken and refused."""
        engines, agents = run_agents(broker, {"a": MemoryMailbox([item])}, terms)
        status = engines["a"].status
        async with running(*agents):
            await until(lambda: status.sent + status.refused["signature"] > 0)
        return status.sent, status.refused["signature"]

    controller = _feducb(broker, "serve")
    assert asyncio.run(send(first)) == (1, 0)
    (tmp_path / "old.seed").write_bytes((broker.folder / "agents" / "a" / "agent.seed").read_bytes())
    old = replace(broker.settings("a"), seed=tmp_path / "old.seed")
    keys.rotate(broker.folder, agents=["a"])
    broker.reload()
    end = time.monotonic() + PATIENCE
    while asyncio.run(send(second)) != (1, 0):  # until the controller has looked, a moment later
        assert time.monotonic() < end
    with pytest.raises(KeyRefusedError):
        asyncio.run(_connect(old))
    controller.terminate()
    controller.communicate(timeout=PATIENCE)


async def _connect(settings: NatsSettings) -> None:
    async with Link(settings, "a", EngineStatus()).connected():
        pass


def test_other_terms_in_the_middle_of_a_season_are_refused_in_a_sentence(broker: Broker) -> None:
    path = broker.folder / "controller" / "controller.toml"
    payload = record_streams(["a"], make_terms(releases=8), 1)["a"][0].body
    collector = ControllerSettings.read(path).open()
    assert collector.receive([("a", payload)], now=time.time())[0].status == "stored"
    collector.close()
    path.write_text(path.read_text().replace("epsilon = 1.0", "epsilon = 8.0"))
    started = _feducb(broker, "serve")
    _, complaint = started.communicate(timeout=PATIENCE)
    assert started.returncode == 2
    told = " ".join(complaint.split())
    assert "terms.epsilon of a is 8.0, expected 1.0, under which" in told
    assert "raise `season`" in told
    path.write_text(path.read_text().replace("quorum = 2", "quorum = 2\nseason = 2"))
    ControllerSettings.read(path).open().close()


def test_a_controller_that_waits_for_the_broker_says_so_and_is_killed_visibly(broker: Broker) -> None:
    path = broker.folder / "controller" / "controller.toml"
    streams = record_streams(NAMES, make_terms(releases=8), 1)
    collector = ControllerSettings.read(path).open()
    collector.exchange([(name, streams[name][0].body) for name in NAMES], now=1000.0)
    collector.close()
    broker.stop()
    controller = _feducb(broker, "serve")
    state = path.with_name("controller.db.status.json")
    end = time.monotonic() + PATIENCE
    while not state.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    told = json.loads(_feducb(broker, "status").communicate()[0])
    while "broker" not in troubles(told):  # it has not tried yet when it first says how it is
        assert time.monotonic() < end
        told = json.loads(_feducb(broker, "status").communicate()[0])
    assert (told["running"], told["connected"], told["newest_sum"]) == (True, False, [1, 1])
    assert told["last_seen"] == dict.fromkeys(NAMES, 1000.0)
    assert [(one["number"], one["published_at"]) for one in told["sums"]] == [(1, 1000.0)]
    assert "silent" in troubles(told)
    controller.kill()
    controller.communicate()
    dead = _feducb(broker, "status")
    assert "the controller does not run" in dead.communicate()[1]
    assert dead.returncode == 1


def test_settings_that_cannot_be_are_named(tmp_path: Path, broker: Broker) -> None:
    path = broker.folder / "controller" / "controller.toml"
    usual = path.read_text()
    for before, after, named in (
        ("quorum = 2", "quorom = 2", "controller.quorom is 2, expected one of"),
        ('state = "controller.db"', "", "controller.state is None, expected a value"),
        ("dim = 3", "dim = 0", "dim is 0, expected"),
        ("releases = 8", 'releases = 8\ntrust = "controller"', "engine.sealing is None, expected a key file"),
        ("releases = 8", "releases = 8\nagents_per_person = 4", "agents_per_person is 4, expected at most"),
        ('seed = "controller.seed"', 'seed = "no.seed"', "expected a file that exists"),
        ('federation = "tests"', 'federation = "others"', "engine.federation is 'others', expected tests"),
        ('kind = "nats"', 'kind = "smoke"', "engine.kind is 'smoke', expected nats"),
        ("servers = [", "servers = [3, ", "engine.servers is 3, expected tls://"),
        ("[terms]", "[budgets.x]\nepsilon = 1.0\ndelta = 0.1\n[terms]", "budgets.x is"),
        ("[terms]", "[terms", "expected a TOML file"),
    ):
        assert before in usual
        path.write_text(usual.replace(before, after, 1))
        with pytest.raises(ConfigurationError) as found:
            ControllerSettings.read(path)
        assert named in str(found.value)
    path.write_text(usual.replace("quorum = 2", "quorum = 4"))
    with pytest.raises(ConfigurationError, match="quorum is 4, expected at most 3"):
        ControllerSettings.read(path).open()


def test_a_trusted_controller_covers_a_person_at_all_agents_unless_told_otherwise(broker: Broker) -> None:
    path = broker.folder / "controller" / "controller.toml"
    usual = path.read_text().replace('seed = "con', 'sealing = "controller.x25519"\nseed = "con', 1)
    for stated, agents, records in (("", 3, 6), ("agents_per_person = 1\n", 1, 2)):
        more = f'records_per_person = 2\ntrust = "controller"\n{stated}'
        path.write_text(usual.replace("releases = 8\n", f"releases = 8\n{more}", 1))
        for terms in ControllerSettings.read(path).terms.values():
            assert (terms.agents_per_person, terms.records_covered) == (agents, records)
    path.write_text(usual)
    assert {terms.agents_per_person for terms in ControllerSettings.read(path).terms.values()} == {1}


def test_an_agents_table_is_read_with_paths_beside_its_file(broker: Broker) -> None:
    table = {
        "kind": "nats",
        "servers": [broker.url],
        "federation": "tests",
        "agent": "a",
        "roster": "federation.json",
        "seed": "agent.seed",
        "ca": "ca.pem",
        "retry": 2.0,
    }
    folder = broker.folder / "agents" / "a"
    settings = NatsSettings.from_table(table, base=folder)
    assert (settings.seed, settings.retry, settings.agent) == (folder / "agent.seed", 2.0, "a")
    with pytest.raises(ConfigurationError, match=r"engine\.agent is 'z', expected one of a, b, c"):
        NatsSettings.from_table(table | {"agent": "z"}, base=folder).read_roster()
    with pytest.raises(ConfigurationError, match=r"engine\.retry is 0, expected"):
        NatsSettings.from_table(table | {"retry": 0}, base=folder)


@pytest.mark.parametrize("mode", ["controller", "graph"])
def test_killed_at_random_nothing_comes_apart(tmp_path: Path, mode: str) -> None:
    """A short run of the benchmark: 10 kills; the long one has more than 100."""
    require_server()
    out = tmp_path / "out.json"
    command = [sys.executable, "chaos_nats.py", "--kills", "10", "--mode", mode, "--json", str(out)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert sum(found["kills"].values()) == 10
    assert found["releases_made"] > 40
    assert found["releases_that_differ_from_the_file"] == 0
    assert found["seconds_until_all_agreed"] is not None
    if mode == "controller":
        assert found["releases_seen"] > 20
        assert (found["release_numbers_with_two_contents"], found["sum_numbers_with_two_contents"]) == (0, 0)
    print(f"\n{mode}: {time.monotonic() - began:.1f} s, {found}")


def test_status_goes_by_the_version_that_holds_in_the_season(broker: Broker) -> None:
    path = broker.folder / "controller" / "controller.toml"
    first, second, third = (ControllerSettings.read(path) for _ in range(3))
    versions = InForce(first, 1)
    versions.take(second, 2)
    assert versions.at(1) is first
    versions.take(third, 2)  # edited once more within season 1
    assert versions.at(2) is third
    versions.take(second, 3)
    assert versions.at(2) is third
    assert versions.at(4) is second  # a season was skipped

"""Hostile clients on a real nats-server: they are refused and counted, nobody falls, the others go on."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from nats_world import PATIENCE, Broker, make_terms, record_streams, run_agents, running, until

from feducb.carriers import nats_keys as keys
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsController, NatsEngine
from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import frames, messages
from feducb.protocol.admission import Receipt
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.roster import Signer
from feducb.storage import ReleaseBook

NAMES = ("a", "b", "c")
TERMS = make_terms(releases=200)
FUZZ = 1500  # messages


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES, max_payload=4096)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def book(tmp_path: Path) -> Iterator[ReleaseBook]:
    with ReleaseBook(tmp_path / "controller.db", dict.fromkeys(NAMES, TERMS), quorum=2, deadline=0.2) as one:
        yield one


def _number(box: MemoryMailbox) -> int:
    return messages.decode(box.newest[0]).number if box.newest else 0


async def _say(broker: Broker, agent: str, data: bytes, *, subject: str | None = None) -> Receipt:
    """One message with an agent's key, as raw as it can be."""
    controller = broker.roster.controller
    assert controller is not None
    async with Link(broker.settings(agent), agent, EngineStatus()).connected() as client:
        reply = await client.request(
            subject or subjects.topic("tests", "release", agent), data, timeout=PATIENCE
        )
    return frames.read_receipt(data, frames.unframe(controller, reply.data, "receipt", "tests", agent))


def test_a_misbehaving_agent_is_refused_and_reported_and_the_others_go_on(
    broker: Broker, book: ReleaseBook
) -> None:
    streams = record_streams(NAMES, TERMS, 3)
    other = record_streams(["c"], TERMS, 3, seed=8)["c"]
    boxes = {name: MemoryMailbox(streams[name]) for name in ("a", "b")}
    signer, wrong = (Signer(broker.settings(name).seed) for name in ("c", "a"))

    def said(payload: bytes, signed_by: Signer = signer) -> bytes:
        return frames.frame(signed_by, payload, "release", "tests", "c")

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        engines, agents = run_agents(broker, dict(boxes), TERMS)
        async with running(controller.run(), *agents):
            await until(lambda: engines["a"].status.sent > 0)  # the controller is there
            assert (await _say(broker, "c", said(streams["c"][0].body))).status == "stored"
            assert (await _say(broker, "c", said(streams["c"][0].body))).status == "known"
            cases = {
                "replay": said(other[0].body),
                "signature": said(streams["c"][1].body, wrong),
                "size": said(streams["c"][1].body + b"x"),
                "malformed": said(b"\xff" * len(other[0].body)),
                "season": said(record_streams(["c"], TERMS, 1, season=2)["c"][0].body),
            }
            for reason, data in cases.items():
                receipt = await _say(broker, "c", data)
                assert (receipt.status, receipt.reason) == ("refused", reason)
            assert (await _say(broker, "c", b"short")).reason == "size"
            await until(lambda: all(_number(box) == 3 for box in boxes.values()))
        counted = dict.fromkeys(cases, 1) | {"size": 2}
        assert controller.refusals.as_dict() == {"c": counted}

    asyncio.run(run())


def test_nobody_speaks_or_listens_beyond_its_permissions(broker: Broker, book: ReleaseBook) -> None:
    status = EngineStatus()

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        async with running(controller.run()), Link(broker.settings("c"), "c", status).connected() as client:
            forbidden = [
                subjects.topic("tests", "release", "a"),
                subjects.topic("tests", "sum"),
                f"{subjects.inbox('a')}.x",
                "$JS.API.INFO",
            ]
            for subject in forbidden:
                await client.publish(subject, b"x")
            for subject in ("feducb.>", subjects.topic("tests", "release", "*"), f"{subjects.inbox('a')}.>"):
                await client.subscribe(subject)
            await client.flush()
            await until(lambda: status.errors["Error"] == 7)
            assert "permissions violation" in status.last_error.lower()
        assert controller.refusals.total == 0  # nothing got there

    asyncio.run(run())


def test_an_oversized_message_ends_its_own_connection_alone(broker: Broker, book: ReleaseBook) -> None:
    streams = record_streams(["a", "b"], TERMS, 2)
    boxes = {name: MemoryMailbox(streams[name]) for name in ("a", "b")}

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        engines, agents = run_agents(broker, dict(boxes), TERMS)
        async with running(controller.run(), *agents):
            with suppress(BaseExceptionGroup):  # the server hangs up
                async with Link(broker.settings("c"), "c", EngineStatus()).connected() as client:
                    client._max_payload = 10**9  # a client that does not look
                    await client.publish(subjects.topic("tests", "release", "c"), bytes(10**6))
                    await asyncio.sleep(PATIENCE)  # it is cut short
                    pytest.fail("the server took an oversized message")
            await until(lambda: all(_number(box) == 2 for box in boxes.values()))
        assert [engine.status.sessions for engine in engines.values()] == [1, 1]

    asyncio.run(run())


def test_an_agent_with_an_oversized_release_in_its_outbox_keeps_trying_and_hears_the_others(
    broker: Broker, book: ReleaseBook
) -> None:
    streams = record_streams(["a", "b"], TERMS, 2)
    boxes = {name: MemoryMailbox(streams[name]) for name in ("a", "b")}
    boxes["c"] = MemoryMailbox([Parcel(ParcelKind.RELEASE, 1, 0, 1, bytes(8000))])

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        engines, agents = run_agents(broker, dict(boxes), TERMS)
        async with running(controller.run(), *agents):
            await until(lambda: all(_number(box) == 2 for box in boxes.values()))
        assert engines["c"].status.errors["MaxPayloadError"] > 0

    asyncio.run(run())


def test_a_fuzzed_controller_takes_in_nothing_wrong_does_not_grow_and_serves_the_others(
    broker: Broker, book: ReleaseBook
) -> None:
    """Random bytes, damaged releases, damaged frames, validly signed damage; on every subject c may use."""
    draws = random.Random(11)
    streams = record_streams(NAMES, TERMS, 3)
    boxes = {name: MemoryMailbox(streams[name]) for name in ("a", "b")}
    signer = Signer(broker.settings("c").seed)

    def fuzz(kind: str) -> bytes:
        payload = bytearray(streams["c"][draws.randrange(3)].body)
        for _ in range(draws.randint(1, 4)):
            payload[draws.randrange(len(payload))] = draws.getrandbits(8)
        cut = bytes(payload[: draws.choice((len(payload), draws.randrange(len(payload))))])
        signed = frames.frame(signer, cut, kind, "tests", "c")
        return draws.choice((draws.randbytes(draws.randint(0, 300)), cut, signed, signed[:-1]))

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        engines, agents = run_agents(broker, dict(boxes), TERMS)
        async with running(controller.run(), *agents) as tasks:
            await until(lambda: engines["a"].status.sent > 0)  # the controller is there
            async with Link(broker.settings("c"), "c", EngineStatus()).connected() as client:
                inbox = f"{subjects.inbox('c')}.fuzz"
                for index in range(FUZZ):
                    kind = draws.choice(("release", "upload", "ask"))
                    reply = draws.choice((inbox, "", "_INBOX.a.x"))
                    await client.publish(subjects.topic("tests", kind, "c"), fuzz(kind), reply=reply)
                    if index == FUZZ // 3:
                        await client.flush()
                        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                await client.flush()
            await until(lambda: all(_number(box) == 3 for box in boxes.values()))
            receipt = await _say(broker, "c", frames.frame(signer, b"", "release", "tests", "c"))
            assert receipt.status == "refused"  # so all that came before has been looked at
            assert not tasks[0].done()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown < 30_000, f"memory grew by {grown} kB"
        assert controller.status.sessions == 1
        assert controller.refusals.total > FUZZ // 2
        assert set(controller.refusals.as_dict()) == {"c"}

    asyncio.run(run())


ODD = {
    "a tab of the other kind in the reply": b"PUB {} _INBOX.c.\x0bx 0\r\n\r\n",
    "no text in the reply": b"PUB {} _INBOX.c.\xff 0\r\n\r\n",
    "a header that ends too soon": b"HPUB {} _INBOX.c.x 8 8\r\nNATS/1.0\r\n",
    "a status that is no text": b"HPUB {} _INBOX.c.x 16 16\r\nNATS/1.0 \xff\xff\xff\r\n\r\n\r\n",
    "a status": b"HPUB {} _INBOX.c.x 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
}


def test_lines_that_trip_the_client_library_neither_deafen_nor_disconnect_the_controller(
    broker: Broker, book: ReleaseBook
) -> None:
    streams = record_streams(NAMES, TERMS, len(ODD) + 1)
    boxes = {name: MemoryMailbox(streams[name][:1]) for name in ("a", "b")}

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        _, agents = run_agents(broker, dict(boxes), TERMS)
        async with running(controller.run(), *agents):
            await until(lambda: all(_number(box) == 1 for box in boxes.values()))
            for number, (name, line) in enumerate(ODD.items(), start=2):
                for kind in ("release", "ask"):
                    raw = line.replace(b"{}", subjects.topic("tests", kind, "c").encode())
                    async with Link(broker.settings("c"), "c", EngineStatus()).connected() as client:
                        await client._send_command(raw)
                        await client.flush()
                for box, agent in zip(boxes.values(), boxes, strict=True):
                    box.put(streams[agent][number - 1])
                await until(lambda n=number: all(_number(box) == n for box in boxes.values()))  # type: ignore[misc]
                assert controller.status.sessions == 1, name

    asyncio.run(run())


def test_a_flood_is_dropped_not_kept_and_the_others_go_on(broker: Broker, book: ReleaseBook) -> None:
    """More than the controller can look at: what waits is bounded by agent, so the others' messages pass."""
    streams = record_streams(NAMES, TERMS, 3)
    boxes = {name: MemoryMailbox(streams[name][:1]) for name in ("a", "b")}
    known = frames.frame(Signer(broker.settings("c").seed), streams["c"][0].body, "release", "tests", "c")
    sent = 20_000

    async def flood(data: bytes) -> None:
        line = f"PUB {subjects.topic('tests', 'release', 'c')} _INBOX.c.x {len(data)}\r\n".encode()
        async with Link(broker.settings("c"), "c", EngineStatus()).connected() as client:
            for _ in range(sent // 100):
                await client._send_command((line + data + b"\r\n") * 100)
                await client.flush()

    async def run() -> None:
        controller = NatsController(broker.controller_settings(), book)
        _, agents = run_agents(broker, dict(boxes), TERMS)
        async with running(controller.run(), *agents):
            await until(lambda: all(_number(box) == 1 for box in boxes.values()))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for number, data in ((2, known[:-1] + b"?"), (3, known)):  # not signed; signed, again and again
                dropped = controller.status.errors.total()
                async with running(flood(data), may_end=True):
                    for agent, box in boxes.items():
                        box.put(streams[agent][number - 1])
                    await until(lambda n=number: all(_number(box) == n for box in boxes.values()))  # type: ignore[misc]
                    await until(lambda d=dropped: controller.status.errors.total() > d)  # type: ignore[misc]
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown < 60_000, f"memory grew by {grown} kB"
        assert controller.status.sessions == 1

    asyncio.run(run())


def test_a_key_that_the_server_does_not_know_gets_nowhere(broker: Broker, tmp_path: Path) -> None:
    keys.init(tmp_path / "others", NAMES, federation="tests")
    settings = broker.settings("a")
    stranger = NatsEngine(_with_seed(broker, tmp_path / "others" / "agents" / "a"), TERMS)

    async def run() -> None:
        async with running(stranger.run(MemoryMailbox())):
            await until(lambda: sum(stranger.status.errors.values()) > 2)
        assert stranger.status.sessions == 0
        assert "authorization" in stranger.status.last_error.lower()

    asyncio.run(run())
    with pytest.raises(ConfigurationError, match=r"engine.seed is 'U.*', expected the seed of U"):
        NatsEngine(broker.settings("a", seed_of="b"), TERMS)
    assert settings.seed.stat().st_mode & 0o777 == 0o600


def _with_seed(broker: Broker, folder: Path) -> NatsSettings:

    return replace(broker.settings("a"), seed=folder / "agent.seed", roster=folder / "federation.json")


@pytest.mark.parametrize("fault", ["expired", "another authority", "another host"])
def test_a_server_whose_certificate_is_not_good_is_not_talked_to(
    broker: Broker, tmp_path: Path, fault: str
) -> None:
    if fault == "expired":
        keys.issue_server_certificate(broker.folder, ["127.0.0.1"], valid=timedelta(days=-1))
    elif fault == "another host":
        keys.issue_server_certificate(broker.folder, ["192.0.2.1"], valid=timedelta(days=1))
    else:
        keys.init(tmp_path / "others", NAMES, federation="tests")
        (tmp_path / "others" / "ca.pem").replace(broker.folder / "ca.pem")
    broker.stop()
    broker.start()
    engine = NatsEngine(broker.settings("a"), TERMS)

    async def run() -> None:
        async with running(engine.run(MemoryMailbox())):
            await until(lambda: sum(engine.status.errors.values()) > 2)

    asyncio.run(run())
    assert engine.status.sessions == 0
    found = engine.status.errors
    assert any("Cert" in kind for kind in found), found


def test_a_server_without_tls_gets_no_message(broker: Broker) -> None:
    broker.stop()
    path = broker.folder / "server" / "nats-server.conf"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("tls")))
    broker.start()
    engine = NatsEngine(broker.settings("a"), TERMS)

    async def run() -> None:
        async with running(engine.run(MemoryMailbox())):
            await until(lambda: engine.status.errors["ConnectionError"] > 1)

    asyncio.run(run())
    assert engine.status.sessions == 0
    assert "does not ask for TLS" in engine.status.last_error


def test_a_sum_that_the_controller_did_not_sign_is_not_absorbed(broker: Broker, book: ReleaseBook) -> None:
    streams = record_streams(NAMES, TERMS, 1)
    box = MemoryMailbox()
    engine = NatsEngine(broker.settings("a"), TERMS)

    async def run() -> None:
        link = Link(broker.controller_settings(), subjects.CONTROLLER, EngineStatus())
        async with running(engine.run(box)), link.connected() as client:
            forged = frames.frame(Signer(broker.settings("b").seed), b"x", "sum")
            for data in (b"", b"x" * 200, forged, streams["a"][0].body):
                before = engine.status.errors["RefusedError"]
                while engine.status.errors["RefusedError"] == before:  # it may not listen yet
                    await client.publish(subjects.topic("tests", "sum"), data)
                    await asyncio.sleep(0.05)
        assert box.absorbed == 0

    asyncio.run(run())


def test_one_that_has_left_and_is_not_cut_off_yet_is_refused(broker: Broker, book: ReleaseBook) -> None:
    keys.remove(broker.folder, "a", season=1)  # the server is not reloaded
    link = NatsController(broker.controller_settings(), book)
    data = frames.frame(Signer(broker.settings("a").seed), b"", ParcelKind.RELEASE, "tests", "a")
    with pytest.raises(RefusedError, match="sender: 'a' is not of this federation any more"):
        link._open(ParcelKind.RELEASE, "a", data)

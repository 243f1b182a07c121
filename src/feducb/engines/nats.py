"""Over NATS: an agent's engine with a controller or on a graph, and the controller's link. See `subjects`.

Every loss of the connection ends a *session*; the next begins from what is on disk. So there is one way to
start, and it is the way to go on after a crash of any part.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from feducb import subjects
from feducb.engines import frames
from feducb.engines.base import Mailbox
from feducb.engines.collect import Collector
from feducb.engines.peering import Packet, PeerDriver
from feducb.engines.settings import NatsSettings
from feducb.errors import ConfigurationError, MissingExtraError, RefusedError
from feducb.privacy.deployed import Terms
from feducb.protocol import sums
from feducb.protocol.admission import RefusalCount
from feducb.roster import Roster, Signer, open_sealed, seal_for
from feducb.store import PeerBook, Receipt, Unsent

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

__all__ = ["EngineStatus", "NatsController", "NatsEngine", "make_streams"]

_RAW_MARK = b"RAW1"  # of uploads: they never travel unsealed
_SLOWER = 10  # so many times the retry time between attempts, at most
_BATCH = 256
_HELD = 10_000  # messages that wait for the controller's disk; what comes on top is sent again by its agent
_REFUSED_AGAIN = 60.0  # seconds until a release that was refused is offered again
_FETCH = 64
_FETCH_SECONDS = 2.0


Log = Callable[..., None]  # an event's name, and facts about it


def _say_nothing(event: str, **facts: object) -> None:
    pass


@dataclass(slots=True)
class EngineStatus:
    """What an engine has done; for dashboards and logs, without private data.

    Attributes:
        connected: whether there is a session now.
        sessions: how many there were.
        sent: releases or uploads that the other side has on disk.
        absorbed: sums that were new.
        newest: season and number of the newest one.
        members: who is in it.
        refused: own messages that were refused, by reason.
        errors: by kind.
        last_error: the last one, in words.
    """

    connected: bool = False
    sessions: int = 0
    sent: int = 0
    absorbed: int = 0
    newest: tuple[int, int] | None = None
    members: tuple[str, ...] = ()
    refused: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: str = ""

    def fail(self, error: BaseException) -> None:
        """Count an error; kinds are types, so there are few."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        self.errors[type(error).__name__] += 1
        self.last_error = f"{type(error).__name__}: {error}"[:500]


_Result = TypeVar("_Result")


class _DisconnectedError(ConnectionError):
    """The session is over."""


async def _apart(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Await a call of nats-py in a task of its own.

    Some calls swallow a cancellation, and then we would never end; some are cancelled when the connection
    closes, and then we would end without anybody having asked for it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled() and not _asked_to_end():
            raise _DisconnectedError("the connection was closed during a call") from None
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
        task.cancel()
        raise


def _asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Link:
    """Connects again and again; each connection is one session."""

    def __init__(
        self, settings: NatsSettings, name: str, status: EngineStatus, log: Log | None = None
    ) -> None:
        try:
            import nats  # noqa: F401
        except ImportError:
            raise MissingExtraError("this engine needs nats-py: pip install 'feducb[nats]'") from None
        self._settings = settings
        self._name = name
        self._status = status
        self._log: Log = log or _say_nothing

    async def keep(self, session: Callable[[Client], Awaitable[None]]) -> None:
        """Run sessions until cancelled. Only cancellation and wrong settings end it."""
        wait = self._settings.retry
        while True:
            began = time.monotonic()
            try:
                async with self.connected() as client:
                    await session(client)
            except asyncio.CancelledError:
                raise
            except ConfigurationError:
                raise
            except Exception as error:
                self._status.fail(error)
                self._log("disconnected", error=self._status.last_error)
            held = time.monotonic() - began > _SLOWER * self._settings.retry
            wait = self._settings.retry if held else min(2 * wait, _SLOWER * self._settings.retry)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # not all at once after the broker's return

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """One connection, with TLS; raises `_DisconnectedError` inside when it is lost."""
        from nats.aio.client import Client

        client, closed = Client(), asyncio.Event()

        async def on_error(error: Exception) -> None:
            self._status.fail(error)

        async def on_closed() -> None:
            closed.set()

        settings = self._settings
        try:
            async with asyncio.timeout(2 * settings.timeout):
                await _apart(
                    client.connect(
                        servers=list(settings.servers),
                        name=self._name,
                        tls=_tls(settings),
                        nkeys_seed=str(settings.seed),
                        inbox_prefix=subjects.inbox(self._name),
                        allow_reconnect=False,
                        max_reconnect_attempts=1,
                        reconnect_time_wait=0,
                        connect_timeout=max(1, int(settings.timeout)),
                        ping_interval=10,
                        error_cb=on_error,
                        closed_cb=on_closed,
                    )
                )
            if not client._server_info.get("tls_required"):
                raise ConnectionError("the server does not ask for TLS")
            self._status.connected = True
            self._status.sessions += 1
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(_until(closed))
                yield client
                watcher.cancel()
        finally:
            self._status.connected = False
            with suppress(Exception):
                async with asyncio.timeout(
                    min(settings.timeout, 1.0)
                ):  # it can hang after a failed handshake
                    await _apart(client.close())


async def _until(closed: asyncio.Event) -> None:
    await closed.wait()
    raise _DisconnectedError("the connection to the server was lost")


def _tls(settings: NatsSettings) -> ssl.SSLContext:
    """Read anew for every session, so that a new certificate authority needs no restart."""
    try:
        context = ssl.create_default_context(cafile=str(settings.ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("engine.ca", str(settings.ca), f"certificates in PEM ({error})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class NatsEngine:
    """Ships an agent's outbox and fills its inbox; with a controller or on a graph, as the roster says.

    Guarantees:
        What is sent again is the same bytes. An item is reported sent after the controller, or JetStream for
        every neighbour, said that it has it stored. Raw uploads leave sealed for the controller alone.

    Attributes:
        status: what has been done.
        refusals: on a graph, others' releases that were refused; by agent and reason.
    """

    def __init__(self, settings: NatsSettings, terms: Terms | Mapping[str, Terms]) -> None:
        if settings.agent is None:
            raise ConfigurationError("engine.agent", None, "the agent's name")
        self.status = EngineStatus()
        self._settings = settings
        self._agent = settings.agent
        self._roster = settings.read_roster()
        self._signer = _own_signer(settings, self._roster.agents[self._agent])
        names = self._roster.agents
        self._terms = dict.fromkeys(names, terms) if isinstance(terms, Terms) else dict(terms)
        if missing := names.keys() - self._terms.keys():
            raise ConfigurationError("terms", sorted(missing), "terms of every agent of the roster")
        if self._roster.edges is not None and settings.state is None:
            raise ConfigurationError("engine.state", None, "a file, on a graph")
        self.refusals = RefusalCount.of(names)
        self._link = _Link(settings, self._agent, self.status)

    async def run(self, mailbox: Mailbox) -> None:
        """Until cancelled; raises on wrong settings alone."""
        if self._roster.edges is None:
            await self._link.keep(_WithController(self, mailbox).session)
            return
        assert self._settings.state is not None
        with PeerBook(self._settings.state) as book:
            seal = frames.OriginSeal(self._roster, self._agent, self._signer)
            driver = PeerDriver(self._roster.topology(), self._agent, self._terms, seal=seal, book=book)
            driver.refusals = self.refusals
            await self._link.keep(_OnGraph(self, mailbox, driver).session)

    async def absorb(self, mailbox: Mailbox, names: tuple[str, ...], payload: bytes) -> None:
        """Hand a sum over; one that the agent does not want is counted."""
        try:
            new = await mailbox.absorb(payload)
        except ValueError as error:
            self.status.fail(error)
            return
        if new:
            told = sums.NamedSum(names, payload).read()
            self.status.absorbed += 1
            self.status.newest, self.status.members = (told.season, told.number), names


def _own_signer(settings: NatsSettings, expected: str | None) -> Signer:
    signer = Signer(settings.seed)
    if expected is not None and signer.nkey != expected:
        raise ConfigurationError("engine.seed", signer.nkey, f"the seed of {expected}, as in the roster")
    return signer


class _WithController:
    """Sessions of an agent whose roster has a controller."""

    def __init__(self, engine: NatsEngine, mailbox: Mailbox) -> None:
        self._engine, self._mailbox = engine, mailbox
        self._settings, self._roster = engine._settings, engine._roster
        self._agent, self._signer = engine._agent, engine._signer
        self._refused: dict[tuple[int, int, int], float] = {}

    async def session(self, client: Client) -> None:
        """Hear sums, ask for the newest, send what waits; until the connection is lost."""
        heard: asyncio.Queue[bytes] = asyncio.Queue(maxsize=_BATCH)

        async def on_sum(message: Msg) -> None:
            if heard.full():
                heard.get_nowait()  # a newer one replaces it
            heard.put_nowait(message.data)

        await _apart(client.subscribe(subjects.topic(self._roster.federation, "sum"), cb=on_sum))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._absorb(heard))
            group.create_task(self._ask(client))
            group.create_task(self._send(client))

    async def _absorb(self, heard: asyncio.Queue[bytes]) -> None:
        while True:
            await self._take(await heard.get())

    async def _take(self, data: bytes) -> None:
        assert self._roster.controller is not None
        try:
            body = frames.unframe(
                self._roster.controller, data, "sum", self._roster.federation, subjects.CONTROLLER
            )
            named = sums.decode(body)
        except ValueError as error:
            self._engine.status.fail(error)
            return
        await self._engine.absorb(self._mailbox, named.names, named.payload)

    async def _ask(self, client: Client) -> None:
        """For the newest sum: at the start, and now and then in case a publication was missed."""
        subject = subjects.topic(self._roster.federation, "ask", self._agent)
        while True:
            pause = self._settings.retry
            with _counting(self._engine.status):
                reply = await _apart(client.request(subject, b"", timeout=self._settings.timeout))
                pause = self._settings.refresh
                if reply.data:
                    await self._take(reply.data)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))

    async def _send(self, client: Client) -> None:
        while True:
            trouble = False
            for item in await self._mailbox.outbox():
                if self._refused.get(item[:3], 0.0) > time.monotonic():
                    trouble = True
                    continue
                receipt = None
                with _counting(self._engine.status):
                    receipt = await self._deliver(client, item)
                if receipt is None:
                    trouble = True
                    break  # in order: releases before it first
                await self._note(item, receipt)
            await (asyncio.sleep(self._settings.retry) if trouble else self._mailbox.wait())

    async def _note(self, item: Unsent, receipt: Receipt) -> None:
        if receipt.status == "refused":
            self._engine.status.refused[receipt.reason or "unknown"] += 1
            self._refused[item[:3]] = time.monotonic() + _REFUSED_AGAIN
            return
        await self._mailbox.mark_sent(item)
        self._refused.pop(item[:3], None)
        self._engine.status.sent += 1

    async def _deliver(self, client: Client, item: Unsent) -> Receipt:
        """One item to the controller; returns when it is on its disk, or refused."""
        assert self._roster.controller is not None
        kind, body = "release", item.payload
        if item.payload.startswith(_RAW_MARK):
            assert self._roster.sealing is not None
            kind = "upload"
            body = seal_for(self._roster.sealing, item.payload, self._roster.federation, self._agent)
        data = frames.frame(self._signer, body, kind, self._roster.federation, self._agent)
        subject = subjects.topic(self._roster.federation, kind, self._agent)
        reply = await _apart(client.request(subject, data, timeout=self._settings.timeout))
        told = frames.unframe(
            self._roster.controller, reply.data, "receipt", self._roster.federation, self._agent
        )
        return frames.read_receipt(data, told)


@contextmanager
def _counting(status: EngineStatus) -> Iterator[None]:
    """Count the errors of one exchange and go on, unless the connection is gone."""
    import nats.errors

    try:
        yield
    except* (nats.errors.ConnectionClosedError, nats.errors.OutboundBufferLimitError):
        raise
    except* (nats.errors.Error, ValueError, TimeoutError) as errors:
        status.fail(errors)


class _OnGraph:
    """Sessions of an agent on a graph, over JetStream."""

    def __init__(self, engine: NatsEngine, mailbox: Mailbox, driver: PeerDriver) -> None:
        self._engine, self._mailbox, self._driver = engine, mailbox, driver
        self._settings, self._federation = engine._settings, engine._roster.federation
        self._agent = engine._agent

    async def session(self, client: Client) -> None:
        """Read what neighbours sent, send what waits; until the connection is lost."""
        stream = client.jetstream(timeout=self._settings.timeout)
        await self._absorb()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(stream))
            group.create_task(self._send(stream))

    async def _send(self, stream: JetStreamContext) -> None:
        while True:
            trouble = True
            with _counting(self._engine.status):
                for item in await self._mailbox.outbox():
                    packets = self._driver.announce(item)
                    self._driver.commit()
                    await self._publish(stream, packets)
                    await self._mailbox.mark_sent(item)
                    self._engine.status.sent += 1
                    await self._absorb()
                trouble = False
            await (asyncio.sleep(self._settings.retry) if trouble else self._mailbox.wait())

    async def _hear(self, stream: JetStreamContext) -> None:
        name = subjects.stream_name(self._federation)
        reader = await _apart(stream.pull_subscribe_bind(durable=self._agent, stream=name))
        while True:
            try:
                messages = await _apart(reader.fetch(_FETCH, timeout=_FETCH_SECONDS))
            except TimeoutError:
                continue
            passed_on: list[Packet] = []
            for message in messages:
                sender = message.subject.split(".")[-2]
                passed_on += self._driver.hear(message.data, sender=sender)
            self._driver.commit()
            await self._publish(stream, passed_on)
            for message in messages:
                await _apart(message.ack())
            await self._absorb()

    async def _publish(self, stream: JetStreamContext, packets: list[Packet]) -> None:
        """Returns when JetStream has them all."""
        names = self._driver.names
        async with asyncio.TaskGroup() as group:
            for one in packets:
                group.create_task(
                    _apart(
                        stream.publish(
                            subjects.edge(self._federation, self._agent, names[one.to]),
                            one.data,
                            headers={"Nats-Msg-Id": one.identity},
                        )
                    )
                )

    async def _absorb(self) -> None:
        for names, total in self._driver.new_sums():
            await self._engine.absorb(self._mailbox, names, total)


class NatsController:
    """The controller's link: messages in, receipts and sums out. One thread, which opened the collector.

    Attributes:
        status: of the link.
        refusals: by agent and reason.
    """

    def __init__(
        self,
        settings: NatsSettings,
        collector: Collector,
        *,
        log: Log | None = None,
    ) -> None:
        self.status = EngineStatus()
        self._settings = settings
        self._roster = settings.read_roster()
        if self._roster.controller is None:
            raise ConfigurationError("engine.roster", str(settings.roster), "one with a controller")
        self._signer = _own_signer(settings, self._roster.controller)
        self._private = _read_sealing(settings, self._roster)
        self._collector = collector
        self._log: Log = log or _say_nothing
        self.refusals = RefusalCount.of(self._roster.agents)
        self._newest: bytes | None = None
        self._link = _Link(settings, subjects.CONTROLLER, self.status, log)

    async def run(self) -> None:
        """Until cancelled."""
        await self._link.keep(self.session)

    async def session(self, client: Client) -> None:
        """Serve until the connection is lost."""
        waiting: asyncio.Queue[Msg] = asyncio.Queue(maxsize=_HELD)

        async def on_message(message: Msg) -> None:
            if waiting.full():
                self.status.errors["overload"] += 1  # no receipt: it is sent again
                return
            waiting.put_nowait(message)

        for kind in ("release", "upload", "ask"):
            await _apart(client.subscribe(subjects.topic(self._roster.federation, kind, "*"), cb=on_message))
        self._log("connected")
        newest = self._collector.newest()
        if newest is not None:
            await self._publish(client, newest)
        while True:
            await self._serve(client, await self._next_batch(waiting))
            for named in self._collector.publish_due(now=time.time()):
                await self._publish(client, named)

    async def _next_batch(self, waiting: asyncio.Queue[Msg]) -> list[Msg]:
        """All that has arrived; empty when a deadline has passed."""
        due = self._collector.next_due()
        seconds = None if due is None else max(due - time.time(), 0.0)
        batch: list[Msg] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                batch.append(await waiting.get())
        while not waiting.empty() and len(batch) < _BATCH:
            batch.append(waiting.get_nowait())
        return batch

    async def _serve(self, client: Client, batch: list[Msg]) -> None:
        """One transaction for all that came, then their receipts."""
        taken: list[tuple[str, bytes, Msg]] = []
        for message in batch:
            kind, agent = message.subject.split(".")[-2:]
            if not message.reply.startswith(f"{subjects.inbox(agent)}."):
                self.refusals.add(agent, "sender")  # nobody could be told
                continue
            if kind == "ask":
                await _apart(client.publish(message.reply, self._newest or b""))
                continue
            try:
                taken.append((agent, self._open(kind, agent, message.data), message))
            except RefusedError as error:
                await self._answer(client, message, agent, Receipt("refused", error.reason, error.text))
        if taken:
            receipts = self._collector.receive(
                [(agent, payload) for agent, payload, _ in taken], now=time.time()
            )
            for (agent, _, message), receipt in zip(taken, receipts, strict=True):
                await self._answer(client, message, agent, receipt)

    def _open(self, kind: str, agent: str, data: bytes) -> bytes:
        if agent not in self._roster.agents:
            raise RefusedError("sender", "nobody of this federation")
        body = frames.unframe(self._roster.agents[agent], data, kind, self._roster.federation, agent)
        if kind == "release":
            return body
        if self._private is None:
            raise RefusedError("malformed", "a raw upload, which this controller does not take")
        return open_sealed(self._private, body, self._roster.federation, agent)

    async def _answer(self, client: Client, message: Msg, agent: str, receipt: Receipt) -> None:
        if receipt.status == "refused":
            count = self.refusals.add(agent, receipt.reason)
            if count & (count - 1) == 0:  # the 1st, 2nd, 4th, …: a flood does not fill the log
                self._log("refused", agent=agent[:64], reason=receipt.reason, text=receipt.text, count=count)
        else:
            self.status.sent += 1
        body = frames.write_receipt(message.data, receipt)
        signed = frames.frame(self._signer, body, "receipt", self._roster.federation, agent)
        await _apart(client.publish(message.reply, signed))

    async def _publish(self, client: Client, named: sums.NamedSum) -> None:
        told = named.read()
        body = sums.encode(named)
        self._newest = frames.frame(self._signer, body, "sum", self._roster.federation, subjects.CONTROLLER)
        await _apart(client.publish(subjects.topic(self._roster.federation, "sum"), self._newest))
        self.status.newest, self.status.members = (told.season, told.number), named.names
        self.status.absorbed += 1
        self._log("sum", season=told.season, number=told.number, agents=len(named.names), bytes=len(body))


def _read_sealing(settings: NatsSettings, roster: Roster) -> bytes | None:
    if settings.sealing is None:
        return None
    try:
        private = bytes.fromhex(settings.sealing.read_text().strip())
        if len(private) != 32:
            raise ValueError
    except ValueError:
        raise ConfigurationError("engine.sealing", str(settings.sealing), "a key of 32 bytes") from None
    return private


async def make_streams(settings: NatsSettings, *, days: float = 30.0, per_link: int = 4096) -> None:
    """Make the stream of a graph and one durable consumer an agent; once more changes nothing.

    Args:
        settings: with the administrator's seed, and without an agent.
        days: how long a message is kept for an agent that is away.
        per_link: how many messages a link keeps; the newest replace the oldest, as releases do.
    """
    from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

    roster = settings.read_roster()
    if roster.edges is None:
        raise ConfigurationError("engine.roster", str(settings.roster), "one with edges: a graph")
    name = subjects.stream_name(roster.federation)
    wanted = StreamConfig(
        name=name,
        subjects=[subjects.edge(roster.federation, "*", "*")],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        max_age=days * 86_400.0,
        max_msgs_per_subject=per_link,
        duplicate_window=600.0,
        num_replicas=1,
    )
    async with _Link(settings, subjects.ADMIN, EngineStatus()).connected() as client:
        manager: Any = client.jetstream(timeout=settings.timeout)
        import nats.js.errors

        try:
            await manager.stream_info(name)
            await manager.update_stream(wanted)
        except nats.js.errors.NotFoundError:
            await manager.add_stream(wanted)
        for agent in roster.agents:
            await manager.add_consumer(
                name,
                ConsumerConfig(
                    durable_name=agent,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=10.0,
                    max_ack_pending=4 * _FETCH,
                    filter_subject=subjects.to_agent(roster.federation, agent),
                ),
            )

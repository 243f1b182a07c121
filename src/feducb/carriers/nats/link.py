"""A connection to NATS that is lost and made again, and what is known about it."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.link_status import EngineStatus, Log, say_nothing, say_rarely, worth_saying
from feducb.errors import ConfigurationError
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.roster import Signer
from feducb.system import optional

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["Link", "apart", "counting", "own_signer"]

_CLOSING = 1.0  # seconds; after a failed handshake it would hang
_LOOK = 0.2  # seconds between looks at whether the connection is still there
_SLOWER = 10  # so many times the retry time between attempts, at most

_Result = TypeVar("_Result")


class DisconnectedError(ConnectionError):
    """The session is over."""


class UnreachableError(ConnectionError):
    """No server could be connected to."""


class KeyRefusedError(ConnectionError):
    """The server is there, but does not let this key in."""


async def apart(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Await a call of nats-py in a task of its own.

    Some calls swallow a cancellation, and then we would never end; some are cancelled when the connection
    closes, and then we would end without anybody having asked for it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        ours = asyncio.current_task()
        if task.cancelled() and not (ours is not None and ours.cancelling()):  # nobody asked us to end
            raise DisconnectedError("the connection was closed during a call") from None
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
        task.cancel()
        raise


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work in a task of its own, which is cancelled, and waited for, if we are."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    if task.cancelled():
        raise DisconnectedError("the session was cancelled from within")
    task.result()


class Link:
    """Connects again and again; each connection is one session."""

    def __init__(
        self, settings: NatsSettings, name: str, status: EngineStatus, log: Log = say_nothing
    ) -> None:
        with optional("NATS", "nats"):
            import nats  # noqa: F401
        self._settings, self._name = settings, name
        self._status, self._log = status, log
        self._said_connected = False
        self._said: set[str] = set()  # kinds of trouble, since a session lasted

    async def keep(self, session: Callable[[Client], Awaitable[None]]) -> None:
        """Run sessions until cancelled. Only cancellation and wrong settings end it.

        Each is a task of its own: a cancellation that comes while an error is on its way is lost in there,
        and a group of tasks may leave one behind that nobody asked for. Neither reaches this loop.
        """
        wait = self._settings.retry
        while True:
            began = ended = time.monotonic()

            async def once() -> None:
                nonlocal began, ended
                async with self.connected() as client:
                    if not self._said_connected:  # sessions that end at once do not fill the log either
                        self._log("connected")
                        self._said_connected = True
                    began = time.monotonic()
                    try:
                        await session(client)
                    finally:
                        ended = time.monotonic()

            try:
                await _to_its_end(once())
            except ConfigurationError as error:
                self._status.failures += 1
                self._status.fail(error)
                raise
            except Exception as error:
                if ended - began > _SLOWER * self._settings.retry:
                    self._status.failures, self._said = 0, set()
                    wait = self._settings.retry / 2
                self._note(error)
            wait = min(2 * wait, _SLOWER * self._settings.retry)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # not all at once after the broker's return

    def _note(self, error: Exception) -> None:
        """Count it; say it when it is new, and the 1st, 2nd, 4th, … time."""
        self._status.fail(error)
        self._status.failures += 1
        kind = self._status.last_error.partition(":")[0]
        if kind not in self._said or worth_saying(self._status.failures):
            self._log("disconnected", error=self._status.last_error, failures=self._status.failures)
            self._said.add(kind)
            self._said_connected = False

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """One connection, with TLS; raises `DisconnectedError` inside when it is lost."""
        from feducb.carriers.nats.tolerant_client import SteadyClient

        client, closed = SteadyClient(), asyncio.Event()
        causes: list[Exception] = []

        async def on_error(error: Exception) -> None:
            self._status.fail(error)
            causes[:] = [error]

        async def on_closed() -> None:
            closed.set()

        settings = self._settings
        try:
            async with _telling(settings, causes), asyncio.timeout(2 * settings.timeout):
                await apart(
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
                watcher = group.create_task(_until_lost(client, closed))
                yield client
                watcher.cancel()
        finally:
            self._status.connected = False
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING):
                    await apart(client.close())
            _let_go(client)


@asynccontextmanager
async def _telling(settings: NatsSettings, causes: list[Exception]) -> AsyncIterator[None]:
    """Say why there is no connection: nats-py tells the cause to a callback, and raises something else."""
    import nats.errors

    places = ", ".join(server.rpartition("//")[2].rpartition("@")[2] for server in settings.servers)
    try:
        yield
    except (nats.errors.NoServersError, TimeoutError) as error:
        cause = causes[-1] if causes else error
        raise UnreachableError(f"{places}: {type(cause).__name__}: {cause}") from error
    except nats.errors.Error as error:
        if "authorization violation" not in str(error).lower():
            raise
        remedy = "was it given the configuration that came with the roster, and reloaded?"
        unknown = f"{places}: Authorization Violation: the broker does not know this key"
        raise KeyRefusedError(f"{unknown}; {remedy}") from error


async def _until_lost(client: Client, closed: asyncio.Event) -> None:
    """nats-py says so, but not always: where its last write fails, it is closed and tells nobody."""
    from feducb.carriers.nats.tolerant_client import reads

    while reads(client):
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await closed.wait()
                break
    raise DisconnectedError("the connection to the server was lost")


def _let_go(client: Client) -> None:
    """What a closing that failed half-way left: listeners, and the socket."""
    for subscription in client._subs.values():
        if subscription._wait_for_msgs_task is not None:
            subscription._wait_for_msgs_task.cancel()
    if client._transport is not None:
        with suppress(Exception):
            client._transport.close()  # type: ignore[no-untyped-call]


def _tls(settings: NatsSettings) -> ssl.SSLContext:
    """Read anew for every session, so that a new certificate authority needs no restart."""
    try:
        context = ssl.create_default_context(cafile=str(settings.ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("engine.ca", str(settings.ca), f"certificates in PEM ({error})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextmanager
def counting(status: EngineStatus, log: Log = say_nothing) -> Iterator[None]:
    """Count the errors of one exchange and go on, unless the connection is gone; says some of them."""
    import nats.errors

    try:
        yield
        status.unanswered = 0
    except* (nats.errors.ConnectionClosedError, nats.errors.OutboundBufferLimitError):
        raise
    except* (nats.errors.Error, ValueError, TimeoutError) as errors:
        count = status.fail(errors)
        status.unanswered += 1
        say_rarely(log, "no_answer", error=status.last_error, count=count)


def own_signer(settings: NatsSettings, expected: str) -> Signer:
    """The own key, which must be the one that the others know."""
    signer = Signer(settings.seed)
    if signer.nkey != expected:
        raise ConfigurationError("engine.seed", signer.nkey, f"the seed of {expected}, as in the roster")
    return signer

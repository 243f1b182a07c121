"""A load generator that costs little: keep-alive connections that send prepared requests, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

__all__ = ["Load", "prepared", "run_load"]


def prepared(method: str, path: str, key: str, body: bytes) -> bytes:
    """A whole HTTP/1.1 request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Load:
    """What was seen.

    Attributes:
        seconds: of each answer.
        failures: answers that were not 200, or connections lost.
        wall: how long it took.
    """

    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    wall: float = 0.0

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.seconds) / self.wall

    def percentile(self, share: float) -> float:
        """Of the answers' seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Caller(asyncio.Protocol):
    def __init__(
        self, load: Load, following: Callable[[], bytes | None], answered: Callable[[bytes], None] | None
    ) -> None:
        self._load, self._following, self._answered = load, following, answered
        self._buffer, self._sent_at = b"", 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.index(b"content-length: ") + 16
        size = head + 4 + int(self._buffer[at : self._buffer.index(b"\r", at)])
        if len(self._buffer) < size:
            return
        answer, self._buffer = self._buffer[:size], self._buffer[size:]
        if answer.startswith(b"HTTP/1.1 200"):
            self._load.seconds.append(time.perf_counter() - self._sent_at)
            if self._answered is not None:
                self._answered(answer[head + 4 :])
        else:
            self._load.failures += 1
        self._send()

    def _send(self) -> None:
        request = self._following()
        if request is None:
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._load.failures += 1
        if not self.done.done():
            self.done.set_result(None)


async def run_load(
    port: int,
    following: Callable[[], bytes | None],
    *,
    connections: int,
    answered: Callable[[bytes], None] | None = None,
) -> Load:
    """Send what ``following`` gives, over so many connections, until it gives None."""
    loop, load, begun = asyncio.get_running_loop(), Load(), time.perf_counter()
    callers = []
    for _ in range(connections):
        _, caller = await loop.create_connection(
            lambda: _Caller(load, following, answered), "127.0.0.1", port
        )
        callers.append(caller)
    await asyncio.gather(*(caller.done for caller in callers))
    load.wall = time.perf_counter() - begun
    return load

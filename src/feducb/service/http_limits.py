"""HTTP as uvicorn speaks it, with limits that it leaves open: on heads, and on how long a request takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["LimitedProtocol", "hang_up_on_the_slow"]

LARGEST_HEAD = 65536  # bytes
REQUEST_SECONDS = 30.0  # from the first byte of a request (or the connection) to its last


class LimitedProtocol(HttpToolsProtocol):
    """Hangs up on heads without end; knows since when it waits for the rest of a request.

    Attributes:
        waiting_since: on the loop's clock; None while nothing is owed by the caller.
    """

    waiting_since: float | None = None
    _head = 0
    _reading = False

    def connection_made(self, transport: Any) -> None:
        """The first request must come soon."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Count what came of a head that has not ended."""
        super().data_received(data)
        if self._reading:
            self._head += len(data)
            if self._head > LARGEST_HEAD and not self.transport.is_closing():
                self.transport.write(
                    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n"
                )
                self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to count a head, and how long its request takes."""
        super().on_message_begin()
        self._head, self._reading = 0, True
        if self.waiting_since is None:
            self.waiting_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """The head has ended: what follows is its body."""
        self._reading = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body has ended too; how long the answer takes is ours."""
        self.waiting_since = None
        super().on_message_complete()


def hang_up_on_the_slow(connections: Iterable[Any], now: float) -> None:
    """Close those whose caller has said nothing, or stopped in the middle, for too long."""
    for one in list(connections):
        since = one.waiting_since if isinstance(one, LimitedProtocol) else None
        if since is not None and now - since > REQUEST_SECONDS and not one.transport.is_closing():
            one.transport.close()

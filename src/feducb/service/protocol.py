"""HTTP as uvicorn speaks it, with limits that it leaves open: on heads, and on how long a request takes."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["LimitedProtocol"]

LARGEST_HEAD = 65536  # bytes
REQUEST_SECONDS = 30.0  # from the first byte of a request (or the connection) to its last


class LimitedProtocol(HttpToolsProtocol):
    """Hangs up on heads without end, and on callers that say nothing, or stop in the middle."""

    _head = 0
    _reading = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """The first request must come soon."""
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._clear_deadline()
        super().connection_lost(exc)

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
        """A head begins."""
        super().on_message_begin()
        self._head, self._reading = 0, True
        if self._deadline is None:
            self._set_deadline()

    def on_headers_complete(self) -> None:
        """It has ended."""
        self._reading = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body has ended too; how long the answer takes is ours."""
        self._clear_deadline()
        super().on_message_complete()

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._too_slow)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()

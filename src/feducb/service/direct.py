"""Routes that go past the framework: it makes the document, and answers everything else.

What stands around a FastAPI route (layers of error handling, a stack for dependencies, routes that are tried
one by one, objects for request and answer) takes a good part of a request's time, and routes with a body,
which are read by hand, use none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

__all__ = ["DirectApp"]

Handler = Callable[[Scope, Receive], Awaitable[bytes | None]]
"""Reads a request, and gives the JSON of its answer; None is an answer without content."""


class DirectApp(FastAPI):
    """A FastAPI app, some of whose routes are called at once.

    Errors are answered by the app's own handlers; one that has none goes up to the server, which answers 500.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._direct: dict[tuple[str, str], Handler] = {}

    def add_direct(self, method: str, path: str, handler: Handler) -> None:
        """Call this for requests with exactly this path, before any route is looked for."""
        self._direct[method, path] = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        handler = self._direct.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if handler is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        try:
            answer = await handler(scope, receive)
        except Exception as error:
            await self._refuse(error, scope, receive, send)
            return
        headers = [] if answer is None else [(b"content-type", b"application/json")]
        if answer is not None:
            headers.append((b"content-length", b"%d" % len(answer)))
        status = 204 if answer is None else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer or b""})

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        for kind in type(error).__mro__:
            if (answer := self.exception_handlers.get(kind)) is not None:
                response = await answer(Request(scope, receive, send), error)  # type: ignore[misc]
                await response(scope, receive, send)
                return
        raise error

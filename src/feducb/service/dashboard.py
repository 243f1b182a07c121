"""The page: static files, log-in, and a stream of snapshots. Knows nothing of agents or controllers.

A snapshot is a JSON object with ``kind``, ``agent`` or ``controller``, which says how the page draws it
(`app`, `controller_page`). It is sent when it changed, looked at once a second while somebody watches.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from importlib import resources
from typing import Any

import pydantic_core
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from feducb.service.sessions import Sessions, set_cookie

__all__ = ["Snapshot", "add_dashboard", "reason_of"]

Snapshot = Callable[[], Awaitable[dict[str, Any]]]
log = logging.getLogger("feducb.service")

_KINDS = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES = ("page.css", "learnt.js", "gain.js", "page.js", "icon.svg")
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
}
_PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_LARGEST = 4096  # bytes of a log-in
_LOOK_SECONDS = 1.0
_STEP_SECONDS = 0.25  # how soon a stream notices that it should end
_HEARTBEAT_SECONDS = 5.0
_MOST_STREAMS = 64


def add_dashboard(app: FastAPI, snapshot: Snapshot, sessions: Callable[[], Sessions]) -> None:
    """Add the page to an app: ``/``, ``/page/…``, ``/v1/session`` and ``/v1/events``.

    Args:
        app: gets the routes. Streams end when its ``state.stopping`` is set.
        snapshot: what the page shows; one call at a time, however many watch.
        sessions: who may look.
    """
    _add_files(app)
    _add_session(app, sessions)
    watched = _Watched(snapshot)

    @app.get("/v1/events", include_in_schema=False)
    async def events(request: Request) -> Response:
        if not sessions().may_look(request):
            return _refuse(*sessions().why_not(request))
        if watched.streams >= _MOST_STREAMS:
            return _refuse(503, f"{_MOST_STREAMS} pages are open already")

        def goes_on() -> bool:
            return not getattr(app.state, "stopping", False) and sessions().may_look(request)

        return StreamingResponse(
            watched.stream(goes_on),
            media_type="text/event-stream",
            headers=_PRIVATE | {"x-accel-buffering": "no"},
        )


def _add_files(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return _file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        return _file(name) if name in _FILES else _refuse(404, "no such file")

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        response = _refuse(error.status_code, reason_of(error))
        response.headers.update(error.headers or {})
        return response


def reason_of(error: HTTPException) -> str:
    """What the framework refuses by itself, in words like the others'."""
    known = {404: "there is no such path", 405: "this path does not take this method"}
    return known.get(error.status_code, str(error.detail))


def _add_session(app: FastAPI, sessions: Callable[[], Sessions]) -> None:
    @app.get("/v1/session", include_in_schema=False)
    async def look(request: Request) -> Response:
        return JSONResponse({"open": sessions().may_look(request)}, headers=_PRIVATE)

    @app.post("/v1/session", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        key = await _key(request)
        if key is None:
            return _refuse(422, 'expected a small JSON object: {"key": "feducb_…"}')
        token, status = sessions().log_in(key)
        if token is None:
            log.warning("log_in_refused", extra={"status": status})
            known = "this needs an operator's or a viewer's key"
            return _refuse(status, "this key is not known" if status == 401 else known)
        response = JSONResponse({"open": True}, headers=_PRIVATE)
        set_cookie(request, response, token)
        return response

    @app.delete("/v1/session", include_in_schema=False)
    async def log_out(request: Request) -> Response:
        sessions().log_out(request)
        response = JSONResponse({"open": False}, headers=_PRIVATE)
        set_cookie(request, response, None)
        return response


class _Watched:
    """One look a second for all streams together, and none while nobody watches."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.streams = 0
        self._snapshot, self._lock = snapshot, asyncio.Lock()
        self._event, self._facts, self._looked_at = b"", b"", -_LOOK_SECONDS

    async def stream(self, goes_on: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Events until the session ends or the service stops."""
        self.streams += 1
        sent, said_at = b"", time.monotonic()
        try:
            yield b"retry: 1000\n\n"
            while goes_on():
                event = await self._newest()
                if event != sent:
                    sent, said_at = event, time.monotonic()
                    yield event
                elif time.monotonic() - said_at > _HEARTBEAT_SECONDS:
                    said_at = time.monotonic()
                    yield b": still here\n\n"
                await asyncio.sleep(_STEP_SECONDS)
            yield b"event: end\ndata: {}\n\n"
        finally:
            self.streams -= 1

    async def _newest(self) -> bytes:
        async with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
                newest = await self._snapshot()
                facts = pydantic_core.to_json({name: newest[name] for name in newest if name != "at"})
                if facts != self._facts:  # the clock alone is no news
                    self._facts, self._event = facts, b"data: " + pydantic_core.to_json(newest) + b"\n\n"
                self._looked_at = time.monotonic()
            return self._event


async def _key(request: Request) -> str | None:
    whole = bytearray()
    async for chunk in request.stream():
        whole += chunk
        if len(whole) > _LARGEST:
            return None
    try:
        key = json.loads(bytes(whole))["key"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return key if isinstance(key, str) and key.isascii() else None


@cache
def _content(name: str) -> bytes:
    return resources.files("feducb.service").joinpath("page", name).read_bytes()


def _file(name: str) -> Response:
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(_content(name), headers=_HEADERS, media_type=kind)


def _refuse(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status, headers=_PRIVATE)

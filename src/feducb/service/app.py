"""The decision service: what runs in it, and how it refuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from feducb.agent import Agent
from feducb.agent.carrier_file import keep_engine_file
from feducb.agent.health import says_disk
from feducb.agent.mailbox import Engine, EngineFacts
from feducb.errors import FeducbError
from feducb.service.api_keys import ApiKeys
from feducb.service.chores import keep_up, say_trouble
from feducb.service.commits import GroupCommit, NotDurableError
from feducb.service.dashboard import add_dashboard, reason_of
from feducb.service.direct import DirectApp
from feducb.service.gate import RefusedError, Service
from feducb.service.json_logs import log_failure
from feducb.service.keeper_desk import KeeperDesk
from feducb.service.openapi import document, page_of
from feducb.service.routes import add_routes, json_response, reason_for
from feducb.service.running_mailbox import ServiceMailbox
from feducb.storage.keeper_book import KeeperBook
from feducb.version import __version__

__all__ = ["create_app"]

log = logging.getLogger("feducb.service")

_ENGINE_AGAIN_SECONDS = 5.0


def create_app(
    open_agent: Callable[[], Agent],
    keys: ApiKeys,
    *,
    largest_body: int = 1_048_576,
    engine: Engine | None = None,
    engine_status: EngineFacts | None = None,
    engine_file: Path | None = None,
    open_keeper: Callable[[], KeeperBook] | None = None,
    keeper_file: Path | None = None,
) -> FastAPI:
    """The service.

    Args:
        open_agent: opens the agent's file; called in the event loop's thread.
        keys: who may call.
        largest_body: bytes of one request.
        engine: carries releases to others and sums back; without one, an only agent's releases are its sums.
        engine_status: how that goes.
        engine_file: the store beside which that is written down, for `feducb agent status`.
        open_keeper: opens the file of the keeper that answers at this agent's door, if there is one.
        keeper_file: that of the keeper in this process, whoever carries its answers.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        keeper = None if open_keeper is None else KeeperDesk(open_keeper)
        service = Service(GroupCommit(open_agent), keys, largest_body, engine_status, keeper, keeper_file)
        app.state.service = service
        tasks = [asyncio.create_task(keep_up(service.commit, service.mailbox, alone=engine is None))]
        tasks.append(asyncio.create_task(say_trouble(service)))
        if engine is not None:
            tasks.append(asyncio.create_task(_carry(engine, service.mailbox)))
        if keeper is not None:
            tasks.append(asyncio.create_task(keeper.follow_the_clock()))
        if engine_file is not None:
            tasks.append(asyncio.create_task(keep_engine_file(engine_file, engine_status)))
        log.info("started", extra={"version": __version__})
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await service.commit.close()
            if keeper is not None:
                keeper.close()
            log.info("stopped")

    app = DirectApp(
        title="feducb agent",
        version=__version__,
        description="Ask for a decision, send the reward later. Every answer is on disk before it is sent. "
        "Whatever is refused, also a path that is not there or a method that it does not have, is answered "
        'with {"error": why}.',
        lifespan=lifespan,
        redoc_url=None,
        docs_url=None,
    )
    add_routes(app)
    _add_page(app)
    _add_answers(app)
    document(app)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page_of(app.openapi()))

    return app


async def _carry(engine: Engine, mailbox: ServiceMailbox) -> None:
    """Run the engine, anew with every season; whatever becomes of it, decisions go on.

    The same error is said once.
    """
    failing = None
    while True:
        mailbox.begun.clear()
        running = [asyncio.ensure_future(one) for one in (engine(mailbox), mailbox.begun.wait())]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
        if mailbox.begun.is_set():
            continue
        if isinstance(error := ended[0], Exception) and failing != str(error):
            failing = str(error)
            log_failure("engine_failed", failing, error)
        await asyncio.sleep(_ENGINE_AGAIN_SECONDS)


def _add_page(app: FastAPI) -> None:
    """The agent's page, for its operator, since counts and values are raw."""
    last: dict[str, Any] | None = None

    async def snapshot() -> dict[str, Any]:
        nonlocal last
        service: Service = app.state.service
        try:
            last = await service.commit(lambda agent: agent.overview())
        except NotDurableError as error:  # shown as it was, with the reason why that is old
            if last is None:
                return {"kind": "agent", "at": time.time(), "trouble": [says_disk(str(error))]}
            last = last | {"at": time.time()}
        return service.judge(last)

    add_dashboard(app, snapshot, lambda: app.state.service.sessions)


def _add_answers(app: FastAPI) -> None:
    """Every refusal has a status and a reason; nothing that was sent is sent back."""

    def answer(request: Request, status: int, reason: str, details: Any = None) -> Response:
        request.app.state.service.metrics.refused.labels(str(status)).inc()
        content = {"error": reason} if details is None else {"error": reason, "details": details}
        response = json_response(content, status)
        if status == 401:
            response.headers["www-authenticate"] = "Bearer"
        if status == 413:
            response.headers["connection"] = "close"  # the rest of the body is not waited for
        return response

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return answer(request, error.status, error.reason, error.details)

    @app.exception_handler(HTTPException)
    async def no_such_thing(request: Request, error: HTTPException) -> Response:
        response = answer(request, error.status_code, reason_of(error))
        response.headers.update(error.headers or {})  # which methods there are
        return response

    @app.exception_handler(NotDurableError)
    async def not_durable(request: Request, error: NotDurableError) -> Response:
        return answer(request, 503, str(error))

    @app.exception_handler(ValueError)  # no sum
    @app.exception_handler(FeducbError)
    async def cannot_be(request: Request, error: Exception) -> Response:
        return answer(request, 422, reason_for(error))

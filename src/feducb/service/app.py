"""The decision service: routes, and what keeps strangers and nonsense out."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pydantic_core
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from feducb.agent import Agent, Decision, Outcome
from feducb.agent.carrier_file import keep_engine_file
from feducb.agent.mailbox import Engine, EngineFacts, Mailbox
from feducb.agent.upkeep import erase
from feducb.errors import ConfigurationError, FeducbError
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel
from feducb.service import models
from feducb.service.agent_page import add_agent_page
from feducb.service.api_keys import ApiKeys
from feducb.service.chores import keep_up
from feducb.service.commits import GroupCommit, NotDurableError
from feducb.service.dashboard import reason_of
from feducb.service.gate import RefusedError, Service
from feducb.service.openapi import body, document, page_of, refusals
from feducb.version import __version__

__all__ = ["create_app"]

log = logging.getLogger("feducb.service")

_DECISION = Decision.__slots__
_ENGINE_AGAIN_SECONDS = 5.0


def create_app(
    open_agent: Callable[[], Agent],
    keys: ApiKeys,
    *,
    largest_body: int = 1_048_576,
    engine: Engine | None = None,
    engine_status: EngineFacts | None = None,
    engine_file: Path | None = None,
) -> FastAPI:
    """The service.

    Args:
        open_agent: opens the agent's file; called in the event loop's thread.
        keys: who may call.
        largest_body: bytes of one request.
        engine: carries releases to others and sums back; without one, an only agent's releases are its sums.
        engine_status: how that goes.
        engine_file: the store beside which that is written down, for `feducb agent status`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = Service(GroupCommit(open_agent), keys, largest_body, engine_status)
        app.state.service = service
        tasks = [asyncio.create_task(keep_up(service.commit, service.mailbox, alone=engine is None))]
        if engine is not None:
            tasks.append(asyncio.create_task(_carry(engine, service.mailbox)))
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
            log.info("stopped")

    app = FastAPI(
        title="feducb agent",
        version=__version__,
        description="Ask for a decision, send the reward later. Every answer is on disk before it is sent. "
        "Whatever is refused, also a path that is not there or a method that it does not have, is answered "
        'with {"error": why}.',
        lifespan=lifespan,
        redoc_url=None,
        docs_url=None,
    )
    _add_decisions(app)
    _add_looking(app)
    _add_engine_door(app)
    add_agent_page(app)
    _add_answers(app)
    document(app)
    _add_documentation(app)
    return app


async def _carry(engine: Engine, mailbox: Mailbox) -> None:
    """Run the engine; whatever becomes of it, decisions go on. The same error is said once."""
    failing = None
    while True:
        try:
            await engine(mailbox)
        except Exception as error:
            if failing != str(error):
                failing = str(error)
                expected = isinstance(error, FeducbError | OSError)
                log.error("engine_failed", extra={"reason": failing}, exc_info=None if expected else error)
        await asyncio.sleep(_ENGINE_AGAIN_SECONDS)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _json(told: object, status: int = 200) -> Response:
    return Response(pydantic_core.to_json(told), status_code=status, media_type="application/json")


def _add_decisions(app: FastAPI) -> None:
    @app.post(
        "/v1/decisions",
        response_model=models.DecisionResponse,
        openapi_extra=body(models.DecisionRequest),
        responses=refusals(401, 403, 413, 422, 503),
        tags=["application"],
        summary="Choose one of the candidates",
    )
    async def decide(request: Request) -> Response:
        begun = time.perf_counter()
        service = _service(request)
        service.admit(request, "application")
        asked = await service.read(request, models.DecisionRequest)

        def work(agent: Agent) -> Decision:
            return agent.decide(
                asked.actions,
                id=asked.id,
                person=asked.person,
                follow=asked.follow,
                follow_propensity=asked.follow_propensity,
                scores=asked.scores,
                top=asked.top,
            )

        decision = await service.commit(work)
        service.metrics.seconds.observe(time.perf_counter() - begun)
        return _json({name: getattr(decision, name) for name in _DECISION})

    @app.post(
        "/v1/rewards",
        response_model=models.RewardsResponse,
        openapi_extra=body(models.RewardsRequest),
        responses=refusals(401, 403, 413, 422, 503),
        tags=["application"],
        summary="Say what decisions were worth",
    )
    async def reward(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "application")
        asked = await service.read(request, models.RewardsRequest)

        def work(agent: Agent) -> list[tuple[Outcome, str | None]]:
            if len(asked.rewards) == 1:  # there is no other that its refusal could touch
                return [(agent.reward(asked.rewards[0].id, asked.rewards[0].value), None)]
            return [_reward(agent, one) for one in asked.rewards]

        outcomes, reasons = zip(*await service.commit(work), strict=True)
        return _json({"outcomes": outcomes} | ({"reasons": reasons} if any(reasons) else {}))

    @app.post(
        "/v1/discards",
        response_model=models.RewardsResponse,
        openapi_extra=body(models.DiscardRequest),
        responses=refusals(401, 403, 413, 422, 503),
        tags=["application"],
        summary="Take a decision back that was never shown",
    )
    async def discard(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "application")
        asked = await service.read(request, models.DiscardRequest)
        outcome = await service.commit(lambda agent: agent.discard(asked.id))
        return _json({"outcomes": [outcome]})

    for path, handler in (("/v1/decisions", decide), ("/v1/rewards", reward)):
        app.router.routes.insert(0, Route(path, _Direct(handler), methods=["POST"]))


def _reward(agent: Agent, one: models.Reward) -> tuple[Outcome, str | None]:
    """Outcome of one reward of many, by itself, and why it was refused."""
    try:
        return agent.reward(one.id, one.value), None
    except ConfigurationError as error:
        return Outcome.REFUSED, _reason(error)


def _reason(error: FeducbError) -> str:
    if isinstance(error, ConfigurationError) and error.setting == "id":
        return f"id: expected {error.expected}"  # it may name somebody
    return str(error)


class _Direct:
    """The same handler without FastAPI's dependencies around it, which these two do not use: faster."""

    def __init__(self, handler: Callable[[Request], Awaitable[Response]]) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._handler(Request(scope, receive, send))
        await response(scope, receive, send)


def _add_looking(app: FastAPI) -> None:
    @app.get("/v1/status", responses=refusals(401, 403), tags=["operator"], summary="How the agent stands")
    async def status(request: Request) -> dict[str, Any]:
        service = _service(request)
        service.admit_to_look(request)
        return await service.snapshot()

    @app.get(
        "/v1/privacy", responses=refusals(401, 403), tags=["operator"], summary="What left, and its price"
    )
    async def privacy(request: Request) -> dict[str, Any]:
        service = _service(request)
        service.admit_to_look(request)
        return await service.commit(lambda agent: agent.ledger().as_dict())

    @app.get(
        "/metrics",
        responses=refusals(401, 403),
        response_class=PlainTextResponse,
        tags=["operator"],
        summary="For Prometheus",
    )
    async def metrics(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "viewer")
        return Response(
            service.metrics.page(await service.snapshot()),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )

    @app.get("/healthz", tags=["operator"], summary="Whether the process is alive")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz", responses=refusals(503), tags=["operator"], summary="Whether decisions can be made")
    async def ready(request: Request) -> dict[str, str]:
        service = _service(request)
        await service.commit(lambda agent: None)  # an empty commit: the file is there
        return {"status": "ready"}

    @app.post(
        "/v1/erasures",
        response_model=models.ErasureResponse,
        openapi_extra=body(models.ErasureRequest),
        responses=refusals(401, 403, 413, 422, 503),
        tags=["operator"],
        summary="Forget a person, as far as that can be done",
    )
    async def erasure(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "operator")
        asked = await service.read(request, models.ErasureRequest)
        found = await service.commit.apart(lambda agent: erase(agent, asked.person))
        return _json(found.as_dict())


def _add_engine_door(app: FastAPI) -> None:
    @app.get(
        "/v1/outbox",
        response_model=models.OutboxResponse,
        responses=refusals(401, 403),
        tags=["engine"],
        summary="What waits to be sent",
    )
    async def outbox(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "carrier")
        items = [
            {
                "season": one.season,
                "group": one.group,
                "number": one.number,
                "kind": one.kind,
                "payload": base64.b64encode(one.body).decode(),
            }
            for one in await service.mailbox.outbox()
        ]
        return _json({"items": items})

    @app.post(
        "/v1/outbox/sent",
        status_code=204,
        openapi_extra=body(models.OutboxName),
        responses=refusals(401, 403, 413, 422, 503),
        tags=["engine"],
        summary="A message has arrived",
    )
    async def sent(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "carrier")
        asked = await service.read(request, models.OutboxName)
        await service.mailbox.mark_sent(Parcel(asked.kind, asked.season, asked.group, asked.number, b""))
        return Response(status_code=204)

    @app.post(
        "/v1/inbox",
        response_model=models.InboxResponse,
        openapi_extra=body(models.InboxRequest),
        responses=refusals(401, 403, 413, 422, 503),
        tags=["engine"],
        summary="Bring a sum",
    )
    async def inbox(request: Request) -> Response:
        service = _service(request)
        service.admit(request, "carrier")
        asked = await service.read(request, models.InboxRequest)
        try:
            payload = base64.b64decode(asked.payload, validate=True)
        except (binascii.Error, ValueError):
            raise RefusedError(422, "the payload is not base64") from None
        total = messages.decode(payload)  # a ValueError is answered with 422
        return _json({"new": await service.mailbox.absorb(total, agents=asked.agents)})


def _add_documentation(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page_of(app.openapi()))


def _add_answers(app: FastAPI) -> None:
    """Every refusal has a status and a reason; nothing that was sent is sent back."""

    def answer(request: Request, status: int, reason: str, details: Any = None) -> Response:
        _service(request).metrics.refused.labels(str(status)).inc()
        told = {"error": reason} if details is None else {"error": reason, "details": details}
        response = _json(told, status)
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

    @app.exception_handler(FeducbError)
    async def cannot_be(request: Request, error: FeducbError) -> Response:
        return answer(request, 422, _reason(error))

    @app.exception_handler(ValueError)
    async def no_sum(request: Request, error: ValueError) -> Response:
        return answer(request, 422, str(error))

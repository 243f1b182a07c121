"""Routes of the decision service: for the application, for its operator, and for carriers."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pydantic_core
from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope

from feducb.agent import Agent, Decision, Outcome
from feducb.agent.upkeep import erase
from feducb.errors import ConfigurationError
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel
from feducb.protocol.secure_rows import for_agents
from feducb.service import models
from feducb.service.answers import ModelResponse
from feducb.service.api_keys import Role
from feducb.service.direct import DirectApp
from feducb.service.gate import CALLER, Model, RefusedError, Service
from feducb.service.openapi import body, from_query, refusals
from feducb.service.unread import first_of

__all__ = ["add_routes", "json_response", "reason_for"]

_DECISION = Decision.__slots__
_TAGS = {"application": "application", "carrier": "engine", "operator": "operator"}


def add_routes(app: DirectApp) -> None:
    """Add everything that is called by programs."""
    _add_decisions(app)
    _add_looking(app)
    _add_engine_door(app)


def json_response(answer: object, status: int = 200) -> Response:
    """An answer as JSON."""
    return Response(pydantic_core.to_json(answer), status_code=status, media_type="application/json")


def reason_for(error: Exception) -> str:
    """Why a request was refused; an id is not repeated, since it may name somebody."""
    if isinstance(error, ValidationError):
        return first_of(error)
    if isinstance(error, ConfigurationError) and error.setting == "id":
        return f"id: expected {error.expected}"
    return str(error)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _post(
    app: DirectApp, path: str, role: Role, asks: type[Model], answers: type[BaseModel] | None = None
) -> Callable[[Callable[[Service, Model], Awaitable[object]]], None]:
    """A route with a body: the caller is let in and the body checked before the handler sees it.

    Args:
        app: gets the route. FastAPI's own is there for the document, whose summary is the docstring, and
            behind a path that a proxy has put before it.
        path: of the route.
        role: that the caller's key needs.
        asks: what the body holds.
        answers: what is sent back; if left out, nothing.
    """

    def add(handler: Callable[[Service, Model], Awaitable[object]]) -> None:
        timed = asks is models.DecisionRequest

        async def direct(scope: Scope, receive: Receive) -> bytes | None:
            begun, service = time.perf_counter(), app.state.service
            service.admit(scope, role)
            answer = await handler(service, await service.read(scope, receive, asks))
            if timed:
                service.metrics.seconds.observe(time.perf_counter() - begun)
            return None if answers is None else pydantic_core.to_json(answer)

        async def endpoint(request: Request) -> Response:
            answer = await direct(request.scope, request.receive)
            return Response(
                answer,
                204 if answer is None else 200,
                media_type=None if answer is None else "application/json",
            )

        app.post(
            path,
            name=handler.__name__,
            status_code=204 if answers is None else 200,
            response_model=answers,
            openapi_extra=body(asks),
            responses=refusals(401, 403, 413, 422, 503),
            tags=[_TAGS[role]],
            summary=(handler.__doc__ or "").rstrip("."),
        )(endpoint)
        app.add_direct("POST", path, direct)

    return add


def _add_decisions(app: DirectApp) -> None:
    @_post(app, "/v1/decisions", "application", models.DecisionRequest, models.DecisionResponse)
    async def decide(service: Service, asked: models.DecisionRequest) -> object:
        """Choose one of the candidates."""
        decision = await service.commit(lambda agent: agent.decide(**vars(asked)))
        return {name: getattr(decision, name) for name in _DECISION}

    @_post(app, "/v1/decisions/batch", "application", models.BatchRequest, models.BatchResponse)
    async def decide_many(service: Service, asked: models.BatchRequest) -> object:
        """Choose for many visitors at once: each by itself, all on disk together."""
        answers: list[Decision | ConfigurationError | ValidationError] = [
            *await service.commit(lambda agent: agent.decide_many([vars(one) for one in asked.decisions]))
        ]
        if len(answers) == 1 and isinstance(answers[0], ConfigurationError) and not asked.unread:
            raise answers[0]  # there is no other that its refusal could touch
        for place, why in asked.unread.items():
            answers.insert(place, why)
        decisions = [
            {name: getattr(one, name) for name in _DECISION} if isinstance(one, Decision) else None
            for one in answers
        ]
        reasons = [None if isinstance(one, Decision) else reason_for(one) for one in answers]
        return {"decisions": decisions} | ({"reasons": reasons} if any(reasons) else {})

    @_post(app, "/v1/rewards", "application", models.RewardsRequest, models.RewardsResponse)
    async def reward(service: Service, asked: models.RewardsRequest) -> object:
        """Say what decisions were worth."""

        def work(agent: Agent) -> list[tuple[Outcome, str | None]]:
            if len(asked.rewards) == 1:  # there is no other that its refusal could touch
                return [(agent.reward(asked.rewards[0].id, asked.rewards[0].value), None)]
            return [_by_itself(partial(agent.reward, one.id, one.value)) for one in asked.rewards]

        outcomes, reasons = zip(*await service.commit(work), strict=True)
        return {"outcomes": outcomes} | ({"reasons": reasons} if any(reasons) else {})

    @_post(app, "/v1/discards", "application", models.DiscardRequest, models.RewardsResponse)
    async def discard(service: Service, asked: models.DiscardRequest) -> object:
        """Take a decision back that was never shown."""
        return {"outcomes": [await service.commit(lambda agent: agent.discard(asked.id))]}

    @_post(app, "/v1/fallbacks", "application", models.FallbacksRequest, models.RewardsResponse)
    async def fall_back(service: Service, asked: models.FallbacksRequest) -> object:
        """Say what was shown while the service was away: counted, and enters nothing."""

        def work(agent: Agent) -> list[tuple[Outcome, str | None]]:
            return [_by_itself(partial(agent.shown_without, one)) for one in asked.ids]

        outcomes, reasons = zip(*await service.commit(work), strict=True)
        return {"outcomes": outcomes} | ({"reasons": reasons} if any(reasons) else {})


def _by_itself(work: Callable[[], Outcome]) -> tuple[Outcome, str | None]:
    """Outcome of one of many, and why it was refused."""
    try:
        return work(), None
    except ConfigurationError as error:
        return Outcome.REFUSED, reason_for(error)


def _add_looking(app: DirectApp) -> None:
    @app.get("/v1/status", responses=refusals(401, 403), tags=["operator"], summary="How the agent stands")
    async def status(request: Request) -> dict[str, Any]:
        _service(request).admit_to_look(request)
        return await _service(request).snapshot()

    @app.get(
        "/v1/privacy", responses=refusals(401, 403), tags=["operator"], summary="What left, and its price"
    )
    async def privacy(request: Request) -> dict[str, Any]:
        _service(request).admit_to_look(request)
        return await _service(request).commit(lambda agent: agent.ledger().as_dict())

    @app.get(
        "/v1/log",
        response_model=models.LogResponse,
        responses=refusals(401, 403),
        tags=["operator"],
        summary="Who changed what, and whether the log is whole",
    )
    async def operator_log(request: Request) -> Response:
        _service(request).admit_to_look(request)
        return json_response(await _service(request).commit(lambda agent: agent.operator_log()))

    @app.get(
        "/v1/model",
        response_model=ModelResponse,
        openapi_extra=from_query("group", "Of visitors, counted from 0, where there are several."),
        responses=refusals(401, 403, 422),
        tags=["operator"],
        summary="What was learnt, in words, with intervals: of released sums, so that it costs no privacy",
    )
    async def model(request: Request) -> Response:
        service = _service(request)
        service.admit_to_look(request)
        given = request.query_params.get("group", "0")
        if not (given.isascii() and given.isdigit() and len(given) < 10):
            raise ConfigurationError("group", given, "a whole number from 0 on")
        return json_response(await service.commit(lambda agent: agent.model(int(given))))

    @app.get(
        "/metrics",
        responses=refusals(401, 403),
        response_class=PlainTextResponse,
        tags=["operator"],
        summary="For Prometheus",
    )
    async def metrics(request: Request) -> Response:
        service = _service(request)
        service.admit(request.scope, "viewer")
        page = service.metrics.page(await service.snapshot())
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz", tags=["operator"], summary="Whether the process is alive")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz", responses=refusals(503), tags=["operator"], summary="Whether decisions can be made")
    async def ready(request: Request) -> dict[str, str]:
        await _service(request).commit(lambda agent: None)  # an empty commit: the file is there
        return {"status": "ready"}

    @_post(app, "/v1/erasures", "operator", models.ErasureRequest, models.ErasureResponse)
    async def erasure(service: Service, asked: models.ErasureRequest) -> object:
        """Forget a person, as far as that can be done."""
        by = str(CALLER.get())
        return await service.commit.apart(lambda agent: erase(agent, asked.person, by=by))


def _add_engine_door(app: DirectApp) -> None:
    @app.get(
        "/v1/outbox",
        response_model=models.OutboxResponse,
        responses=refusals(401, 403),
        tags=["engine"],
        summary="What waits to be sent",
    )
    async def outbox(request: Request) -> Response:
        service = _service(request)
        service.admit(request.scope, "carrier")
        names = ("season", "group", "number", "kind")
        items = [
            {name: getattr(one, name) for name in names} | {"payload": _text(one.body)}
            for one in await service.mailbox.outbox()
        ]
        name, place = await service.commit(lambda agent: (agent.name, agent.place()))
        card = b"" if service.keeper is None else service.keeper.card
        return json_response({"items": items, "agent": name, "place": _text(place), "card": _text(card)})

    @_post(app, "/v1/outbox/sent", "carrier", models.OutboxName)
    async def sent(service: Service, asked: models.OutboxName) -> None:
        """A message has arrived."""
        await service.mailbox.mark_sent(Parcel(asked.kind, asked.season, asked.group, asked.number, b""))

    @_post(app, "/v1/inbox", "carrier", models.InboxRequest, models.InboxResponse)
    async def inbox(service: Service, asked: models.InboxRequest) -> object:
        """Bring a sum to the agent, a keeper's card, or a row that is over."""
        payload = _bytes(asked.payload)
        if for_agents(payload):
            return {"new": await service.mailbox.hear(payload)}
        total = messages.decode(payload)  # a ValueError is answered with 422
        return {"new": await service.mailbox.absorb(total, agents=asked.agents, sealed=asked.sealed)}

    @_post(app, "/v1/keeper", "carrier", models.KeeperRequest, models.KeeperResponse)
    async def keep(service: Service, asked: models.KeeperRequest) -> object:
        """Have the keeper answer a list."""
        payload = _bytes(asked.payload)
        if service.keeper is None:
            raise RefusedError(422, "this agent is no keeper: there is no [keeper] table in its file")
        return {"payload": _text(await service.keeper.answer(payload))}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(422, "the payload is not base64") from None

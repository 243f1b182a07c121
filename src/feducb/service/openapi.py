"""The OpenAPI document: bodies are read by hand, so what they hold is said here."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from feducb.service import models

__all__ = ["body", "document", "refusals"]

_BY_HAND: tuple[type[BaseModel], ...] = (
    models.DecisionRequest,
    models.RewardsRequest,
    models.ErasureRequest,
    models.OutboxName,
    models.InboxRequest,
    models.Problem,
)
_WHY = {
    401: "No key, or an unknown one",
    403: "A key of another role",
    413: "The body is too large",
    422: "The body is not what was expected",
    503: "It could not be put on disk; nothing of it happened, send it again",
}
_OPEN = ("/healthz", "/readyz")


def body(model: type[BaseModel]) -> dict[str, Any]:
    """A request body of this kind."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What else may be answered."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _WHY[status], "content": content} for status in statuses}


def document(app: FastAPI) -> None:
    """Put bodies and the key into the document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            components = made.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            for model in _BY_HAND:
                schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas |= schema.pop("$defs", {})
                schemas[model.__name__] = schema
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in _OPEN else [{"key": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

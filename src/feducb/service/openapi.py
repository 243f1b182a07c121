"""The OpenAPI document: bodies are read by hand, so what they hold is said here."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from feducb.service import models

__all__ = ["body", "document", "from_query", "page_of", "refusals"]

_BY_HAND: tuple[type[BaseModel], ...] = (
    models.DecisionRequest,
    models.BatchRequest,
    models.RewardsRequest,
    models.DiscardRequest,
    models.FallbacksRequest,
    models.ErasureRequest,
    models.OutboxName,
    models.InboxRequest,
    models.KeeperRequest,
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


def from_query(name: str, about: str) -> dict[str, Any]:
    """A whole number behind the path's ?, 0 if left out."""
    schema = {"type": "integer", "minimum": 0, "maximum": 999_999_999, "default": 0}
    return {"parameters": [{"name": name, "in": "query", "description": about, "schema": schema}]}


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


_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem }
code { font-size: 0.95em } table { border-collapse: collapse; width: 100% } td, th { text-align: left;
padding: 0.2rem 0.8rem 0.2rem 0; vertical-align: top } section { border-top: 1px solid; margin-top: 1.5rem }
"""


def page_of(made: dict[str, Any]) -> str:
    """The document as a page to read, without scripts and without anything from elsewhere."""
    parts = []
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
            name = f"{method.upper()} {escape(path)}"
            parts.append(
                f"<section><h2><code>{name}</code></h2><p>{escape(operation['summary'])}</p>"
                f"{_fields('Request', content, made)}{_fields('Answer', answer, made)}"
                f"<p>Also: {', '.join(_answer(*one) for one in operation['responses'].items())}</p></section>"
            )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(made['info']['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(made['info']['title'])} {escape(made['info']['version'])}</h1>"
        f"<p>{escape(made['info']['description'])} Every call but the two on health needs "
        "<code>Authorization: Bearer KEY</code>. Machines read "
        '<a href="/openapi.json">openapi.json</a>.</p>' + "".join(parts)
    )


def _answer(status: str, answer: dict[str, Any]) -> str:
    return f"{escape(status)} {escape(answer['description'].lower())}"


def _fields(title: str, content: dict[str, Any], made: dict[str, Any]) -> str:
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    if not name:
        return ""
    schema = made["components"]["schemas"][name]
    needed = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{'needed' if field in needed else ''}</td>"
        f"<td>{escape(about.get('description', about.get('title', '')))}</td></tr>"
        for field, about in schema["properties"].items()
    )
    return f"<h3>{title}</h3><table>{rows}</table>"

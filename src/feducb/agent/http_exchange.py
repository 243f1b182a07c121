"""What is said to an agent's service, without anything that sends it: waiting or asyncio, both drive this.

A flow is a generator: it yields a `Request` or a `Pause` and is sent the `Reply`, or a `ServiceError` is
thrown into it where there was none. What it returns is the result.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from feducb.errors import FeducbError

__all__ = ["MOST_BYTES", "Flow", "Pause", "Reply", "Request", "ServiceError", "exchange"]

MOST_BYTES = 256 * 2**20  # of an answer
_AGAIN = (502, 503, 504)

Result = TypeVar("Result")


class ServiceError(FeducbError):
    """The service refused, could not be reached, or gave an answer that cannot be read.

    Attributes:
        status: the HTTP status; None if there was no answer.
        details: what was wrong with the request, if it was said.
    """

    def __init__(self, reason: str, status: int | None = None, details: Any = None) -> None:
        super().__init__(reason)
        self.status, self.details = status, details

    @property
    def away(self) -> bool:
        """Whether the service could not answer, rather than refused: asking later may help."""
        return self.status is None or self.status >= 500


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt."""

    method: str
    path: str
    body: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What goes with the body."""
        return {} if self.body is None else {"content-type": "application/json"}

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    content: bytes


Flow = Generator[Request | Pause, Reply | None, Result]


def exchange(method: str, path: str, asked: dict[str, Any] | None = None, *, attempts: int) -> Flow[Any]:
    """The answer, decoded; None if it is empty. Sent again where that may help, and changes nothing."""
    # with what is not finite: the service judges it
    request = Request(method, path, None if asked is None else json.dumps(asked))
    for attempt in range(attempts):
        if attempt:
            yield Pause(0.05 * 4**attempt)
        try:
            reply = yield request
        except ServiceError as error:
            if error.status is not None:
                raise
            failure = error
            continue
        assert reply is not None
        if 200 <= reply.status < 300:
            return _decoded(reply.content, str(request))
        failure = _refusal(reply, str(request))
        if failure.status not in _AGAIN:
            break
    raise failure


def _decoded(content: bytes, call: str) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        raise ServiceError(f"{call}: the answer is not JSON") from None


def _refusal(reply: Reply, call: str) -> ServiceError:
    details = None
    try:
        plain = json.loads(reply.content)
        reason, details = str(plain["error"]), plain.get("details")
    except (ValueError, KeyError, TypeError):
        reason = reply.content[:1000].decode("utf-8", errors="replace")
    return ServiceError(f"{call}: answered {reply.status}: {reason}", reply.status, details)

"""What stands before the routes: who may come in, and how much they may bring."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.types import Receive, Scope

from feducb.agent.health import with_trouble
from feducb.agent.mailbox import EngineFacts
from feducb.service import models
from feducb.service.api_keys import ApiKeys, Key, Role
from feducb.service.commits import GroupCommit
from feducb.service.keeper_desk import KeeperDesk
from feducb.service.metrics import Metrics
from feducb.service.running_mailbox import ServiceMailbox
from feducb.service.sessions import Sessions
from feducb.service.unread import details_of, first_of
from feducb.storage.keeper_facts import look_at_keeper

__all__ = ["CALLER", "RefusedError", "Service"]

Model = TypeVar("Model", bound=models.Asked)
CALLER: ContextVar[Key | None] = ContextVar("caller")  # the key that the request under way came with


class RefusedError(Exception):
    """A request that gets an answer, but not what it asked for."""

    def __init__(self, status: int, reason: str, details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.details = status, reason, details


class Service:
    """What the routes share."""

    def __init__(
        self,
        commit: GroupCommit,
        keys: ApiKeys,
        largest_body: int,
        engine: EngineFacts | None = None,
        keeper: KeeperDesk | None = None,
        keeper_file: Path | None = None,
    ) -> None:
        self.commit, self.keys, self.largest_body, self.engine = commit, keys, largest_body, engine
        self.keeper, self._keeper_file = keeper, keeper_file
        self.metrics = Metrics()
        self.mailbox = ServiceMailbox(commit)
        self.sessions = Sessions(keys)

    async def snapshot(self) -> dict[str, Any]:
        """How the agent stands, and what is wrong."""
        return self.judge(await self.commit(lambda agent: agent.snapshot()))

    def judge(self, facts: dict[str, Any]) -> dict[str, Any]:
        """What an agent said of itself, with what its file does not know, and what is wrong by all of it."""
        engine = None if self.engine is None else self.engine.as_dict()
        keeper = None if self._keeper_file is None else look_at_keeper(self._keeper_file)
        beside = {"running": True, "disk": self.commit.failing, "engine": engine, "keeper": keeper}
        return with_trouble(facts | beside)

    def admit(self, scope: Scope, role: Role) -> None:
        """Let nobody in who does not belong."""
        header = _header(scope, b"authorization")
        key = self.keys.key(header)
        own = None if key is None else key.role
        if own is None and header is not None and header[:7].lower() == b"bearer ":
            raise RefusedError(401, "this key is not known: it was never made here, or is revoked")
        if own is None:
            raise RefusedError(401, "a key is needed: Authorization: Bearer KEY")
        if own not in (role, "operator"):
            other = "" if role == "operator" else " or operator"
            raise RefusedError(403, f"this key has the role {own}; this needs {role}{other}")
        CALLER.set(key)

    def admit_to_look(self, request: Request) -> None:
        """As `admit` for viewers, or by the page's cookie, which opens nothing but what is only read."""
        if not self.sessions.may_look(request):
            self.admit(request.scope, "viewer")

    async def read(self, scope: Scope, receive: Receive, kind: type[Model]) -> Model:
        """The body, checked; at most ``largest_body`` bytes of it are ever held."""
        length = _header(scope, b"content-length") or b"0"
        if not length.isdigit() or int(length) > self.largest_body:
            raise RefusedError(413, f"the body is larger than {self.largest_body} bytes")
        whole, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the body was cut off")
            whole += message.get("body", b"")
            more = message.get("more_body", False)
            if len(whole) > self.largest_body:
                raise RefusedError(413, f"the body is larger than {self.largest_body} bytes")
        try:
            return kind.read(bytes(whole))
        except ValidationError as error:
            said = f"the body is not what was expected: {first_of(error)}"
            raise RefusedError(422, said, details_of(error)) from None


def _header(scope: Scope, name: bytes) -> bytes | None:
    """One header as it came; names are in small letters already (ASGI)."""
    for one, value in scope["headers"]:
        if one == name:
            return bytes(value)
    return None

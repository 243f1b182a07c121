"""The agent's page: for its operator, since counts and values are raw."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request

from feducb.service.commits import NotDurableError
from feducb.service.dashboard import add_dashboard
from feducb.service.gate import Service
from feducb.service.sessions import Sessions

__all__ = ["add_agent_page"]


def add_agent_page(app: FastAPI) -> None:
    """Serve the page of the agent whose service the app is."""
    last: dict[str, Any] = {"kind": "agent"}

    async def snapshot() -> dict[str, Any]:
        nonlocal last
        service: Service = app.state.service
        try:
            last = await service.commit(lambda agent: agent.overview())
        except NotDurableError as error:  # shown as it was, with the reason why that is old
            return last | {"at": time.time(), "failing": service.commit.failing or str(error)}
        return last | service.beside()

    def sessions(request: Request) -> Sessions:
        found: Sessions = request.app.state.service.sessions
        return found

    add_dashboard(app, snapshot, sessions)

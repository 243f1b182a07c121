"""A newcomer asks for the sums of earlier seasons, one after the other, also where an answer is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from feducb.carriers.nats import with_controller
from feducb.carriers.nats.earlier_talk import asked_before
from feducb.carriers.nats.with_controller import WithController
from feducb.protocol.sums import NamedSum


class _Mailbox:
    def __init__(self) -> None:
        self.known: list[int] = []

    async def earliest(self) -> int:
        return min(self.known, default=5)

    async def absorb(self, total: int, *, agents: int) -> bool:
        new = total not in self.known
        self.known += [total] if new else []
        return new


class _Client:
    """A controller that knows seasons 1 to 4, and whose second answer is lost."""

    def __init__(self) -> None:
        self.asked = 0

    async def request(self, _: str, data: bytes, *, timeout: float) -> Any:
        self.asked += 1
        if self.asked == 2:
            raise TimeoutError
        before = asked_before(data)
        assert before is not None
        return type("Reply", (), {"data": bytes([before - 1]) if before > 1 else b""})


def test_a_lost_answer_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox, client = _Mailbox(), _Client()
    settings = type("Settings", (), {"timeout": 1.0})
    desk = WithController(settings, "west", None, None, None, mailbox, None)  # type: ignore[arg-type]

    def read(_: WithController, data: bytes) -> NamedSum:
        return type("Sum", (), {"season": data[0], "total": data[0], "names": ("a",)})  # type: ignore[return-value]

    async def plainly(answer: Any) -> Any:
        return await answer

    monkeypatch.setattr(WithController, "_read", read)
    monkeypatch.setattr(with_controller, "apart", plainly)
    with pytest.raises(TimeoutError):
        asyncio.run(desk._ask_earlier(client, "ask"))  # type: ignore[arg-type]
    again = replace(desk)  # of the next season, or after a restart: the agent's file alone remembers
    asyncio.run(again._ask_earlier(client, "ask"))  # type: ignore[arg-type]
    assert mailbox.known == [4, 3, 2, 1]

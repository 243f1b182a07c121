"""A small typed client of the decision service (`[client]` extra).

>>> from feducb.service.client import Client
>>> with Client("http://127.0.0.1:8750", key="feducb_…") as agent:  # doctest: +SKIP
...     decision = agent.decide([[0.1, 0.2], [0.3, 0.4]])
...     agent.reward(decision.id, 1.0)
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from feducb.agent import Decision, Outcome
from feducb.agent.agent_http import AgentHttp, ServiceError

__all__ = ["Client", "ServiceError"]


class Client(AgentHttp):
    """Asks a decision service; sends again what got no answer, which changes nothing that was done before."""

    def decide(
        self,
        actions: Sequence[Sequence[float]],
        *,
        id: str | None = None,
        person: str | None = None,
        follow: int | None = None,
        follow_propensity: float | None = None,
        scores: bool = False,
        top: int | None = None,
    ) -> Decision:
        """Ask which candidate to show (others call it *rank*); see `feducb.Agent.decide`."""
        asked: dict[str, Any] = {
            "actions": [[float(value) for value in row] for row in actions],
            "id": id if id is not None else uuid.uuid4().hex,  # so that asking again is safe
            "person": person,
            "follow": follow,
            "follow_propensity": follow_propensity,
            "scores": scores,
            "top": top,
        }
        answer = self._send("POST", "/v1/decisions", asked)
        for name in ("scores", "ranking"):
            answer[name] = None if answer[name] is None else tuple(answer[name])
        return Decision(**answer)

    def reward(self, id: str, value: float) -> Outcome:
        """Say what a decision was worth; raises `ServiceError` if it is out of range."""
        return self.rewards({id: value})[id]

    def rewards(self, values: Mapping[str, float]) -> dict[str, Outcome]:
        """Say what many decisions were worth, by id; one out of range is `refused` alone."""
        asked = {"rewards": [{"id": name, "value": float(value)} for name, value in values.items()]}
        answer = self._send("POST", "/v1/rewards", asked)
        return {name: Outcome(one) for name, one in zip(values, answer["outcomes"], strict=True)}

    def discard(self, id: str) -> Outcome:
        """Take a decision back that was never shown."""
        answer = self._send("POST", "/v1/discards", {"id": id})
        return Outcome(answer["outcomes"][0])

    def status(self) -> dict[str, Any]:
        """How the agent stands (needs an operator's or a viewer's key)."""
        return dict(self._send("GET", "/v1/status"))

    def privacy(self) -> dict[str, Any]:
        """The ledger (needs an operator's or a viewer's key)."""
        return dict(self._send("GET", "/v1/privacy"))

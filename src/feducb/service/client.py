"""A small typed client of the decision service (`[client]` extra).

>>> from feducb.service.client import Client
>>> with Client("http://127.0.0.1:8750", key="feducb_…") as agent:  # doctest: +SKIP
...     decision = agent.decide(["free_shipping", "ten_percent"], context={"country": "DE", "age": 36})
...     agent.reward(decision.id, 1.0)
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from feducb.agent import Decision, Outcome
from feducb.agent.agent_http import AgentHttp, ServiceError
from feducb.agent.visitors import Actions

__all__ = ["Client", "ServiceError"]


class Client(AgentHttp):
    """Asks a decision service; sends again what got no answer, which changes nothing that was done before."""

    def decide(
        self,
        actions: Actions | None = None,
        *,
        context: Mapping[str, Any] | None = None,
        id: str | None = None,
        person: str | None = None,
        follow: int | str | None = None,
        follow_propensity: float | None = None,
        scores: bool = False,
        top: int | None = None,
        explain: bool = False,
    ) -> Decision:
        """Ask which candidate to show (others call it *rank*); see `feducb.Agent.decide`."""
        asked: dict[str, Any] = {
            "actions": None if actions is None else [_plain(one) for one in actions],  # type: ignore[union-attr]
            "context": None if context is None else dict(context),
            "id": id if id is not None else uuid.uuid4().hex,  # so that asking again is safe
            "person": person,
            "follow": follow,
            "follow_propensity": follow_propensity,
            "scores": scores,
            "top": top,
            "explain": explain,
        }
        return _decision(self._send("POST", "/v1/decisions", asked))

    def decide_many(self, visitors: Sequence[Mapping[str, Any]]) -> list[Decision | None]:
        """Ask for up to 1,000 visitors at once, each with the arguments of `decide` by name.

        One that is refused gets None, and the others are decided; one alone raises `ServiceError`.
        """
        asked = [{"id": uuid.uuid4().hex, **one} for one in visitors]
        answer = self._send("POST", "/v1/decisions/batch", {"decisions": asked})
        return [None if one is None else _decision(one) for one in answer["decisions"]]

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

    def model(self, group: int = 0) -> dict[str, Any]:
        """What was learnt, in the recipe's words (needs an operator's or a viewer's key)."""
        return dict(self._send("GET", f"/v1/model?group={group}"))

    def privacy(self) -> dict[str, Any]:
        """The ledger (needs an operator's or a viewer's key)."""
        return dict(self._send("GET", "/v1/privacy"))


def _plain(action: Any) -> Any:
    """A name, an object, or a row of numbers, as JSON writes them."""
    return action if isinstance(action, str | Mapping) else [float(value) for value in action]


def _decision(answer: dict[str, Any]) -> Decision:
    for name in ("scores", "ranking"):
        answer[name] = None if answer[name] is None else tuple(answer[name])
    return Decision(**answer)

"""A small typed client of the decision service (`[client]` extra).

>>> from feducb.service.client import Client
>>> with Client("http://127.0.0.1:8750", key="feducb_…") as agent:  # doctest: +SKIP
...     decision = agent.decide([[0.1, 0.2], [0.3, 0.4]])
...     agent.reward(decision.id, 1.0)
"""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from feducb.agent import Decision, Outcome
from feducb.errors import FeducbError
from feducb.system import optional

with optional("the client", "client"):
    import httpx

__all__ = ["Client", "ServiceError"]

_AGAIN = (502, 503, 504)


class ServiceError(FeducbError):
    """The service refused, or could not be reached.

    Attributes:
        status: the HTTP status; None if there was no answer.
        details: what was wrong with the request, if it was said.
    """

    def __init__(self, reason: str, status: int | None = None, details: Any = None) -> None:
        super().__init__(reason)
        self.status, self.details = status, details


class Client:
    """Asks a decision service; sends again what got no answer, which changes nothing that was done before."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        ca: str | Path | None = None,
        certificate: tuple[str | Path, str | Path] | None = None,
        timeout: float = 5.0,
        attempts: int = 4,
    ) -> None:
        """Where to ask, and how.

        Args:
            url: of the service.
            key: an API key.
            ca: whom to trust with the service's certificate (PEM).
            certificate: the own certificate and its private key (PEM), where the service asks for one.
            timeout: seconds to wait.
            attempts: how often to try.
        """
        verify = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if certificate is not None:
            verify.load_cert_chain(*(str(path) for path in certificate))
        self._http = httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {key}"}, verify=verify, timeout=timeout
        )
        self._attempts = max(1, attempts)

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
        told = self._send("POST", "/v1/decisions", asked)
        for name in ("scores", "ranking"):
            told[name] = None if told[name] is None else tuple(told[name])
        return Decision(**told)

    def reward(self, id: str, value: float) -> Outcome:
        """Say what a decision was worth."""
        return self.rewards({id: value})[id]

    def rewards(self, values: Mapping[str, float]) -> dict[str, Outcome]:
        """Say what many decisions were worth, by id."""
        asked = {"rewards": [{"id": name, "value": float(value)} for name, value in values.items()]}
        told = self._send("POST", "/v1/rewards", asked)
        return {name: Outcome(one) for name, one in zip(values, told["outcomes"], strict=True)}

    def discard(self, id: str) -> Outcome:
        """Take a decision back that was never shown."""
        told = self._send("POST", "/v1/discards", {"id": id})
        return Outcome(told["outcomes"][0])

    def status(self) -> dict[str, Any]:
        """How the agent stands (needs an operator's or a viewer's key)."""
        return self._send("GET", "/v1/status")

    def privacy(self) -> dict[str, Any]:
        """The ledger (needs an operator's or a viewer's key)."""
        return self._send("GET", "/v1/privacy")

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, path: str, asked: dict[str, Any] | None = None) -> dict[str, Any]:
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(0.05 * 4**attempt)
            try:
                response = self._http.request(method, path, json=asked)
            except httpx.TransportError as error:
                reason, status = f"no answer: {type(error).__name__}", None
                continue
            if response.is_success:
                told: dict[str, Any] = response.json()
                return told
            reason, details = _reason(response)
            status = response.status_code
            if status not in _AGAIN:
                raise ServiceError(reason, status, details)
        raise ServiceError(reason, status)


def _reason(response: httpx.Response) -> tuple[str, Any]:
    try:
        told = response.json()
        return str(told["error"]), told.get("details")
    except (ValueError, KeyError, TypeError):
        return f"status {response.status_code}", None

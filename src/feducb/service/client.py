"""Small typed clients of the decision service, waiting or in asyncio (`[client]` extra).

>>> from feducb.service.client import Client
>>> with Client("http://127.0.0.1:8750", key="feducb_…") as agent:  # doctest: +SKIP
...     decision = agent.decide(context={"country": "DE", "age": 36}, fallback="free_shipping")
...     agent.reward(decision.id, 1.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

from feducb.agent import Decision, Outcome
from feducb.agent.agent_http import AgentHttp, AsyncAgentHttp, ServiceError
from feducb.agent.visitors import Actions
from feducb.service.client_flows import ClientFlows, VisitorOptions
from feducb.service.fallback import Defaults, Fallback, Fallbacks

__all__ = ["AsyncClient", "Client", "Fallback", "Fallbacks", "ServiceError"]


class Client(AgentHttp):
    """Asks a decision service; sends again what got no answer, which changes nothing that was done before.

    May be shared by threads.
    """

    def _connect(self, **options: Any) -> None:
        super()._connect(**options)
        self._flows = ClientFlows(self._attempts)

    @property
    def fallbacks(self) -> Fallbacks:
        """What was shown while the service was away: how often, and what became of it."""
        return self._flows.fallbacks

    @overload
    def decide(
        self, actions: Actions | None = None, *, fallback: None = None, **visitor: Unpack[VisitorOptions]
    ) -> Decision: ...

    @overload
    def decide(
        self, actions: Actions | None = None, *, fallback: int | str, **visitor: Unpack[VisitorOptions]
    ) -> Decision | Fallback: ...

    def decide(
        self,
        actions: Actions | None = None,
        *,
        fallback: int | str | None = None,
        **visitor: Unpack[VisitorOptions],
    ) -> Decision | Fallback:
        """Ask which candidate to show (others call it *rank*); see `feducb.Agent.decide`.

        Args:
            actions: the candidates, if they are not the recipe's.
            fallback: what is shown if the service is away (no connection, no answer in time, 5xx), by name or
                index; where the recipe has the actions a name, which is not checked. The service is asked
                once then, without a pause; and after one that failed, not for a second. What was shown is
                kept in memory, 10,000 at most, and reported when the service is back.
            visitor: context, id, person, follow, follow_propensity, scores, top, explain.
        """
        return self._run(self._flows.decide(actions, fallback, visitor))

    @overload
    def decide_many(
        self, visitors: Sequence[Mapping[str, Any]], *, fallback: None = None
    ) -> list[Decision | None]: ...

    @overload
    def decide_many(
        self, visitors: Sequence[Mapping[str, Any]], *, fallback: Defaults
    ) -> list[Decision | Fallback | None]: ...

    def decide_many(self, visitors: Sequence[Mapping[str, Any]], *, fallback: Defaults | None = None) -> Any:
        """Ask for up to 1,000 visitors at once, each with the arguments of `decide` by name.

        One that is refused gets None, and the others are decided; why is logged as a warning
        (`feducb.client`). One alone raises `ServiceError`.

        Args:
            visitors: who they are.
            fallback: as for `decide`, one for all or one for each: either all get the service's answer, or
                all get their default.
        """
        return self._run(self._flows.decide_many(visitors, fallback))

    def reward(self, id: str, value: float) -> Outcome:
        """Say what a decision was worth; raises `ServiceError` if it is out of range.

        Of a fallback it is `discarded`; in shadow mode `waiting`, until that is reported.
        """
        return self._run(self._flows.reward(id, value))

    def rewards(self, values: Mapping[str, float]) -> dict[str, Outcome]:
        """Say what many decisions were worth, by id; one out of range is `refused` alone, and logged."""
        return self._run(self._flows.rewards(values))

    def discard(self, id: str) -> Outcome:
        """Take a decision back that was never shown."""
        return self._run(self._flows.discard(id))

    def report_fallbacks(self) -> Fallbacks:
        """Report all that was shown while the service was away; calls that succeed do so bit by bit."""
        return self._run(self._flows.report())

    def status(self) -> dict[str, Any]:
        """How the agent stands (needs an operator's or a viewer's key)."""
        return self._run(self._flows.look("/v1/status"))

    def model(self, group: int = 0) -> dict[str, Any]:
        """What was learnt, in the recipe's words (needs an operator's or a viewer's key)."""
        return self._run(self._flows.look(f"/v1/model?group={group}"))

    def privacy(self) -> dict[str, Any]:
        """The ledger (needs an operator's or a viewer's key)."""
        return self._run(self._flows.look("/v1/privacy"))


class AsyncClient(AsyncAgentHttp):
    """As `Client`, method by method, in asyncio."""

    def _connect(self, **options: Any) -> None:
        super()._connect(**options)
        self._flows = ClientFlows(self._attempts)

    @property
    def fallbacks(self) -> Fallbacks:
        """See `Client.fallbacks`."""
        return self._flows.fallbacks

    @overload
    async def decide(
        self, actions: Actions | None = None, *, fallback: None = None, **visitor: Unpack[VisitorOptions]
    ) -> Decision: ...

    @overload
    async def decide(
        self, actions: Actions | None = None, *, fallback: int | str, **visitor: Unpack[VisitorOptions]
    ) -> Decision | Fallback: ...

    async def decide(
        self,
        actions: Actions | None = None,
        *,
        fallback: int | str | None = None,
        **visitor: Unpack[VisitorOptions],
    ) -> Decision | Fallback:
        """See `Client.decide`."""
        return await self._run(self._flows.decide(actions, fallback, visitor))

    @overload
    async def decide_many(
        self, visitors: Sequence[Mapping[str, Any]], *, fallback: None = None
    ) -> list[Decision | None]: ...

    @overload
    async def decide_many(
        self, visitors: Sequence[Mapping[str, Any]], *, fallback: Defaults
    ) -> list[Decision | Fallback | None]: ...

    async def decide_many(
        self, visitors: Sequence[Mapping[str, Any]], *, fallback: Defaults | None = None
    ) -> Any:
        """See `Client.decide_many`."""
        return await self._run(self._flows.decide_many(visitors, fallback))

    async def reward(self, id: str, value: float) -> Outcome:
        """See `Client.reward`."""
        return await self._run(self._flows.reward(id, value))

    async def rewards(self, values: Mapping[str, float]) -> dict[str, Outcome]:
        """See `Client.rewards`."""
        return await self._run(self._flows.rewards(values))

    async def discard(self, id: str) -> Outcome:
        """See `Client.discard`."""
        return await self._run(self._flows.discard(id))

    async def report_fallbacks(self) -> Fallbacks:
        """See `Client.report_fallbacks`."""
        return await self._run(self._flows.report())

    async def status(self) -> dict[str, Any]:
        """See `Client.status`."""
        return await self._run(self._flows.look("/v1/status"))

    async def model(self, group: int = 0) -> dict[str, Any]:
        """See `Client.model`."""
        return await self._run(self._flows.look(f"/v1/model?group={group}"))

    async def privacy(self) -> dict[str, Any]:
        """See `Client.privacy`."""
        return await self._run(self._flows.look("/v1/privacy"))

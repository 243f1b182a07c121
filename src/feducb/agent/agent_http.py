"""How an agent's service is called over HTTP, by applications and by carriers; waiting, or in asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self, TypeVar

from feducb.agent.http_exchange import MOST_BYTES, Flow, Pause, Reply, Request, ServiceError, exchange
from feducb.system import optional

with optional("calling an agent's service", "client"):
    import httpx

__all__ = ["AgentHttp", "AsyncAgentHttp", "ServiceError"]

Result = TypeVar("Result")


class _Door(ABC):
    """Where to ask, and how."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        ca: str | Path | None = None,
        certificate: tuple[str | Path, str | Path] | None = None,
        timeout: float = 5.0,
        attempts: int = 4,
        keep_alive: bool = True,
    ) -> None:
        """Where to ask, and how.

        Args:
            url: of the service.
            key: an API key.
            ca: whom to trust with the service's certificate (PEM), in place of the system's.
            certificate: the own certificate and its private key (PEM), where the service asks for one.
            timeout: seconds to wait.
            attempts: how often to try.
            keep_alive: whether connections are kept for the next call, until they are closed.
        """
        verify = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if certificate is not None:
            verify.load_cert_chain(*(str(path) for path in certificate))
        self._attempts = max(1, attempts)
        self._connect(
            base_url=url,
            headers={"authorization": f"Bearer {key}"},
            verify=verify,
            timeout=timeout,
            limits=httpx.Limits(max_keepalive_connections=None if keep_alive else 0),
            trust_env=False,  # no proxy sees the key
        )

    @abstractmethod
    def _connect(self, **options: Any) -> None:
        """With httpx, in the way of the client."""


class AgentHttp(_Door):
    """Calls to one agent's service. Redirects are not followed: they would carry the key to another place."""

    def _connect(self, **options: Any) -> None:
        self._http = httpx.Client(**options)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, path: str, asked: dict[str, Any] | None = None) -> Any:
        return self._run(exchange(method, path, asked, attempts=self._attempts))

    def _run(self, flow: Flow[Result]) -> Result:
        try:
            step = next(flow)
            while True:
                try:
                    reply = self._take(step)
                except ServiceError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _take(self, step: Request | Pause) -> Reply | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            with self._http.stream(
                step.method, step.path, content=step.body, headers=step.headers
            ) as response:
                whole = bytearray()
                for part in response.iter_bytes():
                    _add(whole, part, response)
        except httpx.TransportError as error:
            raise _no_answer(step, error) from error
        return Reply(response.status_code, bytes(whole))


class AsyncAgentHttp(_Door):
    """As `AgentHttp`, in asyncio."""

    def _connect(self, **options: Any) -> None:
        self._http = httpx.AsyncClient(**options)

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, flow: Flow[Result]) -> Result:
        try:
            step = next(flow)
            while True:
                try:
                    reply = await self._take(step)
                except ServiceError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _take(self, step: Request | Pause) -> Reply | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            async with self._http.stream(
                step.method, step.path, content=step.body, headers=step.headers
            ) as response:
                whole = bytearray()
                async for part in response.aiter_bytes():
                    _add(whole, part, response)
        except httpx.TransportError as error:
            raise _no_answer(step, error) from error
        return Reply(response.status_code, bytes(whole))


def _add(whole: bytearray, part: bytes, response: httpx.Response) -> None:
    whole += part
    if len(whole) > MOST_BYTES:
        raise ServiceError(f"the answer is longer than {MOST_BYTES} bytes", response.status_code)


def _no_answer(request: Request, error: httpx.TransportError) -> ServiceError:
    return ServiceError(f"{request}: no answer: {error or type(error).__name__}")

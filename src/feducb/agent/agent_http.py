"""How an agent's service is called over HTTP, by applications and by carriers alike."""

from __future__ import annotations

import json
import ssl
import time
from pathlib import Path
from typing import Any, Self

from feducb.errors import FeducbError
from feducb.system import optional

with optional("calling an agent's service", "client"):
    import httpx

__all__ = ["AgentHttp", "ServiceError"]

_AGAIN = (502, 503, 504)
_MOST_BYTES = 256 * 2**20  # of an answer


class ServiceError(FeducbError):
    """The service refused, could not be reached, or gave an answer that cannot be read.

    Attributes:
        status: the HTTP status; None if there was no answer.
        details: what was wrong with the request, if it was said.
    """

    def __init__(self, reason: str, status: int | None = None, details: Any = None) -> None:
        super().__init__(reason)
        self.status, self.details = status, details


class AgentHttp:
    """Calls to one agent's service. Redirects are not followed: they would carry the key to another place."""

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
            keep_alive: whether connections are kept for the next call, until `close`.
        """
        verify = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if certificate is not None:
            verify.load_cert_chain(*(str(path) for path in certificate))
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}"},
            verify=verify,
            timeout=timeout,
            limits=httpx.Limits(max_keepalive_connections=None if keep_alive else 0),
            trust_env=False,  # no proxy sees the key
        )
        self._attempts = max(1, attempts)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, path: str, asked: dict[str, Any] | None = None) -> Any:
        """The answer, decoded; None if it is empty. Sent again where that may help, and changes nothing."""
        body = None if asked is None else json.dumps(asked)  # with what is not finite: the service judges it
        headers = {} if asked is None else {"content-type": "application/json"}
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(0.05 * 4**attempt)
            try:
                with self._http.stream(method, path, content=body, headers=headers) as response:
                    content = _content(response)
            except httpx.TransportError as error:
                failure = ServiceError(f"{method} {path}: no answer: {error or type(error).__name__}")
                continue
            if response.is_success:
                return _decoded(content, f"{method} {path}")
            failure = _refusal(response.status_code, content, f"{method} {path}")
            if failure.status not in _AGAIN:
                break
        raise failure


def _content(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ServiceError(f"the answer is longer than {_MOST_BYTES} bytes", response.status_code)
    return b"".join(parts)


def _decoded(content: bytes, call: str) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        raise ServiceError(f"{call}: the answer is not JSON") from None


def _refusal(status: int, content: bytes, call: str) -> ServiceError:
    details = None
    try:
        plain = json.loads(content)
        reason, details = str(plain["error"]), plain.get("details")
    except (ValueError, KeyError, TypeError):
        reason = content[:1000].decode("utf-8", errors="replace")
    return ServiceError(f"{call}: answered {status}: {reason}", status, details)

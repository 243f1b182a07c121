"""The door of a running agent: three calls of its HTTP API, by which a site's carrier reaches it.

An agent's file has one writer, the agent's own process, so whoever carries asks that process. The carrier
sees what already may leave, and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from feducb.errors import ConfigurationError
from feducb.protocol.parcels import Parcel, ParcelKind

__all__ = ["AgentDoor", "DoorError"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_BYTES = 256 * 2**20
_SETTINGS = {
    "agent-url": "FEDUCB_AGENT_URL",
    "agent-key-file": "FEDUCB_AGENT_KEY_FILE",
    "agent-ca-file": "FEDUCB_AGENT_CA_FILE",
}


class DoorError(Exception):
    """The agent did not do what was asked; it may later."""


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the key to another place."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class AgentDoor:
    """Calls to one agent.

    Args:
        url: of the agent's API: https, or http on this machine.
        key: the operator's key.
        ca_file: certificates to trust, in place of the system's.
        timeout: seconds a call may take.
    """

    def __init__(self, url: str, *, key: str, ca_file: Path | None = None, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not (local or (parts.scheme == "https" and parts.hostname)):
            raise ConfigurationError("agent-url", url, "https://…, or http://127.0.0.1:… on this machine")
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigurationError("agent-key-file", "its content", "a key on one line")
        self._url = url.rstrip("/")
        self._key = key
        self._timeout = timeout
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context), _NoRedirect())

    @classmethod
    def configured(cls, node_config: Mapping[str, object], environment: Mapping[str, str]) -> AgentDoor:
        """As the site's own settings say: the SuperNode's ``--node-config``, else its environment.

        What the SuperLink sends is not asked: it must not be able to point the key elsewhere.
        """
        found = {name: node_config.get(name, environment.get(_SETTINGS[name])) for name in _SETTINGS}
        for name in ("agent-url", "agent-key-file"):
            if not found[name]:
                raise ConfigurationError(name, found[name], f"one in --node-config, or {_SETTINGS[name]}")
        try:
            key = Path(str(found["agent-key-file"])).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigurationError("agent-key-file", found["agent-key-file"], "a readable file") from error
        ca_file = found["agent-ca-file"]
        return cls(str(found["agent-url"]), key=key, ca_file=Path(str(ca_file)) if ca_file else None)

    def outbox(self) -> list[Parcel]:
        """What the agent has on disk and not yet reported sent, oldest first."""
        listed = self._call("GET", "/v1/outbox")
        try:
            items = listed["items"] if isinstance(listed, dict) else listed
            return [
                Parcel(
                    kind=ParcelKind(item["kind"]),
                    season=int(item["season"]),
                    group=int(item["group"]),
                    number=int(item["number"]),
                    body=base64.b64decode(item["payload"], validate=True),
                )
                for item in items
            ]
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise DoorError(f"the agent's outbox cannot be read: {error!r}") from error

    def mark_sent(self, season: int, number: int, *, group: int = 0) -> None:
        """The other side has this release on disk."""
        self._call("POST", "/v1/outbox/sent", {"season": season, "group": group, "number": number})

    def absorb(self, payload: bytes) -> bool:
        """Hand the agent a sum; on its disk when this returns. False if it has a newer one."""
        told = self._call("POST", "/v1/inbox", {"payload": base64.b64encode(payload).decode("ascii")})
        if not isinstance(told, dict) or not isinstance(told.get("new"), bool):
            raise DoorError("the agent's inbox did not say whether the sum is new")
        return bool(told["new"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode("utf-8"),
            headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                content = response.read(_MOST_BYTES + 1)
        except HTTPError as error:
            with error:
                said = error.read(1000).decode("utf-8", errors="replace")
            raise DoorError(f"{method} {path}: the agent answered {error.code}: {said}") from None
        except (URLError, OSError) as error:
            raise DoorError(f"{method} {path}: the agent cannot be reached: {error}") from None
        if len(content) > _MOST_BYTES:
            raise DoorError(f"{method} {path}: the answer is longer than {_MOST_BYTES} bytes")
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise DoorError(f"{method} {path}: the answer is not JSON") from None

"""The door of a running agent: four calls of its HTTP API, by which a site's carrier reaches it.

An agent's file has one writer, the agent's own process, so whoever carries asks that process. The carrier
sees what already may leave, and nothing else.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from feducb.agent.agent_http import AgentHttp, ServiceError
from feducb.errors import ConfigurationError
from feducb.protocol.parcels import Parcel, ParcelKind

__all__ = ["AgentDoor", "Outbox"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SETTINGS = {
    "agent-url": "FEDUCB_AGENT_URL",
    "agent-key-file": "FEDUCB_AGENT_KEY_FILE",
    "agent-ca-file": "FEDUCB_AGENT_CA_FILE",
}


class Outbox(NamedTuple):
    """What an agent has for its carrier."""

    parcels: list[Parcel]  # not yet reported sent, oldest first
    agent: str = ""  # its name
    place: bytes = b""  # the newest row that is over, as 16 bytes; none if there is none
    card: bytes = b""  # its keeper's key of the season, signed; none if it has no keeper


class AgentDoor(AgentHttp):
    """The carrier's calls to one agent."""

    def __init__(self, url: str, *, key: str, ca_file: Path | None = None, timeout: float = 30.0) -> None:
        """Which agent: https, or http on this machine; with a carrier's or the operator's key.

        Certificates to trust (``ca_file``) stand in place of the system's.
        """
        parts = urlsplit(url)
        local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not (local or (parts.scheme == "https" and parts.hostname)):
            raise ConfigurationError("agent-url", url, "https://…, or http://127.0.0.1:… on this machine")
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigurationError("agent-key-file", "its content", "a key on one line")
        # A visit that fails is repeated, and there are few calls in one.
        super().__init__(url, key=key, ca=ca_file, timeout=timeout, attempts=1, keep_alive=False)

    @classmethod
    def configured(cls, node_config: Mapping[str, object], environment: Mapping[str, str]) -> AgentDoor:
        """As the site's own settings say: the SuperNode's ``--node-config``, else its environment.

        What the SuperLink sends is not asked: it must not be able to point the key elsewhere.
        """
        named = {name: node_config.get(name, environment.get(_SETTINGS[name])) for name in _SETTINGS}
        for name in ("agent-url", "agent-key-file"):
            if not named[name]:
                raise ConfigurationError(name, named[name], f"one in --node-config, or {_SETTINGS[name]}")
        try:
            key = Path(str(named["agent-key-file"])).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigurationError("agent-key-file", named["agent-key-file"], "a readable file") from error
        ca_file = named["agent-ca-file"]
        return cls(str(named["agent-url"]), key=key, ca_file=Path(str(ca_file)) if ca_file else None)

    def outbox(self) -> Outbox:
        """What the agent has on disk and not yet reported sent, and how far it is."""
        listed = self._send("GET", "/v1/outbox")
        try:
            told = listed if isinstance(listed, dict) else {"items": listed}
            parcels = [
                Parcel(
                    kind=ParcelKind(item["kind"]),
                    season=int(item["season"]),
                    group=int(item["group"]),
                    number=int(item["number"]),
                    body=_bytes(item["payload"]),
                )
                for item in told["items"]
            ]
            place, card = (_bytes(told.get(name, "")) for name in ("place", "card"))
            return Outbox(parcels, str(told.get("agent", "")), place, card)
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise ServiceError(f"the agent's outbox cannot be read: {error!r}") from error

    def mark_sent(self, item: Parcel) -> None:
        """The other side has this on disk."""
        names = ("kind", "season", "group", "number")
        self._send("POST", "/v1/outbox/sent", {name: getattr(item, name) for name in names})

    def bring(self, payload: bytes) -> bool:
        """Hand the agent a sum, a keeper's card or a row that is over; on its disk when this returns.

        False if it was there already, or a newer one.
        """
        answer = self._send("POST", "/v1/inbox", {"payload": _text(payload)})
        if not isinstance(answer, dict) or not isinstance(answer.get("new"), bool):
            raise ServiceError("the agent's inbox did not say whether that is new")
        return bool(answer["new"])

    def answer(self, rows: bytes) -> bytes:
        """What the agent's keeper answers to the list of a row."""
        answer = self._send("POST", "/v1/keeper", {"payload": _text(rows)})
        try:
            return _bytes(answer["payload"])
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise ServiceError(f"the keeper's answer cannot be read: {error!r}") from error


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

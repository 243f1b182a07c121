"""nats-py's client, made to read on whatever other people send.

As it is, nats-py stops reading for good at a header or a reply subject that it cannot decode, and takes any
message with a status in its header for the server's. So one agent could deafen whoever hears it. And it
signs whatever a server calls its challenge, with the key that signs messages.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import nats.protocol.parser
from nats.aio.client import Client

from feducb.carriers import peer_receipts

__all__ = ["SteadyClient", "reads"]

# As the server splits a line: at spaces and tabs. nats-py's own also split at \v and \f, which may be in a
# reply subject, and then nothing fits.
_GAP, _WORD = rb"[ \t]+", rb"([^ \t\r\n]+)"
_START = _GAP + _WORD + _GAP + _WORD + _GAP + rb"(" + _WORD + _GAP + rb")?"
nats.protocol.parser.MSG_RE = re.compile(rb"\AMSG" + _START + rb"(\d+)\r\n")
nats.protocol.parser.HMSG_RE = re.compile(rb"\AHMSG" + _START + rb"(\d+)" + _GAP + rb"(\d+)\r\n")

# What nats-server sends is 15 characters of base64. Everything of ours that is signed has a zero byte in it
# (`protocol.roster`), so no signature of a challenge is one of a message.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{1,64}")


class SteadyClient(Client):
    """Drops what cannot be decoded; of headers in what others publish, none but one of ours is read.

    A challenge that could be a message is not signed.
    """

    def _setup_nkeys_seed_connect(self) -> None:
        super()._setup_nkeys_seed_connect()
        sign = self._signature_cb
        assert sign is not None

        def sign_challenge(challenge: str) -> bytes:
            if not isinstance(challenge, str) or not _CHALLENGE.fullmatch(challenge):
                raise ConnectionError("the server wants something signed that is no challenge")
            return sign(challenge)

        self._signature_cb = sign_challenge

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        with suppress(Exception):  # whatever nats-py trips over is only a header
            return await super()._process_headers(headers)
        return None

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> Any:
        if subject.startswith(b"feducb."):
            asks = isinstance(headers, dict) and peer_receipts.HEADER in headers
            headers = {peer_receipts.HEADER: "1"} if asks else None  # statuses come to an inbox
        with suppress(UnicodeDecodeError):
            return super()._build_message(sid, subject, reply, data, headers)
        return None  # dropped


def reads(client: Client) -> bool:
    """Whether the client is there and still reads; one that stopped may not know that it is closed."""
    reading = client._reading_task
    return not client.is_closed and reading is not None and not reading.done()

"""What a server may have signed: a challenge, never a message of ours under the name of one."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from pathlib import Path

import pytest
from nats.aio.client import Client

from feducb.carriers.nats.tolerant_client import SteadyClient
from feducb.errors import RefusedError
from feducb.protocol.roster import Signer, verify
from feducb.protocol.secure_rows import Entry, require_signed
from secure_federation import FIRST, SecureFederation, bytes_of

WORLD = SecureFederation()


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    import nkeys

    path = tmp_path / "agent.seed"
    path.write_bytes(bytes(nkeys.encode_seed(bytes_of("sign", "a1"), nkeys.PREFIX_BYTE_USER)))
    assert Signer(path).nkey == WORLD.roster.agents["a1"]
    return path


def _signature(client: Client, seed: Path, challenge: str) -> bytes | None:
    """What a server that sends this challenge gets signed."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = {"server_id": "x", "version": "2", "max_payload": 9999, "auth_required": True}
        writer.write(b"INFO " + json.dumps(hello | {"nonce": challenge}).encode() + b"\r\n")
        with suppress(ConnectionError):
            got.append(await reader.readline())
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with suppress(Exception):
                await client.connect(
                    f"nats://127.0.0.1:{port}",
                    nkeys_seed=str(seed),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                )
            with suppress(Exception):
                await client.close()

    asyncio.run(run())
    said = [json.loads(line.removeprefix(b"CONNECT ")) for line in got if line.startswith(b"CONNECT")]
    return base64.b64decode(said[0]["sig"]) if said and "sig" in said[0] else None


def _forged() -> tuple[str, Entry]:
    """A row that an agent never made, as text: a broker needs a key and a digest that are, and can search."""
    entry = Entry(1, b"k" * 32, b"n" * 32, b"d" * 32, b"")
    start = "\0".join(("feducb", "secure sums", "row", "tests", WORLD.charter.digest, "a1", ""))
    return start + entry.signed(FIRST).decode(), entry


def test_a_plain_client_would_sign_a_row_for_a_broker_and_ours_does_not(seed: Path) -> None:
    challenge, entry = _forged()
    signature = _signature(Client(), seed, challenge)
    assert signature is not None
    forged = entry._replace(signature=signature)
    assert require_signed(forged, FIRST, WORLD.charter, WORLD.roster) == "a1"  # a survivor, invented
    assert _signature(SteadyClient(), seed, challenge) is None


def test_a_challenge_as_servers_send_it_is_signed_and_is_no_message(seed: Path) -> None:
    challenge = "PWZ8Qb3kkT4-_dc"
    signature = _signature(SteadyClient(), seed, challenge)
    assert signature is not None
    with pytest.raises(RefusedError):
        verify(WORLD.roster.agents["a1"], signature, challenge.encode())


@pytest.mark.parametrize("challenge", ["", "feducb\0release\0tests\0a1\0", "a" * 65, "a b", "ä"])
def test_anything_else_is_not_signed(seed: Path, challenge: str) -> None:
    assert _signature(SteadyClient(), seed, challenge) is None

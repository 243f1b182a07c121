"""Keys of a season that is over are nowhere on disk: whoever takes an agent over later reads no old row."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from secure_net import START, SecureNet


def test_a_new_season_leaves_no_key_of_the_last_one_on_disk(tmp_path: Path) -> None:
    net = SecureNet(tmp_path)
    try:
        net.visit()
        asyncio.run(net.step())
        agent = net.live["a3"]
        secrets = agent.store.database.execute("SELECT private, secret FROM secrets").fetchone()
        assert all(_is_in(tmp_path, bytes(one)) for one in secrets)
        agent.new_season(replace(agent.settings, start=START + 9999.0), drop_open=True)
        assert not any(_is_in(tmp_path, bytes(one)) for one in secrets)  # while the file is open
    finally:
        net.close()


def _is_in(folder: Path, secret: bytes) -> bool:
    return any(secret in path.read_bytes() for path in folder.iterdir())

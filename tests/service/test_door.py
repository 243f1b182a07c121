"""The door by which Flower's ClientApp, or any other carrier, reaches a running agent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from harness import Running, write_config

from feducb.agent.agent_http import ServiceError
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.carriers.flower.exchange import Ask, digest_of
from feducb.carriers.flower.site import visit
from feducb.protocol import messages
from feducb.service.api_keys import add_key


def test_a_carrier_takes_releases_and_brings_sums_and_may_do_nothing_else(tmp_path: Path) -> None:
    config = write_config(tmp_path, season="64s")
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = config.read_text().replace("[releases]\n", f"[releases]\nstart = {start}\n")
    config.write_text(text + '[federation]\nagents = 2\n[engine]\nkind = "door"\n')
    with Running(config) as service:
        key = add_key(tmp_path / "agent.keys", "carrier", "carrier")
        door = AgentDoor(service.url, key=key)
        for _ in range(1200):  # until the key is known, and something is released
            if releases := visit(door, Ask(nonce=b"1")).parcels:
                break
            time.sleep(0.1)
        own = messages.decode(releases[0])
        assert (own.number, own.agents) == (1, 1)
        total = messages.encode(messages.combine([own, own]))
        told = visit(door, Ask(nonce=b"2", sent=(digest_of(releases[0]),), news=(total,)))
        assert (told.heard, told.agent, told.place, told.words) == (1, "north", b"", ())
        assert not told.problems
        assert releases[0] not in told.parcels
        assert not door.bring(total)  # nothing newer
        with pytest.raises(ServiceError, match="422"):
            door.bring(b"nonsense")
        with pytest.raises(ServiceError, match="422: this agent is no keeper"):
            door.answer(b"nonsense")
        with service.http(key) as http:
            assert http.get("/v1/status").status_code == 403
            assert http.post("/v1/decisions", json={"actions": [[0, 0, 0]]}).status_code == 403
        with service.http(service.operator) as http:
            status = http.get("/v1/status").json()
            assert (status["model"], status["agents_in_sum"]) == (["1.1"], [2])
            assert http.get("/v1/privacy").json()["seasons"][0]["entries"][0]["sent_at"]

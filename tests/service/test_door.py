"""The door by which Flower's ClientApp, or any other carrier, reaches a running agent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from harness import Running, write_config

from feducb.agent.agent_file import read_agent_file
from feducb.agent.agent_http import ServiceError
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.carriers.flower.exchange import Ask, digest_of
from feducb.carriers.flower.site import visit
from feducb.errors import ConfigurationError
from feducb.protocol import messages
from feducb.protocol.pads import Charter, Label
from feducb.protocol.roster import Signer
from feducb.protocol.secure_rows import Answer, KeyCard, Opened
from feducb.protocol.secure_rows import Ask as List
from feducb.service.api_keys import add_key
from feducb.service.server import serve
from feducb.storage.keeper_book import KeeperBook
from secured_sites import Secured


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


def test_a_keeper_answers_at_its_agents_door_the_same_after_a_kill(tmp_path: Path) -> None:
    """As a process; what it says is good for the other keepers and for the agent itself."""
    world, label = Secured(tmp_path), Label(1, 0, 1)
    roster, terms, controller = world.roster, world.terms, Signer(tmp_path / "controller.seed")
    charter = Charter.of(roster, terms, 1)
    closed = List(label, ()).to_bytes(charter, controller)
    with Running(tmp_path / "a" / "agent.toml") as service:
        key = add_key(tmp_path / "a" / "agent.keys", "carrier", "carrier")
        service.until(key, 403)
        door = AgentDoor(service.url, key=key)
        card, answer = door.outbox().card, door.answer(closed)
        assert KeyCard.read(card, charter, roster).keeper == "a"
        with pytest.raises(ServiceError, match="422: malformed"):
            door.answer(b"nonsense")
        with service.http(service.application) as http:
            assert http.post("/v1/keeper", json={"payload": ""}).status_code == 403

        service.kill()
        service.start()
        door = AgentDoor(service.url, key=key)
        assert (door.outbox().card, door.answer(closed)) == (card, answer)

        answers = [answer]
        for name in "bc":
            signer = Signer(tmp_path / name / "keeper.seed")
            with KeeperBook(tmp_path / f"{name}.db", name, roster, terms, signer) as book:
                answers.append(book.answer(closed))
        proofs = tuple(Answer.read(one, charter, roster, coordinates=9).proof for one in answers)
        over = Opened(label, (), proofs, None).to_bytes(charter, roster, controller)
        assert door.bring(card)
        assert door.bring(over)
        assert not door.bring(over)  # it is there already
        assert Label.from_bytes(door.outbox().place) == label
        with pytest.raises(ServiceError, match="422: signature"):
            door.bring(over[:-1] + bytes([over[-1] ^ 1]))


def test_a_keeper_that_nobody_can_ask_is_refused(tmp_path: Path) -> None:
    Secured(tmp_path)
    config = tmp_path / "a" / "agent.toml"
    config.write_text(config.read_text().replace('kind = "door"', 'kind = "none"'))
    with pytest.raises(ConfigurationError, match=r"keeper is 'a table', expected an \[engine\] table too"):
        serve(read_agent_file(config), None, None)

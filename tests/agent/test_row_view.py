"""What an agent says of its rows under pads: in its own words, and by its file alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.view import look
from feducb.agent.warning import HALTED
from feducb.config import Budget, Problem
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from feducb.storage import agent_rows
from secure_net import START, SecureNet

SENT = {"group": 0, "built": True, "sent": True, "waits_for": ()}


@pytest.fixture
def net(tmp_path: Path) -> Iterator[SecureNet]:
    made = SecureNet(tmp_path, close_after=60.0)
    made.now += 2.0  # so that each step of the clock has a release
    yield made
    made.close()


def _rows(net: SecureNet, name: str = "a0") -> dict[str, Any]:
    """As the running agent says it, and its file, which must be the same."""
    stands = net.live[name].snapshot()
    read = look(net.folder / f"{name}.agent", keepers=list(net.roster.keepers))
    for one in ("rows", "releases_made", "releases_left"):
        assert read[one] == stands[one]
    account, counts = net.live[name].ledger().current, (stands["releases_made"], stands["releases_left"])
    assert (account.releases_made, account.releases_left) == counts
    rows: dict[str, Any] = stands["rows"]
    return rows | {"made": stands["releases_made"], "left": stands["releases_left"]}


def _counts(rows: dict[str, Any]) -> tuple[int, ...]:
    return tuple(rows[name] for name in ("built", "skipped", "opened", "refused", "closed_empty"))


def test_rows_that_opened_with_it_and_without_it(net: SecureNet) -> None:
    asyncio.run(net.step())
    asyncio.run(net.step(away=["a4"]))
    asyncio.run(net.step())  # a4 hears that row 2 is over, and is there again
    here, once_away = _rows(net), _rows(net, "a4")
    assert (_counts(here), here["made"], here["left"]) == ((3, 0, 3, 0, 0), 3, 3)
    assert (_counts(once_away), once_away["made"], once_away["left"]) == ((2, 1, 3, 0, 0), 2, 3)
    assert here["says"] == "Row 4 is the next to be built."


def test_a_row_waits_for_a_keeper_that_is_away_and_decisions_go_on(net: SecureNet) -> None:
    assert asyncio.run(net.step()) == 1
    assert asyncio.run(net.step(without_keepers=["a1"])) == 0
    rows = _rows(net)
    assert rows["open"] == [
        {"group": 0, "row": 2, "attempt": 1, "built": True, "sent": True, "waits_for": ()}
    ]
    assert rows["says"] == "Row 2 is sent; its sum is not open yet."
    assert net.book.facts()["waits_for_keepers"] == ["a1"]
    net.visit(["a0"], each=3)
    assert net.live["a0"].snapshot()["counts"]["decisions"] == 3
    assert asyncio.run(net.step()) == 2  # the one that waited, and the one that is due now
    assert _counts(_rows(net))[:3] == (3, 0, 3)


def test_keys_that_have_not_come_are_named(net: SecureNet) -> None:
    asyncio.run(net.step(without_keepers=["a1", "a2"]))
    rows = _rows(net)
    assert (rows["missing_cards"], rows["made"]) == (["a1", "a2"], 0)
    assert "before keepers a1 and a2 have shown their keys" in rows["says"]
    assert look(net.folder / "a0.agent")["rows"]["missing_cards"] is None  # nobody said who they are
    asyncio.run(net.step(without_keepers=["a2"]))
    assert "before keeper a2 has shown its key" in _rows(net)["says"]


def test_a_row_that_is_made_up_for_counts_once(net: SecureNet) -> None:
    away = ["a2", "a3", "a4"]
    asyncio.run(net.step(away=away))
    net.now += 60.0
    asyncio.run(net.step(away=away, until=net.now))  # closed empty; a0 and a1 build it again
    rows = _rows(net)
    assert rows["open"] == [
        {"group": 0, "row": 1, "attempt": 2, "built": True, "sent": True, "waits_for": ()}
    ]
    assert (_counts(rows), rows["made"], rows["left"]) == ((1, 0, 0, 0, 1), 1, 5)
    assert rows["says"] == "Row 1, made up for since it was closed empty, is sent; its sum is not open yet."
    asyncio.run(net.step(until=net.now))
    late = _rows(net, "a4")  # which built the row in the second attempt alone
    assert (_counts(late), late["made"], late["left"]) == ((1, 0, 1, 0, 1), 1, 5)


def test_an_agent_that_halted_says_so_and_what_to_do(net: SecureNet) -> None:
    asyncio.run(net.step())
    with net.live["a0"].store.writing() as db:
        agent_rows.halt(db, "another copy of this agent is in row 2 of season 1: this file is older than it")
    rows, stands = _rows(net), net.live["a0"].snapshot()
    assert rows["says"] == "No row is built any more."
    assert stands["warnings"][HALTED].startswith("another copy of this agent is in row 2 of season 1")
    assert "feducb agent new-season" in stands["warnings"][HALTED]
    net.visit(["a0"], each=2)
    assert net.live["a0"].snapshot()["counts"]["decisions"] == 2
    assert net.live["a1"].snapshot()["warnings"] == {}


def test_when_all_rows_are_over_it_says_so(net: SecureNet) -> None:
    for _ in range(6):
        asyncio.run(net.step())
    rows = _rows(net)
    assert (rows["open"], rows["left"], rows["says"]) == ([], 0, "All rows of this season are over.")


def test_a_clique_says_whose_word_its_row_waits_for(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    signers = {name: Signer.fresh() for name in names}
    roster = Roster(
        federation="net",
        agents={name: signer.nkey for name, signer in signers.items()},
        edges=tuple((one, other) for one in names for other in names if one < other),
    )
    usual = {"problem": Problem(dim=2), "budget": Budget(epsilon=8.0, delta=1e-6), "releases": 6}
    graph = {"agents": 4, "trust": "keepers:0:1", "clique": names, "schedule": "periodic", "start": START}
    live = {
        name: Agent.open(
            tmp_path / name,
            AgentSettings(name=name, **usual, **graph),  # type: ignore[arg-type]
            member=Member(name, roster, signers[name]),
        )
        for name in names
    }
    nonces = {name: agent.release() for name, agent in live.items() if name != "d"}
    for one in "bc":
        live["a"].hear(nonces[one])
    stands = live["a"].snapshot()
    assert stands["rows"]["says"] == "Row 1 waits for d."
    assert (stands["releases_made"], stands["releases_left"]) == (1, 5)
    assert live["a"].ledger().current.releases_left == 5
    live["a"].hear(live["d"].release())
    assert live["a"].snapshot()["rows"]["says"] == "Row 1 waits for b, c, d."  # for their rows now
    for agent in live.values():
        agent.close()

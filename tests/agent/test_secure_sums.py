"""Agents whose rows leave under pads: what opens is their sum, and nothing leaves twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent
from feducb.errors import ConfigurationError, PrivacyError, RefusedError
from feducb.privacy import grid
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.protocol import messages
from feducb.protocol.hiding import Cover, Member
from feducb.protocol.pads import Label, SeasonKey
from feducb.protocol.parcels import ParcelKind
from feducb.protocol.roster import Signer
from secure_net import START, SecureNet


@pytest.fixture
def net(tmp_path: Path) -> Iterator[SecureNet]:
    made = SecureNet(tmp_path)
    yield made
    made.close()


def _no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))


def _visited(net: SecureNet) -> None:
    """Visitors came, and all their records are in the open batches."""
    net.visit()
    for agent in net.live.values():
        while agent.settle_some():
            pass


def _exact(net: SecureNet, names: list[str]) -> np.ndarray:
    """(q,), all that these agents have taken in, in grid steps: from their open batches."""
    total: np.ndarray = np.sum([_batch(net, name) for name in names], axis=0) / 2.0**grid.FINE_BITS
    return total


def _batch(net: SecureNet, name: str) -> np.ndarray:
    batch: np.ndarray = net.live[name].store._privatizers[0]._batch.astype(np.float64)
    return batch


def _told(net: SecureNet, name: str = "a0") -> np.ndarray:
    total = net.live[name]._state.inbox._sums[0]
    return total.values.astype(np.float64)


def test_what_opens_is_the_sum_of_all_and_everybody_acts_on_it(
    net: SecureNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_noise(monkeypatch)
    _visited(net)
    exact = _exact(net, net.names)
    assert asyncio.run(net.step()) == 1
    for name in net.names:
        np.testing.assert_allclose(_told(net, name), exact, atol=len(net.names))
        assert net.live[name].snapshot()["model"] == ["1.1"]
        assert net.live[name].outbox() == []


def test_rows_of_some_are_missing_and_their_records_come_with_the_next(
    net: SecureNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_noise(monkeypatch)
    _visited(net)
    here, everything = _exact(net, net.names[:4]), _exact(net, net.names)
    asyncio.run(net.step(away=["a4"]))
    np.testing.assert_allclose(_told(net), here, atol=len(net.names))
    asyncio.run(net.step())
    np.testing.assert_allclose(_told(net), everything, atol=3.0 * len(net.names))
    assert net.live["a4"].snapshot()["model"] == ["1.2"]  # it heard of the row that it missed, too


def test_a_row_closed_empty_is_made_up_for_and_who_built_it_sends_noise_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_noise(monkeypatch)
    net = SecureNet(tmp_path, close_after=5.0)
    _visited(net)
    others = _exact(net, net.names[2:])
    assert asyncio.run(net.step(away=net.names[2:])) == 1  # two of five: below the quorum, closed empty
    assert net.live["a0"].store.next_label().attempt == 2
    assert asyncio.run(net.step(until=net.now)) >= 1
    assert [item["kind"] for item in net.live["a0"].overview()["history"]] == ["make-up", "row"]
    np.testing.assert_allclose(_told(net), others, atol=len(net.names))  # the rows of a0 and a1 are spent
    net.close()


def test_a_keeper_that_is_away_is_waited_for_and_decisions_go_on(net: SecureNet) -> None:
    net.visit()
    assert asyncio.run(net.step(without_keepers=["a1"])) == 0
    assert net.book.facts()["waits_for_keepers"] == ["a1"]
    net.visit(each=3, seed=1)  # nobody waits
    assert asyncio.run(net.step(until=net.now)) == 1


def test_neither_a_bare_row_nor_noise_is_ever_in_the_file(
    net: SecureNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whole rows of bytes, in the file and its log; the padded row is there."""
    drawn: list[np.ndarray] = []
    made: list[np.ndarray] = []
    draw, row = grid.GridNoise.draw, DeployedPrivatizer.row

    def noting(self: Any, count: int) -> np.ndarray:
        drawn.append(draw(self, count))
        return drawn[-1]

    def building(self: DeployedPrivatizer, *, data: bool = True) -> Any:
        built = row(self, data=data)
        made.append(built.values)
        return built

    monkeypatch.setattr(grid.GridNoise, "draw", noting)
    monkeypatch.setattr(DeployedPrivatizer, "row", building)
    net.visit()
    asyncio.run(net.step())
    assert len(made) == len(drawn) == len(net.names)
    for name in net.names:
        path = net.live[name].store.path
        content = path.read_bytes() + Path(f"{path}-wal").read_bytes()
        for secret in (*made, *drawn):
            assert secret.astype("<i8").tobytes() not in content
        (payload,) = net.live[name].store.database.execute("SELECT payload FROM outgoing").fetchone()
        assert payload in content


def test_a_row_is_built_once_whatever_restarts(net: SecureNet) -> None:
    net.visit()
    net.now += 600.0
    agent = net.live["a3"]
    for book in net.books.values():
        agent.hear(book.card())
    agent.tick(alone=False)
    (before,) = agent.outbox()
    agent.close()
    again = net.live["a3"] = net.open_agent("a3")
    again.tick(alone=False)
    assert [item.body for item in again.outbox()] == [before.body]
    assert before.kind is ParcelKind.ROW
    with pytest.raises(PrivacyError, match="cannot be built"):
        again.store.build_row()


def test_an_agent_whose_file_was_put_back_halts_and_goes_on_deciding(net: SecureNet) -> None:
    net.visit()
    agent = net.live["a4"]
    agent.close()
    path = agent.store.path
    old = path.read_bytes()
    net.live["a4"] = net.open_agent("a4")
    asyncio.run(net.step())
    net.live["a4"].close()
    path.write_bytes(old)
    Path(f"{path}-wal").unlink(missing_ok=True)
    agent = net.live["a4"] = net.open_agent("a4")
    asyncio.run(net.step())
    assert "older" in agent.store.halted
    assert agent.outbox() == []
    assert not agent.store.may_build()
    net.visit(["a4"], each=2)


def test_without_its_roster_an_agent_builds_no_row_and_no_release(tmp_path: Path) -> None:
    net = SecureNet(tmp_path)
    agent = net.live["a0"]
    with pytest.raises(PrivacyError, match="build_row"):
        agent.store.release()
    agent.store.member = None
    net.now += 1200.0
    assert agent.tick(alone=False) == 0
    with pytest.raises(ConfigurationError, match="roster and seed"):
        agent.store.build_row()
    net.close()


def test_with_a_roster_that_hides_nothing_no_row_leaves(net: SecureNet, tmp_path: Path) -> None:
    """Without keepers there are no pads: a row would leave under one share of noise, H of which make ε."""
    agent, bare = net.live["a0"], replace(net.roster, keepers={})
    exposed = Member("a0", bare, net.signers["a0"])
    with pytest.raises(ConfigurationError, match="keepers") as refused:
        Agent.open(tmp_path / "new", net.settings_of("a0"), clock=lambda: net.now, member=exposed)
    assert refused.value.setting == "roster"
    net.visit(["a0"])
    net.now += 1200.0
    agent.store.member = exposed  # as if nobody had asked
    assert agent.tick(alone=False) == 0
    with pytest.raises(PrivacyError, match="cannot be built"):
        agent.store.build_row()
    cover = Cover("a0", bare, net.signers["a0"], SeasonKey(), bytes(32), net.live["a1"].store.charter)
    with pytest.raises(RefusedError, match="no key"):
        cover.hide(Label(1, 0, 1), np.zeros(5, dtype=np.int64), {})
    assert agent.outbox() == []


@pytest.mark.parametrize(("changes", "named"), [({"agents": 6}, "agents"), ({"groups": 2}, "groups")])
def test_settings_that_do_not_go_with_the_roster_are_refused(
    net: SecureNet, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    member = Member("a0", net.roster, net.signers["a0"])
    other = replace(net.settings_of("a0"), **changes)
    with pytest.raises(ConfigurationError) as refused:
        Agent.open(tmp_path / "new", other, clock=lambda: net.now, member=member)
    assert refused.value.setting == named
    with pytest.raises(ConfigurationError) as refused:
        net.live["a0"].new_season(replace(other, start=START + 1.0))
    assert (refused.value.setting, net.live["a0"].store.season) == (named, 1)


def test_what_is_heard_out_of_order_or_of_another_federation_is_refused(
    net: SecureNet, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = SecureNet(tmp_path / "other")
    for data in (other.books["a0"].card(), b"OPN1", b"", b"CRD1" + bytes(98)):
        with pytest.raises(RefusedError):
            net.live["a0"].hear(data)
    net.visit()
    asyncio.run(net.step(away=["a4"]))
    asyncio.run(net.step(away=["a4"]))
    first, second = net.book.since(None)
    late = net.live["a4"]
    with pytest.raises(RefusedError, match="order"):
        late.hear(second)
    assert late.hear(first)
    assert late.hear(second)
    assert not late.hear(first)
    other.close()


def test_an_agent_in_another_season_holds_up_nobody(net: SecureNet) -> None:
    net.visit()
    ahead = net.live["a4"]
    ahead.new_season(replace(net.settings_of("a4"), start=net.now + 3000.0), drop_open=True)
    assert asyncio.run(net.step()) == 1
    assert net.live["a0"].snapshot()["model"] == ["1.1"]
    assert ahead.snapshot()["model"] == ["2.0"]


def test_another_roster_in_an_open_season_is_refused_and_before_its_first_row_taken(net: SecureNet) -> None:
    """As `feducb keys rotate` writes one: a row under its charter would be spent, and nobody opens it."""
    before, after = net.roster, replace(net.roster, agents=net.roster.agents | {"a3": Signer.fresh().nkey})
    asyncio.run(net.step(until=START))
    net.live["a4"].close()
    net.roster = after
    agent = net.open_agent("a4")
    assert agent.snapshot()["rows"]["missing_cards"] == ["a0", "a1", "a2"]
    agent.close()
    net.roster = before
    net.live["a4"] = net.open_agent("a4")
    net.visit()
    assert asyncio.run(net.step()) == 1
    net.live["a4"].close()
    net.roster = after
    with pytest.raises(ConfigurationError, match="needs a new season") as refused:
        net.open_agent("a4")
    assert refused.value.setting == "roster"
    net.roster = before
    net.live["a4"] = net.open_agent("a4")
    assert asyncio.run(net.step()) == 1


def test_a_sum_that_does_not_prove_itself_is_not_acted_on(net: SecureNet) -> None:
    """Whoever carries for an agent can write down any sum, but no keeper's signature."""
    net.visit()
    asyncio.run(net.step(away=["a4"]))
    agent, bare = net.live["a4"], messages.encode(net.live["a0"]._state.inbox._sums[0])
    with pytest.raises(RefusedError, match="proof"):
        agent.absorb(messages.decode(bare))
    assert agent.snapshot()["model"] == ["1.0"]
    assert agent._state.counters.total("refused_sums") == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"quorum": 3}, "quorum"),
        ({"trust": "keepers:2:2"}, "trust"),
        ({"trust": "keepers:1:0"}, "colluding"),
        ({"agents": 2}, "trust"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    net: SecureNet, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        replace(net.settings_of("a0"), **changes)
    assert refused.value.setting == named
    assert "\n" not in str(refused.value)

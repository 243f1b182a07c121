"""A roster that comes after its season began: taken over before the season's first row, never after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.errors import RefusedError, StoreError
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.sums import NamedSum
from feducb.storage.keeper_book import KeeperBook
from secure_net import START, SecureNet

NEWCOMER = Signer.fresh()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[SecureNet]:
    made = SecureNet(tmp_path)
    yield made
    made.close()


def _later(net: SecureNet) -> Roster:
    """With one agent more."""
    agents = net.roster.agents | {"a5": NEWCOMER.nkey}
    return replace(net.roster, agents=agents, version=2, signature="00")


def _renewed(net: SecureNet, name: str, **changes: object) -> tuple[AgentSettings, Member]:
    settings = replace(net.settings_of(name), agents=6, **changes)  # type: ignore[arg-type]
    return settings, Member(name, _later(net), net.signers[name])


def _card_of(net: SecureNet, folder: Path, settings: AgentSettings) -> bytes:
    """Of a keeper that goes by the later roster."""
    signer = net.keeper_signers["a0"]
    with KeeperBook(folder / "other.keeper", "a0", _later(net), settings.terms, signer) as book:
        return book.card()


def _mishear(agent: Agent, card: bytes) -> None:
    with pytest.raises(RefusedError):
        agent.hear(card)
    agent.tick(alone=False)


def _keys(agent: Agent) -> tuple[bytes, ...]:
    return tuple(agent.store.database.execute("SELECT private, secret FROM secrets").fetchone())


def test_before_the_first_row_it_is_taken_over_with_other_keys(net: SecureNet, tmp_path: Path) -> None:
    agent = net.live["a4"]
    net.visit()
    decided = agent.snapshot()["counts"]["decisions"]
    settings, member = _renewed(net, "a4")
    agent.renewal = lambda _: (settings, member)
    before, card = _keys(agent), _card_of(net, tmp_path, settings)
    _mishear(agent, card)
    assert agent.settings.agents == agent.store.terms.agents == 6
    assert not set(before) & set(_keys(agent))
    assert (agent.store.season, agent.snapshot()["counts"]["decisions"]) == (1, decided)
    assert agent.hear(card)  # one of those under which the next row is hidden
    agent.close()
    net.live["a4"] = Agent.open(agent.store.path, settings, clock=lambda: net.now, member=member)


def test_after_the_first_row_it_waits_for_the_next_season(net: SecureNet, tmp_path: Path) -> None:
    agent = net.live["a4"]
    net.visit()
    asyncio.run(net.step())
    assert agent.store.ledger().current.releases_made == 1
    settings, member = _renewed(net, "a4")
    agent.renewal = lambda _: (settings, member)
    before = _keys(agent)
    _mishear(agent, _card_of(net, tmp_path, settings))
    assert (agent.settings.agents, _keys(agent)) == (5, before)
    with pytest.raises(StoreError, match="has releases or rows already"):
        agent.store.reopen(settings.terms, carries=True, then=lambda _: None)


def test_what_decides_about_visitors_is_not_changed_by_it(net: SecureNet, tmp_path: Path) -> None:
    agent = net.live["a4"]
    net.visit()
    settings, member = _renewed(net, "a4", uniform_share=0.5)
    agent.renewal = lambda _: (settings, member)
    _mishear(agent, _card_of(net, tmp_path, settings))
    assert (agent.settings.agents, agent.settings.uniform_share) == (5, 0.0)
    assert "uniform_share is 0.5" in agent.trouble


def test_a_keeper_takes_it_over_until_it_has_answered(net: SecureNet) -> None:
    book, terms = net.books["a0"], _renewed(net, "a4")[0].terms
    before = book.card()
    assert not book.take_late(net.roster, terms)  # the same roster: other terms are for the next season
    assert book.take_late(_later(net), terms)
    assert book.card() != before
    assert not book.take_late(net.roster, net.terms)  # nor back to an older one
    net.visit()
    asyncio.run(net.step())
    other = net.books["a1"]
    card = other.card()
    assert net.book.facts()["waits_for_keepers"] == ["a0"]  # its card is of another roster
    assert other.card() == card


def test_a_keeper_that_has_answered_stays_with_its_roster(net: SecureNet) -> None:
    net.visit()
    asyncio.run(net.step())
    book = net.books["a0"]
    before = book.card()
    assert book.newest() is not None
    assert not book.take_late(_later(net), _renewed(net, "a4")[0].terms)
    assert book.card() == before


def test_where_nobody_is_trusted_a_sum_of_more_agents_is_read_once_the_roster_is_here(
    tmp_path: Path,
) -> None:
    now = [START]
    four = AgentSettings(
        problem=Problem(dim=2),
        budget=Budget(epsilon=1.0, delta=1e-6),
        decisions=1000,
        releases=4,
        schedule="periodic",
        season=100.0,
        window=10.0,
        start=START,
        agents=4,
    )
    with ExitStack() as stack:
        agents = {
            name: stack.enter_context(
                Agent.open(
                    tmp_path / f"{name}.db",
                    replace(four, name=name, agents=3 if name == "late" else 4),
                    clock=lambda: now[0],
                )
            )
            for name in ("a", "b", "c", "late")
        }
        late = agents["late"]
        late.decide([[0.5, 0.0], [0.0, 0.5]])
        now[0] += 26.0
        for agent in agents.values():
            agent.tick(alone=False)
        terms = {name: agent.store.terms for name, agent in agents.items()}
        book = stack.enter_context(closing(open_collector(tmp_path / "controller.db", terms)))
        sent = [(name, item.released()) for name, agent in agents.items() for item in agent.outbox()]
        _, (named,) = book.exchange(sent, now=now[0])
        assert isinstance(named, NamedSum)
        with pytest.raises(ValueError, match="over 4 agents, expected 3"):
            late.absorb(named.total, agents=4)
        late.tick(alone=False)
        assert late.settings.agents == 3  # it does not know better
        late.renewal = lambda _: (replace(four, name="late"), None)
        with pytest.raises(ValueError, match="over 4 agents, expected 3"):
            late.absorb(named.total, agents=4)
        outgoing = late.outbox()
        late.tick(alone=False)
        assert late.settings.agents == 4
        assert late.absorb(named.total, agents=4)
        assert late.outbox() == outgoing  # the same bytes
        late.close()
        agents["late"] = stack.enter_context(
            Agent.open(tmp_path / "late.db", replace(four, name="late"), clock=lambda: now[0])
        )

"""Agents with their files on a graph, under forged requests, repeated messages, garbage and restarts.

Whatever arrives, an agent makes n releases of a group at most, each of them once, and what others pass on are
the bytes that it published.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import ReleasesExhaustedError
from feducb.privacy.terms import Terms
from feducb.protocol import messages, peers
from feducb.protocol.graphs import Topology, parse_topology
from feducb.protocol.peers import Announcement, PeerState, Request
from feducb.storage import AgentStore

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, groups=3)
ROUNDS = 60
Sent = list[tuple[int, bytes]]  # to whom, what


@dataclass
class Agent:
    """As a deployment would drive it: `peers` says when, the store makes what leaves, bytes travel."""

    number: int
    topology: Topology
    path: Path
    decisions: int = 0
    owed: Counter[int] = field(default_factory=Counter)

    def start(self) -> None:
        self.store = AgentStore.open(self.path, TERMS)
        self.state: PeerState[bytes] = peers.start(self.topology, self.number)

    def restart(self) -> None:
        """All but the file is lost."""
        self.store.close()
        self.start()

    def hear(self, data: bytes, sender: int, now: int) -> Sent:
        try:
            message = peers.decode(data)
            if isinstance(message, Announcement):
                messages.decode(message.payload)
        except ValueError:
            return []
        self.state, outgoing = peers.receive(self.state, message, sender=sender, now=now)
        return [(one.to, peers.encode(one.message)) for one in outgoing]

    def act(self, now: int, *, crash: bool) -> Sent:
        group = now % TERMS.groups
        peers.newest_view(self.state, group=group, now=now)
        self.decisions += 1
        with suppress(ReleasesExhaustedError):
            self.store.record(np.eye(2), np.ones(2), group=group)
        if peers.owes_release(self.state, now=now):
            self.owed[group] += 1
            with suppress(ReleasesExhaustedError):
                self.store.release(group)
        if crash:
            self.restart()
        unsent = [one for one in self.store.outbox() if one.group == group]
        if not unsent:
            return []
        newest = unsent[-1]  # it replaces those before it
        self.state, outgoing = peers.publish(
            self.state, group=group, number=newest.number, payload=newest.body, now=now
        )
        for one in unsent:
            self.store.mark_sent(one.season, one.number, group=group)
        return [(one.to, peers.encode(one.message)) for one in outgoing]


def _forged(draws: random.Random, topology: Topology, heard: list[bytes], now: int) -> bytes:
    """A request in anybody's name, something heard before with another life, or garbage."""
    kind = draws.random()
    if kind < 0.7:
        rounds = now + draws.randint(-2 * topology.ttl, 2)
        named = Request(
            draws.randrange(topology.agents), draws.randrange(4), max(rounds, 0), draws.randint(1, 5)
        )
        if draws.random() < 0.5:
            named = replace(named, group=named.round % topology.ttl)
        return peers.encode(named)
    if kind < 0.9 and heard:
        return peers.encode(replace(peers.decode(draws.choice(heard)), life=draws.randint(1, topology.ttl)))
    return draws.randbytes(draws.randint(0, 100))


def test_no_flood_makes_an_agent_spend_more_than_it_has_and_what_is_passed_on_is_what_was_published(
    tmp_path: Path,
) -> None:
    draws = random.Random(51)
    topology = parse_topology("line:4", ttl=TERMS.groups)
    agents = [Agent(number, topology, tmp_path / f"{number}.db") for number in range(4)]
    for agent in agents:
        agent.start()
    flying: list[tuple[int, int, bytes]] = []  # sender, to, what
    heard: list[bytes] = []
    seen: dict[tuple[int, int, int], set[bytes]] = defaultdict(set)  # origin, group, number: contents
    passed_on: Counter[int] = Counter()
    for now in range(1, ROUNDS + 1):
        for agent in agents:
            for _ in range(15):
                sender = draws.choice(agent.state.neighbours)
                flying.append((sender, agent.number, _forged(draws, topology, heard, now)))
        draws.shuffle(flying)
        due, flying = flying, []
        for sender, to, data in due:
            for other, passed in agents[to].hear(data, sender, now):
                flying.append((to, other, passed))
                passed_on[now] += 1
        for agent in agents:
            published = agent.act(now, crash=draws.random() < 0.05)
            flying += [(agent.number, to, data) for to, data in published]
        for _, _, data in flying:
            message = peers.decode(data)
            heard.append(data)
            if isinstance(message, Announcement):
                seen[message.origin, message.group, message.number].add(message.payload)
    assert len(seen) > 30
    for (origin, group, number), contents in seen.items():
        assert contents == {agents[origin].store.replay(1, number, group=group)}
    for agent in agents:
        account = agent.store.ledger().current
        for group in range(TERMS.groups):
            numbers = [entry.number for entry in account.entries if entry.group == group]
            assert numbers == [1, 2, 3, 4]
            with pytest.raises(ReleasesExhaustedError):
                agent.store.release(group)
            assert agent.owed[group] > 2 * TERMS.releases  # more was asked for than there was
        assert account.mu_spent == TERMS.certificate().mu
        assert agent.decisions == ROUNDS
        agent.store.close()
    assert passed_on[ROUNDS] > 0

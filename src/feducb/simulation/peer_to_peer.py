"""A decentralised run in which every message is sent, agent by agent: the slow oracle for `reference`.

Each agent has a state of `protocol.peers` and a privatizer of its own, hears what its neighbours send, and
looks at nothing else. Links may lose, repeat and delay messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feducb.models.play import OwnDataPlay
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Release
from feducb.protocol import peers
from feducb.protocol.estimators import Estimator
from feducb.simulation.plan import Plan
from feducb.simulation.reference import Live
from feducb.trust import NOBODY
from feducb.types import ReleasedSum
from feducb.worlds.streams import Purpose, Streams

__all__ = ["Link", "Played", "on_time", "play"]

Link = Callable[[int, int, int], tuple[int, ...]]
"""(round, sender, receiver) → after how many rounds each copy of a message arrives; empty if it is lost."""


def on_time(now: int, sender: int, receiver: int) -> tuple[int, ...]:
    """Every message takes one round."""
    return (1,)


@dataclass(frozen=True, slots=True)
class Played:
    """What a run came to.

    Attributes:
        index: (agents, T), all decisions.
        versions: (agents, T), the number of the release that each decision looked at, 0 for none; the largest
            among the members' in ``paper`` mode.
        messages: hops, requests and releases.
        requests: hops of requests among them.
        releases: by agent, what it published: (round, release).
    """

    index: NDArray[np.int64]
    versions: NDArray[np.int64]
    messages: int
    requests: int
    releases: dict[int, list[tuple[int, Release]]]


class _Memory(Live):
    """What an agent keeps for one estimator, beside what it heard."""

    seen: tuple[int, ...] = ()  # numbers of the releases in what it knows
    own: int = 0  # the own one among them (``paper``)


def play(plan: Plan, run: int = 0, *, link: Link = on_time) -> Played:
    """One run on a graph, message by message.

    Args:
        plan: with a topology, in ``calibrated`` or ``paper`` mode or without privacy.
        run: which.
        link: what becomes of a message.
    """
    assert plan.topology is not None
    streams, everybody, policy = Streams(plan.seed), range(plan.agents), plan.federation.policy
    visits = plan.environment.open(streams, range(run, run + 1), everybody)
    noise = [SeededNoise(streams.grid(range(run, run + 1), [agent], Purpose.NOISE)) for agent in everybody]
    coins = [streams.agent(run, agent, Purpose.PLAY) for agent in everybody]
    team_of = {agent: team for team in plan.teams for agent in team.agents}
    groups = len(plan.teams[0].estimators)
    memories = [
        [_remember(estimator, team_of[agent].agents.index(agent)) for estimator in team_of[agent].estimators]
        for agent in everybody
    ]
    states: list[peers.PeerState[Release]] = [
        peers.start(plan.topology, agent, groups=groups) for agent in everybody
    ]
    on_the_way: dict[int, list[tuple[int, int, peers.Message[Release]]]] = defaultdict(list)
    index = np.zeros((plan.agents, plan.horizon), dtype=np.int64)
    versions = np.zeros_like(index)
    published: dict[int, list[tuple[int, Release]]] = defaultdict(list)
    messages = requests = 0

    def send(now: int, sender: int, outgoing: tuple[peers.Outgoing[Release], ...]) -> None:
        nonlocal messages, requests
        for one in outgoing:
            messages += 1
            requests += isinstance(one.message, peers.Request)
            for delay in link(now, sender, one.to):
                on_the_way[now + delay].append((sender, one.to, one.message))

    for now in range(1, plan.horizon + 1):
        group = now % groups
        for sender, to, message in on_the_way.pop(now, ()):
            states[to], outgoing = peers.receive(states[to], message, sender=sender, now=now)
            send(now, to, outgoing)
        contexts = visits.arrive(1)
        for agent in everybody:
            memory = memories[agent][group]
            _look(plan, memory, states[agent], group, now)
            versions[agent, now - 1] = max(memory.seen, default=0)
            wanted = policy.needs_coins or any(one.knowledge.belief is None for one in memories[agent])
            coin = coins[agent].random(1).reshape(1, 1, 1) if wanted else None
            offered = contexts.actions[:, agent : agent + 1]
            index[agent, now - 1] = policy.decide(memory.knowledge.belief, offered, coin)[0][0, 0, 0]
        chosen = contexts.chosen(index[None, :, now - 1 : now])
        rewards = visits.reward(chosen)
        for agent in everybody:
            memory, own = memories[agent][group], slice(agent, agent + 1)
            memory.observe(chosen.actions[:, own], rewards[:, own])
            asks = bool(memory.rule.wants_sync(memory.knowledge).any())
            due = now in memory.public_rounds or peers.owes_release(states[agent], now=now)
            if due and memory.batch is not None and not memory.batch.spent:
                release = memory.batch.release(noise[agent], NOBODY)
                assert release is not None  # nobody is away on a graph
                published[agent].append((now, release))
                states[agent], outgoing = peers.publish(
                    states[agent], group=group, number=release.number, payload=release, now=now
                )
                send(now, agent, outgoing)
            elif asks and not due:
                states[agent], outgoing = peers.ask(states[agent], group=group, now=now)
                send(now, agent, outgoing)
    return Played(index, versions, messages, requests, dict(published))


def _remember(estimator: Estimator, position: int) -> _Memory:
    """What an agent starts with: its share of what is planned for the team."""
    assert estimator.privatizer is not None
    scale, shift = (
        np.asarray(part, dtype=np.float64)
        for part in (estimator.privatizer.noise_scale, estimator.privatizer.shift)
    )
    own = replace(
        estimator.privatizer,
        noise_scale=scale[position : position + 1],
        shift=shift[position : position + 1] if shift.ndim else shift,
    )
    return _Memory(replace(estimator, privatizer=own), (1, 1))


def _look(plan: Plan, memory: _Memory, state: peers.PeerState[Release], group: int, now: int) -> None:
    """Absorb what the agent may use now, if that is new: a whole version, or in ``paper`` what is newest."""
    if isinstance(memory.rule, OwnDataPlay):
        view = peers.newest_view(state, group=group, now=now)
        # An own release enters with those of its clique, γ after it was made, and own records go with it.
        view = tuple(one for one in view if one.round + plan.lag <= now)
        own = [one.number for one in view if one.origin == state.agent]
        if len(view) < len(state.members) or own[0] == memory.own:
            return
        memory.own = own[0]
    else:
        view = peers.complete_view(state, group=group, now=now)
    numbers = tuple(one.number for one in view)
    if not view or numbers == memory.seen:
        return
    memory.seen = numbers
    gram, moment, variance = (
        np.concatenate([getattr(one.payload, part) for one in view], axis=1).sum(axis=1)
        for part in ("gram", "moment", "variance")
    )
    total = ReleasedSum(max(numbers), gram, moment, variance, agents=len(view))
    memory.knowledge = memory.rule.absorb(memory.knowledge, total)

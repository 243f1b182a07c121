"""Agents' files: what leaves them twice, what one record moves in them, and a person who is in several."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.audit.bounds import gaussian_epsilon
from feducb.audit.canary import background, canary_pair, deviation, placements, worlds
from feducb.audit.doors import Make, Seen, length, row_to_come
from feducb.audit.findings import Check
from feducb.privacy.grid import SMOOTHING
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import decode_upload
from feducb.protocol import messages
from feducb.storage import AgentStore

__all__ = ["check_groups", "check_replay", "check_several_agents"]

Ints = NDArray[np.int64]


def check_replay(kind: type[AgentStore], terms: Terms) -> Check:
    """Restart after making each release, before and after sending it; gather all bytes that would leave."""
    left: dict[tuple[int, int], set[bytes]] = defaultdict(set)  # by group and number
    made: dict[int, list[int]] = {group: [] for group in range(terms.groups)}
    batches = background(terms.problem, terms.releases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        for batch, group in itertools.product(batches, made):
            with kind.open(path, terms) as store:
                store.record(batch.actions, batch.rewards, group=group)
                data = store.release(group)
            message = messages.decode(data)
            made[message.group].append(message.number)
            left[message.group, message.number].add(data)
            for sent in (False, True):  # a crash before sending, twice
                with kind.open(path, terms) as store:
                    for one in store.outbox():
                        left[one.group, one.number].add(one.body)
                        if sent:
                            store.mark_sent(one.season, one.number, group=one.group)
    twice = sorted(name for name, strings in left.items() if len(strings) > 1)
    in_order = all(numbers == list(range(1, terms.releases + 1)) for numbers in made.values())
    return Check(
        f"replay groups={terms.groups}",
        not twice and in_order,
        f"release numbers made {list(made.values())}; (group, number) that left with two different byte "
        f"strings: {twice or 'none'}",
    )


def check_groups(kind: type[AgentStore], terms: Terms) -> Check:
    """Replace the first record of each group in turn: only that group's rows move, and no more than Δ.

    The agent is opened anew between records and releases. Fresh draws are all different (but with chance
    1e-28 at ε = 8): where two are the same, noise was used twice, and a reader subtracts it.
    """
    farthest, strays, bound = 0.0, list[tuple[int, list[int]]](), terms.certificate().sensitivity
    draws: Counter[bytes] = Counter()
    for home in range(terms.groups):
        one, other = (_grouped_season(kind, terms, home, world) for world in (0, 1))
        moves = one.moves(other)
        moved = [group for group, move in enumerate(moves) if move.any()]
        strays += [(home, moved)] if moved != [home] else []
        farthest = max(farthest, length(moves, terms))
        draws.update(draw.tobytes() for seen in (one, other) for some in seen.noise.values() for draw in some)
    again = sum(count > 1 for count in draws.values())
    return Check(
        f"groups kept apart groups={terms.groups}",
        not strays and not again and farthest <= bound,
        f"one record moves all rows together by at most {farthest:.6f} of {bound:.6f}; "
        f"(its group, those that moved) where these differ: {strays or 'none'}; noise used twice: {again} of "
        f"{len(draws)}",
    )


def _grouped_season(kind: type[AgentStore], terms: Terms, home: int, world: int) -> Seen:
    """A whole season; the canary's record of this world is the first of its home group."""
    seen, others = Seen(), background(terms.problem, terms.releases)
    streams = [worlds(terms, 0, world) if group == home else others for group in range(terms.groups)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        for batches in zip(*streams, strict=True):
            with kind.open(path, terms) as store:
                for group, batch in enumerate(batches):
                    store.record(batch.actions, batch.rewards, group=group)
            with kind.open(path, terms) as store:
                seen.watch(store._privatizers)
                for group in range(terms.groups):
                    store.release(group)
    return seen


def check_several_agents(make: Make, terms: Terms) -> Check:
    """Replace a person's records at all her agents: a trusted controller's noise covers how far rows move.

    Through the deployed path: agents' files, raw uploads as bytes, the controller's privatizer, which
    ``make`` makes. She comes once more to each agent than the terms allow, so that the check also fails where
    an agent lets that in. ε is accounted for anew, from the move and the noise alone. Her records point the
    same way, in one batch: that is the worst there is ((EᵀE)_ij ≥ 0), and the check fails if it is not
    reached, since it would be idle.
    """
    certificate, farthest = make(terms).certificate, 0.0
    for place in placements(terms.releases):
        one, other = (_rows_of_controller(make, terms, place, world) for world in (0, 1))
        farthest = max(farthest, length([np.subtract(one, other)], terms))
    epsilon = gaussian_epsilon(farthest / deviation(certificate, terms, less=SMOOTHING), terms.budget.delta)
    records = terms.records_per_person * terms.agents_per_person
    worst = records * math.sqrt(2.0) * terms.radius
    return Check(
        f"several agents p={terms.records_per_person} agents={terms.agents_per_person}",
        epsilon <= terms.budget.epsilon and abs(farthest / worst - 1.0) < 1e-3,
        f"one person moves the controller's rows by {farthest:.6f} (the worst there is: {worst:.6f}), "
        f"the noise covers {certificate.sensitivity:.6f}; epsilon accounted anew {epsilon:.6f} of "
        f"{terms.budget.epsilon:g}",
    )


def _rows_of_controller(make: Make, terms: Terms, place: int, world: int) -> list[Ints]:
    """A whole season of rows before noise; the person's records of this world are in one batch."""
    rows, door = list[Ints](), make(terms)
    hers = canary_pair(terms)[world]
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        paths = [folder / f"{number}.db" for number in range(terms.agents_per_person)]
        agents = [opened.enter_context(AgentStore.open(path, terms)) for path in paths]
        for number, other in enumerate(background(terms.problem, terms.releases)):
            for agent in agents:
                agent.record(other.actions, other.rewards, [f"somebody else, {number}"])
                for _ in range(terms.records_per_person + 1 if number == place else 0):
                    agent.record(hers.actions, hers.rewards, ["she"])
                door.receive(decode_upload(agent.upload(), terms)[2])
            rows.append(row_to_come(door))
            door.release()
    return rows

"""Restarts: a release leaves with one byte string, whatever happens between making and sending it."""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import background
from feducb.audit.findings import Check
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel
from feducb.storage import AgentStore

__all__ = ["OpenStore", "StoreLike", "check_replay", "open_agent_store"]

Array = NDArray[np.float64]


class StoreLike(Protocol):
    """What `feducb.storage.AgentStore` offers to whoever sends."""

    def record(self, actions: Array, rewards: Array, *, group: int = 0) -> object:
        """Take records in, to be released with their group's next release."""
        ...

    def release(self, group: int = 0) -> bytes:
        """Make the next release of a group."""
        ...

    def outbox(self) -> list[Parcel]:
        """What is to be sent."""
        ...

    def mark_sent(self, season: int, number: int, *, group: int = 0) -> None:
        """Note that a release has arrived and need not be sent again."""
        ...

    def close(self) -> None:
        """Let go of the file, as a process that ends does."""
        ...


class OpenStore(Protocol):
    """Opens a store at a path, or goes on with the one that is there."""

    def __call__(self, path: Path, terms: Terms) -> StoreLike:
        """Open the store of these terms."""
        ...


def open_agent_store(path: Path, terms: Terms) -> AgentStore:
    """Open the store that agents are shipped with."""
    return AgentStore.open(path, terms)


def check_replay(open_store: OpenStore, terms: Terms) -> Check:
    """Restart after making each release, before and after sending it; gather all bytes that would leave."""
    left: dict[tuple[int, int], set[bytes]] = defaultdict(set)  # by group and number
    made: dict[int, list[int]] = {group: [] for group in range(terms.groups)}
    batches = background(terms.problem, terms.releases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        for batch, group in itertools.product(batches, made):
            store = open_store(path, terms)
            store.record(batch.actions, batch.rewards, group=group)
            data = store.release(group)
            message = messages.decode(data)
            made[message.group].append(message.number)
            left[message.group, message.number].add(data)
            for _attempt in range(2):  # a crash before sending, twice
                store.close()
                store = open_store(path, terms)
                for one in store.outbox():
                    left[one.group, one.number].add(one.body)
            for one in store.outbox():
                left[one.group, one.number].add(one.body)
                store.mark_sent(one.season, one.number, group=one.group)
            store.close()
    twice = sorted(name for name, strings in left.items() if len(strings) > 1)
    in_order = all(numbers == list(range(1, terms.releases + 1)) for numbers in made.values())
    return Check(
        f"replay groups={terms.groups}",
        not twice and in_order,
        f"release numbers made {list(made.values())}; (group, number) that left with two different byte "
        f"strings: {twice or 'none'}",
    )

"""Restarts: a release number leaves with one byte string, whatever happens between making and sending it."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import background
from feducb.audit.results import Check
from feducb.privacy.deployed import Terms
from feducb.protocol import messages

__all__ = ["OpenStore", "StoreLike", "check_replay", "open_agent_store"]

Array = NDArray[np.float64]


class StoreLike(Protocol):
    """What `feducb.store.AgentStore` offers to whoever sends."""

    def record(self, actions: Array, rewards: Array) -> object:
        """Take records in."""
        ...

    def release(self) -> bytes:
        """Make the next release."""
        ...

    def outbox(self) -> list[tuple[int, int, bytes]]:
        """What is to be sent: season, number, bytes."""
        ...

    def mark_sent(self, season: int, number: int) -> None:
        """It was sent."""
        ...

    def close(self) -> None:
        """The process ends."""
        ...


class OpenStore(Protocol):
    """Opens a store at a path, or goes on with the one that is there."""

    def __call__(self, path: Path, terms: Terms) -> StoreLike:
        """Open it."""
        ...


def open_agent_store(path: Path, terms: Terms) -> StoreLike:
    """The shipped store."""
    from feducb.store import AgentStore

    return AgentStore.open(path, terms)


def check_replay(open_store: OpenStore, terms: Terms) -> Check:
    """Restart after making each release, before and after sending it; gather all bytes that would leave."""
    left: dict[int, set[bytes]] = defaultdict(set)
    numbers = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        for batch in background(terms.problem, terms.releases):
            store = open_store(path, terms)
            store.record(batch.actions, batch.rewards)
            made = store.release()
            numbers.append(messages.decode(made).number)
            left[numbers[-1]].add(made)
            for _attempt in range(2):  # a crash before sending, twice
                store.close()
                store = open_store(path, terms)
                for _, number, data in store.outbox():
                    left[number].add(data)
            for season, number, data in store.outbox():
                left[number].add(data)
                store.mark_sent(season, number)
            store.close()
    twice = sorted(number for number, strings in left.items() if len(strings) > 1)
    in_order = numbers == list(range(1, terms.releases + 1))
    return Check(
        "replay",
        not twice and in_order,
        f"release numbers made {numbers}; left with two different byte strings: {twice or 'none'}",
    )

"""A few sites under own play in one process, on one clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.carriers.local import AgentMailbox, LocalController
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.storage import RowBook

START, WINDOW = 1_800_000_000.0, 5.0
THETA = np.array([0.7, -0.3])
CLOSE: dict[str, Any] = {"releases": 2, "first_release": 40.0, "last_release": 80.0}


def settings_of(name: str, **changes: Any) -> AgentSettings:
    usual: dict[str, Any] = {
        "problem": Problem(dim=2),
        "budget": Budget(epsilon=8.0, delta=1e-6),
        "agents": 3,
        "agents_per_person": 1,
        "decisions": 800,
        "season": 800.0,
        "window": WINDOW,
        "start": START,
        "play": "own",
        "keep_events": 800.0,
    }
    return AgentSettings(name=name, **(usual | CLOSE | changes))


def visitors(seed: int) -> Iterator[tuple[np.ndarray, float]]:
    """Candidates, and the noise of the reward."""
    draws = np.random.default_rng(seed)
    while True:
        drawn = draws.standard_normal((4, 2))
        yield drawn / np.linalg.norm(drawn, axis=1, keepdims=True), float(draws.uniform(-0.2, 0.2))


class Sites:
    """Agents a, b and c with a controller between them; a visitor each a second, all rewarded."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.now, self.folder, self._changes = START, folder, changes
        self.live = {name: self.open(name) for name in "abc"}
        self.visits = {name: visitors(place) for place, name in enumerate(self.live)}
        self.records: dict[str, list[tuple[np.ndarray, float]]] = {name: [] for name in self.live}
        terms = {name: agent.store.terms for name, agent in self.live.items()}
        collector = open_collector(folder / "controller.db", terms)
        assert not isinstance(collector, RowBook)
        self.collector = collector

    def open(self, name: str) -> Agent:
        settings = settings_of(name, **self._changes)
        agent = Agent.open(self.folder / f"{name}.db", settings, clock=lambda: self.now)
        agent._state.coins = random.Random(name)
        agent.store.database.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug here
        return agent

    def reopen(self, name: str) -> None:
        """As after a stop; coins go on."""
        coins = self.live[name]._state.coins
        self.live[name].close()
        self.live[name] = self.open(name)
        self.live[name]._state.coins = coins

    def visit(self, seconds: int, *, names: str = "abc", person: str | None = None) -> None:
        for _ in range(seconds):
            for name in names:
                candidates, noise = next(self.visits[name])
                decision = self.live[name].decide(candidates, person=person)
                action = candidates[decision.index]
                self.live[name].reward(decision.id, float(action @ THETA) + noise)
                self.records[name].append((action, float(action @ THETA) + noise))
            self.now += 1.0
            for name in names:
                self.live[name].tick(alone=False)

    def exchange(self, names: str = "abc") -> None:
        """What waits is sent, and newest sums come back."""
        boxes = {name: AgentMailbox(self.live[name]) for name in names}
        asyncio.run(LocalController(self.collector, boxes).step(now=self.now))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.visit(1)
            if any(agent.outbox() for agent in self.live.values()):
                self.exchange()

    def phase(self, name: str = "a") -> str:
        return str(self.live[name].snapshot()["own"]["phase"])

    def close(self) -> None:
        for agent in self.live.values():
            agent.close()
        self.collector.close()

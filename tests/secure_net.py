"""A federation with keepers in one process: rosters, agents, keepers' and the controller's books."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import feducb
from feducb.agent import Agent, AgentSettings
from feducb.carriers.local import AgentMailbox, LocalKeepers
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.row_book import RowBook

START, SEASON = 1_800_000_000.0, 3600.0


@dataclass
class SecureNet:
    """Agents a0, a1, …, of whom the first are keepers; everything in a folder."""

    folder: Path
    agents: int = 5
    keepers: int = 3
    trust: str = "keepers:1:1"
    settings: dict[str, Any] = field(default_factory=dict)
    close_after: float | None = None
    deadline: float | None = 5.0

    def __post_init__(self) -> None:
        self.now = START
        self.names = [f"a{number}" for number in range(self.agents)]
        self.signers = {name: Signer.fresh() for name in self.names}
        self.keeper_signers = {name: Signer.fresh() for name in self.names[: self.keepers]}
        self.controller_signer = Signer.fresh()
        self.roster = Roster(
            federation="net",
            agents={name: signer.nkey for name, signer in self.signers.items()},
            controller=self.controller_signer.nkey,
            sealing="00" * 32,
            keepers={name: signer.nkey for name, signer in self.keeper_signers.items()},
        )
        self.live = {name: self.open_agent(name) for name in self.names}
        self.terms = self.live["a0"].store.terms
        self.books = {name: self.open_keeper(name) for name in self.keeper_signers}
        self.book = self.open_book()

    def settings_of(self, name: str) -> AgentSettings:
        usual: dict[str, Any] = {
            "problem": feducb.Problem(dim=2),
            "budget": feducb.Budget(epsilon=8.0, delta=1e-6),
            "releases": 6,
            "schedule": "periodic",
            "window": 1.0,
            "decisions": 2000,
            "agents_per_person": 1,
        }
        shared = {"agents": self.agents, "trust": self.trust, "start": START, "season": SEASON}
        return AgentSettings(name=name, **(usual | shared | self.settings))

    def open_agent(self, name: str) -> Agent:
        member = Member(name, self.roster, self.signers[name])
        path = self.folder / f"{name}.agent"
        return Agent.open(path, self.settings_of(name), clock=lambda: self.now, member=member)

    def open_keeper(self, name: str) -> KeeperBook:
        path = self.folder / f"{name}.keeper"
        return KeeperBook(path, name, self.roster, self.terms, self.keeper_signers[name])

    def open_book(self) -> RowBook:
        return RowBook(
            self.folder / "controller.db",
            self.roster,
            self.terms,
            self.controller_signer,
            deadline=self.deadline,
            close_after=self.close_after,
        )

    def visit(self, names: Sequence[str] | None = None, *, each: int = 20, seed: int = 0) -> None:
        """Visitors at these agents, all rewarded; their windows close."""
        draws = np.random.default_rng(seed)
        for name in names or self.names:
            for _ in range(each):
                candidates = draws.normal(size=(4, 2))
                candidates /= np.linalg.norm(candidates, axis=1)[:, None]
                decision = self.live[name].decide(candidates)
                pays = float(np.clip(candidates[decision.index] @ [0.7, 0.2], -1.0, 1.0))
                self.live[name].reward(decision.id, pays)
        self.now += 2.0

    async def step(
        self, *, away: Sequence[str] = (), without_keepers: Sequence[str] = (), until: float | None = None
    ) -> int:
        """The clock goes on by a release, those who are here build and send, and what can opens."""
        self.now = self.now + SEASON / 6 if until is None else until
        here = {name: agent for name, agent in self.live.items() if name not in away}
        books = {name: book for name, book in self.books.items() if name not in without_keepers}
        link = LocalKeepers(self.book, {name: AgentMailbox(agent) for name, agent in here.items()}, books)
        opened = await link.step(now=self.now)
        for agent in here.values():
            agent.tick(alone=False)
        opened += await link.step(now=self.now)
        self.now += 1.0 + (self.deadline or 0.0)
        return opened + await link.step(now=self.now)

    def close(self) -> None:
        for agent in self.live.values():
            agent.close()
        for keeper in self.books.values():
            keeper.close()
        self.book.close()

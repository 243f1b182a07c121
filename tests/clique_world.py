"""A graph of agents with files, whose rows are masked in pairs, for tests; what rows were is written down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease, NoisyRow
from feducb.privacy.terms import Terms
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from feducb.storage import AgentStore

Ints = NDArray[np.int64]


@dataclass
class CliqueWorld:
    """Agents on a graph, a file each; complete if no edges are given."""

    folder: Path
    names: tuple[str, ...] = ("a", "b", "c", "d")
    edges: tuple[tuple[str, str], ...] | None = None
    ttl: int = 1
    dim: int = 2
    releases: int = 6
    groups: int = 1
    seed: int = 18
    roster: Roster | None = None  # with its signers, if they are made elsewhere
    signers: dict[str, Signer] = field(default_factory=dict)
    rows: defaultdict[tuple[str, int, int], list[Ints]] = field(default_factory=lambda: defaultdict(list))
    read: defaultdict[tuple[str, int], list[Ints | None]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        if self.roster is None:
            self.signers = {name: Signer.fresh() for name in self.names}
            pairs = [(one, other) for one in self.names for other in self.names if one < other]
            self.roster = Roster(
                federation="tests",
                agents={name: signer.nkey for name, signer in self.signers.items()},
                edges=self.edges or tuple(pairs),
                ttl=self.ttl,
            )
        self.members = {name: Member(name, self.roster, self.signers[name]) for name in self.names}
        self.draws = np.random.default_rng(self.seed)
        self.stores: dict[str, AgentStore] = {}
        for name in self.names:
            self.open(name)

    def terms(self, name: str) -> Terms:
        return Terms(
            problem=Problem(dim=self.dim),
            budget=Budget(epsilon=1.0, delta=1e-6),
            releases=self.releases,
            trust="keepers:0:1",  # type: ignore[arg-type]
            agents=len(self.members[name].clique),
            groups=self.groups,
        )

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    def open(self, name: str) -> AgentStore:
        store = self.stores[name] = AgentStore.open(self.path(name), self.terms(name))
        store.member = self.members[name]
        return store

    def reopen(self, name: str) -> AgentStore:
        self.stores[name].close()
        return self.open(name)

    def copy(self, name: str) -> bytes:
        """The file as it is now."""
        self.stores[name].close()
        data = self.path(name).read_bytes()
        self.open(name)
        return data

    def put_back(self, name: str, copied: bytes) -> AgentStore:
        self.stores[name].close()
        self.path(name).write_bytes(copied)
        return self.open(name)

    def record(self, name: str, group: int = 0) -> None:
        actions = self.draws.uniform(-0.5, 0.5, (3, self.dim))
        self.stores[name].record(actions, self.draws.uniform(0, 1, 3), group=group)

    def settle(self, name: str, group: int = 0) -> bytes:
        """Build the next row, over a few records: its nonce."""
        self.record(name, group)
        return self.stores[name].build_row(group)

    def hear(self, name: str, data: bytes) -> bool:
        store = self.stores[name]
        with store.writing() as db:
            return store.hear(db, data)[0]

    def words(self, name: str) -> list[bytes]:
        return [item.body for item in self.stores[name].rows()]

    def expected(self, name: str, number: int, group: int = 0) -> Ints:
        """The sum of the rows of an agent's clique, as they were built."""
        parts = [self.rows[one, group, number] for one in self.members[name].clique]
        assert all(len(part) == 1 for part in parts)  # built once each
        return np.asarray(np.sum([part[0] for part in parts], axis=0, dtype=np.int64))

    def close(self) -> None:
        for store in self.stores.values():
            store.close()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Write down every row that is built, and every sum that is read."""
        build, read = DeployedPrivatizer.row, DeployedPrivatizer.read

        def owner(stream: DeployedPrivatizer) -> tuple[str, int]:
            for name, store in self.stores.items():
                for group, one in enumerate(store._privatizers):
                    if one is stream:
                        return name, group
            raise AssertionError("a stream that nobody has")

        def watched_row(stream: DeployedPrivatizer, *, data: bool = True) -> NoisyRow:
            made = build(stream, data=data)
            self.rows[*owner(stream), made.number].append(made.values.copy())
            return made

        def watched_read(stream: DeployedPrivatizer, row: Ints | None, *, agents: int) -> GridRelease:
            told = read(stream, row, agents=agents)
            self.read[owner(stream)].append(None if row is None else row.copy())
            return told

        with patch.multiple(DeployedPrivatizer, row=watched_row, read=watched_read):
            yield

"""A federation with keepers in one process, for tests: everybody's keys, and agents without files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import Certificate
from feducb.privacy.terms import Terms
from feducb.protocol.hiding import Cover
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import KeyCard, PaddedRow
from feducb.storage import RowBook
from feducb.storage.keeper_book import KeeperBook

Ints = NDArray[np.int64]


class SeededNoise:
    """Normal draws on the grid, much faster than OpenDP's: what must add up is the same."""

    def __init__(self, certificate: Certificate, draws: np.random.Generator) -> None:
        self._sigma, self._draws = certificate.sigma, draws

    def draw(self, count: int) -> Ints:
        return np.rint(self._draws.normal(0.0, self._sigma, count)).astype(np.int64)


@dataclass
class World:
    """Who is in a federation, and their keys; a folder for their files."""

    folder: Path
    agents: int = 5
    keepers: int = 3
    dim: int = 3
    releases: int = 8
    trust: str = "keepers:1:1"
    season: int = 1
    seed: int = 18
    keys: dict[str, SeasonKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = tuple(f"a{index:02}" for index in range(self.agents))
        self.signers = {name: Signer.fresh() for name in self.names}
        self.keeper_signers = {name: Signer.fresh() for name in self.names[-self.keepers :]}
        self.controller = Signer.fresh()
        self.roster = Roster(
            federation="tests",
            agents={name: one.nkey for name, one in self.signers.items()},
            controller=self.controller.nkey,
            sealing="00" * 32,
            keepers={name: one.nkey for name, one in self.keeper_signers.items()},
        )
        self.terms = Terms(
            problem=Problem(dim=self.dim),
            budget=Budget(epsilon=1.0, delta=1e-6),
            releases=self.releases,
            trust=self.trust,  # type: ignore[arg-type]
            agents=self.agents,
        )
        self.draws = np.random.default_rng(self.seed)
        self.begin(self.season)

    def begin(self, season: int) -> None:
        """A season: new keys of all agents, and streams from the start."""
        self.season, self.charter = season, Charter.of(self.roster, self.terms, season)
        self.keys = {name: SeasonKey() for name in self.names}
        self.streams = {name: DeployedPrivatizer(self.terms) for name in self.names}
        for stream in self.streams.values():
            stream._noise = SeededNoise(stream.certificate, self.draws)  # type: ignore[assignment]

    def row_book(self, **times: float) -> RowBook:
        path = self.folder / "controller.db"
        return RowBook(path, self.roster, self.terms, self.controller, season=self.season, **times)  # type: ignore[arg-type]

    def keeper_book(self, name: str) -> KeeperBook:
        path, signer = self.folder / f"{name}.keeper.db", self.keeper_signers[name]
        return KeeperBook(path, name, self.roster, self.terms, signer, season=self.season)

    def keeper_books(self) -> dict[str, KeeperBook]:
        return {name: self.keeper_book(name) for name in self.roster.keepers}

    def read_cards(self, cards: Iterable[bytes]) -> dict[str, KeyCard]:
        """By keeper."""
        read = (KeyCard.read(card, self.charter, self.roster) for card in cards)
        return {card.keeper: card for card in read}

    def build(self, name: str, label: Label, cards: dict[str, KeyCard]) -> tuple[PaddedRow, Ints]:
        """An agent's next row of some records: as it leaves, and as it is before it is padded."""
        stream = self.streams[name]
        with_data = stream.released < label.row
        if with_data:
            actions = self.draws.uniform(-0.5, 0.5, (4, self.dim)) / np.sqrt(self.dim)
            stream.record(actions, self.draws.uniform(0, 1, 4))
        row = stream.row(data=with_data)
        key, secret = self.keys[name], b"s" * 32
        cover = Cover(name, self.roster, self.signers[name], key, secret, self.charter)
        return cover.hide(label, row.values, cards), row.values

    def skip(self, label: Label) -> None:
        """The row is over: who did not build it leaves it out."""
        for stream in self.streams.values():
            if stream.released < label.row:
                stream.skip()

"""Agents and keepers that are killed and put back from backups at random moments, without a network.

All draws of the chaos are seeded; keys, noise and nonces are not, and nothing depends on them.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import pads
from feducb.protocol.hiding import Member
from feducb.protocol.pads import Label
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Ask, PaddedRow
from feducb.storage import AgentStore
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.row_book import RowBook
from feducb.storage.sqlite import SqliteFile
from feducb.trust import Keepers

TERMS = Terms(
    problem=Problem(dim=2),
    budget=Budget(epsilon=8.0, delta=1e-6),
    releases=8,
    trust=Keepers(2, 1),
    agents=5,
)
COORDINATES, KEEPERS, ACCIDENTS = 5, 2, 240
DEADLINE, CLOSE_AFTER = 5.0, 20.0

History = dict[Label, bytes]
"""Rows that a file has built, by digest: what its owner would know from it."""


class Image(NamedTuple):
    """A file as it is on disk at some moment, with its log; and what it had built."""

    file: bytes
    log: bytes | None
    history: History


@dataclass
class PadLog:
    """All pad keys that agents ever used, and what was hidden with each."""

    contents: dict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    used: list[bytes] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pad = pads.pad

        def note(common: bytes, label: Label, nonce: bytes, count: int) -> pads.Words:
            self.used.append(hashlib.sha256(common + label.to_bytes() + nonce).digest())
            return pad(common, label, nonce, count)

        monkeypatch.setattr(pads, "pad", note)

    @contextmanager
    def hiding(self) -> Iterator[list[bytes]]:
        """What is padded meanwhile hides the row that is put into the list."""
        self.used.clear()
        rows: list[bytes] = []
        yield rows
        for key in self.used:
            self.contents[key].update(rows)

    @property
    def twice(self) -> int:
        """Keys that hid two different rows."""
        return sum(len(some) > 1 for some in self.contents.values())


class Federation:
    """Agents' files and keepers' and the controller's books; one season, as far as it gets."""

    def __init__(self, folder: Path, chance: random.Random, log: PadLog) -> None:
        self.folder, self.chance, self.log, self.now = folder, chance, log, 1000.0
        names = [f"a{number}" for number in range(TERMS.agents)]
        self.signers = {name: Signer.fresh() for name in names}
        self.keeper_signers = {name: Signer.fresh() for name in names[:KEEPERS]}
        controller = Signer.fresh()
        self.roster = Roster(
            federation="chaos",
            agents={name: one.nkey for name, one in self.signers.items()},
            controller=controller.nkey,
            sealing="00" * 32,
            keepers={name: one.nkey for name, one in self.keeper_signers.items()},
        )
        self.agents: dict[str, AgentStore] = {}
        self.keepers: dict[str, KeeperBook] = {}
        for name in names:
            self.open_agent(name)
        for name in self.keeper_signers:
            self.open_keeper(name)
        path = folder / "controller.db"
        self.book = RowBook(path, self.roster, TERMS, controller, deadline=DEADLINE, close_after=CLOSE_AFTER)
        self.book.hear([(name, one.card()) for name, one in self.keepers.items()], now=self.now)
        self.histories: dict[str, History] = {name: {} for name in names}
        self.built_on: dict[bytes, History] = {}  # by digest of a row, what its file had built before
        self.images: dict[str, list[Image]] = defaultdict(list)
        self.answers: dict[tuple[str, Label], set[bytes]] = defaultdict(set)
        self.lists: dict[Label, dict[str, bytes]] = {}
        self.counts: Counter[str] = Counter()

    # Files

    def open_agent(self, name: str) -> None:
        store = AgentStore.open(self.folder / f"{name}.agent", TERMS)
        store.member = Member(name, self.roster, self.signers[name])
        self.agents[name] = store

    def open_keeper(self, name: str) -> None:
        path, signer = self.folder / f"{name}.keeper", self.keeper_signers[name]
        self.keepers[name] = KeeperBook(path, name, self.roster, TERMS, signer)

    def image(self, name: str, opened: SqliteFile) -> Image:
        log = Path(f"{opened.path}-wal")
        history = dict(self.histories[name]) if isinstance(opened, AgentStore) else {}
        return Image(opened.path.read_bytes(), log.read_bytes() if log.exists() else None, history)

    def put_back(self, name: str, opened: SqliteFile, image: Image) -> None:
        """As after a kill at the moment of the image, or as from a backup."""
        opened.close()
        opened.path.write_bytes(image.file)
        log = Path(f"{opened.path}-wal")
        log.unlink(missing_ok=True)
        if image.log is not None:
            log.write_bytes(image.log)
        if isinstance(opened, AgentStore):
            self.histories[name] = dict(image.history)
            self.open_agent(name)
        else:
            self.open_keeper(name)

    def accident(self) -> None:
        """Perhaps a backup is made, a process is killed, or a backup is put back."""
        drawn = self.chance.random()
        keeper = self.chance.random() < 0.3
        files: dict[str, Any] = self.keepers if keeper else self.agents
        name = self.chance.choice(sorted(files))
        saved = self.images[f"{'keeper' if keeper else 'agent'} {name}"]
        if drawn < 0.1:
            saved.append(self.image(name, files[name]))
        elif drawn < 0.2:
            self.put_back(name, files[name], self.image(name, files[name]))
            self.counts["killed"] += 1
        elif drawn < (0.205 if keeper else 0.25) and saved:
            self.put_back(name, files[name], self.chance.choice(saved))
            self.counts["keepers restored" if keeper else "agents restored"] += 1

    # What they do

    def visit(self, name: str) -> None:
        if self.agents[name].releases_left == 0:
            return
        angle = self.chance.uniform(0.0, 6.0)
        self.agents[name].record([[np.cos(angle), np.sin(angle)]], [self.chance.uniform(-1.0, 1.0)])

    def build(self, name: str) -> None:
        """If it may; sometimes it is killed after the row was padded and before it is on disk."""
        store = self.agents[name]
        assert not (store.halted and store.may_build())
        if not store.may_build():
            return
        before = self.image(name, store)
        with self.log.hiding() as rows:
            row = PaddedRow.read(store.build_row(), coordinates=COORDINATES)
            rows.append(row.body)
        if self.chance.random() < 0.1:
            self.put_back(name, store, before)
            self.counts["killed"] += 1
            return
        self.built_on[row.digest] = dict(self.histories[name])
        self.histories[name][row.label] = row.digest

    def send(self, name: str) -> None:
        store = self.agents[name]
        for item in store.rows():
            (receipt,) = self.book.receive([(name, item.body)], now=self.now)
            self.counts[receipt.reason or receipt.status] += 1
            if receipt.status != "refused":
                store.mark_row_sent(item)

    def ask(self) -> None:
        self.book.publish_due(now=self.now)
        for name, ask in self.book.asks().items():
            self.accident()
            try:
                answer = self.keepers[name].answer(ask)
            except RefusedError as error:
                self.counts[f"keeper: {error.reason}"] += 1
                continue
            self.answers[name, self.book._open].add(answer)
            if self.chance.random() < 0.9:  # else it is lost on the way
                self.book.hear([(name, answer)], now=self.now)
        self.counts["opened"] += len(self.book.publish_due(now=self.now))

    def tell(self, name: str) -> None:
        """All that an agent has not heard; whether it halts is known beforehand."""
        store = self.agents[name]
        with store.writing() as db:
            for card in self.book.cards():
                store.take_card(db, card)
        place = store.place()
        for data in self.book.since(Label.from_bytes(place) if place else None):
            opened = store.read_opened(data)
            with store.writing() as db:
                store.take_opened(db, opened)
            self.counts["halted"] += self.is_foreign(name, opened.label)
        heard = store.database.execute("SELECT row, attempt FROM opened").fetchall()
        assert bool(store.halted) == any(self.is_foreign(name, Label(1, 0, *one)) for one in heard)

    def listed(self, label: Label) -> dict[str, bytes]:
        """By agent, the digest of its row that the list of this label has."""
        if label not in self.lists:
            query = "SELECT ask FROM lists WHERE (season, row, attempt) = (?, ?, ?)"
            key = (label.season, label.row, label.attempt)
            (ask,) = self.book.database.execute(query, key).fetchone()
            entries = Ask.read(bytes(ask), self.agents["a0"].charter, self.roster).entries
            self.lists[label] = {self.roster.names[one.place]: one.digest for one in entries}
        return self.lists[label]

    def is_foreign(self, name: str, label: Label) -> bool:
        """Whether a list has a row of this agent that its file did not build."""
        own = self.listed(label).get(name)
        return own is not None and own != self.histories[name].get(label)

    def live(self) -> None:
        """A season, until it is over or nothing moves any more."""
        idle = 0
        while self.book._open.row <= TERMS.releases and idle < 2:
            before = self.book._open
            for name in self.chance.choices(sorted(self.agents), k=2 * TERMS.agents):  # some are away
                for act in (self.tell, self.visit, self.build, self.send):
                    self.accident()
                    act(name)
            for wait in (DEADLINE + 1.0, CLOSE_AFTER):
                self.now += wait
                for _ in range(2):
                    self.ask()
                if self.book._open != before:
                    break
            idle = idle + 1 if self.book._open == before else 0
        for name in self.agents:
            self.tell(name)

    def require_one_history(self) -> None:
        """Of each agent, all rows that opened are of one history: no record is in two columns of them."""
        over = self.book.database.execute("SELECT row, attempt FROM opened ORDER BY row, attempt").fetchall()
        for name in self.agents:
            earlier: History = {}
            for label in (Label(1, 0, *one) for one in over):
                if (digest := self.listed(label).get(name)) is not None:
                    assert earlier.items() <= self.built_on[digest].items()
                    earlier[label] = digest

    def close(self) -> None:
        for one in (*self.agents.values(), *self.keepers.values(), self.book):
            one.close()


def _chaos(folder: Path, log: PadLog, *, seed: int, accidents: int) -> Counter[str]:
    """Seasons until so much has happened; what did."""
    counts: Counter[str] = Counter()
    chance = random.Random(seed)
    while sum(counts[name] for name in ("killed", "agents restored", "keepers restored")) < accidents:
        counts["seasons"] += 1
        own = folder / str(counts["seasons"])
        own.mkdir()
        federation = Federation(own, chance, log)
        try:
            federation.live()
            federation.require_one_history()
            assert all(len(some) == 1 for some in federation.answers.values())
            counts += federation.counts
        finally:
            federation.close()
    return counts


def test_whatever_is_killed_or_put_back_no_pad_hides_two_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """240 kills and restores: each pad key hides one row; who lacks a row of its own that is listed halts."""
    log = PadLog()
    log.watch(monkeypatch)
    counts = _chaos(tmp_path, log, seed=18, accidents=ACCIDENTS)
    assert log.twice == 0
    assert len(log.contents) > 200, counts
    happened = ("killed", "agents restored", "keepers restored", "halted", "opened", "replay")
    assert min(counts[name] for name in happened) > 0, counts
    assert counts["keeper: second list"] == 0


def test_a_nonce_that_does_not_change_is_caught_by_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made of the label alone: a file put back pads the row that it builds again with the same pad."""
    log = PadLog()
    log.watch(monkeypatch)
    monkeypatch.setattr(
        pads, "make_nonce", lambda secret, label, row: hmac.digest(secret, label.to_bytes(), "sha256")
    )
    _chaos(tmp_path, log, seed=18, accidents=40)
    assert log.twice > 0

"""Everybody in a federation with secure sums, in one hand: who audits an agent plays all the others.

Keys, pads and signatures are the shipped ones. What the real parties keep on disk is missing: this controller
and these keepers sign whatever they are told to, as colluding ones would. `sites` has the real ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.errors import RefusedError
from feducb.privacy.deployed import NoisyRow
from feducb.privacy.rows import require_in_range
from feducb.privacy.terms import Terms
from feducb.protocol import pads
from feducb.protocol.hiding import Cover, Member
from feducb.protocol.keeping import Duty
from feducb.protocol.pads import KEY_SIZE, NONCE_SIZE, Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Ask, KeyCard, Opened, PaddedRow, open_sum
from feducb.storage import AgentStore, RowBook
from feducb.storage.keeper_book import KeeperBook

__all__ = ["BuiltRow", "Circle", "name_of", "one_federation", "watch_rows"]

Ints = NDArray[np.int64]
_KEEPERS = 2


def name_of(place: int) -> str:
    """An agent's, by its place in the roster."""
    return f"agent-{place}"


class Circle:
    """A federation of as many agents as the terms say, the first of which are its keepers too.

    Attributes:
        terms: what is promised.
        roster: who they are; agents go by their place in it.
        charter: of the season.
        coordinates: q.
    """

    def __init__(self, terms: Terms, *, season: int = 1, keepers: int = _KEEPERS) -> None:
        names = [name_of(place) for place in range(terms.agents)]
        self._own = own = {name: Signer.fresh() for name in names[:keepers]}
        self._signers, self._controller = [Signer.fresh() for _ in names], Signer.fresh()
        self.terms, self.coordinates = terms, terms.model.coordinates(terms.problem.dim)
        self.roster = Roster(
            federation="audit",
            agents={name: signer.nkey for name, signer in zip(names, self._signers, strict=True)},
            controller=self._controller.nkey,
            sealing=bytes(KEY_SIZE).hex(),
            keepers={name: signer.nkey for name, signer in own.items()},
        )
        self.charter = Charter.of(self.roster, terms, season)
        agreed = (self.roster, terms, season)
        self._duties = {
            name: Duty(name, *agreed, signer, SeasonKey(), self.charter) for name, signer in own.items()
        }
        self._cards = {
            name: KeyCard.read(duty.card(), self.charter, self.roster) for name, duty in self._duties.items()
        }
        self._keys, self._secret = [SeasonKey() for _ in names], token_bytes(KEY_SIZE)

    def member(self, place: int = 0) -> Member:
        """An agent, with what it signs with."""
        return Member(self.roster.names[place], self.roster, self._signers[place])

    def row_book(self, path: Path, *, close_after: float) -> RowBook:
        """The file of a real controller, new or as it was left."""
        return RowBook(path, self.roster, self.terms, self._controller, close_after=close_after)

    def keeper_book(self, path: Path, name: str) -> KeeperBook:
        """The file of a real keeper, which has a key of its own."""
        return KeeperBook(path, name, self.roster, self.terms, self._own[name])

    def cards(self) -> list[bytes]:
        """What every agent hears before its first row."""
        return [duty.card() for duty in self._duties.values()]

    def open(self, kind: type[AgentStore], path: Path, place: int = 0) -> AgentStore:
        """An agent's file, new or as it was left, which knows the keepers."""
        store = kind.open(path, self.terms)
        store.member = self.member(place)
        with store.writing() as db:
            for card in self.cards():
                store.take_card(db, card)
        return store

    def pad(self, row: NoisyRow, label: Label, place: int) -> PaddedRow:
        """A row of an agent that has no file, as it leaves."""
        name, key, signer = self.roster.names[place], self._keys[place], self._signers[place]
        cover = Cover(name, self.roster, signer, key, self._secret, self.charter)
        return cover.hide(label, row.values, self._cards)

    def build(self, store: AgentStore) -> PaddedRow:
        """The next row of an agent that has one."""
        return PaddedRow.read(store.build_row(), coordinates=self.coordinates)

    def silent(self, label: Label, place: int) -> PaddedRow:
        """A row of an agent that colludes: without data, and without noise."""
        empty = bytes(8 * self.coordinates)
        bare = PaddedRow(label, self._keys[place].public, token_bytes(NONCE_SIZE), empty)
        hidden = pads.to_bytes(-pads.to_words(self.bare(bare, place)))
        return replace(bare, body=hidden).sign(self.charter, self.roster.names[place], self._signers[place])

    def opened(self, label: Label, rows: Mapping[int, PaddedRow]) -> Opened:
        """What all keepers, asked for these rows by place, let everybody know; the row is over with that."""
        ask = Ask(label, tuple(rows[place].entry(place) for place in sorted(rows)))
        answers = [duty.answer(ask) for duty in self._duties.values()]
        values = open_sum([rows[place].body for place in sorted(rows)], answers) if rows else None
        return Opened(label, ask.listed(self.roster), tuple(one.proof for one in answers), values)

    def close(
        self, label: Label, rows: Mapping[int, PaddedRow] | None, stores: Collection[AgentStore]
    ) -> Opened:
        """End a row for these agents, with rows by place; silent ones of all who are not the first are there.

        None closes it empty. A sum that is out of range is refused, as an honest controller would.
        """
        if rows is not None:
            rows = {place: self.silent(label, place) for place in range(1, self.terms.agents)} | dict(rows)
        opened = self.opened(label, rows or {})
        if opened.values is not None:
            try:
                require_in_range(opened.values, self.terms)
            except RefusedError as error:
                opened = replace(opened, refused=error.reason)
        self.publish(opened, stores)
        return opened

    def publish(self, opened: Opened, stores: Collection[AgentStore]) -> list[bytes | None]:
        """Tell agents that a row is over; what each then knows of all rows so far (`take_opened`)."""
        data, told = opened.to_bytes(self.charter, self.roster, self._controller), []
        for store in stores:
            with store.writing() as db:
                told.append(store.take_opened(db, store.read_opened(data)))
        return told

    def bare(self, row: PaddedRow, place: int, *, without: Collection[str] = ()) -> Ints:
        """(q,), what is left of a padded row when all keepers tell their pads, ``without`` some."""
        left, agent = pads.from_bytes(row.body), self.roster.names[place]
        for name, duty in self._duties.items():
            if name not in without:
                common = duty.key.common(row.public, self.charter, agent=agent, keeper=name)
                left = left - pads.pad(common, row.label, row.nonce, self.coordinates)
        return np.asarray(left).view(np.int64)


class BuiltRow(NamedTuple):
    """What a row was made of. Private."""

    noise: Ints
    values: Ints  # under noise


def watch_rows(store: AgentStore, built: list[BuiltRow]) -> None:
    """From now on, note all rows that the file builds, before they are hidden."""
    source, covering, drawn = store._privatizers[0]._noise, store.covering, list[Ints]()
    draw = source.draw

    def note_noise(count: int) -> Ints:
        drawn.append(draw(count))
        return drawn[-1]

    class Noting(covering):  # type: ignore[misc, valid-type]
        def hide(self, label: Label, row: Ints, cards: Mapping[str, KeyCard]) -> PaddedRow:
            built.append(BuiltRow(drawn[-1], row.copy()))
            return covering.hide(self, label, row, cards)

    vars(source).update(draw=note_noise)
    vars(store).update(covering=Noting)


@contextmanager
def one_federation(terms: Terms) -> Iterator[tuple[Circle, Path]]:
    """A federation, and where the file of its first agent, a keeper too, is to be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Circle(terms), Path(folder) / "agent.db"

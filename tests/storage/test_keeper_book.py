"""A keeper's file: one list a row for ever, the same bytes each time, and keys that go with their season."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import Answer, Ask, KeyCard, PaddedRow
from feducb.protocol.two_lists import TwoLists
from feducb.storage.keeper_book import KeeperBook
from feducb.trust import Nobody
from secure_federation import FIRST, SecureFederation

WORLD = SecureFederation()
MOST = WORLD.names[:5]


def _padded(label: Label, world: SecureFederation = WORLD) -> dict[str, PaddedRow]:
    return world.hide(world.rows(np.random.default_rng(1)), label)


LABELS = [Label(1, 0, row, attempt) for row in (1, 2, 3, 4) for attempt in (1, 2)]
PADDED = {label: _padded(label) for label in LABELS}
LISTS: list[list[str]] = [[], MOST, WORLD.names, WORLD.names[1:]]


def _ask(label: Label, names: list[str]) -> bytes:
    return WORLD.ask(PADDED[label], names, label)


def _open(folder: Path, world: SecureFederation = WORLD, keeper: str = "a0") -> KeeperBook:
    roster, terms = world.roster, world.terms
    return KeeperBook(folder / "keeper.db", keeper, roster, terms, world.keepers[keeper], season=world.season)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[KeeperBook]:
    with _open(tmp_path) as book:
        yield book


class AskedAnything(RuleBasedStateMachine):
    """Lists in any order, good and bad, and restarts at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.book = _open(Path(self.folder.name))
        self.answered: dict[Label, tuple[list[str], bytes]] = {}

    def teardown(self) -> None:
        self.book.close()
        self.folder.cleanup()

    @property
    def due(self) -> Label:
        if not self.answered:
            return FIRST
        last = max(self.answered)
        return last.following(empty=not self.answered[last][0])

    @precondition(lambda self: self.due in LABELS)
    @rule(names=st.sampled_from(LISTS))
    def ask_for_the_next(self, names: list[str]) -> None:
        label = self.due
        if self.book.halted:
            self._refused(_ask(label, names), "halted")
            return
        self.answered[label] = (names, self.book.answer(_ask(label, names)))

    @rule(label=st.sampled_from(LABELS), names=st.sampled_from(LISTS))
    def ask_for_any(self, label: Label, names: list[str]) -> None:
        if self.book.halted:
            self._refused(_ask(label, names), "halted")
        elif label in self.answered:
            known, answer = self.answered[label]
            if names == known:
                assert self.book.answer(_ask(label, names)) == answer
            else:
                self._refused(_ask(label, names), "second list")
        elif label != self.due:
            self._refused(_ask(label, names), "order")
            ahead = not self.answered or label > max(self.answered)
            assert bool(self.book.halted) == ahead  # for no other reason

    @rule(label=st.sampled_from(LABELS), place=st.integers(0, 10_000), change=st.integers(1, 255))
    def change_a_byte(self, label: Label, place: int, change: int) -> None:
        """Nobody but the controller halts a keeper, or has an answer."""
        ask, halted = bytearray(_ask(label, MOST)), self.book.halted
        ask[place % len(ask)] ^= change
        with pytest.raises(RefusedError):
            self.book.answer(bytes(ask))
        assert self.book.halted == halted

    @rule()
    def restart(self) -> None:
        halted, card = self.book.halted, self.book.card()
        self.book.close()
        self.book = _open(Path(self.folder.name))
        assert (self.book.halted, self.book.card()) == (halted, card)

    @invariant()
    def the_file_has_what_was_answered(self) -> None:
        assert self.book.facts()["answered"] == len(self.answered)

    def _refused(self, ask: bytes, reason: str) -> None:
        before = self.book.refusals[reason]
        with pytest.raises(RefusedError) as refused:
            self.book.answer(ask)
        assert refused.value.reason == reason
        assert self.book.refusals[reason] == before + 1


AskedAnything.TestCase.settings = settings(max_examples=40, stateful_step_count=15)
test_whatever_is_asked_a_row_has_one_list = AskedAnything.TestCase


def test_two_lists_for_one_row_are_published_as_proof(book: KeeperBook) -> None:
    """Whoever has the roster and the terms can check it; the first proof of a row stays."""
    first, second = _ask(FIRST, MOST), _ask(FIRST, WORLD.names)
    answer = book.answer(first)
    for ask in (second, _ask(FIRST, []), second):
        with pytest.raises(RefusedError) as refused:
            book.answer(ask)
        assert refused.value.reason == "second list"
    assert (book.refusals["second list"], book.facts()["second_lists"]) == (3, 1)
    (data,) = book.evidence()
    proof = TwoLists.read(data, WORLD.charter, WORLD.roster)
    signed = {Ask.read(ask, WORLD.charter, WORLD.roster).signed for ask in (first, second)}
    assert (proof.label, set(proof.lists)) == (FIRST, signed)
    assert book.answer(first) == answer  # it goes on, for the list that it answered


def test_a_list_that_is_refused_takes_no_slot(book: KeeperBook) -> None:
    """A controller that made a mistake can ask again: nothing was told."""
    padded = PADDED[FIRST] | {"a4": replace(PADDED[FIRST]["a4"], signature=bytes(64))}
    for bad in (WORLD.ask(padded, MOST), _ask(FIRST, MOST[:4])):
        with pytest.raises(RefusedError):
            book.answer(bad)
    assert book.newest() is None
    answer = Answer.read(
        book.answer(_ask(FIRST, MOST)), WORLD.charter, WORLD.roster, coordinates=WORLD.coordinates
    )
    assert answer.label == FIRST
    assert dict(book.refusals) == {"signature": 1, "quorum": 1}


def test_a_file_older_than_the_federation_halts_when_an_honest_controller_goes_on(tmp_path: Path) -> None:
    """It was put back to before row 2; row 3 is asked for, since the others have answered row 2."""
    with _open(tmp_path) as book:
        book.answer(_ask(FIRST, MOST))
        with pytest.raises(RefusedError):
            book.answer(_ask(Label(1, 0, 3), MOST))
        assert "older than the federation" in book.halted
    with _open(tmp_path) as book:
        for label in (FIRST, Label(1, 0, 2)):
            with pytest.raises(RefusedError) as refused:
                book.answer(_ask(label, MOST))
            assert refused.value.reason == "halted"


def test_a_row_behind_those_answered_is_refused_and_halts_nobody(book: KeeperBook) -> None:
    """It tells nothing about the file's age."""
    for label in (FIRST, Label(1, 0, 2)):
        book.answer(_ask(label, MOST))
    with pytest.raises(RefusedError) as refused:
        book.answer(_ask(Label(1, 0, 1, 2), MOST))
    assert (refused.value.reason, book.halted) == ("order", "")
    book.answer(_ask(Label(1, 0, 3), MOST))


def test_an_answer_is_neither_changed_nor_deleted(book: KeeperBook) -> None:
    book.answer(_ask(FIRST, MOST))
    for statement in ("DELETE FROM answers", "UPDATE answers SET answer = x''"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            book.database.execute(statement)


def test_a_new_season_has_a_new_key_and_the_old_one_is_nowhere_on_disk(tmp_path: Path) -> None:
    with _open(tmp_path) as book:
        old, card = book.duty.key.private, book.card()
        book.answer(_ask(FIRST, MOST))
        book.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert _is_in(tmp_path, old)
    later = SecureFederation(season=2)
    with _open(tmp_path, later) as book:
        assert book.duty.key.private != old
        assert not _is_in(tmp_path, old)  # while it is open, in the file and its log
        assert book.newest() is None
        with pytest.raises(RefusedError) as refused:
            KeyCard.read(card, later.charter, later.roster)
        assert refused.value.reason == "signature"
        with pytest.raises(RefusedError) as refused:  # not even what it answered then
            book.answer(_ask(FIRST, MOST))
        assert refused.value.reason == "season"
    with pytest.raises(ConfigurationError, match="at least 2"):
        _open(tmp_path)


def _is_in(folder: Path, secret: bytes) -> bool:
    return any(secret in path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize(
    ("other", "keeper"),
    [
        (SecureFederation(agents=7), "a0"),  # another roster
        (SecureFederation(epsilon=2.0), "a0"),  # other terms
        (SecureFederation(keepers=2), "a0"),  # fewer keepers
        (WORLD, "a1"),  # somebody else's
    ],
)
def test_a_file_is_of_one_keeper_roster_and_terms(
    tmp_path: Path, other: SecureFederation, keeper: str
) -> None:
    with _open(tmp_path) as book:
        card = book.card()
    with pytest.raises(ConfigurationError):
        _open(tmp_path, other, keeper)
    with _open(tmp_path) as book:  # nothing was changed
        assert book.card() == card


def test_somebody_elses_file_is_not_taken_over_by_a_new_season_either(tmp_path: Path) -> None:
    _open(tmp_path).close()
    with pytest.raises(ConfigurationError, match="a0, whose file"):
        _open(tmp_path, SecureFederation(season=2), "a1")


def test_a_keeper_that_is_none_has_another_seed_or_other_terms_is_refused(tmp_path: Path) -> None:
    path, roster, terms = tmp_path / "keeper.db", WORLD.roster, WORLD.terms
    fewer = SecureFederation(agents=5).terms
    with pytest.raises(ConfigurationError, match="one of a0, a1, a2"):
        KeeperBook(path, "a4", roster, terms, WORLD.signers["a4"])
    with pytest.raises(ConfigurationError, match="that of keeper a0"):
        KeeperBook(path, "a0", roster, terms, WORLD.signers["a0"])
    with pytest.raises(ConfigurationError, match="among the 6 agents"):
        KeeperBook(path, "a0", roster, fewer, WORLD.keepers["a0"])
    with pytest.raises(ConfigurationError, match="trust is 'nobody', expected keepers, among"):
        KeeperBook(path, "a0", roster, replace(terms, trust=Nobody()), WORLD.keepers["a0"])
    assert not path.exists()

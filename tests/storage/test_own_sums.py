"""What own records come to: kept exactly, and never read once it is not what was written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from feducb.agent import Agent
from feducb.agent.view import look
from feducb.errors import StoreError
from feducb.storage import own_sums
from own_sites import Sites, settings_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of an agent that has closed: it has shared, kept and read."""
    sites = Sites(tmp_path)
    sites.run(95)
    assert sites.phase() == "closed"
    sites.close()
    return tmp_path / "a.db"


@pytest.mark.parametrize("part", ["shared", "kept", "read"])
def test_flipped_bytes_are_noticed_wherever_they_are(file: Path, part: str) -> None:
    """In the file itself, as a disk would do it: any bit of the digits, of the count or of the hash."""
    whole = file.read_bytes()
    with closing(sqlite3.connect(file)) as db:
        query = "SELECT sums, squares, sha256 FROM own WHERE part = ?"
        sums, squares, digest = db.execute(query, (part,)).fetchone()
    assert whole.count(sums.encode()) == 1
    start, draws = whole.index(sums.encode()), np.random.default_rng(3)
    places = [start + int(at) for at in draws.integers(len(sums), size=20)]
    start = whole.index(digest + squares.encode()) + len(digest)  # columns lie one after another
    places += [start + int(at) for at in draws.integers(len(squares), size=5)]
    places += [whole.index(digest) + int(at) for at in draws.integers(len(digest), size=5)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draws.integers(7))  # the eighth would be no text
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=f"a.db is damaged: the {part} part of its own records"):
            Agent.open(file, settings_of("a"))
    file.write_bytes(whole)
    with Agent.open(file, settings_of("a")) as agent:
        assert agent.closed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE own SET records = records + 1 WHERE part = 'kept'", "kept part"),
        ("UPDATE own SET since = since - 60000 WHERE part = 'read'", "read part"),
        ("UPDATE own SET sums = (SELECT sums FROM own WHERE part = 'shared') WHERE part = 'read'", "read"),
        ("UPDATE own SET squares = squares || '0' WHERE part = 'kept'", "kept part"),
        ("UPDATE own SET squares = NULL WHERE part = 'shared'", "shared part"),
        ("DELETE FROM own WHERE part = 'shared'", "own records, and has fewer"),
    ],
)
def test_a_row_that_was_changed_or_is_gone_is_noticed(file: Path, change: str, told: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(change)
    with pytest.raises(StoreError, match=f"damaged: .*{told}.*; a backup goes on with a new season"):
        Agent.open(file, settings_of("a"))


def test_a_running_agent_and_its_status_notice_it_too(file: Path) -> None:
    with Agent.open(file, settings_of("a"), clock=lambda: 1_800_000_200.0) as agent:
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("UPDATE own SET sums = replace(sums, '1', '2')")
        with pytest.raises(StoreError, match="damaged"):
            agent.tick(alone=False)  # open windows are over: their records would be added up
        with pytest.raises(StoreError, match="damaged"):
            look(file)


_TABLE = "CREATE TABLE own (part TEXT PRIMARY KEY, records, sums, since, sha256, squares) WITHOUT ROWID"


def _squares(db: sqlite3.Connection) -> int | None:
    found = own_sums.everything(db)
    assert found is not None
    return found.squares


def test_what_was_kept_adds_up_exactly_however_large() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(_TABLE)
        large = np.array([2**90, -(2**70) - 1], dtype=object)
        for _ in range(3):
            own_sums.add(db, "kept", own_sums.OwnSums(2, large))
        own_sums.add(db, "shared", own_sums.OwnSums(0, large))
        found = own_sums.everything(db)
        assert found is not None
        assert (found.records, list(found.values)) == (6, [3 * 2**90, -3 * (2**70) - 3])
        own_sums.mark_read(db, found, 5)
        own_sums.mark_read(db, found, 9)
        assert own_sums.closed_at(db) == 5  # the close is the first time
        own_sums.require_undamaged(db)


def test_squares_add_up_exactly_and_are_not_known_of_records_whose_squares_nobody_kept() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(_TABLE)
        sums = np.array([1, 2], dtype=object)
        for _ in range(2):
            own_sums.add(db, "shared", own_sums.OwnSums(1, sums, 2**90 + 1))
        assert _squares(db) == 2**91 + 2
        own_sums.add(db, "before", own_sums.OwnSums(3, sums))
        own_sums.add(db, "before", own_sums.OwnSums(3, sums, 5))
        assert _squares(db) is None
        own_sums.carry(db, shared=False, finer=-2)
        assert _squares(db) is None
        own_sums.forget(db)
        own_sums.add(db, "kept", own_sums.OwnSums(1, sums, 6))
        own_sums.carry(db, shared=True, finer=-2)
        assert _squares(db) == 2  # rounded, as sums are

"""A peer's file: the releases of its clique that it has heard, so that kill -9 forgets none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from feducb.protocol.peers import Announcement
from feducb.storage.sqlite import STORE_TABLE, SqliteFile

__all__ = ["PeerBook"]


class PeerBook(SqliteFile):
    """What `peers.PeerState` keeps of members, own releases included; public, all of it has left already."""

    kind = "peers"
    secret = False
    migrations = (
        STORE_TABLE
        + """
        CREATE TABLE kept (
            origin INTEGER NOT NULL, "group" INTEGER NOT NULL, season INTEGER NOT NULL,
            number INTEGER NOT NULL, round INTEGER NOT NULL, payload BLOB NOT NULL,
            PRIMARY KEY (origin, "group", season, number)) WITHOUT ROWID;
        """,
        "CREATE TABLE names (origin INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);",
    )

    def _load(self) -> None:
        """It keeps nothing in memory."""

    def number(self, names: Sequence[str]) -> None:
        """Go by the places of these names from now on: a roster without an agent moves those after it.

        What was kept of agents that are gone goes. A file of before names were kept has them in these places.
        """
        places = {name: place for place, name in enumerate(names)}
        known = dict(self.database.execute("SELECT origin, name FROM names")) or dict(enumerate(names))
        with self.writing() as db:
            rows = db.execute("SELECT * FROM kept").fetchall()
            moved = [(places[known[row[0]]], *row[1:]) for row in rows if known.get(row[0]) in places]
            db.execute("DELETE FROM kept")
            db.executemany("INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?)", moved)
            db.execute("DELETE FROM names")
            db.executemany("INSERT INTO names VALUES (?, ?)", enumerate(names))

    def load(self) -> dict[tuple[int, int], tuple[Announcement[bytes], ...]]:
        """As `PeerState.kept` has it."""
        kept: dict[tuple[int, int], list[Announcement[bytes]]] = {}
        rows = self.database.execute(
            'SELECT origin, "group", number, round, payload, season FROM kept ORDER BY season, number'
        )
        for origin, group, number, when, payload, season in rows:
            one = Announcement(origin, group, number, when, 0, bytes(payload), season)
            kept.setdefault((origin, group), []).append(one)
        return {key: tuple(some) for key, some in kept.items()}

    def keep(self, kept: Mapping[tuple[int, int], Iterable[Announcement[bytes]]]) -> None:
        """What is kept from now on, by (origin, group); on disk before this returns."""
        with self.writing() as db:
            for key, some in kept.items():
                wanted = {one.version: one for one in some}
                query = 'SELECT season, number FROM kept WHERE origin = ? AND "group" = ?'
                held = set(db.execute(query, key))
                db.executemany(
                    'DELETE FROM kept WHERE origin = ? AND "group" = ? AND season = ? AND number = ?',
                    [(*key, *version) for version in held - wanted.keys()],
                )
                fresh = [wanted[version] for version in wanted.keys() - held]
                db.executemany(
                    "INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?)",
                    [(*key, *one.version, one.round, one.payload) for one in fresh],
                )

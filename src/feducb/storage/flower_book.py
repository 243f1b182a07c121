"""The release book of a ServerApp, which knows its agents by their keys alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError, RefusedError, StoreError
from feducb.privacy.terms import Terms
from feducb.protocol import messages, sums
from feducb.protocol.admission import check_release
from feducb.storage.release_book import Quorum, ReleaseBook
from feducb.storage.sqlite import STORE_TABLE, kind_of

__all__ = ["FlowerBook"]

_MOST_SEASONS = 2  # that one agent may have waiting, beyond the season of the newest sum
_EVERYBODY = ""  # in place of an agent's name, for what holds for all
_OLD_KIND = "flower sums"


class FlowerBook(ReleaseBook):
    """A release book without a roster: all have the same terms, and the first M agents of a season are in it.

    Nobody announces a season here: it begins with its first release. Sums only move forward, by season and
    number.

    Args:
        path: of the file; ``<path>.lock`` beside it is locked meanwhile.
        terms: of all agents. Those of the file, if it exists.
        agents: M, at most so many have releases in a season.
        quorum: the least number of agents in a sum; all, if left out.
        deadline: seconds from a number's first release on, after which a quorum is enough.
    """

    def __init__(
        self, path: str | Path, terms: Terms, *, agents: int, quorum: int | None = None, deadline: float = 0.0
    ) -> None:
        require_integer("agents", agents, at_least=1)
        quorum = require_integer("quorum", agents if quorum is None else quorum, at_least=1)
        if quorum > agents:
            raise ConfigurationError("quorum", quorum, f"at most agents, {agents}")
        require_finite("deadline", deadline, at_least=0.0)
        if terms.trust.raw:
            expected = "nobody or keepers: the SuperLink keeps what passes, which must not be raw"
            raise ConfigurationError("trust", terms.trust.name, expected)
        if terms.groups != 1:
            raise ConfigurationError("groups", terms.groups, "1: a controller adds up a single group")
        super().__init__(path, {_EVERYBODY: terms})
        self.quorum = Quorum(agents, quorum, deadline)

    def _migrate(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version and kind_of(db, self.path) == _OLD_KIND:
            _convert(db)
        super()._migrate(db)

    def _keep_terms(self, terms: Mapping[str, Terms]) -> None:
        text = terms[_EVERYBODY].to_json()
        db = self.database
        db.execute("INSERT OR IGNORE INTO terms VALUES (0, ?, ?)", (_EVERYBODY, text))
        (kept,) = db.execute("SELECT body FROM terms WHERE season = 0").fetchone()
        if Terms.from_json(kept).to_json() != text:  # written anew: an older file lacks newer names
            raise StoreError(f"{self.path} is the book of a federation with other terms: {kept}")

    def _read(self, agent: str, payload: bytes) -> messages.GridSum:
        release = check_release(payload, self._terms[_EVERYBODY], agents=self.quorum.everybody)
        if release.season < 1:
            raise RefusedError("season", f"season {release.season}, expected at least 1")
        return release

    def _require_room(self, agent: str, season: int) -> None:
        counts = "count(DISTINCT iif(agent = ?1, NULL, agent)), max(agent = ?1)"
        query = f"SELECT {counts} FROM releases WHERE season = ?2"
        others, mine = self.database.execute(query, (agent, season)).fetchone()
        if not mine and others >= self.quorum.everybody:
            raise RefusedError("sender", f"{agent} is none of the {self.quorum.everybody} of season {season}")
        (current,) = self.database.execute("SELECT coalesce(max(season), 0) FROM sums").fetchone()
        ahead = self.database.execute(
            "SELECT DISTINCT season FROM releases WHERE agent = ? AND season > ?", (agent, current)
        ).fetchall()
        if season > current and (season,) not in ahead and len(ahead) >= _MOST_SEASONS:
            waiting = f"{agent} has {len(ahead)} seasons waiting after {current}"
            raise RefusedError("season", f"season {season}, but {waiting}, expected at most {_MOST_SEASONS}")


def _convert(db: sqlite3.Connection) -> None:
    """Make a release book of a file from before 1.0, in which Flower had tables of its own.

    A sum did not say who is in it: those of its number that came first, as many as it says.
    """

    def named(agents: str, payload: bytes) -> bytes:
        first = agents.split("\n")[: messages.decode(payload).agents]
        return sums.encode(sums.name_sum(first, payload))

    db.create_function("named", 2, named)
    tables = "".join(ReleaseBook.migrations).replace(STORE_TABLE, "")
    db.executescript(
        f"""
        BEGIN IMMEDIATE;
        DROP INDEX waiting; DROP TRIGGER a_sum_stays; DROP TRIGGER a_sum_is_final;
        ALTER TABLE releases RENAME TO old_releases;
        ALTER TABLE sums RENAME TO old_sums;
        {tables}
        INSERT INTO releases SELECT season, number, agent, arrived_at, sha256 FROM old_releases;
        INSERT INTO waiting (season, number, agent, payload)
            SELECT season, number, agent, payload FROM old_releases WHERE payload IS NOT NULL;
        INSERT INTO sums SELECT season, number, max(arrived_at), named(group_concat(agent, char(10)), sum)
            FROM (SELECT old_sums.season, old_sums.number, agent, arrived_at, old_sums.payload AS sum
                  FROM old_sums JOIN old_releases USING (season, number)
                  ORDER BY old_sums.season, old_sums.number, arrived_at)
            GROUP BY season, number;
        INSERT INTO terms SELECT 0, '{_EVERYBODY}', terms FROM federation;
        DROP TABLE old_releases; DROP TABLE old_sums; DROP TABLE federation;
        UPDATE store SET kind = '{ReleaseBook.kind}';
        PRAGMA user_version = {len(ReleaseBook.migrations)};
        COMMIT
        """
    )

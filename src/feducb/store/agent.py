"""An agent's file."""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
)
from feducb.privacy.deployed import encode_upload
from feducb.privacy.ledger import admit
from feducb.store.base import Store, Unsent

__all__ = ["AgentStore"]

Array = NDArray[np.float64]


class AgentStore(Store):
    """An agent's file: records in; releases out, or raw uploads if its terms trust the controller.

    Guarantees:
        At most ``records_per_person`` records of a person enter the statistics of a season, all groups
        together. Her id is kept only as HMAC-SHA256 under a key that is drawn for each season and lies in
        this file. With p_g records in group g she costs at most p μ, as in a single group: within a stream
        her moves add up to p_g μ, and streams with noise of their own compose as √Σ(p_g μ)² ≤ Σ p_g μ.
    """

    kind = "agent"

    def record(
        self,
        actions: ArrayLike,
        rewards: ArrayLike,
        persons: Sequence[str | None] | None = None,
        *,
        group: int = 0,
    ) -> int:
        """Take records in; returns how many entered the statistics. The others are counted as excluded.

        Args:
            actions: (n, d).
            rewards: (n,).
            persons: whose record it is, one a record. Where a person may have one record only, it can be left
                out, or ``None`` for some: such a record counts as that of a person who never comes again.
            group: the one that the round of these decisions belongs to, t mod γ; they enter no other.
        """
        group = self._require_group(group)
        if self.terms.trust == "nobody":
            self._require_releases_left(group)  # the record could never leave
        rows = np.atleast_2d(np.asarray(actions, dtype=np.float64))
        told = np.atleast_1d(np.asarray(rewards, dtype=np.float64))
        people = list(persons) if persons is not None else [None] * len(told)
        if rows.ndim != 2 or told.shape != rows.shape[:1] or len(people) != len(told):
            raise RecordOutOfBoundsError(
                f"records have shapes {rows.shape} and {told.shape} for {len(people)} persons, expected "
                f"(n, {self.terms.problem.dim}), (n,) and n"
            )
        hashes = [self._hash(person) for person in people]
        with self._transaction() as db:
            limit = self.terms.records_per_person
            entered, moved = admit(hashes, self._counts(db, hashes), limit)
            rows, told = rows[entered], told[entered]
            self._privatizers[group].record(rows, told)
            db.executemany("REPLACE INTO people VALUES (?, ?)", moved.items())
            if len(told):
                db.execute(
                    'INSERT INTO pending (actions, rewards, "group") VALUES (?, ?, ?)',
                    (rows.tobytes(), told.tobytes(), group),
                )
            if len(told) < len(people):
                db.execute(
                    "UPDATE seasons SET excluded = excluded + ? WHERE season = ?",
                    (len(people) - len(told), self.season),
                )
        return len(told)

    def release(self, group: int = 0) -> bytes:
        """As `Store.release`; refused where the terms trust the controller, which then makes releases."""
        if self.terms.trust == "controller":
            raise PrivacyError("under trust='controller' the controller releases: an agent calls upload()")
        return super().release(group)

    def upload(self) -> bytes:
        """Hand what is pending over raw, for a trusted controller alone; refused under ``trust="nobody"``."""
        with self._transaction() as db:
            (last,) = db.execute(
                "SELECT coalesce(max(number), 0) FROM outgoing WHERE kind = 'upload' AND season = ?",
                (self.season,),
            ).fetchone()
            payload = encode_upload(self._privatizers[0].upload(), season=self.season, number=last + 1)
            self._put_out(db, "upload", last + 1, payload)
            self._end_batch(db, 0)
        return payload

    def uploads(self) -> list[Unsent]:
        """Uploads not yet acknowledged, oldest first. For the controller alone."""
        return self._unsent("upload")

    def acknowledge(self, season: int, number: int) -> None:
        """The controller has an upload on disk: forget its content."""
        self._sent("upload", season, number)

    def _hash(self, person: str | None) -> bytes | None:
        if isinstance(person, str):
            return hmac.digest(self._person_key, person.encode(), "sha256")
        if person is not None:  # say its type alone: an id must not end up in a log
            raise ConfigurationError("person", type(person).__name__, "text, or None")
        if self.terms.records_per_person > 1:
            raise ConfigurationError(
                "person", None, f"an id, to hold {self.terms.records_per_person} records a person"
            )
        return None

    def _counts(self, db: sqlite3.Connection, hashes: Sequence[bytes | None]) -> dict[bytes, int]:
        found = (
            db.execute("SELECT hash, records FROM people WHERE hash = ?", (one,)).fetchone()
            for one in {one for one in hashes if one is not None}
        )
        return {row[0]: row[1] for row in found if row is not None}

    def _feed(self, db: sqlite3.Connection) -> None:
        dim = self.terms.problem.dim
        for group, actions, rewards in db.execute(
            'SELECT "group", actions, rewards FROM pending ORDER BY id'
        ):
            self._privatizers[group].record(np.frombuffer(actions).reshape(-1, dim), np.frombuffer(rewards))

    def _end_batch(self, db: sqlite3.Connection, group: int) -> None:
        db.execute('DELETE FROM pending WHERE "group" = ?', (group,))

    def _waiting(self) -> bool:
        return self._pending() > 0 or bool(self.uploads())

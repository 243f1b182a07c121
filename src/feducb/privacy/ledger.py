"""What left an agent, when, at what cost, and what is left: plain data, read from the store.

Records of different seasons are disjoint, so a record costs its own season alone; a person who comes back in
another season pays there too, and her costs add up as lengths of vectors do. Records of an agent's groups are
disjoint too: a record costs its own group's stream alone, so a season costs the same however many groups it
has (docs/theory.md, 2). The noisy tally of rewards out of range fits into the same price (docs/theory.md, 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from feducb.privacy.calibration import to_epsilon
from feducb.privacy.terms import Terms

_COUNTED = ("release", "row", "make-up", "nonce")  # a row, its nonce and what makes up for it are one

__all__ = ["Account", "Entered", "Ledger", "LedgerEntry", "admit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerEntry:
    """One message that left, or may have left: it was on disk before anyone could send it.

    Attributes:
        kind: a ``release`` (noisy), an ``upload`` (raw, to a trusted controller), or a ``row`` under noise
            and pads, or a ``make-up`` for one, or the ``nonce`` of one.
        season: which season it belongs to.
        group: which estimator it is of; 0 where there is one.
        number: k, counted from 1 in each season and group.
        made_at: when, ISO 8601 in UTC.
        size: bytes.
        sha256: of those bytes, in hexadecimal.
        sent_at: when it was reported to have arrived; ``None`` while it waits in the outbox.
    """

    kind: Literal["release", "upload", "row", "make-up", "nonce"]
    season: int
    group: int
    number: int
    made_at: str
    size: int
    sha256: str
    sent_at: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """One season: its terms, what left under them, and what that costs.

    Guarantees:
        ``mu`` is promised for all streams together when the season opens: it is what a person pays once
        something left, however many of the n releases of each group are made. Nothing left, nothing paid.

    Attributes:
        season: counted from 1.
        opened_at: when, ISO 8601 in UTC.
        terms: what was promised.
        entries: what left, by number and then group.
        pending: how many records wait for the next release. Private.
        excluded: how many records were beyond ``records_per_person``, or nearer to the person's last one than
            ``spacing``, and did not enter. Private.
        dropped: how many records were pending when the next season opened; they never left. Private.
        continued_elsewhere: this file is a restored backup, so the season may have gone on after the backup,
            with releases that are not among ``entries``. It counts as spent.
        skipped: by group, how many rows were over without this agent having built one: it never will.
    """

    season: int
    opened_at: str
    terms: Terms
    entries: tuple[LedgerEntry, ...]
    pending: int = 0
    excluded: int = 0
    dropped: int = 0
    continued_elsewhere: bool = False
    skipped: Mapping[int, int] = field(default_factory=dict)

    @property
    def releases_made(self) -> int:
        """How many releases, or rows, exist; each of them may have left."""
        return sum(self._made_in(group) for group in range(self.terms.groups))

    @property
    def releases_left(self) -> int:
        """How many more can be made, in all groups together."""
        return sum(self.releases_left_in(group) for group in range(self.terms.groups))

    def releases_left_in(self, group: int) -> int:
        """How many more can be made in one group."""
        most = self.terms.releases if self.terms.trust.leaves else 0
        return most - self._made_in(group) - self.skipped.get(group, 0)

    def _made_in(self, group: int) -> int:
        return len({one.number for one in self.entries if one.kind in _COUNTED and one.group == group})

    @property
    def mu(self) -> float:
        """What the whole season costs a person with as many records in it as the terms cover."""
        return self.terms.certificate().mu if self.terms.trust.leaves else 0.0

    @property
    def mu_of_a_record(self) -> float:
        """What the whole season costs one record in it."""
        return self.mu / self.terms.reach

    @property
    def mu_spent(self) -> float:
        """What a person has paid by now: all, or nothing."""
        return self.mu if self.entries or self.continued_elsewhere else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Terms, entries and what they cost, for JSON."""
        return {
            "season": self.season,
            "opened_at": self.opened_at,
            "trust": self.terms.trust.name,
            "neighbours": self.terms.neighbours.value,
            "contexts": self.terms.contexts,
            "mechanism": self.terms.factors.name,
            "records_per_person": self.terms.records_per_person,
            "agents_per_person": self.terms.agents_per_person,
            "spacing": self.terms.spacing,
            "epsilon": self.terms.promised[0],
            "delta": self.terms.promised[1],
            "mu": self.mu,
            "mu_of_a_record": self.mu_of_a_record,
            "mu_spent": self.mu_spent,
            "groups": self.terms.groups,
            "releases": self.terms.releases if self.terms.trust.leaves else 0,
            "releases_made": self.releases_made,
            "releases_skipped": sum(self.skipped.values()),
            "releases_left": self.releases_left,
            "releases_left_by_group": [self.releases_left_in(group) for group in range(self.terms.groups)],
            "pending": self.pending,
            "excluded": self.excluded,
            "dropped": self.dropped,
            "continued_elsewhere": self.continued_elsewhere,
            "entries": [asdict(entry) for entry in self.entries],
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """All seasons of one store.

    Attributes:
        accounts: one per season, in order.
    """

    accounts: tuple[Account, ...]

    @property
    def current(self) -> Account:
        """The season that is open."""
        return self.accounts[-1]

    @property
    def mu_of_a_regular(self) -> float:
        """μ of a person who was there in every season so far, as often as the terms cover in each."""
        return math.hypot(*(account.mu_spent for account in self.accounts))

    def epsilon_of_a_regular(self, delta: float) -> float:
        """ε at δ of a person who was there in every season so far: Gaussian mechanisms, composed exactly."""
        mu = self.mu_of_a_regular
        return to_epsilon(mu, delta) if mu > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """All seasons, and what a person paid who was there in each, for JSON."""
        return {
            "mu_of_a_regular": self.mu_of_a_regular,
            "epsilon_of_a_regular": self.epsilon_of_a_regular(self.current.terms.budget.delta),
            "delta_of_a_regular": self.current.terms.budget.delta,
            "seasons": [account.as_dict() for account in self.accounts],
        }


class Entered(NamedTuple):
    """What of a person is in a season's sums: how many records, and the newest release that has one."""

    records: int
    last: int


def admit(
    people: Sequence[bytes | None],
    before: Mapping[bytes, Entered],
    limit: int,
    *,
    batch: int = 1,
    spacing: int = 0,
) -> tuple[list[bool], dict[bytes, Entered]]:
    """Which records may enter: of each person the first ``limit`` that come, if far enough apart.

    A person's own records alone decide it, and which release comes next, which is public.

    Args:
        people: whose record it is, one per record; ``None`` is somebody who never comes again.
        before: what of a person entered before; absent is nothing.
        limit: p, how many may enter.
        batch: the number of the release that they would enter.
        spacing: ℓ, by how much it must exceed that of the person's last record; 0: by nothing.

    Returns:
        Whether each record enters, and what is in the sums now of those people for whom that moved.
    """
    entered: list[bool] = []
    moved: dict[bytes, Entered] = {}
    for person in people:
        if person is None:
            entered.append(True)
            continue
        known = moved.get(person, before.get(person))
        enters = known is None or (known.records < limit and (not spacing or batch >= known.last + spacing))
        entered.append(enters)
        if enters:
            records, last = known or (0, 0)
            moved[person] = Entered(records + 1, max(last, batch))
    return entered, moved

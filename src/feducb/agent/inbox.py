"""What an agent counts, and the sums it acts on: kept in its file, ready in memory."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from functools import lru_cache

from feducb.agent.settings import AgentSettings
from feducb.privacy.deployed import Terms, entry_variance
from feducb.privacy.grid import Certificate
from feducb.privacy.mechanisms import Mechanism
from feducb.protocol import messages
from feducb.protocol.messages import GridSum
from feducb.storage.store import now as written_now
from feducb.types import ReleasedSum

__all__ = ["Counters", "Inbox"]


class Counters:
    """Totals by name, and activity by the hour; written with the commit that they count."""

    def __init__(self) -> None:
        self._kept: Counter[str] = Counter()
        self._new: Counter[str] = Counter()
        self._hours: dict[int, list[float]] = {}  # decisions, rewards, their sum

    def add(self, name: str, count: int = 1, *, hour: int | None = None, amount: float = 0.0) -> None:
        """Count; with an hour, for the activity of that hour too (decisions, or rewards and their amount)."""
        if count:
            self._new[name] += count
        if hour is not None:
            row = self._hours.setdefault(hour, [0, 0, 0.0])
            row[name == "rewards"] += count
            row[2] += amount

    def total(self, name: str) -> int:
        """How often, what is not yet written included."""
        return self._kept[name] + self._new[name]

    def at_least(self, name: str, count: int) -> None:
        """What is in the file proves that there were so many."""
        self._new[name] += max(0, count - self.total(name))

    def totals(self) -> Counter[str]:
        """All of them."""
        return self._kept + self._new

    def flush(self, db: sqlite3.Connection) -> None:
        """Write what is new, in the transaction that it counts."""
        db.executemany(
            "INSERT INTO counters VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            self._new.items(),
        )
        db.executemany(
            "INSERT INTO activity VALUES (?, ?, ?, ?) ON CONFLICT (hour) DO UPDATE SET"
            " decisions = decisions + excluded.decisions, rewards = rewards + excluded.rewards,"
            " reward_sum = reward_sum + excluded.reward_sum",
            [(hour, *row) for hour, row in self._hours.items()],
        )
        self._kept += self._new
        self._new.clear()
        self._hours.clear()

    def load(self, db: sqlite3.Connection) -> None:
        """From the file; what was not written is forgotten."""
        self._kept = Counter(dict(db.execute("SELECT name, value FROM counters")))
        self._new.clear()
        self._hours.clear()


@lru_cache(maxsize=16)
def _noise_of(terms: Terms) -> tuple[Certificate, Mechanism]:
    return terms.certificate(), terms.factors


class Inbox:
    """The newest sum of each group."""

    def __init__(self) -> None:
        self._sums: dict[int, GridSum] = {}

    def admit(self, told: GridSum, settings: AgentSettings, season: int, agents: int | None = None) -> bool:
        """Whether a sum is newer than the one before. Raises ValueError if it does not fit the settings.

        Args:
            told: the sum.
            settings: the agent's.
            season: the open one.
            agents: how many handed records over to a trusted controller, whose release counts as one.
        """
        terms = settings.terms
        certificate, mechanism = _noise_of(terms)
        expected = (season, terms.problem.dim, certificate.exponent, terms.weight)
        found = (told.season, told.dim, told.exponent, told.weight)
        if found != expected:
            raise ValueError(f"sum has (season, dimension, grid, weight) {found}, expected {expected}")
        if not (told.group < terms.groups and 1 <= told.number <= terms.releases):
            raise ValueError(f"sum {told.number} of group {told.group} is beyond what was agreed")
        if settings.trust == "controller":
            _require_size(told, told.agents, (1, 1))
            _require_size(told, agents, settings.sizes_of_sums)
        else:
            _require_size(told, told.agents, settings.sizes_of_sums)
        if terms.trust == "controller":  # it has one noise, the one that is promised here
            variance = entry_variance(certificate, mechanism, told.number)
            if not math.isclose(told.variance, variance, rel_tol=1e-6):
                raise ValueError(
                    f"sum has variance {told.variance:g}, expected {variance:g}: the controller's terms "
                    "differ from those here in epsilon, delta, mechanism, quiet, records_per_person or "
                    "agents_per_person"
                )
        return told.number > self.number(told.group)

    def put(self, db: sqlite3.Connection, told: GridSum) -> None:
        """Write it, in a transaction; acted on once that is on disk."""
        db.execute(
            "REPLACE INTO inbox VALUES (?, ?, ?, ?, ?)",
            (told.group, told.season, told.number, written_now(), messages.encode(told)),
        )
        self._sums[told.group] = told

    def number(self, group: int) -> int:
        """Of the sum in use; 0 if there is none."""
        told = self._sums.get(group)
        return told.number if told is not None else 0

    def agents(self, group: int) -> int:
        """How many are in it."""
        told = self._sums.get(group)
        return told.agents if told is not None else 0

    def read(self, group: int) -> ReleasedSum | None:
        """As real numbers."""
        told = self._sums.get(group)
        return None if told is None else told.read()

    def load(self, db: sqlite3.Connection, settings: AgentSettings) -> None:
        """From the file; a sum that is below a quorum which was raised since is left there."""
        least, most = settings.sizes_of_sums if settings.trust == "nobody" else (1, 1)
        found = db.execute('SELECT "group", payload FROM inbox')
        sums = {group: messages.decode(payload) for group, payload in found}
        self._sums = {group: told for group, told in sums.items() if least <= told.agents <= most}


def _require_size(told: GridSum, found: int | None, sizes: tuple[int, int]) -> None:
    """The bound that sums are read with holds for sums over so many agents, and no others."""
    least, most = sizes
    if found is None or not least <= found <= most:
        over = "an unknown number of agents" if found is None else f"{found} agent{'s' * (found != 1)}"
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"sum {told.number} is over {over}, expected {expected}")

"""What an agent counts, and the sums it acts on: kept in its file, ready in memory."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from functools import lru_cache

from feducb.agent.settings import AgentSettings
from feducb.privacy.grid import MAX_SIGMA, Certificate, entry_variance
from feducb.privacy.mechanisms import Mechanism
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.messages import GridSum
from feducb.storage import agent_tables, events
from feducb.system import counted
from feducb.types import ReleasedSum

__all__ = ["Counters", "Inbox"]


class Counters:
    """Totals by name; written with the commit that they count."""

    def __init__(self) -> None:
        self._kept: Counter[str] = Counter()
        self._new: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count, within a commit."""
        if count:
            self._new[name] += count

    def total(self, name: str) -> int:
        """How often, what is not yet written included."""
        return self._kept[name] + self._new[name]

    def at_least(self, name: str, count: int) -> None:
        """What is in the file proves that there were so many."""
        self._new[name] += max(0, count - self.total(name))

    def totals(self) -> Counter[str]:
        """By name, what is not yet written included."""
        return self._kept + self._new

    def flush(self, db: sqlite3.Connection) -> None:
        """Write what is new, in the transaction that it counts."""
        events.add_counts(db, self._new.items())
        self._kept += self._new
        self._new.clear()

    def load(self, db: sqlite3.Connection) -> None:
        """From the file; what was not written is forgotten."""
        self._kept = Counter(agent_tables.read_counts(db))
        self._new.clear()


@lru_cache(maxsize=16)
def _noise_of(terms: Terms) -> tuple[Certificate, Mechanism]:
    return terms.certificate(), terms.factors


class Inbox:
    """The newest sum of each group; where records fade, those before it too."""

    def __init__(self) -> None:
        self._sums: dict[int, GridSum] = {}
        self._before: dict[int, list[GridSum]] = {}

    def admit(self, total: GridSum, settings: AgentSettings, season: int, agents: int | None = None) -> bool:
        """Whether a sum is newer than the one before. Raises ValueError if it does not fit the settings.

        Args:
            total: the sum.
            settings: the agent's.
            season: the open one.
            agents: how many handed records over to a trusted controller, whose release counts as one.
        """
        terms = settings.terms
        certificate, mechanism = _noise_of(terms)
        if total.dim == terms.problem.dim and total.model != (model := messages.carried(terms.model)):
            raise ValueError(
                f"sum has model {total.model.name}, expected {model.name}: the others' recipe is another one"
            )
        expected = (season, terms.problem.dim, certificate.exponent, terms.weight)
        given = (total.season, total.dim, total.exponent, total.weight)
        if given != expected:
            raise ValueError(
                f"sum has (season, dimension, grid, weight) {given}, expected {expected}; weights follow "
                "from bounds, reward_centre and the recipe"
            )
        if not (total.group < terms.groups and 1 <= total.number <= terms.releases):
            raise ValueError(f"sum {total.number} of group {total.group} is beyond what was agreed")
        _require_size(total, total.agents, _noises(settings))
        own, times = entry_variance(certificate, mechanism, total.number), MAX_SIGMA / certificate.sigma
        if not total.variance / own <= total.agents * times**2:
            raise ValueError(
                f"sum has variance {total.variance:g}, which is more than any noise that can be promised: "
                f"each agent's is {own:g} by the terms here"
            )
        if terms.trust.pooled:  # it has one noise, the one that is promised here
            _require_size(total, agents, settings.sizes_of_sums)
            if not math.isclose(total.variance, own, rel_tol=1e-6):
                raise ValueError(
                    f"sum has variance {total.variance:g}, expected {own:g}: the controller's terms "
                    "differ from those here in epsilon, delta, mechanism, quiet, decay, records_per_person, "
                    "agents_per_person or spacing"
                )
        return total.number > self.number(total.group)

    def put(self, db: sqlite3.Connection, total: GridSum, *, keep: bool = False) -> None:
        """Write it, in a transaction; acted on once that is on disk. ``keep`` those before it too."""
        payload = messages.encode(total)
        agent_tables.put_sum(db, group=total.group, season=total.season, number=total.number, payload=payload)
        if keep:
            agent_tables.remember_sums(db)
            self._before.setdefault(total.group, []).extend(
                [self._sums[total.group]] if total.group in self._sums else []
            )
        self._sums[total.group] = total

    def number(self, group: int) -> int:
        """Of the sum in use; 0 if there is none."""
        total = self._sums.get(group)
        return total.number if total is not None else 0

    def agents(self, group: int) -> int:
        """How many are in it."""
        total = self._sums.get(group)
        return total.agents if total is not None else 0

    def read(self, group: int) -> list[ReleasedSum]:
        """The sum in use, as real numbers, after those before it that are kept; none if there is none."""
        newest = self.newest(group)
        return [] if newest is None else [one.read() for one in (*self._before.get(group, ()), newest)]

    def newest(self, group: int) -> GridSum | None:
        """The sum in use; None if there is none."""
        return self._sums.get(group)

    def load(self, db: sqlite3.Connection, settings: AgentSettings) -> None:
        """From the file; a sum that is below a quorum which was raised since is left there."""
        least, most = _noises(settings)
        sums = {one.group: messages.decode(one.payload) for one in agent_tables.received_sums(db)}
        self._sums = {group: total for group, total in sums.items() if least <= total.agents <= most}
        self._before = {}
        for one in agent_tables.remembered_sums(db):
            newest = self._sums.get(one.group)
            if newest is not None and one.season == newest.season and one.number < newest.number:
                self._before.setdefault(one.group, []).append(messages.decode(one.payload))


def _noises(settings: AgentSettings) -> tuple[int, int]:
    """How many noises a sum carries, each of which it counts as an agent: at least, at most."""
    least, most = settings.sizes_of_sums
    return settings.trust.noises(least), settings.trust.noises(most)


def _require_size(total: GridSum, size: int | None, sizes: tuple[int, int]) -> None:
    """The bound that sums are read with holds for sums over so many agents, and no others."""
    least, most = sizes
    if size is None or not least <= size <= most:
        over = "an unknown number of agents" if size is None else counted(size, "agent")
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"sum {total.number} is over {over}, expected {expected}")

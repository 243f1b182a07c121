"""What was measured, with intervals that hold for a whole table together, and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feducb.system import counted
from feducb.worlds.data import DATA_SETS
from feducb_lab.experiments.real_data.cells import EPSILONS, PLAYS, TRUSTS, Measured, combined

__all__ = ["COLUMNS", "OPEN", "OUTCOMES", "Findings", "Line", "names_of", "older", "outcomes"]

COLUMNS = tuple(f"ε = {epsilon:g}, {trust}" for epsilon in EPSILONS for trust in TRUSTS)
OPEN = "no privacy"
OUTCOMES = ("wins", "ties", "loses")
_FAMILY = 0.05  # the chance that anything in a table that is said for sure is a false alarm


@dataclass(frozen=True, slots=True)
class Line:
    """One data set under one play with some records per agent."""

    name: str
    play: str
    records: int | None  # None: all
    agents: int
    dim: int
    each: int  # records that an agent can learn from, at most
    reliable: bool
    policies: Mapping[str, Measured]

    @property
    def used(self) -> int:
        """Records per agent."""
        return self.records or self.each

    def differences(self) -> int:
        """How many there are to speak of: rows at random are all one, and rows that stay alone are alone."""
        told = [one for name, one in self.policies.items() if name in COLUMNS and one.shares]
        return sum(one.reads for one in told) + any(not one.reads for one in told)

    @property
    def first(self) -> bool:
        """Whether what is the same under both plays is counted here."""
        return self.play == PLAYS[0]


def lines_of(cells: Mapping[str, Mapping[str, Any]]) -> list[Line]:
    """From the cells of a file, parts put together, in their order; fewer records first."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for key in sorted(cells):
        name, play, records, _ = key.split(", ")
        groups.setdefault((name, play, records), []).append(cells[key])
    made = []
    for (name, play, records), parts in groups.items():
        facts, most = parts[0], None if records == "all" else int(records)
        reliable = all(bool(one["reliable"]) for one in parts)
        found = combined(parts)
        sizes = (facts["agents"], facts["dim"], facts["records_each"])
        made.append(Line(name, play, most, *sizes, reliable, found))
    return sorted(made, key=lambda one: one.used)


class Findings:
    """Lines that are read together: what is sure holds at 95 % for all of their differences at once."""

    def __init__(self, lines: Sequence[Line], *, with_open: bool = False) -> None:
        """With or without the federation without privacy, which is the same under both plays."""
        self.lines = tuple(lines)
        self.family = sum(one.differences() + (with_open and one.first) for one in lines)

    @classmethod
    def of(cls, cells: Mapping[str, Mapping[str, Any]], *, full: bool) -> Findings:
        """The table of all records, or the learning curves, which have fewer as well."""
        lines = lines_of(cells)
        if full:
            return cls([one for one in lines if one.records is None])
        return cls(lines, with_open=True)

    def margin(self, one: Measured) -> float:
        """Half the corrected interval of a difference."""
        assert one.over_alone is not None
        return one.over_alone.margin_at(1.0 - _FAMILY / max(1, self.family))

    def outcome(self, line: Line, name: str) -> str:
        """Against each agent alone: wins, ties or loses."""
        one = line.policies[name]
        assert one.over_alone is not None
        if not one.shares or not line.reliable:
            return "ties"
        value, margin = one.over_alone.value, self.margin(one)
        return "wins" if value > margin else "loses" if value < -margin else "ties"

    def shown(self, line: Line, name: str) -> str:
        """A difference with its corrected interval; bold where it is sure."""
        one = line.policies[name]
        assert one.over_alone is not None
        if not one.shares:
            return "alone"
        said = f"{one.over_alone.value:+.4f} ± {self.margin(one):.4f}".replace("-", "−")
        star = "" if one.reads else " *"
        return (f"**{said}**" if self.outcome(line, name) != "ties" else said) + star

    def play(self, play: str) -> Iterator[Line]:
        """The lines of one play."""
        return (one for one in self.lines if one.play == play)

    def counts(self, play: str, names: Sequence[str] = COLUMNS) -> Counter[str]:
        """Wins, ties and losses under one play."""
        return Counter(self.outcome(line, name) for line in self.play(play) for name in names)

    def plain(self) -> dict[str, Any]:
        """As a file says it: each difference, its corrected margin, what that makes of it; and counts."""
        rows = {}
        for line in self.lines:
            row = {}
            for name in COLUMNS:
                one = line.policies[name].over_alone
                assert one is not None
                outcome = self.outcome(line, name)
                margin = self.margin(line.policies[name])
                row[name] = {"value": one.value, "margin": margin, "outcome": outcome}
            rows[f"{line.name}, {line.play}"] = row
        chosen = {"all": COLUMNS, **{name: (name,) for name in COLUMNS}}
        outcomes = {}
        for play in PLAYS:
            counts = {which: self.counts(play, names) for which, names in chosen.items()}
            outcomes[play] = {which: {one: count[one] for one in OUTCOMES} for which, count in counts.items()}
        return {"differences": self.family, "outcomes": outcomes, "rows": rows}


def older(found: Mapping[str, Any]) -> dict[str, int]:
    """How many cells of a file are by other code than its newest, by data set."""
    newest = found["made"]["code"]
    return Counter(key.split(", ")[0] for key, one in found["cells"].items() if one.get("code") != newest)


def names_of(found: Findings) -> list[str]:
    """Of the data sets that are there, in the order of `DATA_SETS`."""
    there = {one.name for one in found.lines}
    return [name for name in DATA_SETS if name in there]


def outcomes(found: Findings, play: str) -> str:
    """Wins, ties and losses in words."""
    counts = found.counts(play)
    wins, ties = counted(counts["wins"], "win"), counted(counts["ties"], "tie")
    losses = "1 loss" if counts["loses"] == 1 else f"{counts['loses']} losses"
    return f"{wins}, {ties}, {losses}"

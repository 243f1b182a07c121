"""What a comparison of policies came to, and what it says: a table, plain data, and a yes or no."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from feducb.evaluation.weighted_sums import Estimate, PolicyValue
from feducb.version import __version__
from feducb.worlds.features import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ALONE", "Comparison", "Play", "Row"]

# By the estimate; by a part of the bonus; as agents do; nothing learnt.
Play = Literal["greedy", "practical", "played", "fixed"]
ALONE = "each agent alone"

_FAMILY = 0.05  # the chance that anything said for sure is a false alarm, over all that might be said


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One policy and its value: reward per decision."""

    name: str
    play: Play
    value: Estimate
    over_alone: Estimate | None = None  # less that of agents alone, same play, same records or runs
    over_fixed: Estimate | None = None  # less that of the fixed policy that nobody must learn
    private: bool = False  # whether it keeps a budget
    reads: bool = True  # whether any release is worth reading; if not, it plays at random
    shares: bool = True  # whether anything leaves agents; if not, each is alone
    own_play: bool = False  # whether it looks at own records after its last release
    details: PolicyValue | None = None  # all estimators, where it is an estimate from a log

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, for JSON."""
        plain: dict[str, Any] = {
            "policy": self.name,
            "play": self.play,
            "private": self.private,
            "reads_a_release": self.reads,
            "shares": self.shares,
            **({"federation_play": self.federation_play} if self.own_play else {}),  # released goes unsaid
            "value": self.value.as_dict(),
            "over_alone": self.over_alone and self.over_alone.as_dict(),
            "over_fixed": self.over_fixed and self.over_fixed.as_dict(),
        }
        if self.details is not None:
            details = self.details
            plain |= {
                **{name: getattr(details, name).as_dict() for name in ("ips", "snips", "doubly_robust")},
                "replay": details.replay.as_dict() | {"accepted": details.accepted},
                "effective_records": details.effective,
                "mean_weight": details.mean_weight.value,
                "largest_weight": details.largest_weight,
            }
        return plain

    @property
    def federation_play(self) -> Literal["released", "own", "stays alone"] | None:
        """What a private federation looks at; None for everybody else."""
        if not self.private:
            return None
        return "released" if not self.own_play else "own" if self.shares else "stays alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Several policies on one source.

    Attributes:
        source: of the data.
        measure: what a value is.
        rows: the policies.
        fixed: the name of the fixed policy that learners are held against.
        primary: the play that the verdict is about.
        notes: what was done to the data.
        warnings: why not to believe a number.
        settings: all that it was made with.
        reliable: whether weights average 1, as they must if the propensities are right.
        recipe: how vectors are made, if they were made here; an agent can use it.
    """

    source: str
    measure: str
    rows: Sequence[Row]
    fixed: str
    primary: Play
    notes: Sequence[str]
    warnings: Sequence[str]
    settings: Mapping[str, Any]
    reliable: bool = True
    recipe: Recipe | None = None

    def row(self, name: str, play: Play | None = None) -> Row:
        """The row of a policy."""
        return next(one for one in self.rows if one.name == name and play in (None, one.play))

    @property
    def federate(self) -> bool:
        """Whether some private federation surely beats agents alone, and no constant surely beats it."""
        return self.reliable and any(self._wins(one) for one in self._private())

    @property
    def sayable(self) -> int:
        """How many differences a verdict may speak of, whichever it picks once it has seen them all.

        Against agents alone in the play it is about, and of every row against the fixed policy. Rows that
        read no release are all one, uniform; rows that share nothing are agents alone.
        """
        alone = {
            one.name if one.reads else ""
            for one in self.rows
            if one.play == self.primary and one.over_alone is not None and one.shares
        }
        told = (one.over_fixed is not None and one.reads and one.shares for one in self.rows)
        return len(alone) + sum(told)

    def _private(self) -> list[Row]:
        return [one for one in self.rows if one.private and one.play == self.primary]

    def _wins(self, row: Row) -> bool:
        fixed = row.over_fixed
        beaten = fixed is not None and self._surely(fixed) < 0
        return row.reads and row.over_alone is not None and self._surely(row.over_alone) > 0 and not beaten

    def _surely(self, difference: Estimate) -> int:
        """The sign of a difference, 0 if it may be chance: Bonferroni over all that might be said."""
        margin = difference.margin_at(1.0 - _FAMILY / max(1, self.sayable))
        if not math.isfinite(difference.value) or not math.isfinite(margin):
            return 0
        return int(difference.value > margin) - int(difference.value < -margin)

    def verdict(self) -> str:
        """Who wins, in sentences that the numbers write."""
        private = self._private()
        sentences = []
        winners = sorted((one for one in private if self._wins(one)), key=lambda one: one.value.value)
        if not self.reliable:
            why = "weights do not average 1, so the propensities are not to be believed"
            sentences.append(f"Cannot tell: {why}.")
        elif winners:
            sentences.append(f"Federate: {self._against_alone(winners[-1])}.")
            constant = winners[-1].over_fixed
            if constant is not None and self._surely(constant) <= 0:
                than = f"{self.fixed} ({constant.text(sign='+')})"
                sentences.append(f"It does not surely earn more than {than}, though.")
        else:
            why = f"no private federation surely earns more than {ALONE}"
            if any(one.reads and one.over_alone and self._surely(one.over_alone) > 0 for one in private):
                why = f"{self.fixed} surely earns more than every private federation that beats {ALONE}"
            sentences.append(f"Do not federate for this: {why}.")
        if private:
            outcomes = "; ".join(f"{one.name}, {self._told(one)}" for one in private)
            how = f"{self.primary}, under own play" if any(one.own_play for one in private) else self.primary
            sentences.append(f"Against each agent alone, {how}: {outcomes}.")
        for one in self.rows:
            if one.play == self.primary and not one.private and one.name != ALONE:
                sentences.append(f"Without privacy: {self._against_alone(one)}.")
        sentences.append(self._highest())
        if self.sayable > 1:
            together = f"for all {self.sayable} differences together that might have been named"
            sentences.append(f"What is said for sure holds at 95 % {together}; ± is of each by itself.")
        return " ".join(sentences)

    def outcome(self, row: Row) -> Literal["wins", "ties", "loses"] | None:
        """Against agents alone in the same play; None where that is not compared. A tie: it may be chance."""
        if row.over_alone is None:
            return None
        sign = self._surely(row.over_alone)
        return "wins" if sign > 0 else "loses" if sign < 0 else "ties"

    def _told(self, row: Row) -> str:
        if row.over_alone is None:
            return "not compared"
        said = {1: "wins", -1: "loses", 0: "no difference can be told"}[self._surely(row.over_alone)]
        why = ""
        if not row.shares:
            why = ", nothing is worth its noise so each agent stays alone"
        elif not row.reads:
            why = ", nothing released is worth reading so it plays at random"
        return f"{said} ({row.over_alone.text(sign='+')}{why})"

    def _against_alone(self, row: Row) -> str:
        assert row.over_alone is not None
        verbs = {1: "earns more than", -1: "earns less than", 0: "cannot be told from"}
        verb = verbs[self._surely(row.over_alone)]
        return f"{row.name} {verb} {ALONE} ({row.over_alone.text(sign='+')} a decision)"

    def _highest(self) -> str:
        known = [one for one in self.rows if math.isfinite(one.value.value)]
        best = max(known or self.rows, key=lambda one: one.value.value)
        play = "" if best.play == "fixed" else f" ({best.play})"
        said = f"Highest value: {best.name}{play}, {best.value.text()}"
        if best.over_fixed is not None and best.name != self.fixed:
            sures = {1: "surely more", -1: "surely less", 0: "not surely more"}
            sure = sures[self._surely(best.over_fixed)]
            said += f", {sure} than {self.fixed} ({best.over_fixed.text(sign='+')})"
        return said + "."

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain data, for JSON."""
        return {
            "source": self.source,
            "measure": self.measure,
            "federate": self.federate,
            "reliable": self.reliable,
            "sayable": self.sayable,
            "verdict": self.verdict(),
            "fixed": self.fixed,
            "primary": self.primary,
            "policies": [one.as_dict() for one in self.rows],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "settings": dict(self.settings),
            "version": __version__,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text, written to ``path`` if given."""
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self, path: str | Path | None = None) -> Figure:
        """Values with their intervals."""
        from feducb.evaluation.interval_plot import plot_comparison

        return plot_comparison(self, path=path)

"""What an agent remembers of earlier seasons: their last sums, read beside those of the open one.

They are private already, so that reading them for ever costs nothing (docs/theory.md, 11). What each counts
follows from public numbers: how many records were planned, under which noise, and how long ago.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from feducb.agent.settings import AgentSettings
from feducb.models.mixture import MixtureBound, apart
from feducb.models.play import ReleasedPlay
from feducb.models.remembering import Fading, RememberingPlay
from feducb.privacy.grid import rounding_radius
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.federation import EVERYTHING
from feducb.protocol.recall import Past, recalling
from feducb.storage import agent_tables
from feducb.storage.agent_tables import RememberedSum
from feducb.system import counted
from feducb.types import Belief, ReleasedSum
from feducb.worlds.features.season import continues

__all__ = ["Memory"]

_MOST_FADING = 1024  # releases of a season whose records fade: F is dense
_MOST_SETS = (
    900.0  # as a power of 2, of sets of agents in all seasons together: α over them is still a number
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """A season that is over, as far as the file has it.

    Attributes:
        season: its number.
        ago: how many seasons opened since.
        until: when its last sum was due, in seconds since 1970.
        records: how many records it has by plan, all agents together; with fading, what they came to.
        totals: by group, its last sum; with fading, what its sums came to.
        misfit: why it is not read; None if it is.
    """

    season: int
    ago: int
    until: float
    records: float
    totals: dict[int, ReleasedSum]
    misfit: str | None = None


class Memory:
    """What is remembered, ready to be read beside the open season's sums.

    Attributes:
        earlier: seasons of the file that are over, newest first; also those that are not read, and why.
    """

    def __init__(
        self, settings: AgentSettings, earlier: Sequence[Earlier] = (), started_at: float = 0.0
    ) -> None:
        self._settings, self._started_at = settings, started_at
        self._rules: dict[int, RememberingPlay] = {}
        self.earlier = tuple(earlier)

    @classmethod
    def load(
        cls, db: sqlite3.Connection, settings: AgentSettings, *, season: int, started_at: float
    ) -> Memory:
        """From the file; ``season`` is the open one."""
        rows = [one for one in agent_tables.remembered_sums(db) if one.season < season]
        earlier: list[Earlier] = []
        for number, some in groupby(reversed(rows), key=lambda one: one.season):
            ago = agent_tables.seasons_since(db, number)
            earlier.append(_earlier(list(some)[::-1], settings, ago, len(earlier)))
        return cls(settings, earlier, started_at)

    @property
    def read(self) -> tuple[Earlier, ...]:
        """Those that are read, newest first."""
        return tuple(one for one in self.earlier if one.misfit is None)

    @property
    def fading(self) -> Fading | None:
        """How records of the open season fade."""
        return fading_of(self._settings, self._settings.drift)

    def rule(self, group: int) -> RememberingPlay | None:
        """How sums of a group are read; None where there is nothing but the season's own newest sum."""
        settings, seasons, fading = self._settings, self._with(group), self.fading
        if not seasons and fading is None:
            return None
        if group not in self._rules:
            past = [
                Past(total=one.totals[group], records=one.records, left=self._left(one)) for one in seasons
            ]
            rule = recalling(
                settings.federation,
                replace(settings.estimator, rule=settings.rule),
                settings.team,
                past,
                alpha=settings.share_of_alpha(len(past)),
                fading=fading,
            )
            # Each noise is off Gaussian noise by its own part, and these add up at most.
            rounding = math.sqrt(1.0 + len(past)) * rounding_radius(settings.problem.dim)
            bound = replace(_mixture(rule), rounding=rounding)
            self._rules[group] = replace(rule, bound=bound)
        return self._rules[group]

    def belief(self, group: int, totals: Sequence[ReleasedSum]) -> Belief | None:
        """What the season's sums so far tell, with those of earlier seasons.

        Args:
            group: of visitors.
            totals: of the open season, oldest first; without fading only the last one counts.
        """
        rule = self.rule(group)
        if rule is None:
            if not totals:
                return None
            plain = self._settings.rule_for(totals[-1])
            return plain.absorb(plain.start(()), totals[-1]).belief
        if not all(self._settings.as_planned(one) for one in totals) or self._missed(totals):
            rule = self._careful(rule, group)
        knowledge = rule.start(())
        for total in totals if rule.fading is not None else totals[-1:]:
            knowledge = rule.absorb(knowledge, total)
        return knowledge.belief

    def blended(self, group: int, totals: Sequence[ReleasedSum]) -> ReleasedSum | None:
        """The sum that `belief` reads, if it is worth reading."""
        newest, rule = totals[-1] if totals else None, self.rule(group)
        if rule is None:
            return newest
        current, number = self._faded(rule, totals), 0 if newest is None else newest.number
        return rule.blend(number, current)

    def with_others(self, others: ReleasedSum) -> tuple[ReleasedSum, float, int]:
        """Under own play at the close: the others' part of the last sum, with what is remembered beside it.

        And how many records that is, as planned, and of how many earlier seasons.
        """
        rule, settings = self.rule(0), self._settings
        if rule is None or not rule.past:
            return others, 0.0, 0
        blended = rule.blend(settings.releases, others)
        assert blended is not None
        own, *weights = rule.weights[settings.releases].tolist()
        shared = own * (settings.agents - 1) * settings.estimator.release_rounds[-1]
        pairs = zip(weights, self._with(0), strict=True)
        records = shared + sum(weight * one.records for weight, one in pairs)
        return blended, records, len(weights)

    def disagrees(self, group: int, totals: Sequence[ReleasedSum]) -> bool:
        """Whether no parameter agrees both with earlier seasons' sums and with this one's.

        Two confidence sets that do not meet, each at `FALSE_ALARM`: where θ* has not moved that has a chance
        of at most twice as much, over all releases of the season together. Where sums of fewer agents may
        come it is not looked at.
        """
        rule, settings = self.rule(group), self._settings
        if rule is None or not rule.past or not totals or settings.sets_of_agents > 1:
            return False
        before, current = rule.blend(0, None), self._faded(rule, totals)
        if before is None or current is None or current.number < settings.rule.first:
            return False
        watch = replace(settings.watch, rounding=_mixture(rule).rounding)
        sets = (watch.belief(one.gram, one.moment, one.variance) for one in (before, current))
        return apart(*sets)

    def view(self) -> dict[str, Any]:
        """For status and page: what is remembered, and why not the rest."""
        settings, rule = self._settings, self.rule(0)
        numbers = [one.season for one in self._with(0)]
        weights = {} if rule is None else dict(zip(numbers, rule.weights[0][1:].tolist(), strict=True))
        seasons = [
            {
                "season": one.season,
                "sum": max((total.number for total in one.totals.values()), default=0),
                "weight": round(weights.get(one.season, 0.0), 6),
                "misfit": one.misfit,
            }
            for one in self.earlier
        ]
        return {
            "remember": settings.remember,
            "drift": settings.drift,
            "seasons": seasons,
            "says": self.says(),
        }

    def says(self) -> str:
        """The same in a sentence."""
        if not self.earlier:
            return "No earlier season has a sum to remember."
        read, first = self.read, self.earlier[0]
        if not read:
            return f"Begins anew: season {first.season} {first.misfit}."
        names = ", ".join(str(one.season) for one in reversed(read))
        rule = self.rule(0)
        at_once = rule is not None and rule.first == 0
        what = f"Remembers {counted(len(read), 'season')}: {names}"
        return f"{what}." if at_once else f"{what}; by themselves not worth reading."

    def _with(self, group: int) -> tuple[Earlier, ...]:
        return tuple(one for one in self.read if group in one.totals)

    def _left(self, one: Earlier) -> tuple[float, ...]:
        """What is left of an earlier season at each release of this one, first before any."""
        settings, moments = self._settings, np.array([0.0, *self._settings.release_times])
        if settings.drift is None:
            return (settings.discount**one.ago,) * len(moments)
        ages = np.maximum(self._started_at + moments - one.until, 0.0)
        return tuple((0.5 ** (ages / settings.drift)).tolist())

    def _missed(self, totals: Sequence[ReleasedSum]) -> bool:
        return self.fading is not None and [one.number for one in totals] != list(range(1, len(totals) + 1))

    def _careful(self, rule: RememberingPlay, group: int) -> RememberingPlay:
        """As `AgentSettings.rule_for`: a union over readings holds under any noise."""
        alpha = EVERYTHING.shares[0] * self._settings.share_of_alpha(len(self._with(group)))
        threshold = math.log(max(1, self._settings.releases - rule.first + 1) / alpha)
        return replace(rule, bound=replace(_mixture(rule), log_threshold=threshold))

    @staticmethod
    def _faded(rule: RememberingPlay, totals: Sequence[ReleasedSum]) -> ReleasedSum | None:
        knowledge = rule.start(())
        for total in totals if rule.fading is not None else totals[-1:]:
            knowledge = rule.absorb(knowledge, total)
        return None if knowledge.newest is None else knowledge.newest.faded


def fading_of(settings: AgentSettings, half_life: float | None) -> Fading | None:
    """How records of a season fade; None if they do not.

    Weights on batches are differences of sums, so these must be of the same agents, all their records whole:
    not where some may be missing. There sums fade as a whole, from season to season.
    """
    if half_life is None or not settings.trust.leaves:
        return None
    whole = settings.sets_of_agents == 1 and not settings.trust.padded
    if not whole or settings.releases > _MOST_FADING:
        return None
    return Fading(settings.release_times, half_life, settings.terms.factors.decoder())


def _earlier(rows: Sequence[RememberedSum], now: AgentSettings, ago: int, before: int) -> Earlier:
    """A season from its rows; ``before`` seasons are remembered before it."""
    season, last = rows[0].season, max(one.number for one in rows)
    then = _settings_of(rows[0].body, rows[0].started_at, rows[0].terms)
    until = rows[0].started_at + then.release_times[last - 1]
    misfit = _misfit(then, now, before)
    if misfit is not None:
        return Earlier(season=season, ago=ago, until=until, records=0.0, totals={}, misfit=misfit)
    fading = fading_of(then, now.drift)
    planned = np.array(then.estimator.release_rounds, dtype=np.float64)
    totals: dict[int, ReleasedSum] = {}
    agents = len(then.team)
    for group, some in groupby(rows, key=lambda one: one.group):
        sums = [messages.decode(one.payload) for one in some]
        if not then.trust.joint:
            agents = min(agents, sums[-1].agents)
        rule = RememberingPlay(
            bound=_mixture(then.rule),
            first=then.releases + 1,
            past=(),
            weights=np.zeros((1, 1)),
            fading=fading,
        )
        faded = Memory._faded(rule, [one.read() for one in sums])
        assert faded is not None
        totals[group] = faded
    counted_rounds = planned if fading is None else fading.records(planned)
    records = agents * float(counted_rounds[last - 1])
    return Earlier(season=season, ago=ago, until=until, records=records, totals=totals)


@lru_cache(maxsize=32)
def _settings_of(body: str, started_at: float, terms: str) -> AgentSettings:
    return AgentSettings.from_json(body, started_at=started_at).under(Terms.from_json(terms))


def _misfit(then: AgentSettings, now: AgentSettings, before: int) -> str | None:
    """Why a season is not read in this one; None if it is."""
    models = [
        (one.terms.model, replace(one.terms, recipe="").weight) if one.trust.leaves else None
        for one in (then, now)
    ]
    most = now.remember if isinstance(now.remember, int) else math.inf if now.remember == "all" else 0
    reasons = (
        (not now.trust.leaves, "is not read under trust self"),
        (before >= most, f"is not remembered (remember = {now.remember})"),
        (then.problem != now.problem, "had other bounds"),
        (not continues(then.recipe, now.recipe), "had another recipe"),
        (then.groups != now.groups, "had other groups"),
        (models[0] != models[1], "learnt another model"),
        ((2 + before) * math.log2(now.sets_of_agents) > _MOST_SETS, "could be of too many sets of agents"),
    )
    return next((words for is_so, words in reasons if is_so), None)


def _mixture(rule: RememberingPlay | ReleasedPlay) -> MixtureBound:
    assert isinstance(rule.bound, MixtureBound)
    return rule.bound

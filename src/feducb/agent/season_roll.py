"""Seasons by the clock: which one comes next, when, under which settings, and when none may.

At the end of a season (`protocol.calendar`) an agent makes what it still owes, opens the season that runs by
then and goes on deciding. What entered no release goes along (`storage.carried`). It lingers in the old
season until that one's last sum is here, a tenth of a season at most. An agent that was away for a whole
season or longer makes up for nothing: what waited goes along.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from feducb.agent.kept import Season, require_later, written
from feducb.agent.settings import SAME_START, AgentSettings
from feducb.errors import ConfigurationError
from feducb.privacy.calibration import to_epsilon
from feducb.privacy.ledger import Ledger
from feducb.privacy.terms import Terms
from feducb.protocol.calendar import LINGER, Calendar, Leap
from feducb.protocol.hiding import Member
from feducb.storage import AgentStore
from feducb.worlds.features.season import continues

__all__ = [
    "Opening",
    "Renewal",
    "Watch",
    "earlier_keys",
    "is_complete",
    "is_within",
    "latest_number",
    "may_carry",
    "mu_of",
    "next_opening",
    "over_budget",
    "view_spent",
]

_BY_WHICH_DECIDED = ("play", "shadow", "follow_policy", "holdout", "window", "default_reward")

Renewal = Callable[[int], tuple[AgentSettings, Member | None]]  # for the season of this number
"""What the next season is to be opened with, read when it is: settings, and the place among the others."""


class Opening(NamedTuple):
    """A season that is to be opened."""

    number: int
    started_at: float  # seconds since 1970
    settings: AgentSettings  # with the calendar's first number in them


def next_opening(season: Season, settings: AgentSettings, now: float) -> Opening:
    """The season that follows upon the open one.

    Args:
        season: the open one.
        settings: of the next; a new ``start`` in them counts from the number after the open one, unless a
            new ``first_season`` says which number it goes with.
        now: in seconds since 1970.

    Raises:
        ConfigurationError: by these settings no later season follows.
    """
    number, before, started_at = season
    if settings.start is None:
        calendar = before.calendar(number, started_at)
        following = max(number + 1, calendar.number_at(now))
        return Opening(following, calendar.starts(following), settings)
    calendar = settings.calendar(number, started_at)
    moved = before.start is None or abs(settings.start - before.start) > SAME_START
    numbered = settings.first_season is not None and settings.first_season != before.first_season
    if moved and not numbered and settings.start > started_at + SAME_START:
        calendar = Calendar(settings.start, settings.season, number + 1)
    following = calendar.number_at(now)
    if following <= number:
        following = number + 1
        if calendar.starts(following) <= started_at:
            require_later(settings, started_at)
            expected = f"more: by {written(settings.start)} and its length season {number} is still to come"
            raise ConfigurationError("first_season", calendar.first, expected)
    return Opening(following, calendar.starts(following), replace(settings, first_season=calendar.first))


def latest_number(season: Season, later: AgentSettings, now: float, *, unused: bool) -> int:
    """The newest season that an agent may have begun by now, which had this one open and goes by the clock.

    It went on as it was, or took the later settings at some boundary (`next_opening`), or at once where
    nothing had happened in the open season: nobody knows which.
    """
    number, before, started_at = season
    known = before.calendar(number, started_at)
    may = [known, later.calendar(number, started_at)]
    if later.start is None:
        may = may if unused else [known]
        may.append(Calendar(known.ends(number), later.season, number + 1))
    else:
        may.append(later.common_calendar)
        moved = before.start is None or abs(later.start - before.start) > SAME_START
        numbered = later.first_season not in (None, before.first_season)
        if moved and not numbered and later.start > started_at + SAME_START:
            last = known.number_at(later.start - SAME_START)  # before the start moved
            may.append(Calendar(later.start, later.season, last + 1))
    return max([number, *(one.number_at(now) for one in may if one.start <= now)])


class Watch:
    """When an agent's season is over, by a clock that may jump."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._leap = clock, Leap()

    def is_away(self, season: Season) -> bool:
        """Whether a whole season has passed since the open one: then nothing of it is made up for."""
        return season.settings.rolls and self._clock() >= season.ends_at + season.settings.season

    def is_over(self, season: Season, *, complete: bool) -> bool:
        """Whether to open the next: its time has come, and all is done or has had its time.

        A clock that leaves out a whole season may be wrong: it is believed if it still says so a minute
        later. Back again, an agent goes on in the season that it has open.

        Args:
            season: the open one.
            complete: whether everything of it that was to leave has, and its last sum is known.
        """
        now, settings = self._clock(), season.settings
        leapt = now >= season.ends_at + settings.season
        believed = self._leap.is_believed(leapt=leapt)
        if not settings.rolls or now < season.ends_at:
            return False
        if leapt:
            return believed
        return complete or now >= season.ends_at + LINGER * settings.season


def is_complete(store: AgentStore, settings: AgentSettings, newest: Sequence[int]) -> bool:
    """Whether nothing of the open season is under way any more: all is made, and the last sum is here.

    Args:
        store: the agent's file.
        settings: the agent's.
        newest: by group, the number of the newest sum that it has.
    """
    groups = range(settings.groups)
    if settings.trust.padded:
        return bool(store.halted) or all(store.next_label(one).row > settings.releases for one in groups)
    made = (
        store.uploads_made if settings.trust.raw else settings.releases - store.releases_left // len(groups)
    )
    return made >= settings.releases and min(newest) >= settings.releases


def earlier_keys(settings: AgentSettings) -> int:
    """Of how many earlier seasons people may still be found: in retained events, and in what went along."""
    return 1 + math.ceil(settings.keep_events / settings.season)


def view_spent(db: sqlite3.Connection, settings: AgentSettings) -> dict[str, Any]:
    """What all seasons of a file have cost a person who was there in each, for status and page.

    Those in which a file that was lost may have released something after its backup are among them; of how
    many nothing else is known is ``presumed``. ``epsilon_with_next`` is what it would be with another season
    like the open one, which is among them once something of it has left.
    """
    left = "EXISTS (SELECT 1 FROM outgoing WHERE outgoing.season = seasons.season)"
    query = f"SELECT terms, {left} FROM seasons WHERE {left} OR continued_elsewhere"
    spent = [(mu, known) for terms, known in db.execute(query) if (mu := mu_of(terms)) > 0.0]
    mu = math.hypot(*(mu for mu, _ in spent))
    with_next = math.hypot(mu, mu_of(settings.terms.to_json()))
    delta = settings.most_delta or settings.budget.delta
    return {
        "seasons": len(spent),
        "presumed": sum(not known for _, known in spent),
        "epsilon": to_epsilon(mu, delta) if mu > 0 else 0.0,
        "epsilon_with_next": to_epsilon(with_next, delta) if with_next > 0 else 0.0,
        "delta": delta,
        "most_epsilon": settings.most_epsilon,
    }


@lru_cache(maxsize=64)
def mu_of(terms: str) -> float:
    """What a season under these terms, as text, costs a person if anything leaves."""
    promised = Terms.from_json(terms)
    return promised.certificate().mu if promised.trust.leaves else 0.0


def may_carry(old: AgentSettings, new: AgentSettings) -> bool:
    """Whether what waits at a season's end was decided by rules that the next season has too.

    What was followed, or decided by raw records, under one season's word is not released under another's. Nor
    is what was shown of an action whose entry has another name by then: terms do not say those names.
    """
    same_rules = all(getattr(old, name) == getattr(new, name) for name in _BY_WHICH_DECIDED)
    return same_rules and continues(old.recipe, new.recipe)


def is_within(epsilon: float, most: float) -> bool:
    """Whether that much may be spent."""
    return epsilon <= most * (1 + 1e-9)


def over_budget(ledger: Ledger, settings: AgentSettings) -> str:
    """Why another season may not be opened; empty if it may.

    Seasons compose as Gaussian mechanisms do: μ² of those in which something left, and of the next, add up
    (docs/theory.md, 2).
    """
    if settings.most_epsilon is None:
        return ""
    delta = settings.most_delta or settings.budget.delta
    mu = math.hypot(ledger.mu_of_a_regular, settings.terms.certificate().mu)
    epsilon = to_epsilon(mu, delta)
    if is_within(epsilon, settings.most_epsilon):
        return ""
    limit = f"most_epsilon = {settings.most_epsilon:g} at δ = {delta:g}"
    spent = ledger.epsilon_of_a_regular(delta)
    return (
        f"all seasons together have cost a person who was there in each ε = {spent:.3g}, and another one "
        f"would make it {epsilon:.3g}, beyond {limit}: nothing leaves any more, and decisions go by what is "
        "known"
    )

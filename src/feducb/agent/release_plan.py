"""When releases of a season are due: as planned from public numbers, or as the settings say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from feducb.errors import ConfigurationError
from feducb.protocol.closing import after_history
from feducb.protocol.estimators import plan_rounds
from feducb.protocol.schedules import DEFAULT_RELEASES, Geometric, Periodic, Planned

if TYPE_CHECKING:
    from feducb.agent.settings import AgentSettings

__all__ = ["ScheduleName", "plan_releases", "release_times", "schedule_of", "waits"]

ScheduleName = Literal["planned", "geometric", "periodic"]


def plan_releases(settings: AgentSettings) -> dict[str, float]:
    """By name, numbers for what was left to the schedule, the same at all agents; none if nothing was.

    A plan is for the sum of all agents, which is read first: no agent need know its place on a graph.
    """
    if not settings.trust.leaves:
        return {"releases": 0}
    if settings.releases is not None:
        return {}
    if settings.schedule != "planned":
        return {"releases": DEFAULT_RELEASES}
    everybody, horizon = range(settings.agents), settings.decisions
    if settings.play == "own":
        rounds = _closing_rounds(settings)
        last = {"last_release": _seconds(settings, rounds[-1])}
    else:
        alpha = settings.alpha / (settings.groups * settings.sets_of_agents)
        rounds = plan_rounds(settings.federation, everybody, horizon, alpha=alpha, groups=settings.groups)
        last = {}
    return {"first_release": _seconds(settings, rounds[0]), "releases": len(rounds), **last}


def _closing_rounds(settings: AgentSettings) -> tuple[int, ...]:
    """After which visits releases are due; a history that is enough is released after the first."""
    rounds = after_history(settings.federation, range(settings.agents), settings.decisions, settings.history)
    if not rounds:
        expected = (
            "nothing that leaves: by these public numbers an agent alone does better than with what "
            "others' sums would tell it under their noise. More agents, a larger epsilon, keepers or a "
            "history change that; releases, first_release and last_release in [releases] overrule it"
        )
        raise ConfigurationError("play", settings.play, expected)
    return tuple(sorted({max(1, at - settings.history) for at in rounds}))


def _seconds(settings: AgentSettings, visits: int) -> float:
    """When a release is due that is planned for a round; under own play, with the rewards of that many.

    Milliseconds, rounded up: at the first release there must be as many decisions as were planned.
    """
    due = math.ceil(1000.0 * settings.season * visits / settings.decisions) / 1000.0
    return min(due + waits(settings), settings.season)


def waits(settings: AgentSettings) -> float:
    """How long after a planned round its release is due.

    A close comes early, so that what is still open then would be a large part of all that is shared.
    """
    return settings.window if settings.play == "own" else 0.0


def release_times(settings: AgentSettings) -> tuple[float, ...]:
    """When each release is due, in seconds after the start."""
    if not settings.trust.leaves:
        return ()
    if settings.schedule == "planned":
        assert settings.first_release is not None
        first, steps = settings.first_release, settings.releases
        if settings.last_release is not None:
            growth = (settings.last_release / first) ** (1.0 / max(1, steps - 1))
            return (*(first * growth**step for step in range(steps - 1)), settings.last_release)
        return tuple(first * (settings.season / first) ** (step / steps) for step in range(steps))
    parts = max(1_000_000, settings.releases)
    schedule = schedule_of(settings, parts)
    assert not isinstance(schedule, Planned)
    rounds = schedule.rounds(parts)
    if len(rounds) != settings.releases:
        raise ConfigurationError("releases", settings.releases, "fewer, or an earlier first release")
    return tuple(settings.season * one / parts for one in rounds)


def schedule_of(settings: AgentSettings, rounds: int) -> Planned | Geometric | Periodic:
    """When releases are due, in a season of so many rounds."""
    if settings.schedule == "planned":
        return Planned()
    if settings.schedule == "periodic":
        return Periodic(releases=settings.releases)
    first = settings.first_release or settings.season / 100
    return Geometric(first=max(1, round(rounds * first / settings.season)), releases=settings.releases)

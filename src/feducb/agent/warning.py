"""What an agent warns of: signs, in what may be seen without harm to anybody, that its settings do not fit.

Those about bounds are post-processing of what is released or noisy, so that whoever acts on one gives nothing
away. They stay until the season ends: over a whole season each is false with a small chance alone. The one
about shadow mode follows from the settings, and the one about own play from whom the last sum names. An agent
that has halted, where rows leave under pads, says why.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from feducb.agent.settings import AgentSettings
from feducb.privacy.tally import ONE_IN
from feducb.storage import agent_rows, agent_tables, own_sums
from feducb.types import ReleasedSum

__all__ = [
    "CHANGED",
    "HALTED",
    "KEEP_EVENTS",
    "KINDS",
    "LAST_SUM",
    "PARAMETER_BOUND",
    "REWARD_BOUND",
    "contradicts",
    "read_warnings",
]

PARAMETER_BOUND: Final = "parameter_bound"
REWARD_BOUND: Final = "reward_bound"
KEEP_EVENTS: Final = "keep_events"
HALTED: Final = "halted"
LAST_SUM: Final = "last_sum"
CHANGED: Final = "changed"
KINDS: Final = (CHANGED, HALTED, KEEP_EVENTS, LAST_SUM, PARAMETER_BOUND, REWARD_BOUND)


def contradicts(total: ReleasedSum, settings: AgentSettings) -> bool:
    """Whether a released sum agrees with no parameter as short as ``parameter_bound``."""
    if total.number < settings.rule.first:
        return False
    return bool(settings.watch.contradicted(total.gram, total.moment, total.variance).any())


def read_warnings(db: sqlite3.Connection, settings: AgentSettings) -> dict[str, str]:
    """By kind, what is wrong and what to do."""
    problem = settings.problem
    centre = f" around {problem.reward_centre:g}" if problem.reward_centre else ""
    said = {
        CHANGED: (
            "no parameter agrees both with earlier seasons' sums and with this one's: what visitors like has "
            "changed, so what is remembered misleads; say how fast in seasons.drift, or begin anew with "
            'seasons.remember = "none", and open a new season'
        ),
        KEEP_EVENTS: (
            'in shadow mode under follow_policy = "learning" records enter no release, and with '
            "keep_events = 0 none is kept for `feducb agent export`: nothing comes of them; set "
            "retention.keep_events"
        ),
        PARAMETER_BOUND: (
            f"no parameter of length up to parameter_bound = {problem.parameter_bound:g} agrees with the "
            "released sums, so choices may settle on the wrong action; raise problem.parameter_bound (or "
            f"noise_scale, if rewards scatter by more than {problem.noise_scale:g}) and open a new season"
        ),
        REWARD_BOUND: (
            f"more than one decision in {ONE_IN} got a reward beyond reward_bound = "
            f"{problem.reward_bound:g}{centre}, which was refused, and counts with the default reward "
            "instead; scale rewards, or raise problem.reward_bound and open a new season"
        ),
    }
    in_vain = [] if settings.releases_records or settings.keep_events else [KEEP_EVENTS]
    warnings = {kind: said[kind] for kind in [*in_vain, *agent_tables.read_warnings(db)]}
    there = agent_tables.in_last_sum(db)
    if settings.closes and there not in (None, settings.agents) and own_sums.closed_at(db) is None:
        warnings[LAST_SUM] = (
            f"the last sum was published with {there} of {settings.agents} agents, and is final: own play "
            "closes with a sum of all, so this agent stays with released sums until a new season; leave "
            "quorum and deadline out of the controller's file, so that it waits for everybody"
        )
    if settings.trust.padded and (why := agent_rows.secrets_of(db).halted):
        goes_on = "so it builds no row any more and decides by the last sums; a new season goes on"
        warnings = {HALTED: f"{why}, {goes_on} (`feducb agent new-season`)", **warnings}
    return warnings

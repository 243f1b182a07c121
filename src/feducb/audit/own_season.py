"""A season of deployed agents under own play, and when everybody is to close in it.

One agent is looked at, which has a visitor each second; the others have fewer. Its last release is made late,
and that of the last one of the others later still.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from feducb.agent import Agent, AgentSettings, Decision
from feducb.audit.sites import Sites
from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms
from feducb.protocol.parcels import ParcelKind

__all__ = ["Close", "Left", "Trace", "play_season", "release_of", "settings_of"]

_START = 4e9  # after any file was made: a trusted controller's go by the clock on the wall
_FIRST, _LAST, _SECONDS = 10, 20, 44  # when releases are due, and all there are
_WINDOW, _REWARDED = 3, 2  # seconds after a decision
_ALL, _OTHERS = {1, 2}, 2  # releases, and agents beside the one that is looked at
_EVERY = 4  # seconds, between visitors of those
# When messages are carried: first keys; both sums; a row that lacks an agent is closed empty, and that agent
# hears of it and sends.
_CARRIED, _HEARD, _AGAIN = (0, 13, 27, 29, 31, 32), {1: 13, 2: 27}, 32
# While nobody looks after an agent, by its place; and where the last one misses the last sum.
_AWAY = {0: range(20, 24), _OTHERS: range(20, 26)}
_MISSES = range(20, 31)

Left = dict[tuple[ParcelKind, int], tuple[int, bytes]]
"""By kind and number, when it left, and what."""


@dataclass
class Trace:
    """A season of all agents, by their names.

    Attributes:
        left: what left each agent.
        decided: which action, by agent and second.
        closed: when.
        hasty: who closed before the last release of all had been made.
    """

    left: dict[str, Left]
    decided: dict[tuple[str, int], int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    hasty: list[str] = field(default_factory=list)

    @property
    def sealed(self) -> bool:
        """Whether everybody has made all releases."""
        return all({number for _, number in left} == _ALL for left in self.left.values())

    @property
    def when(self) -> dict[str, dict[tuple[ParcelKind, int], int]]:
        """When each parcel left."""
        return {name: {key: second for key, (second, _) in left.items()} for name, left in self.left.items()}

    def note(self, sites: Sites, name: str, second: int) -> None:
        """What is new at an agent."""
        agent, left = sites.agents[name], self.left[name]
        for item in agent.outbox():
            left.setdefault((item.kind, item.number), (second, sites.content(name, item)))
        if agent.closed and name not in self.closed:
            self.closed[name] = second
            self.hasty += [] if self.sealed else [name]


@dataclass(frozen=True)
class Close:
    """What is to be under these settings, where the last sum is of all, or ``lacks`` an agent at first."""

    settings: AgentSettings
    lacks: bool

    @property
    def at(self) -> int | None:
        """When everybody closes. Rows are made up for; a sum that lacks an agent is final."""
        return (_AGAIN if self.settings.trust.padded else None) if self.lacks else _HEARD[2]

    def until(self, release: int, *, own: bool) -> int:
        """Before when a record of this release may change no decision: of its ``own`` agent, or of others."""
        last = _AGAIN if self.lacks and self.settings.trust.padded else _HEARD[2]
        heard = {1: _HEARD[1], 2: last}.get(release, _SECONDS)
        return min(heard, self.at or _SECONDS) if own else heard


def settings_of(terms: Terms) -> AgentSettings:
    """All agents', who trust whom the terms say."""
    return AgentSettings(
        name="agents",
        problem=Problem(dim=2),
        budget=Budget(epsilon=1e4, delta=terms.budget.delta),  # so that records show: the check is not idle
        alpha=0.5,  # so that sums are read before the close too
        agents=1 + _OTHERS,
        decisions=_SECONDS,
        season=float(_SECONDS),
        window=float(_WINDOW),
        trust=terms.trust,
        play="own",
        policy="optimistic",
        releases=len(_ALL),
        first_release=float(_FIRST),
        last_release=float(_LAST),
        start=_START,
    )


def release_of(place: int) -> int:
    """Which release a visitor's record enters; 3 is none."""
    return 1 + (place + _WINDOW > _FIRST) + (place + _WINDOW > _LAST)


def play_season(kind: type[Agent], close: Close, *, changed: int | None) -> Trace:
    """A whole season; the first agent's visitor ``changed`` has another reward, None is nobody."""
    now, ids = _START, dict[tuple[str, int], str]()
    away = _AWAY | ({_OTHERS: _MISSES} if close.lacks else {})
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Sites(kind, close.settings, Path(folder), lambda: now)) as sites,
    ):
        trace = Trace({name: {} for name in sites.agents})
        for second in range(_SECONDS):
            now = _START + second
            up = [name for place, name in enumerate(sites.agents) if second not in away.get(place, ())]
            if second in _CARRIED:
                sites.exchange(up, now=now)
            for place, (name, agent) in enumerate(sites.agents.items()):
                if name in up:
                    agent.tick(alone=False)
                trace.note(sites, name, second)
                if place == 0 or second % _EVERY == 0:
                    decision = _visit(agent, (place, second))
                    trace.decided[name, second], ids[name, second] = decision.index, decision.id
                if (asked := ids.get((name, second - _REWARDED))) is not None:
                    good = (second % 2 == 0) != (place == 0 and second - _REWARDED == changed)
                    problem = close.settings.problem
                    agent.reward(asked, problem.reward_centre + problem.reward_bound * (1 if good else -1))
    return trace


def _visit(agent: Agent, visitor: tuple[int, int]) -> Decision:
    """A visitor, whose candidates and coins are her own."""
    problem, draws = agent.settings.problem, np.random.default_rng(visitor)
    agent._state.coins = random.Random(repr(visitor))
    drawn = draws.standard_normal((3, problem.dim))
    return agent.decide(problem.action_bound * drawn / np.linalg.norm(drawn, axis=1, keepdims=True))

"""Decisions that raw records drive, beside a stream of releases: nothing of them leaves or moves the others.

Two deployed settings have such decisions: visitors who are held out, to see what the federation is worth,
and an agent that was alone before it joined others. Exact, as in `own_agents`: noise is the same in all
worlds and every visitor has coins of her own, so that nothing differs between two worlds but some rewards,
and what comes of them.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.audit.findings import Check
from feducb.audit.sites import SameNoise
from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms
from feducb.storage.events import ALONE
from feducb.trust import SELF

__all__ = ["check_held_out", "check_joining"]

_VISITORS, _WINDOW = 60, 2.0  # a visitor a second
_ALONE, _JOINED = 70, 30  # visitors before an agent joins, so many that it no longer looks around, and after


@dataclass
class _Trace:
    """What was decided, by visitor, and for whom by raw records; and what left."""

    decided: list[int] = field(default_factory=list)
    held_out: list[bool] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)


def check_held_out(kind: type[Agent], terms: Terms) -> Check:
    """Give all who are held out other rewards: the same leaves, and the same is decided for all others."""
    settings = replace(_shared(terms), holdout=0.3)
    with tempfile.TemporaryDirectory() as folder:
        plain, other = (
            _visited(kind, Path(folder) / f"{moved}.db", settings, moved=moved) for moved in (False, True)
        )
    others = [place for place, held_out in enumerate(plain.held_out) if not held_out]
    moved = [place for place in others if plain.decided[place] != other.decided[place]]
    shown = plain.decided != other.decided
    return Check(
        "who is held out",
        plain.left == other.left and plain.held_out == other.held_out and not moved and shown,
        f"releases {'stay' if plain.left == other.left else 'MOVE'} with the rewards of "
        f"{sum(plain.held_out)} visitors held out; of {len(others)} other decisions {len(moved)} move; "
        f"decisions for such visitors {'change, as they may' if shown else 'DO NOT CHANGE'}",
    )


def check_joining(kind: type[Agent], terms: Terms) -> Check:
    """Give all whom an agent met alone other rewards: once it shares the same leaves and is decided."""
    with tempfile.TemporaryDirectory() as folder:
        plain, other = (
            _joined(kind, Path(folder) / f"{moved}.db", terms, moved=moved) for moved in (False, True)
        )
    same = plain.left == other.left and plain.decided[_ALONE:] == other.decided[_ALONE:]
    shown = plain.decided[:_ALONE] != other.decided[:_ALONE]
    return Check(
        "joining after being alone",
        same and shown and len(plain.left) > 0,
        f"releases and decisions after joining {'stay' if same else 'MOVE'} with rewards from before; "
        f"decisions before it {'change, as they may' if shown else 'DO NOT CHANGE'}",
    )


def _shared(terms: Terms) -> AgentSettings:
    return AgentSettings(
        problem=Problem(dim=2),
        budget=Budget(epsilon=1e4, delta=terms.budget.delta),  # so that records show: no check is idle
        decisions=_VISITORS,
        season=float(_VISITORS),
        window=_WINDOW,
        policy="optimistic",
        schedule="geometric",
        releases=3,
        first_release=15.0,
    )


def _visited(kind: type[Agent], path: Path, settings: AgentSettings, *, moved: bool) -> _Trace:
    """A season; ``moved``: whoever is held out has another reward."""
    now, trace = [1e9], _Trace()
    with kind.open(path, settings, clock=lambda: now[0]) as agent:
        for visitor in range(_VISITORS):
            _visit(agent, now, visitor, trace, moved=moved)
        trace.left = _left(agent)
    return trace


def _joined(kind: type[Agent], path: Path, terms: Terms, *, moved: bool) -> _Trace:
    """A season alone, in which rewards may be others, and one under own play, up to its close."""
    now, trace = [1e9], _Trace()
    alone = AgentSettings(
        problem=Problem(dim=2), trust=SELF, decisions=100, window=_WINDOW, policy="optimistic"
    )
    shared = replace(
        _shared(terms),
        play="own",
        schedule="planned",
        releases=2,
        first_release=10.0,
        last_release=float(_JOINED),
    )
    with kind.open(path, alone, clock=lambda: now[0]) as agent:
        for visitor in range(_ALONE):
            _visit(agent, now, visitor, trace, moved=moved)
        agent.new_season(shared, drop_open=True)
        for visitor in range(_ALONE, _ALONE + _JOINED):
            _visit(agent, now, visitor, trace, moved=False)
        trace.left = _left(agent)
    return trace


def _visit(agent: Agent, now: list[float], visitor: int, trace: _Trace, *, moved: bool) -> None:
    agent.store.database.execute("PRAGMA synchronous = OFF")
    agent._state.coins, draws = random.Random(visitor), np.random.default_rng(visitor)
    for stream in agent.store._privatizers:
        if not isinstance(stream._noise, SameNoise):
            stream._noise = SameNoise()  # type: ignore[assignment]
    drawn = draws.standard_normal((3, 2))
    decision = agent.decide(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    newest = "SELECT lane FROM decisions ORDER BY number DESC LIMIT 1"
    (lane,) = agent.store.database.execute(newest).fetchone()
    held_out = lane == ALONE
    trace.decided.append(decision.index)
    trace.held_out.append(held_out)
    worth = 1.0 if (visitor % 2 == 0) != (moved and held_out) else -1.0
    agent.reward(decision.id, worth)
    now[0] += 1.0
    agent.tick()


def _left(agent: Agent) -> list[bytes]:
    rows = agent.store.database.execute("SELECT payload FROM outgoing ORDER BY season, number").fetchall()
    return [payload for (payload,) in rows]

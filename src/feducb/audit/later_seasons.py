"""What a later season tells about records of an earlier one, whose sums it remembers: nothing more.

Exact: no false alarm. Two worlds differ in one reward of the first season, while what was released of it is
the same, as noise may have it. All that follows must then be the same (docs/theory.md, 11).
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.audit.doors import Seen, length
from feducb.audit.findings import Check
from feducb.config import Budget
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.types import Array

__all__ = ["check_seasons"]

_VISITORS = 16
_RECORDS = 2_000  # of each agent in a sum: enough to be read by itself
_LONG = 100.0  # seconds


def check_seasons(kind: type[Agent], terms: Terms) -> Check:
    """Change one reward of the first season, its sums being the same: no row of the second may move.

    The check is not idle: other sums of the first season do move rows of the second, as it acts on them.
    """
    settings = AgentSettings(
        problem=terms.problem,
        budget=Budget(epsilon=1e4, delta=1e-3),
        agents=2,
        decisions=_RECORDS,
        releases=2,
        schedule="periodic",
        season=_LONG,
        window=1.0,
        start=0.0,
    )
    axes = np.eye(terms.problem.dim)[:2]
    with tempfile.TemporaryDirectory() as folder:
        one, other = (_sum(Path(folder), settings, axis, name) for axis, name in zip(axes, "ab", strict=True))
    rows = [_second_season(kind, settings, one, sign) for sign in (1.0, -1.0)]
    elsewhere = _second_season(kind, settings, other, 1.0)
    told, acted = (length(rows[0].moves(world), settings.terms) for world in (rows[1], elsewhere))
    return Check(
        "seasons",
        told == 0.0 and acted > 0.0,
        f"one reward of a season that is remembered moves rows of the next by {told:.6f}, expected 0; other "
        f"sums of it by {acted:.6f}",
    )


def _sum(folder: Path, settings: AgentSettings, theta: Array, name: str) -> messages.GridSum:
    """The last sum of a season in which two agents saw rewards that follow a parameter."""
    problem, parts = settings.problem, []
    draws = np.random.default_rng(5)
    for agent_name in ("agent", "other"):
        path = folder / f"{name}-{agent_name}.db"
        with Agent.open(path, replace(settings, name=agent_name), clock=lambda: 0.0) as agent:
            actions = draws.standard_normal((_RECORDS, problem.dim))
            actions *= problem.action_bound / np.linalg.norm(actions, axis=1, keepdims=True)
            rewards = problem.reward_centre + 0.5 * problem.reward_bound * (actions @ theta)
            agent.store.record(actions, rewards)
            parts.append([messages.decode(agent.store.release()) for _ in range(settings.releases)][-1])
    return messages.combine(parts)


def _second_season(
    kind: type[Agent], settings: AgentSettings, total: messages.GridSum, first_reward: float
) -> Seen:
    """What releases of the second season are made of, after a first one with this sum at its end."""
    now, seen = 0.0, Seen()
    problem = settings.problem

    def visit(agent: Agent, visitor: int) -> None:
        nonlocal now
        now += 2.0
        agent.tick(alone=False)
        agent._state.coins = random.Random(visitor)
        draws = np.random.default_rng(visitor)
        candidates = draws.standard_normal((4, problem.dim))
        candidates *= problem.action_bound / np.linalg.norm(candidates, axis=1, keepdims=True)
        reward: Any = first_reward if visitor == 0 else draws.uniform(-1.0, 1.0)
        made = agent.decide(candidates)
        agent.reward(made.id, problem.reward_centre + problem.reward_bound * reward)

    with (
        tempfile.TemporaryDirectory() as folder,
        kind.open(Path(folder) / "agent.db", settings, clock=lambda: now) as agent,
    ):
        for visitor in range(_VISITORS):
            visit(agent, visitor)
        now = _LONG + 2.0
        agent.tick(alone=False)
        agent.absorb(total)
        agent.new_season(replace(settings, start=now), drop_open=True)
        seen.watch(agent.store._privatizers)
        for visitor in range(_VISITORS, 2 * _VISITORS):
            visit(agent, visitor)
        now += _LONG
        agent.tick(alone=False)
    return seen

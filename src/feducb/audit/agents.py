"""The deployed agent between a visitor and its privatizer: whose records one visitor can move.

Two worlds differ in one visitor; every visitor has coins of her own, so nothing else differs. What each
release was made of is read off its encoder, in whole numbers and before noise, as in `groups`: these checks
know no chance, and give no false alarm.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Agent, AgentSettings
from feducb.audit.canary import canary_pair
from feducb.audit.findings import Check
from feducb.audit.groups import Seen, Watched
from feducb.privacy.terms import Terms

__all__ = ["check_agent_presence", "check_shadow"]

Ints = NDArray[np.int64]

_VISITORS = 8
_GROUPS = 2


def check_agent_presence(kind: type[Agent], terms: Terms) -> Check:
    """Take each visitor away in turn: only rows of one group move, as far as her record goes, at most Δ."""
    settings = _settings(terms, groups=_GROUPS, agents=2, start=0.0)
    everybody, farthest, strays = _season(kind, settings), 0.0, list[int]()
    for visitor in range(_VISITORS):
        moves = _moves(everybody, _season(kind, settings, absent=visitor))
        strays += [visitor] if sum(bool(move.any()) for move in moves) != 1 else []
        farthest = max(farthest, _length(moves, terms))
    bound = settings.terms.certificate().sensitivity
    return Check(
        f"presence at an agent groups={_GROUPS}",
        not strays and farthest <= bound,
        f"one absent visitor moves all rows together by at most {farthest:.6f} of {bound:.6f}; visitors "
        f"whose absence moved more or fewer groups than one: {strays or 'none'}",
    )


def check_shadow(kind: type[Agent], terms: Terms) -> Check:
    """Change one reward under a followed policy that learns from rewards: no row may depend on it.

    Where the operator states that the policy is fixed, records do enter, and the check is not idle: the same
    agent then follows a policy that chooses by turns, and one reward moves rows, by at most Δ.
    """
    learning = _settings(terms, shadow=True)
    one, other = (_season(kind, learning, first_reward=sign, learns=True) for sign in (1.0, -1.0))
    leaked = _length(_moves(one, other), terms)
    fixed = replace(learning, follow_policy="fixed")
    one, other = (_season(kind, fixed, first_reward=sign, learns=False) for sign in (1.0, -1.0))
    moved, bound = _length(_moves(one, other), terms), learning.terms.certificate().sensitivity
    return Check(
        "shadow mode",
        leaked == 0.0 and 0.0 < moved <= bound,
        f"one reward moves the rows of a policy that learns by {leaked:.6f}, expected 0; those of a fixed "
        f"one by {moved:.6f} of {bound:.6f}",
    )


def _settings(terms: Terms, **changes: object) -> AgentSettings:
    """An agent under these terms whose windows close at once; a release every ten seconds."""
    plain = AgentSettings(
        problem=terms.problem,
        budget=terms.budget,
        releases=terms.releases,
        season=10.0 * terms.releases,
        window=1.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def _season(
    kind: type[Agent],
    settings: AgentSettings,
    *,
    absent: int | None = None,
    first_reward: float = 1.0,
    learns: bool = False,
) -> Seen:
    """A whole season; what its releases were made of.

    Args:
        kind: of agent.
        settings: of the agent.
        absent: a visitor who does not come.
        first_reward: of the first visitor.
        learns: whether the policy that is followed shows what paid best so far, or takes turns.
    """
    now, seen, paid = 0.0, Seen(), np.zeros(2)
    one, other = canary_pair(settings.terms)
    candidates = np.vstack([one.actions, other.actions])
    with (
        tempfile.TemporaryDirectory() as folder,
        kind.open(Path(folder) / "agent.db", settings, clock=lambda: now) as agent,
    ):
        for group, door in enumerate(agent.store._privatizers):
            door._encoder = Watched(door._encoder, group, seen)
        for visitor in range(_VISITORS):
            now = 10.0 * (visitor * settings.releases // _VISITORS) + 1.0
            agent.tick(alone=False)
            agent._coins = random.Random(visitor)  # her own, whoever came before
            if visitor == absent:
                continue
            follow = int(np.argmax(paid)) if learns else visitor % 2
            decision = agent.decide(candidates, follow=follow if settings.shadow else None)
            reward = settings.problem.reward_bound * (first_reward if visitor == 0 else 1.0)
            agent.reward(decision.id, reward)
            paid[decision.index] += reward
        now = settings.season + 1.0
        agent.tick(alone=False)
    return seen


def _moves(one: Seen, other: Seen) -> Sequence[Ints]:
    return [np.subtract(one.rows[group], other.rows[group]) for group in sorted(one.rows)]


def _length(moves: Sequence[Ints], terms: Terms) -> float:
    step = math.ldexp(1.0, terms.certificate().exponent)
    return step * math.hypot(*(float(np.linalg.norm(move)) for move in moves))

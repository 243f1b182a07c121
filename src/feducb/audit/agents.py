"""The deployed agent between a visitor and its privatizer, and between a sum and its decisions.

All checks here are exact: they give no false alarm. Where two worlds differ in one visitor, every visitor has
coins of her own, so nothing else differs.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.audit.canary import canary_pair
from feducb.audit.doors import Seen, length
from feducb.audit.findings import Check
from feducb.config import Budget
from feducb.privacy.terms import Terms
from feducb.protocol import messages

__all__ = ["check_agent_presence", "check_quorum", "check_shadow"]

_VISITORS = 8
_GROUPS = 2
_AGENTS = 4
# By changed settings, over how many agents a sum may be: everybody; three of four; two cliques of two.
_QUORUMS: tuple[tuple[dict[str, Any], set[int]], ...] = (
    ({}, {4}),
    ({"quorum": 3}, {3, 4}),
    ({"clique": ("agent", "other"), "cliques": 2}, {2}),
)


def check_agent_presence(kind: type[Agent], terms: Terms) -> Check:
    """Take each visitor away in turn: only rows of one group move, as far as her record goes, at most Δ."""
    settings = _settings(terms, groups=_GROUPS, agents=2, start=0.0)
    everybody, farthest, strays = _season(kind, settings), 0.0, list[int]()
    for visitor in range(_VISITORS):
        moves = everybody.moves(_season(kind, settings, absent=visitor))
        strays += [visitor] if sum(bool(move.any()) for move in moves) != 1 else []
        farthest = max(farthest, length(moves, terms))
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
    leaked = length(one.moves(other), terms)
    fixed = replace(learning, follow_policy="fixed")
    one, other = (_season(kind, fixed, first_reward=sign) for sign in (1.0, -1.0))
    moved, bound = length(one.moves(other), terms), learning.terms.certificate().sensitivity
    return Check(
        "shadow mode",
        leaked == 0.0 and 0.0 < moved <= bound,
        f"one reward moves the rows of a policy that learns by {leaked:.6f}, expected 0; those of a fixed "
        f"one by {moved:.6f} of {bound:.6f}",
    )


def _settings(terms: Terms, **changes: Any) -> AgentSettings:
    """An agent under these terms whose windows close at once; a release every ten seconds."""
    return AgentSettings(
        problem=terms.problem,
        budget=terms.budget,
        releases=terms.releases,
        schedule="periodic",
        season=10.0 * terms.releases,
        window=1.0,
        **changes,
    )


def _season(
    kind: type[Agent],
    settings: AgentSettings,
    *,
    absent: int | None = None,
    first_reward: float = 1.0,
    learns: bool = False,
) -> Seen:
    """A whole season; what its releases were made of.

    The visitor ``absent`` does not come; ``first_reward`` is the first one's, in units of its bound. The
    policy that is followed shows what paid best so far if it ``learns``, and takes turns if not.
    """
    now, seen, paid = 0.0, Seen(), np.zeros(2)
    candidates = np.vstack([one.actions for one in canary_pair(settings.terms)])
    with (
        tempfile.TemporaryDirectory() as folder,
        kind.open(Path(folder) / "agent.db", settings, clock=lambda: now) as agent,
    ):
        seen.watch(agent.store._privatizers)
        for visitor in range(_VISITORS):
            now = 10.0 * (visitor * settings.releases // _VISITORS) + 1.0
            agent.tick(alone=False)
            agent._state.coins = random.Random(visitor)  # her own, whoever came before
            if visitor == absent:
                continue
            follow = int(np.argmax(paid)) if learns else visitor % 2
            decision = agent.decide(candidates, follow=follow if settings.shadow else None)
            problem = settings.problem
            reward = problem.reward_centre + problem.reward_bound * (first_reward if visitor == 0 else 1.0)
            agent.reward(decision.id, reward)
            paid[decision.index] += reward
        now = settings.season + 1.0
        agent.tick(alone=False)
    return seen


def check_quorum(kind: type[Agent], terms: Terms) -> Check:
    """Bring an agent sums over 1, 2, … agents, also after a restart: it acts on those that its quorum allows.

    The sum over k agents is number k, so that none is too old to be taken; ε is large, so that every sum is
    worth reading: what is refused is refused for its size alone.
    """
    plain = AgentSettings(
        problem=terms.problem,
        budget=Budget(epsilon=1e4, delta=1e-3),
        agents=_AGENTS,
        decisions=1_000_000,
        releases=_AGENTS,
        schedule="periodic",
        start=0.0,
    )
    wrong, acted = [], 0
    with tempfile.TemporaryDirectory() as folder:
        sums = _sums(Path(folder), plain)
        for case, (changes, allowed) in enumerate(_QUORUMS):
            for size, total in enumerate(sums, start=1):
                path = Path(folder) / f"{case}-{size}.db"
                seen = _acts_on(kind, path, replace(plain, **changes), total)
                acted += all(seen)
                wrong += [(changes, size)] if seen != (size in allowed, size in allowed) else []
    return Check(
        "quorum",
        not wrong and acted > 0,
        f"(settings, agents in a sum) where an agent acted on too few, or not on enough: {wrong or 'none'}; "
        f"{acted} sums acted on, as they may be",
    )


def _sums(folder: Path, settings: AgentSettings) -> list[messages.GridSum]:
    """Number k is over k agents."""
    releases = []
    for number in range(_AGENTS):
        with Agent.open(folder / f"{number}.db", settings) as agent:
            releases.append([messages.decode(agent.store.release()) for _ in range(_AGENTS)])
    return [messages.combine([own[size] for own in releases[: size + 1]]) for size in range(_AGENTS)]


def _acts_on(
    kind: type[Agent], path: Path, settings: AgentSettings, total: messages.GridSum
) -> tuple[bool, bool]:
    """Whether decisions rest on the sum, at once and after a restart."""
    with kind.open(path, settings) as agent:
        with suppress(ValueError):  # refused
            agent.absorb(total)
        at_once = agent.decide(np.eye(settings.problem.dim), scores=True).scores is not None
    with kind.open(path, settings) as agent:
        return at_once, agent.decide(np.eye(settings.problem.dim), scores=True).scores is not None

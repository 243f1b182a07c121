"""An agent acts on no sum over fewer agents than its bound was made for: whoever brings it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.audit.findings import Check
from feducb.config import Budget, Problem
from feducb.protocol import messages

__all__ = ["OpenAgent", "check_quorum", "open_agent"]

OpenAgent = Callable[[Path, AgentSettings], Agent]

_AGENTS = 4
# A large ε, so that every sum is worth reading: what is refused is refused for its size alone.
_SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1e4, delta=1e-3),
    agents=_AGENTS,
    decisions=1_000_000,
    releases=_AGENTS,
    start=0.0,
)
# Everybody; three of four; on a graph with two cliques of two.
_CASES: tuple[tuple[dict[str, Any], set[int]], ...] = (
    ({}, {4}),
    ({"quorum": 3}, {3, 4}),
    ({"clique": ("agent", "other"), "cliques": 2}, {2}),
)


def open_agent(path: Path, settings: AgentSettings) -> Agent:
    """Open the agent that is shipped."""
    return Agent.open(path, settings)


def check_quorum(opened: OpenAgent) -> Check:
    """Bring an agent sums over 1, 2, … agents, also after a restart: it acts on those that its quorum allows.

    Exact: sound code never fails it. The sum over k agents is number k, so that none is too old to be taken.
    """
    wrong, acted = [], 0
    with tempfile.TemporaryDirectory() as folder:
        releases = _releases(Path(folder))
        for case, (changes, allowed) in enumerate(_CASES):
            settings = replace(_SETTINGS, **changes)
            for size in range(1, _AGENTS + 1):
                path = Path(folder) / f"{case}-{size}.db"
                seen = _acts_on(opened, path, settings, messages.combine(releases[size - 1][:size]))
                acted += all(seen)
                wrong += [(changes, size)] if seen != (size in allowed, size in allowed) else []
    return Check(
        "quorum",
        not wrong and acted > 0,
        f"(settings, agents in a sum) where an agent acted on too few, or not on enough: {wrong or 'none'}; "
        f"{acted} sums acted on, as they may be",
    )


def _releases(folder: Path) -> list[list[messages.GridSum]]:
    """By number, one of each agent."""
    agents = [Agent.open(folder / f"{number}.db", _SETTINGS) for number in range(_AGENTS)]
    made = [[messages.decode(agent.release()) for agent in agents] for _ in range(_AGENTS)]
    for agent in agents:
        agent.close()
    return made


def _acts_on(
    opened: OpenAgent, path: Path, settings: AgentSettings, total: messages.GridSum
) -> tuple[bool, bool]:
    """Whether decisions rest on the sum, at once and after a restart."""
    with opened(path, settings) as agent:
        with suppress(ValueError):  # refused
            agent.absorb(total)
        at_once = agent.decide(np.eye(2), scores=True).scores is not None
    with opened(path, settings) as agent:
        return at_once, agent.decide(np.eye(2), scores=True).scores is not None

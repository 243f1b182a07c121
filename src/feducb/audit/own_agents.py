"""The deployed agent under own play: when it closes, what it decides until then, and what ever leaves it.

Exact, as in `agents`: noise is the same in all worlds and every visitor has coins of her own, so that nothing
differs between two worlds but one visitor's reward, and what comes of it.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Agent, AgentSettings
from feducb.audit.findings import Check
from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage import AgentStore

__all__ = ["check_agent_close"]

_FIRST, _LAST, _SECONDS = 10, 20, 44  # when releases are due, and all there are; a visitor a second
_HEARD = {1: 13, 2: 27}  # when the sum of a release comes
_AWAY = range(20, 24)  # nobody looks after the agent: its last release is made late
_WINDOW, _REWARDED = 3, 2  # seconds after a decision
# Visitors who are in the first release, in the second, with a window that is open at the last one, or later.
_PLACES = (0, 5, 8, 12, 15, 18, 19, 21, 24, 28)
_SOME = (5, 12, 19)  # of them, where the last sum lacks an agent
_OTHERS = 2


@dataclass
class _Trace:
    """A season of one agent."""

    decided: list[int] = field(default_factory=list)
    left: list[tuple[int, bytes]] = field(default_factory=list)  # when, and what
    closed: int | None = None  # when


class _SameNoise:
    """Stands in for the noise: numbers that are the same in all worlds."""

    def __init__(self) -> None:
        self._draws = np.random.default_rng(7)

    def draw(self, count: int) -> NDArray[np.int64]:
        return self._draws.integers(-1000, 1001, count)


def check_agent_close(kind: type[Agent], terms: Terms) -> Check:
    """Change one reward at a time: the close stays, decisions wait for its sum or the close, later ones stay.

    Also where the last sum lacks an agent: then nobody closes, and what is in no sum before shows nowhere.
    """
    settings = AgentSettings(
        name="a",
        problem=Problem(dim=2),
        budget=Budget(epsilon=1e4, delta=terms.budget.delta),  # so that records show: the check is not idle
        alpha=0.5,  # so that sums are read before the close too
        agents=1 + _OTHERS,
        decisions=_SECONDS,
        season=float(_SECONDS),
        window=float(_WINDOW),
        play="own",
        policy="optimistic",
        releases=2,
        first_release=float(_FIRST),
        last_release=float(_LAST),
        start=0.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        others = _sums_of_others(Path(folder), settings)
        worlds = {
            (lacks, place): _season(kind, settings, others, changed=place, lacks=lacks)
            for lacks, places in ((0, _PLACES), (1, _SOME))
            for place in (None, *places)
        }
    moved, early, leaked, shown = list[int](), list[int](), list[int](), {0: 0, 1: 0}
    for (lacks, place), world in worlds.items():
        if place is None:
            continue
        plain = worlds[lacks, None]
        release = 1 if place + _WINDOW <= _FIRST else 2
        moved += [place] if world.closed != (None if lacks else _HEARD[2]) else []
        moved += [place] if [when for when, _ in world.left] != [when for when, _ in plain.left] else []
        until = _HEARD[release] if release == 1 or not lacks else _SECONDS
        early += [place] if world.decided[:until] != plain.decided[:until] else []
        first = (
            release if place + _WINDOW <= _LAST else 3
        ) - 1  # of what leaves, it may be in this and later
        leaked += [place] if world.left[:first] != plain.left[:first] or len(world.left) != 2 else []
        shown[lacks] += world.decided != plain.decided
    return Check(
        "own play at an agent",
        not (moved or early or leaked) and min(shown.values()) > 0,
        f"visitors whose reward moved a release or the close, which needs a sum of all: {_listed(moved)}; "
        f"changed a decision before its sum or the close: {_listed(early)}; left in a release that it is not "
        f"in: {_listed(leaked)}; {shown[0]} of {len(_PLACES)} changed decisions, as they may, {shown[1]} of "
        f"{len(_SOME)} where nobody closes",
    )


def _listed(places: list[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(places))) or "none"


def _sums_of_others(folder: Path, settings: AgentSettings) -> list[list[messages.GridSum]]:
    """By agent, what the others release."""
    draws, made = np.random.default_rng(5), []
    for number in range(_OTHERS):
        with AgentStore.open(folder / f"{number}.db", settings.terms) as store:
            store._privatizers[0]._noise = _SameNoise()  # type: ignore[assignment]
            actions = _candidates(draws, settings)
            store.record(actions, np.full(len(actions), settings.problem.reward_centre))
            made.append([messages.decode(store.release()) for _ in range(settings.releases)])
    return made


def _candidates(draws: np.random.Generator, settings: AgentSettings) -> NDArray[np.float64]:
    drawn = draws.standard_normal((3, settings.problem.dim))
    return np.asarray(settings.problem.action_bound * drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _season(
    kind: type[Agent],
    settings: AgentSettings,
    others: Sequence[Sequence[messages.GridSum]],
    *,
    changed: int | None,
    lacks: int,
) -> _Trace:
    """A whole season among these others, of whom so many miss the last sum.

    The reward of the visitor ``changed`` is another; None is nobody's.
    """
    now, trace, problem, ids = 0.0, _Trace(), settings.problem, list[str]()
    with (
        tempfile.TemporaryDirectory() as folder,
        kind.open(Path(folder) / "agent.db", settings, clock=lambda: now) as agent,
    ):
        agent.store.database.execute("PRAGMA synchronous = OFF")
        agent.store._privatizers[0]._noise = _SameNoise()  # type: ignore[assignment]
        totals: dict[int, messages.GridSum] = {}
        for second in range(_SECONDS):
            now = float(second)
            if second not in _AWAY:
                agent.tick(alone=False)
            for item in agent.outbox():
                trace.left.append((second, item.body))
                missing = lacks if item.number == settings.releases else 0
                parts = [own[item.number - 1] for own in others[missing:]]
                totals[item.number] = messages.combine([messages.decode(item.released()), *parts])
                agent.mark_sent(item)
            for number in (one for one, when in _HEARD.items() if when == second and one in totals):
                with suppress(ValueError):  # it lacks an agent
                    agent.absorb(totals[number])
            if trace.closed is None and agent.closed:
                trace.closed = second
            agent._state.coins, draws = random.Random(second), np.random.default_rng(second)
            candidates = _candidates(draws, settings)
            decision = agent.decide(candidates)
            ids.append(decision.id)
            trace.decided.append(decision.index)
            if second >= _REWARDED:
                visitor = second - _REWARDED
                worth = 1.0 if (visitor % 2 == 0) != (visitor == changed) else -1.0
                agent.reward(ids[visitor], problem.reward_centre + problem.reward_bound * worth)
    return trace

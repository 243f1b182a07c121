"""Checks on whole agents: faults that only show between a visitor and the privatizer, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.durable import Parts
from feducb.agent.settling import Settling
from feducb.agent.state import State
from feducb.audit import agents as checked
from feducb.audit.agents import check_agent_presence, check_quorum, check_shadow
from feducb.audit.broken import BrokenQuorum
from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=3, excess="clip")


class _InTow(State):
    def draw_group(self) -> int:
        drawn = super().draw_group()
        return (drawn + self.counters.total("decisions")) % self.settings.groups


class _Popular(Agent):
    """A visitor's group follows from the one before her, so one absence moves all that come after."""

    _parts = Parts(state=_InTow)


def test_a_group_that_depends_on_who_came_before_is_seen() -> None:
    check = check_agent_presence(_Popular, replace(TERMS, releases=1))
    assert not check.passed
    assert "none" not in check.detail


class _NoRows(Settling):
    def take_in(self, db: Any, group: int, rows: Sequence[Any]) -> int | None:
        return super().take_in(db, group, rows[:0])


class _Forgetful(Agent):
    """Takes in nothing: as private as can be, and a check on it would be idle."""

    _parts = Parts(settling=_NoRows)


def test_an_agent_that_takes_nothing_in_does_not_pass_for_sound() -> None:
    assert not check_agent_presence(_Forgetful, replace(TERMS, releases=1)).passed
    assert not check_shadow(_Forgetful, replace(TERMS, releases=1)).passed


class _BothGroups(Settling):
    def take_in(self, db: Any, group: int, rows: Sequence[Any]) -> int | None:
        super().take_in(db, 1 - group, rows)
        return super().take_in(db, group, rows)


class _Counting(Agent):
    """Every visitor's record goes into both groups."""

    _parts = Parts(settling=_BothGroups)


def test_an_agent_that_counts_a_visitor_in_two_groups_is_seen_and_named() -> None:
    check = check_agent_presence(_Counting, replace(TERMS, releases=1))
    assert not check.passed
    assert "fewer groups than one: [0, 1, 2, 3, 4, 5, 6, 7]" in check.detail


def test_the_rows_of_a_sound_agent_move_by_one_record_at_most() -> None:
    check = check_agent_presence(
        Agent, replace(TERMS, releases=1, problem=Problem(dim=2, action_bound=2.0, reward_bound=0.5))
    )
    assert check.passed, check.detail
    farthest, bound = (float(word.rstrip(";")) for word in check.detail.split()[10:13:2])
    assert 0.0 < farthest <= bound


class _Loose(Agent):
    """Clips rewards at three times their bound."""

    def reward(self, id: str, value: float) -> Any:
        return super().reward(id, value / 3.0)


def test_a_reward_that_moves_less_still_counts_in_shadow_mode() -> None:
    """The check asks for some move where the policy is fixed, not for a certain one."""
    check = check_shadow(_Loose, replace(TERMS, releases=1))
    assert check.passed
    assert "expected 0" in check.detail


class _NothingFollowed(Settling):
    def take_in(self, db: Any, group: int, rows: Sequence[Any]) -> int | None:
        return None if self.state.settings.shadow else super().take_in(db, group, rows)


class _Deaf(Agent):
    """Under a fixed policy too, nothing enters: sound, but then one cannot tell."""

    _parts = Parts(settling=_NothingFollowed)


def test_an_idle_shadow_check_fails() -> None:
    check = check_shadow(_Deaf, replace(TERMS, releases=1))
    assert not check.passed
    assert "by 0.000000, expected 0; those of a fixed one by 0.000000" in check.detail


class _Shy(Agent):
    """Asks for everybody, whatever quorum it was given."""

    @classmethod
    def open(cls, path: str | Path, settings: AgentSettings | None = None, **how: Any) -> Self:
        if settings is not None and settings.quorum is not None and settings.cliques == 1:
            settings = replace(settings, quorum=None)
        return super().open(path, settings, **how)


def test_an_agent_that_waits_for_more_than_it_needs_is_seen_as_well() -> None:
    check = check_quorum(_Shy, TERMS)
    assert not check.passed
    assert "({'quorum': 3}, 3)" in check.detail
    assert "({'quorum': 3}, 2)" not in check.detail


def test_a_sum_below_the_quorum_is_not_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "_QUORUMS", checked._QUORUMS[1:2])
    check = check_quorum(BrokenQuorum, TERMS)
    assert not check.passed
    assert "({'quorum': 3}, 2)" in check.detail
    assert "({'quorum': 3}, 3)" not in check.detail


def test_sums_are_over_one_two_and_more_agents(tmp_path: Path) -> None:
    settings = AgentSettings(
        problem=TERMS.problem,
        budget=Budget(epsilon=1e4, delta=1e-3),
        agents=4,
        decisions=100,
        releases=4,
        schedule="periodic",
        start=0.0,
    )
    sums = checked._sums(tmp_path, settings)
    assert [(one.agents, one.number) for one in sums] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_season_of_the_check_is_the_same_each_time_but_for_its_noise() -> None:
    settings = checked._settings(TERMS, groups=2, agents=2, start=0.0)
    one, other = (checked._season(Agent, settings) for _ in range(2))
    assert not any(move.any() for move in one.moves(other))
    assert [len(rows) for rows in one.rows.values()] == [3, 3]
    for group in (0, 1):
        assert not np.array_equal(one.noise[group], other.noise[group])  # that has no seed

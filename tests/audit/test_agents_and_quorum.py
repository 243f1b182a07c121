"""Checks on whole agents: faults that only show between a visitor and the privatizer, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.audit.agents import check_agent_presence, check_shadow
from feducb.audit.findings import AuditReport, Broken, Check, ClaimResult
from feducb.audit.persons import check_several_agents
from feducb.audit.quorum import check_quorum, open_agent
from feducb.audit.restarts import check_replay, open_agent_store
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=3, excess="clip")


class _Popular(Agent):
    """A visitor's group follows from the one before her, so one absence moves all that come after."""

    def draw_group(self) -> int:
        drawn = super().draw_group()
        return (drawn + self._counters.total("decisions")) % self.settings.groups


def test_a_group_that_depends_on_who_came_before_is_seen() -> None:
    assert check_agent_presence(Agent, TERMS).passed
    check = check_agent_presence(_Popular, TERMS)
    assert not check.passed
    assert "none" not in check.detail


class _Forgetful(Agent):
    """Takes in nothing: as private as can be, and a check on it would be idle."""

    def _take_in(self, db: Any, group: int, rows: Sequence[Any]) -> int | None:
        return super()._take_in(db, group, rows[:0])


def test_an_agent_that_takes_nothing_in_does_not_pass_for_sound() -> None:
    assert not check_agent_presence(_Forgetful, TERMS).passed
    assert not check_shadow(_Forgetful, TERMS).passed


def _shy(path: Path, settings: AgentSettings) -> Agent:
    """Asks for everybody, whatever quorum it was given."""
    if settings.quorum is not None and settings.cliques == 1:
        settings = replace(settings, quorum=None)
    return open_agent(path, settings)


def test_an_agent_that_waits_for_more_than_it_needs_is_seen_as_well() -> None:
    assert check_quorum(open_agent).passed
    check = check_quorum(_shy)
    assert not check.passed
    assert "({'quorum': 3}, 3)" in check.detail


class _Generous(DeployedPrivatizer):
    """A controller that takes every upload twice."""

    def receive(self, upload: Any, records: int = 0) -> None:
        super().receive(upload, records)
        super().receive(upload, records)


@pytest.mark.parametrize(("records", "agents"), [(1, 1), (2, 2)])
def test_a_controller_that_counts_a_person_twice_is_seen(records: int, agents: int) -> None:
    terms = replace(TERMS, trust=CONTROLLER, records_per_person=records, agents_per_person=agents)
    assert check_several_agents(DeployedPrivatizer, terms).passed
    check = check_several_agents(_Generous, terms)
    assert not check.passed
    accounted = float(check.detail.split("accounted anew ")[1].split()[0])
    assert accounted > terms.budget.epsilon


def test_a_store_that_skips_a_number_is_seen() -> None:
    class Skipping:
        def __init__(self, path: Path, terms: Terms) -> None:
            self._store = open_agent_store(path, terms)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def release(self, group: int = 0) -> bytes:
            made = self._store.release(group)
            for one in self._store.outbox():
                if one.number == 1:  # the first is lost, and made again as the second
                    self._store.mark_sent(one.season, one.number, group=one.group)
                    return self._store.release(group)
            return made

    assert check_replay(open_agent_store, replace(TERMS, releases=4)).passed
    with pytest.raises(Exception, match="release"):  # its budget ends one release early
        check_replay(Skipping, replace(TERMS, releases=4))


def _claim(**changes: Any) -> ClaimResult:
    plain: dict[str, Any] = {
        "epsilon_claimed": 2.0,
        "delta": 1e-6,
        "trust": "nobody",
        "trials": 10,
        "mu_claimed": 0.5,
        "mu_lower_bound": 0.4,
        "epsilon_lower_bound_gaussian": 1.5,
        "epsilon_lower_bound": 1.0,
        "scores": (),
    }
    return ClaimResult(**(plain | changes))


def test_a_claim_holds_up_to_and_with_its_epsilon() -> None:
    assert _claim(epsilon_lower_bound=2.0, epsilon_lower_bound_gaussian=2.0).holds
    for name in ("epsilon_lower_bound", "epsilon_lower_bound_gaussian"):
        assert not _claim(**{name: np.nextafter(2.0, 3.0)}).holds
        assert not _claim(**{name: float("inf")}).holds


def test_the_headline_is_the_largest_claim_under_no_trust() -> None:
    claims = (_claim(), _claim(epsilon_claimed=8.0, trust="controller"), _claim(epsilon_claimed=4.0))
    report = AuditReport(claims=claims, checks=(), broken=(), false_alarm=1e-6)
    assert report.headline.epsilon_claimed == 4.0
    assert report.passed
    assert report.as_dict()["claims"][1]["trust"] == "controller"


def test_one_thing_wrong_is_enough() -> None:
    sound = AuditReport(
        claims=(_claim(),),
        checks=(Check("a", passed=True, detail=""), Check("b", passed=True, detail="")),
        broken=(Broken("c", caught=True, by=("a",)),),
        false_alarm=1e-6,
    )
    assert sound.passed
    assert not replace(sound, checks=(*sound.checks, Check("d", passed=False, detail=""))).passed
    assert not replace(sound, broken=(*sound.broken, Broken("e", caught=False, by=()))).passed
    assert not replace(sound, claims=(*sound.claims, _claim(epsilon_lower_bound=3.0))).passed
    assert sound.as_dict()["passed"] is True


def test_releases_of_a_check_are_releases_of_the_shipped_door() -> None:
    release = DeployedPrivatizer(TERMS).release()
    assert isinstance(release, GridRelease)

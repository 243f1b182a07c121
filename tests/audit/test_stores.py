"""Checks on agents' files: what leaves twice, what enters two groups, and who is in several files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.audit.broken import BrokenPersonBound, BrokenRouting, BrokenSharing, ForgetfulStore
from feducb.audit.canary import background
from feducb.audit.exact import check_sensitivity
from feducb.audit.stores import check_groups, check_replay, check_several_agents
from feducb.config import Budget, Problem
from feducb.errors import ReleasesExhaustedError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol.parcels import Parcel
from feducb.storage import AgentStore
from feducb.trust import CONTROLLER

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=2)


def test_a_sound_store_sends_each_release_with_one_byte_string() -> None:
    check = check_replay(AgentStore, TERMS)
    assert check.passed
    assert check.name == "replay groups=1"
    assert check.detail.startswith("release numbers made [[1, 2]];")
    assert check.detail.endswith("none")


def test_a_store_that_forgets_what_it_made_is_seen_in_every_group() -> None:
    check = check_replay(ForgetfulStore, replace(TERMS, releases=1, groups=2))
    assert not check.passed
    assert check.detail.endswith("strings: [(0, 1), (1, 1)]")


def test_the_forgetful_store_is_sound_while_nothing_crashes(tmp_path: Path) -> None:
    """Its only mistake is the one that it stands for."""
    (batch, _) = background(TERMS.problem, 2)
    with ForgetfulStore.open(tmp_path / "agent.db", TERMS) as store:
        store.record(batch.actions, batch.rewards)
        made = store.release()
        (parcel,) = store.outbox()
        assert parcel.body == made
        store.mark_sent(parcel.season, parcel.number)
    with ForgetfulStore.open(tmp_path / "agent.db", TERMS) as store:
        assert store.releases_left == 1
        assert store.replay(1, 1) == made


class _Skipping(AgentStore):
    """The first release is lost, and made again as the second."""

    def release(self, group: int = 0) -> bytes:
        made = super().release(group)
        for one in self.outbox():
            if one.number == 1:
                self.mark_sent(one.season, one.number, group=one.group)
                return super().release(group)
        return made


def test_a_store_that_skips_a_number_is_seen() -> None:
    with pytest.raises(ReleasesExhaustedError, match="release"):  # its budget ends one release early
        check_replay(_Skipping, TERMS)


class _Restamped(AgentStore):
    """Bytes in the outbox are made up anew each time they are asked for."""

    def outbox(self) -> list[Parcel]:
        self.asked = getattr(self, "asked", 0) + 1
        return [replace(one, body=one.body + bytes([self.asked])) for one in super().outbox()]


def test_bytes_that_change_in_the_outbox_are_seen() -> None:
    check = check_replay(_Restamped, replace(TERMS, releases=1))
    assert not check.passed
    assert "[(0, 1)]" in check.detail


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_are_kept_apart_whatever_their_number(groups: int) -> None:
    check = check_groups(AgentStore, replace(TERMS, groups=groups))
    assert check.passed, check.detail
    assert f"noise used twice: 0 of {4 * groups * groups}" in check.detail  # worlds, releases, groups, homes


def test_a_record_in_two_groups_is_seen_and_both_are_named() -> None:
    check = check_groups(BrokenRouting, replace(TERMS, groups=3, releases=1))
    assert not check.passed
    assert "[(0, [0, 1]), (1, [1, 2]), (2, [0, 2])]" in check.detail


def test_one_noise_for_two_groups_is_seen_although_rows_are_right() -> None:
    check = check_groups(BrokenSharing, replace(TERMS, groups=2, releases=1))
    assert not check.passed
    assert "differ: none; noise used twice: 4 of 4" in check.detail


class _Losing(AgentStore):
    """Records of the second group are dropped: nothing moves there, and a check on it would be idle."""

    def record(self, *records: Any, group: int = 0, **how: Any) -> int:
        return super().record(*records, group=group, **how) if group == 0 else 0


def test_a_group_that_nothing_enters_is_seen() -> None:
    check = check_groups(_Losing, replace(TERMS, groups=2, releases=1))
    assert not check.passed
    assert "[(1, [])]" in check.detail


class _Twice(AgentStore):
    """Every record enters its own group twice."""

    def record(self, *records: Any, group: int = 0, **how: Any) -> int:
        super().record(*records, group=group, **how)
        return super().record(*records, group=group, **how)


def test_a_record_that_counts_twice_in_its_own_group_is_seen_by_its_length() -> None:
    check = check_groups(_Twice, replace(TERMS, releases=1))
    assert not check.passed
    assert "differ: none" in check.detail
    farthest, bound = (float(number) for number in re.findall(r"\d+\.\d{6}", check.detail)[:2])
    assert farthest == pytest.approx(2.0 * bound, rel=1e-4)


class _Generous(DeployedPrivatizer):
    """A controller that takes every upload twice."""

    def receive(self, upload: Any, records: int = 0) -> None:
        super().receive(upload, records)
        super().receive(upload, records)


class _Miserly(DeployedPrivatizer):
    """A controller that takes nothing in: private, but the check would be idle."""

    def receive(self, upload: Any, records: int = 0) -> None:
        upload.values = np.zeros_like(upload.values)
        super().receive(upload, records)


@pytest.mark.parametrize(("records", "agents"), [(1, 1), (2, 2)])
def test_a_controller_that_counts_a_person_twice_is_seen(records: int, agents: int) -> None:
    terms = replace(TERMS, trust=CONTROLLER, records_per_person=records, agents_per_person=agents)
    check = check_several_agents(_Generous, terms)
    assert not check.passed
    accounted = float(check.detail.split("accounted anew ")[1].split()[0])
    assert accounted > terms.budget.epsilon


def test_a_controller_that_takes_nothing_in_does_not_pass_for_sound() -> None:
    check = check_several_agents(_Miserly, replace(TERMS, trust=CONTROLLER, releases=1))
    assert not check.passed
    assert "epsilon accounted anew 0.000000" in check.detail


@pytest.mark.parametrize(("records", "agents"), [(1, 1), (3, 1), (1, 2)])
def test_one_person_at_several_agents_is_covered_whatever_their_number(records: int, agents: int) -> None:
    terms = replace(TERMS, trust=CONTROLLER, records_per_person=records, agents_per_person=agents)
    check = check_several_agents(DeployedPrivatizer, terms)
    assert check.passed, check.detail
    assert check.name == f"several agents p={records} agents={agents}"
    # At one agent it is no mistake to cover one agent.
    assert check_several_agents(BrokenPersonBound, terms).passed == (agents == 1)


def test_sensitivity_reads_the_noise_off_the_door_that_it_audits() -> None:
    """A door with too little noise by its own certificate does not pass by what its terms would give it."""
    terms = replace(TERMS, trust=CONTROLLER, agents_per_person=2)
    assert check_sensitivity(DeployedPrivatizer, terms).passed
    check = check_sensitivity(BrokenPersonBound, terms)
    assert not check.passed
    assert float(check.detail.split("accounted anew ")[1].split()[0]) > 2.0 * terms.budget.epsilon

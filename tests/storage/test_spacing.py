"""Where a person's records are spaced: who enters which release, over restarts, groups and late uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import nkeys
import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.hiding import Member
from feducb.protocol.pads import Label
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Listed, Opened
from feducb.storage import AgentStore, ControllerStore
from feducb.trust import CONTROLLER, Keepers

# At a budget this large the noise of a count is below 0.01: a record that entered is seen in the release.
TERMS = Terms(
    problem=Problem(dim=1),
    budget=Budget(epsilon=1e6, delta=1e-6),
    releases=6,
    records_per_person=3,
    spacing=2,
)
POOLED = replace(TERMS, trust=CONTROLLER)


def _come(store: AgentStore, persons: Sequence[str], group: int = 0) -> int:
    return store.record(np.ones((len(persons), 1)), np.ones(len(persons)), persons, group=group)


def _count(payload: bytes) -> float:
    """How many records are in a release."""
    return round(float(messages.decode(payload).read().gram[0, 0]), 1)


@pytest.mark.parametrize("restart", [False, True])
def test_a_person_who_comes_all_the_time_enters_every_other_release(tmp_path: Path, restart: bool) -> None:
    """A crash in between changes nothing: what entered is on disk with the record itself."""
    path, entered, counts = tmp_path / "agent.db", [], []
    store = AgentStore.open(path, TERMS)
    for _ in range(TERMS.releases):
        entered.append([_come(store, ["ann", "ann"]), _come(store, ["ann"])])
        if restart:
            store.close()
            store = AgentStore.open(path, TERMS)
        counts.append(_count(store.release()))
    excluded = store.ledger().current.excluded
    store.close()
    assert entered == [[1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0]]
    assert counts == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert excluded == 18 - 3


def test_groups_share_the_spacing_though_they_are_not_in_step(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "agent.db", replace(TERMS, groups=2)) as store:
        store.release(1)
        store.release(1)
        assert _come(store, ["ann"], group=1) == 1  # in release 3 of its group
        for number in range(1, TERMS.releases + 1):
            assert _come(store, ["ann"], group=0) == (number == 5)
            store.release(0)


def test_other_people_s_records_enter_however_often_she_comes(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "agent.db", TERMS) as store:
        assert _come(store, ["ann", "bob", "ann", "cyd", "bob"]) == 3


def test_a_new_season_begins_anew(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "agent.db", TERMS) as store:
        assert _come(store, ["ann"]) == 1
        store.release()
        store.new_season()
        assert _come(store, ["ann"]) == 1


def test_a_controller_takes_late_uploads_one_a_release_in_their_order(tmp_path: Path) -> None:
    """Three at once would put records of one person, spaced at her agent, into one release."""
    path = tmp_path / "controller.db"
    with AgentStore.open(tmp_path / "agent.db", POOLED) as agent:
        uploads = []
        for number in range(4):
            _come(agent, [f"somebody else, {number}"])
            uploads.append(agent.upload())
    counts = []
    with ControllerStore.open(path, POOLED) as controller:
        assert controller.receive(uploads[1], from_agent="a")  # the second overtook the first
        assert controller.waiting() == {}
        assert all(controller.receive(one, from_agent="a") for one in (uploads[0], uploads[3]))
        assert not controller.receive(uploads[0], from_agent="a")
        assert list(controller.waiting()) == ["a"]
        counts.append(_count(controller.release()))
    for _ in range(2):  # what waits is taken up again after a restart; the third is missing
        with ControllerStore.open(path, POOLED) as controller:
            counts.append(_count(controller.release()))
    with ControllerStore.open(path, POOLED) as controller:
        assert controller.waiting() == {}
        controller.receive(uploads[2], from_agent="a")
        counts += [_count(controller.release()) for _ in range(3)]
    assert counts == [1.0, 2.0, 2.0, 3.0, 4.0, 4.0]


def test_what_waits_for_its_turn_is_lost_with_the_season_and_nowhere_else(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "agent.db", POOLED) as agent:
        uploads = [agent.upload() for _ in range(2)]
    with ControllerStore.open(tmp_path / "controller.db", POOLED) as controller:
        for one in uploads:
            controller.receive(one, from_agent="a")
        controller.release()
        with pytest.raises(Exception, match="records that did not leave yet"):
            controller.new_season()
        controller.new_season(drop_pending=True)
        assert controller.waiting() == {}
        assert _count(controller.release()) == 0.0


def test_an_upload_under_another_promise_is_refused_when_it_arrives_not_when_its_turn_comes(
    tmp_path: Path,
) -> None:
    with AgentStore.open(tmp_path / "agent.db", replace(POOLED, spacing=1)) as agent:
        uploads = [agent.upload() for _ in range(2)]
    with ControllerStore.open(tmp_path / "controller.db", POOLED) as controller:
        with pytest.raises(ConfigurationError, match=r"terms of an upload .* and spacing must be the same"):
            controller.receive(uploads[1], from_agent="a")
        assert controller.newest_uploads() == {}


def test_without_spacing_a_controller_takes_all_that_is_there(tmp_path: Path) -> None:
    terms = replace(POOLED, spacing=0)
    with AgentStore.open(tmp_path / "agent.db", terms) as agent:
        uploads = [(_come(agent, ["ann"]), agent.upload())[1] for _ in range(3)]
    with ControllerStore.open(tmp_path / "controller.db", terms) as controller:
        for one in uploads[::-1]:
            controller.receive(one, from_agent="a")
        assert _count(controller.release()) == 3.0


def _signer(number: int) -> Signer:
    return Signer(bytes(nkeys.encode_seed(bytes([number]) * 32, nkeys.PREFIX_BYTE_USER)))


def test_records_that_waited_through_missed_rows_are_spaced_from_the_row_they_enter(tmp_path: Path) -> None:
    """Rows 1 to 3 open without this agent: what waits enters row 4, and so would whoever comes before it."""
    signers = {name: _signer(number) for number, name in enumerate("abcd", start=1)}
    keys = {name: signer.nkey for name, signer in signers.items()}
    keepers = {name: _signer(10 + number).nkey for number, name in enumerate("bc")}
    roster = Roster(federation="tests", agents=keys, controller=_signer(9).nkey, keepers=keepers)
    path, others = tmp_path / "agent.db", tuple(Listed(place, bytes(16)) for place in (1, 2, 3))
    terms = replace(TERMS, trust=Keepers(1, 1), agents=4)
    with AgentStore.open(path, terms) as store:
        store.member = Member("a", roster, signers["a"])
        assert _come(store, ["ann"]) == 1
        for row in (1, 2, 3):
            values = np.zeros(terms.certificate().coordinates, dtype=np.int64)
            with store.writing() as db:
                store.take_opened(db, Opened(Label(1, 0, row), others, (), values))
            assert _come(store, ["ann"]) == 0  # her first is waiting still: it would be in the same row
        assert store.pending == 1
        assert _come(store, ["bob"]) == 1

"""Errors inside a commit: memory and file move together, or neither does, whatever was caught where."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from feducb.agent import Agent, AgentSettings
from feducb.agent.upkeep import warm_start
from feducb.config import Budget, Problem
from feducb.errors import FeducbError, RecordOutOfBoundsError, StoreError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage import AgentStore, ReleaseBook
from feducb.storage import sqlite as file
from feducb.storage.store import Store

TERMS = Terms(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=8,
    groups=2,
    records_per_person=3,
    excess="refuse",
)
SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=8,
    schedule="periodic",
    season=800.0,
    window=10.0,
)
GOOD, TOO_LONG = np.array([[0.6, 0.3]]), np.array([[3.0, 0.0]])
REWARD = np.array([0.5])
ACTIONS = [[0.1, 0.2], [0.2, 0.1]]


class _Failing:
    """A connection on which one statement fails, once, and may take the transaction along as SQLite does."""

    def __init__(self, inner: sqlite3.Connection, statement: int, *, rolls_back: bool = False) -> None:
        self._inner, self._left, self._rolls_back = inner, statement, rolls_back

    def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            if self._rolls_back and self._inner.in_transaction:
                self._inner.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return self._inner.execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return self._inner.executemany(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def _full_disk(store: Store, statement: int | None, *, rolls_back: bool = False) -> Iterator[None]:
    """Within it the statement with this number fails; None is a sound disk."""
    if statement is None:
        yield
        return
    whole: Any = store._connection
    broken: Any = _Failing(whole, statement, rolls_back=rolls_back)
    store._connection = broken
    try:
        yield
    finally:
        if store._connection is broken:  # it was not opened anew
            store._connection = whole


def _memory(store: AgentStore) -> list[Any]:
    return [json.loads(stream.dump_batch()) for stream in store._privatizers]


class _Commits(RuleBasedStateMachine):
    """A store whose commits are refused, fail and are cut off at any place; beside it, what was promised.

    What a commit holds is a list of calls; each may be refused (a record out of bounds) and the error may be
    caught inside the commit, as a caller who serves several people does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.store = AgentStore.open(Path(self._folder.name) / "agent.db", TERMS)
        self._truth = [DeployedPrivatizer(TERMS) for _ in range(TERMS.groups)]
        self._anns = 0

    def teardown(self) -> None:
        try:
            self.store._recover()  # what the file says
            self.memory_is_what_was_promised()
        finally:
            self.store.close()
            self._folder.cleanup()

    @rule(
        calls=st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from((True, True, False)), st.booleans()),
            min_size=1,
            max_size=4,
        ),
        fault=st.one_of(st.none(), st.integers(0, 9)),  # 0 begins, a call has three, the last one commits
        rolls_back=st.booleans(),
        ends_badly=st.booleans(),
    )
    def commit(
        self, calls: list[tuple[int, bool, bool]], fault: int | None, rolls_back: bool, ends_badly: bool
    ) -> None:
        entered: list[int] = []
        with suppress(FeducbError, sqlite3.Error, ZeroDivisionError):
            with _full_disk(self.store, fault, rolls_back=rolls_back), self.store.writing() as db:
                for group, good, caught in calls:
                    try:
                        self.store.settle(db, group, GOOD if good else TOO_LONG, REWARD, [None])
                        entered.append(group)
                    except (FeducbError, sqlite3.Error):
                        if not caught:
                            raise
                if ends_badly:
                    _ = 1 / 0
            for group in entered:  # only a commit that returned counts
                self._truth[group].record(GOOD, REWARD)

    @rule(group=st.integers(0, 1), good=st.booleans(), fault=st.one_of(st.none(), st.integers(0, 6)))
    def record(self, group: int, good: bool, fault: int | None) -> None:
        entered = 0
        with suppress(FeducbError, sqlite3.Error), _full_disk(self.store, fault):
            entered = self.store.record(GOOD if good else TOO_LONG, REWARD, ["ann"], group=group)
        if entered:
            self._anns += 1
            self._truth[group].record(GOOD, REWARD)
        assert self._anns <= TERMS.records_per_person

    @invariant()
    def memory_is_what_was_promised(self) -> None:
        assert not self.store.closed
        assert _memory(self.store) == [json.loads(stream.dump_batch()) for stream in self._truth]


TestCommits = _Commits.TestCase
TestCommits.settings = settings(max_examples=50, stateful_step_count=5, deadline=None, derandomize=True)


def test_a_record_that_was_rolled_back_with_a_refused_one_counts_once_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    with AgentStore.open(tmp_path / "agent.db", replace(TERMS, records_per_person=1)) as store:

        def both(second: np.ndarray) -> None:
            with store.writing() as db:
                store.settle(db, 0, GOOD, REWARD, [None])
                store.settle(db, 1, second, REWARD, [None])

        with pytest.raises(RecordOutOfBoundsError):
            both(TOO_LONG)
        assert store.ledger().current.pending == 0
        both(GOOD)  # mended, and sent again
        assert store.ledger().current.pending == 2


def test_a_call_that_fails_half_way_and_is_caught_takes_its_commit_along(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "agent.db", replace(TERMS, records_per_person=1)) as store:
        before = _memory(store)

        def two() -> None:
            with store.writing() as db:
                store.settle(db, 0, GOOD, REWARD, [None])
                with suppress(sqlite3.Error), _failing(store, "dump_batch"):
                    store.settle(db, 0, GOOD, REWARD, [None])

        with pytest.raises(StoreError, match="half-way"):
            two()
        assert _memory(store) == before
        store.record(GOOD, REWARD)
        assert store.ledger().current.pending == 1


@contextmanager
def _failing(store: AgentStore, name: str) -> Iterator[None]:
    """Within it that method of the first privatizer fails, after whatever came before it was done."""

    def fail() -> bytes:
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._privatizers[0], name, fail)
        yield


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    now = [1_000_000.0]
    with Agent.open(tmp_path / "agent.db", SETTINGS, clock=lambda: now[0]) as opened:
        opened.clock_for_tests = now  # type: ignore[attr-defined]
        yield opened


def _standing(agent: Agent) -> tuple[Any, ...]:
    """What the agent has in memory."""
    return agent.snapshot(), _memory(agent.store), agent.overview()["curve"]


def test_a_half_made_decision_that_is_caught_never_happened_and_neither_did_its_commit(agent: Agent) -> None:
    agent.decide(ACTIONS)
    before = _standing(agent)

    def two() -> None:
        with agent.writing():
            agent.decide(ACTIONS)
            with pytest.MonkeyPatch.context() as patch, suppress(ValueError):
                patch.setattr(agent._state.curve, "decided", lambda _: float("no number"))
                agent.decide(ACTIONS)  # its row is written when this fails
            agent.decide(ACTIONS)

    with pytest.raises(StoreError, match="failed"):
        two()
    assert _standing(agent) == before
    agent.decide(ACTIONS)
    assert agent.snapshot()["counts"]["decisions"] == 2
    assert agent.snapshot()["open_decisions"] == 2


def test_a_sum_that_cannot_be_learnt_from_is_not_in_use(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = agent.store.release()
    before = _standing(agent)
    with monkeypatch.context() as patch:
        patch.setattr(type(agent.settings.rule), "absorb", lambda *_: float("no number"))
        with pytest.raises(ValueError, match="no number"):
            agent.absorb(messages.decode(payload))
        with pytest.raises(StoreError, match="half-way"), agent.writing(), suppress(ValueError):
            agent.absorb(messages.decode(payload))
    assert _standing(agent) == before
    assert agent.absorb(messages.decode(payload))


def test_a_log_that_is_refused_in_its_second_group_enters_no_group(tmp_path: Path) -> None:
    grouped = replace(SETTINGS, groups=2)
    with Agent.open(tmp_path / "agent.db", grouped, clock=lambda: 1e9) as agent:
        honest, calls = DeployedPrivatizer.record, [0]

        def refuse_second(self: DeployedPrivatizer, *records: Any) -> None:
            calls[0] += 1
            if calls[0] == 2:
                raise RecordOutOfBoundsError("as excess='refuse' does")
            honest(self, *records)

        before = _standing(agent)
        log = np.tile(GOOD, (60, 1)), np.full(60, 0.5)  # all in one group with a chance below 1e-17
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeployedPrivatizer, "record", refuse_second)
            with pytest.raises(RecordOutOfBoundsError):
                warm_start(agent, *log, policy="fixed")
        assert _standing(agent) == before
        assert warm_start(agent, *log, policy="fixed").entered == 60
        assert agent.snapshot()["in_batch"] == 60


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_new_season_whose_settings_cannot_be_written_is_not_opened(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    now = agent.clock_for_tests  # type: ignore[attr-defined]
    now[0] += 790.0  # nearly all releases of the old season are due
    agent.tick()

    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(agent._opening, "write", full)
        now[0] += 0.0 if by_hand else 10.0
        with pytest.raises(sqlite3.OperationalError):
            agent.new_season(drop_open=True) if by_hand else agent.tick()
    assert agent.store.season == 1
    path = agent.store.path
    agent.close()
    with Agent.open(path, None, clock=lambda: now[0]) as again:
        assert again.store.season == 1
        now[0] += 100.0
        again.tick()
        assert (again.store.season, again.started_at) == (2, now[0] - (90.0 if by_hand else 100.0))


def test_a_release_within_a_commit_fails_both_as_it_would_leave_before_it_is_on_disk(
    tmp_path: Path,
) -> None:
    with AgentStore.open(tmp_path / "agent.db", replace(TERMS, records_per_person=1)) as store:
        store.record(GOOD, REWARD)
        with pytest.raises(StoreError, match="neither of them happens"), store.writing():
            store.release()
        assert (store.outbox(), store.pending) == ([], 1)
        assert len(store.release()) == len(store.outbox()[0].body)


def test_a_controller_does_not_say_that_it_saw_a_release_which_it_did_not_keep(tmp_path: Path) -> None:
    terms = replace(TERMS, groups=1, records_per_person=1)
    with AgentStore.open(tmp_path / "agent.db", terms) as store:
        payload = store.release()
    with ReleaseBook(tmp_path / "controller.db", {"a": terms, "b": terms}) as book:
        book._connection = _Failing(book._connection, 5)  # type: ignore[assignment, arg-type]
        with pytest.raises(sqlite3.OperationalError):
            book.receive([("a", payload), ("b", payload)], now=5.0)
        assert book.last_received() == {}
        assert [one.status for one in book.receive([("a", payload)], now=7.0)] == ["stored"]
        assert book.last_received() == {"a": 7.0}


def test_a_refused_record_is_still_refused_without_opening_the_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AgentStore.open(tmp_path / "agent.db", replace(TERMS, records_per_person=1)) as store:
        monkeypatch.setattr(file, "connect", lambda _: pytest.fail("the file was opened anew"))
        for _ in range(3):
            with pytest.raises(RecordOutOfBoundsError):
                store.record(TOO_LONG, REWARD)
        assert store.record(GOOD, REWARD) == 1

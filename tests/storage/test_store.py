"""The agent's file: what it keeps, what it refuses, and that what leaves stays the same for ever."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
    ReleasesExhaustedError,
    UnsealedReleaseError,
)
from feducb.models import with_contexts
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import AgentStore, ControllerStore, StoreError, StoreInUseError
from feducb.storage import sqlite as file
from feducb.trust import CONTROLLER

TERMS = Terms(problem=Problem(dim=3), budget=Budget(epsilon=1.0, delta=1e-6), releases=8, excess="refuse")
TRUSTING = replace(TERMS, trust=CONTROLLER)
GROUPED = replace(TERMS, budget=Budget(epsilon=2e4, delta=1e-6), releases=4, groups=3)
# Deployed noise cannot be seeded: |noise| beyond 8 deviations has probability 1.2e-15, and all tests here
# together look at fewer than 2,000 entries: false-alarm rate below 3e-12.
DEVIATIONS = 8.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[AgentStore]:
    with AgentStore.open(path, TERMS) as opened:
        yield opened


def _records(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    actions = rng.standard_normal((count, 3))
    return actions / np.linalg.norm(actions, axis=1, keepdims=True), rng.uniform(-1.0, 1.0, count)


def _rows(path: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def _contents(path: Path) -> list[str]:
    """Everything in the file, as SQL."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def _assert_near(payload: bytes, gram: np.ndarray, moment: np.ndarray) -> None:
    told = messages.decode(payload).read()
    reach = DEVIATIONS * float(np.sqrt(told.variance))
    assert np.abs(told.gram - gram).max() < reach * np.sqrt(2.0)  # the diagonal has twice the variance
    assert np.abs(told.moment - moment).max() < reach


@pytest.mark.parametrize("mechanism", ["dense", "toeplitz", "blt", "tree"])
def test_a_store_opened_anew_before_every_step_goes_on_with_the_same_stream(
    path: Path, rng: np.random.Generator, mechanism: str
) -> None:
    # At a budget this large the noise is about 1e-3 of the data: a lost or doubled batch cannot hide in it.
    terms = replace(TERMS, mechanism=mechanism, budget=Budget(epsilon=2e4, delta=1e-6))
    gram, moment, sent = np.zeros((3, 3)), np.zeros(3), []
    for number in range(1, 9):
        for _ in range(2):
            actions, rewards = _records(rng, 20)
            with AgentStore.open(path, terms) as store:
                assert store.record(actions, rewards) == 20
            gram, moment = gram + actions.T @ actions, moment + actions.T @ rewards
        with AgentStore.open(path) as store:
            payload = store.release()
        told = messages.decode(payload)
        assert (told.season, told.number, told.agents) == (1, number, 1)
        assert float(told.variance) < 0.05**2
        _assert_near(payload, gram, moment)
        sent.append(payload)
    with AgentStore.open(path) as store:
        assert [store.replay(1, number) for number in range(1, 9)] == sent
        numbered = enumerate(sent, start=1)
        assert store.outbox() == [
            Parcel(ParcelKind.RELEASE, 1, 0, number, payload) for number, payload in numbered
        ]


def test_the_outbox_keeps_what_was_not_reported_sent(store: AgentStore, path: Path) -> None:
    first, second, third = (store.release() for _ in range(3))
    store.mark_sent(1, 2)
    store.mark_sent(1, 2)
    assert store.outbox() == [
        Parcel(ParcelKind.RELEASE, 1, 0, 1, first),
        Parcel(ParcelKind.RELEASE, 1, 0, 3, third),
    ]
    store.close()
    with AgentStore.open(path) as again:
        assert again.outbox() == [
            Parcel(ParcelKind.RELEASE, 1, 0, 1, first),
            Parcel(ParcelKind.RELEASE, 1, 0, 3, third),
        ]
        assert again.replay(1, 2) == second
        with pytest.raises(StoreError, match="release 4 of season 1, group 0 was never made"):
            again.mark_sent(1, 4)
        with pytest.raises(StoreError, match="release 1 of season 2, group 0 was never made"):
            again.replay(2, 1)
        assert again.outbox() == [
            Parcel(ParcelKind.RELEASE, 1, 0, 1, first),
            Parcel(ParcelKind.RELEASE, 1, 0, 3, third),
        ]


@pytest.mark.parametrize(
    "tamper",
    [
        "UPDATE outgoing SET payload = x'00'",
        "UPDATE outgoing SET payload = NULL",
        "UPDATE outgoing SET number = 7",
        'UPDATE outgoing SET "group" = 1',
        "DELETE FROM outgoing",
        "INSERT INTO outgoing SELECT * FROM outgoing",
    ],
)
def test_the_file_itself_refuses_to_change_a_release(store: AgentStore, path: Path, tamper: str) -> None:
    payload = store.release()
    store.close()
    with pytest.raises(sqlite3.IntegrityError, match=r"never|UNIQUE"):
        _rows(path, tamper)
    with AgentStore.open(path) as again:
        assert again.replay(1, 1) == payload


def test_a_second_opener_is_refused(store: AgentStore, path: Path) -> None:
    with pytest.raises(StoreInUseError, match="one opener at a time"):
        AgentStore.open(path, TERMS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside BLAS threads; the child uses none
        child = os.fork()
    if child == 0:  # another process: its own attempt, and that to use the parent's store
        try:
            refused = 0
            for attempt in (lambda: AgentStore.open(path), store.release):
                try:
                    attempt()
                except StoreError:
                    refused += 1
            os._exit(refused)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert len(store.release()) == messages.message_size(3)
    store.close()
    AgentStore.open(path, TERMS).close()


def test_another_thread_and_a_closed_store_are_refused(store: AgentStore) -> None:
    caught: list[Exception] = []

    def use() -> None:
        try:
            store.release()
        except StoreError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert messages.decode(store.release()).number == 1
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.release()


def test_a_store_is_made_with_terms_and_private(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="terms is None"):
        AgentStore.open(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
    with AgentStore.open(tmp_path / "one.db", TERMS) as store:
        store.record(np.eye(3), np.zeros(3))
        for file in tmp_path.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (replace(TERMS, releases=9), "terms.releases is 9, expected 8 as stored"),
        (replace(TERMS, budget=Budget(epsilon=2.0, delta=1e-6)), "terms.epsilon is 2.0, expected 1.0"),
        (replace(TERMS, problem=Problem(dim=4)), "terms.problem.dim is 4, expected 3"),
        (replace(TERMS, records_per_person=2), "terms.records_per_person is 2, expected 1"),
        (replace(TERMS, groups=2), "terms.groups is 2, expected 1 as stored"),
        (replace(TERMS, mechanism="blt"), "terms.mechanism is 'blt', expected 'dense'"),
        (
            replace(TERMS, model=with_contexts(TERMS.model, "public"), excess="clip"),
            "contexts is 'public', expected 'private' as stored",
        ),
    ],
)
def test_other_terms_are_refused(store: AgentStore, path: Path, other: Terms, complaint: str) -> None:
    store.close()
    with pytest.raises(ConfigurationError, match=complaint):
        AgentStore.open(path, other)
    AgentStore.open(path, TERMS).close()


def test_a_file_from_the_future_is_refused(store: AgentStore, path: Path) -> None:
    store.close()
    _rows(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="schema 99"):
        AgentStore.open(path)


def test_a_state_that_does_not_fit_the_releases_is_refused(store: AgentStore, path: Path) -> None:
    (before,) = _rows(path, "SELECT hex(state) FROM streams")[0]
    store.release()
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE streams SET state = ?", (bytes.fromhex(before),))
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"damaged: .* after release 0, its last release is 1"):
        AgentStore.open(path)


def test_after_the_last_release_a_new_season_goes_on_over_new_records(path: Path) -> None:
    terms = replace(TERMS, budget=Budget(epsilon=2e4, delta=1e-6), releases=2)
    x = np.array([[1.0, 0.0, 0.0]])
    with AgentStore.open(path, terms) as store:
        store.record(np.repeat(x, 50, axis=0), np.ones(50))
        old = [store.release(), store.release()]
        with pytest.raises(ReleasesExhaustedError, match=r"all 2 releases of season 1, .* new_season\(\)"):
            store.release()
        with pytest.raises(ReleasesExhaustedError):
            store.record(x, np.ones(1))
        assert store.new_season() == 2
        store.record(-x, np.ones(1))
        new = store.release()
        assert messages.decode(new).season == 2
        _assert_near(new, x.T @ x, -x[0])  # nothing of the fifty
        assert [store.replay(1, 1), store.replay(1, 2), store.replay(2, 1)] == [*old, new]
        assert [one.name for one in store.outbox()] == [(1, 0, 1), (1, 0, 2), (2, 0, 1)]


def test_pending_records_never_cross_into_the_next_season(path: Path) -> None:
    terms = replace(TERMS, budget=Budget(epsilon=2e4, delta=1e-6))
    with AgentStore.open(path, terms) as store:
        store.record(np.repeat(np.eye(3), 20, axis=0), np.ones(60))
        with pytest.raises(StoreError, match="agree to lose them"):
            store.new_season()
        assert store.season == 1
        fewer = replace(terms, releases=3)
        assert store.new_season(fewer, drop_pending=True) == 2
        assert store.terms.releases == 3
    with AgentStore.open(path, fewer) as store:
        _assert_near(store.release(), np.zeros((3, 3)), np.zeros(3))
        first, second = store.ledger().accounts
        assert (first.dropped, first.pending, second.pending) == (60, 0, 0)


def test_a_person_counts_at_most_as_often_as_the_terms_say(path: Path) -> None:
    terms = replace(TERMS, budget=Budget(epsilon=2e4, delta=1e-6), records_per_person=2)
    with AgentStore.open(path, terms) as store:
        with pytest.raises(ConfigurationError, match="person is None, expected an id, to hold 2 records"):
            store.record(np.eye(3), np.ones(3))
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "ann"]) == 3
    with AgentStore.open(path) as store:
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "bob"]) == 1
        store.release()  # counts are the season's, not the batch's
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "cyd"]) == 1
        _assert_near(store.release(), np.diag([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 2.0]))
        assert store.ledger().current.excluded == 4
        assert store.new_season() == 2
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "ann"]) == 3
        assert store.ledger().current.excluded == 0


def test_without_an_id_every_record_is_a_person_of_its_own(store: AgentStore) -> None:
    assert store.record(np.eye(3), np.zeros(3)) == 3
    assert store.record(np.eye(3), np.zeros(3), [None, "ann", None]) == 3
    assert store.record(np.eye(3), np.zeros(3), ["ann", "ann", None]) == 1
    assert store.record(np.eye(3)[:1], np.zeros(1), ["ann"]) == 0


def test_an_id_that_is_not_text_is_refused_without_being_told(store: AgentStore) -> None:
    with pytest.raises(ConfigurationError, match="person is 'int', expected text, or None") as caught:
        store.record(np.eye(3)[:1], np.zeros(1), [8_675_309])  # type: ignore[list-item]
    assert "8675309" not in str(caught.value)


def test_ids_are_nowhere_in_the_files_and_their_hashes_change_with_the_season(path: Path) -> None:
    name = "Ann-Sophie-of-the-7th-floor"
    hashes = []
    with AgentStore.open(path, TERMS) as store:
        for _ in range(2):
            store.record(np.eye(3)[:1], np.zeros(1), [name])
            hashes += [row[0] for row in _rows(path, "SELECT hash FROM people")]
            for file in path.parent.iterdir():
                assert name.encode() not in file.read_bytes(), file
            store.release()
            store.new_season()
        assert _rows(path, "SELECT * FROM people") == []
    assert [len(one) for one in hashes] == [32, 32]
    assert len(set(hashes)) == 2


@pytest.mark.parametrize(
    ("actions", "rewards", "persons", "complaint"),
    [
        ([[0.1, 0.2, 0.3], [2.0, 0.0, 0.0]], [0.0, 0.0], ["ann", "bob"], "length 2"),
        ([[0.1, 0.2, 0.3]], [3.0], ["ann"], "reward is 3"),
        ([[0.1, 0.2]], [0.0], ["ann"], "shapes"),
        ([[0.1, 0.2, 0.3]], [0.0, 0.0], ["ann"], "shapes"),
        ([[0.1, 0.2, 0.3]], [0.0], ["ann", "bob"], "for 2 persons"),
        ([[0.1, 0.2, float("nan")]], [0.0], ["ann"], "finite"),
    ],
)
def test_a_refused_batch_leaves_no_trace(
    store: AgentStore, path: Path, actions: Any, rewards: Any, persons: list[str], complaint: str
) -> None:
    store.record(np.eye(3), np.zeros(3), ["dan", "eve", "fay"])
    before, ledger = _contents(path), store.ledger()
    with pytest.raises(RecordOutOfBoundsError, match=complaint):
        store.record(actions, rewards, persons)
    assert (_contents(path), store.ledger()) == (before, ledger)
    assert store.record(np.eye(3)[:1], np.zeros(1), ["ann"]) == 1


class _Failing:
    """A connection on which one statement fails, before or after it was done."""

    def __init__(self, inner: sqlite3.Connection, statement: str, *, done: bool) -> None:
        self._inner, self._statement, self._done = inner, statement, done

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if not sql.startswith(self._statement):
            return self._inner.execute(sql, *arguments)
        if self._done:
            self._inner.execute(sql, *arguments)
        raise sqlite3.OperationalError("disk I/O error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _break(store: AgentStore, statement: str, *, done: bool = False) -> None:
    store._connection = _Failing(store._connection, statement, done=done)  # type: ignore[assignment, arg-type]


_STEPS: dict[str, Callable[[AgentStore], object]] = {
    "record": lambda store: store.record(np.eye(3), np.ones(3), ["dan", "eve", "fay"]),
    "release": lambda store: store.release(),
    "new_season": lambda store: store.new_season(drop_pending=True),
}


@pytest.mark.parametrize(
    ("step", "statement"),
    [(step, statement) for step in _STEPS for statement in ("BEGIN", "INSERT", "COMMIT")]
    + [("release", "UPDATE"), ("new_season", "DELETE"), ("new_season", "REPLACE")],
)
def test_a_transaction_that_fails_leaves_everything_as_it_was(
    store: AgentStore, path: Path, step: str, statement: str
) -> None:
    store.record(np.eye(3), np.ones(3), ["ann", "bob", "cyd"])
    store.release()
    store.record(np.eye(3)[:1], np.ones(1), ["gil"])
    before, state, season = _contents(path), store._privatizers[0].dump(), store.season
    _break(store, statement)
    with pytest.raises(sqlite3.OperationalError, match="disk I/O"):
        _STEPS[step](store)
    assert (_contents(path), store._privatizers[0].dump(), store.season) == (before, state, season)
    _STEPS[step](store)  # and it goes on
    assert messages.decode(store.release()).number == {"record": 2, "release": 3, "new_season": 1}[step]


@pytest.mark.parametrize("done", [False, True])
def test_records_count_once_whatever_a_failed_commit_left_on_disk(
    store: AgentStore, path: Path, done: bool
) -> None:
    _break(store, "COMMIT", done=done)
    entered = 0
    while not entered:
        with suppress(sqlite3.OperationalError):
            entered = store.record(np.eye(3), np.ones(3))
    assert store.pending == 3
    store.close()
    with AgentStore.open(path) as again:
        assert again.pending == 3


def test_a_commit_that_was_done_before_it_failed_is_not_done_again(store: AgentStore) -> None:
    store.record(np.eye(3), np.ones(3))
    _break(store, "COMMIT", done=True)
    payload = store.release()
    (parcel,) = store.outbox()
    assert (parcel.number, parcel.body) == (1, payload)
    assert store.ledger().current.pending == 0
    assert messages.decode(store.release()).number == 2
    assert store.replay(1, 1) == payload


def test_a_commit_that_was_rolled_back_under_it_is_no_success(store: AgentStore) -> None:
    def rolled_back() -> None:
        with store.writing() as db:
            db.execute("INSERT INTO loaded VALUES ('first', '', 0)")
            db.execute("ROLLBACK")

    with pytest.raises(StoreError, match="nothing of the commit happened"):
        rolled_back()
    assert store.database.execute("SELECT count(*) FROM loaded").fetchone() == (0,)


def test_interrupted_when_it_is_on_disk_a_store_closes_and_counts_once(store: AgentStore, path: Path) -> None:
    connection = store.database

    class Interrupted:
        """The connection, with somebody who presses Ctrl-C right after a commit."""

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def execute(self, statement: str, *given: Any) -> Any:
            done = connection.execute(statement, *given)
            if statement == "COMMIT":
                raise KeyboardInterrupt
            return done

    store._connection = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        store.record(np.eye(3), np.ones(3))
    with pytest.raises(StoreError, match="closed"):
        store.record(np.eye(3), np.ones(3))
    with AgentStore.open(path) as again:
        assert again.pending == 3


def test_a_store_that_cannot_recover_closes(
    store: AgentStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk gone")

    with monkeypatch.context() as patch:
        patch.setattr("feducb.storage.sqlite.connect", gone)
        _break(store, "COMMIT")
        with pytest.raises(sqlite3.OperationalError, match="disk I/O"):
            store.release()
        with pytest.raises(StoreError, match="is closed"):
            store.release()
    with AgentStore.open(path, TERMS) as again:
        assert messages.decode(again.release()).number == 1


def test_the_ledger_says_what_left_when_and_at_what_cost(store: AgentStore) -> None:
    assert store.ledger().current.mu_spent == 0.0
    store.record(np.eye(3), np.ones(3))
    payload = store.release()
    store.release()
    store.mark_sent(1, 1)
    store.new_season(replace(TERMS, budget=Budget(epsilon=2.0, delta=1e-6), records_per_person=2))
    store.release()
    first, second = store.ledger().accounts
    assert (first.releases_made, first.releases_left, second.releases_left) == (2, 6, 7)
    assert first.mu == first.mu_of_a_record == pytest.approx(1 / 4.224679, rel=1e-4)  # (1, 1e-6), exactly
    assert second.mu_of_a_record == second.mu / 2
    assert store.ledger().mu_of_a_regular == pytest.approx(np.hypot(first.mu, second.mu))
    entry, unsent = first.entries
    assert (entry.size, entry.season, entry.number, entry.kind) == (len(payload), 1, 1, "release")
    assert entry.sent_at is not None
    assert entry.made_at <= entry.sent_at
    assert entry.made_at.endswith("+00:00")
    assert unsent.sent_at is None
    plain = json.loads(json.dumps(store.ledger().as_dict()))
    assert plain["seasons"][0]["entries"][0]["sha256"] == entry.sha256
    assert (plain["seasons"][1]["epsilon"], plain["seasons"][1]["releases_left"]) == (2.0, 7)


def test_every_commit_is_synchronous(store: AgentStore) -> None:
    connection = store.database
    asked = ["journal_mode", "synchronous", "foreign_keys", "secure_delete"]
    assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked] == ["wal", 2, 1, 1]


def test_raw_uploads_are_for_those_who_trust_the_controller(store: AgentStore, tmp_path: Path) -> None:
    with pytest.raises(UnsealedReleaseError, match="trust the controller"):
        store.upload()
    with pytest.raises(ConfigurationError, match="trust is 'nobody', expected controller"):
        ControllerStore.open(tmp_path / "controller.db", TERMS)
    with AgentStore.open(tmp_path / "trusting.db", TRUSTING) as agent:
        with pytest.raises(PrivacyError, match="the controller releases"):
            agent.release()
        payload = agent.upload()
        with pytest.raises(ValueError, match="message has"):
            messages.decode(payload)
    with pytest.raises(StoreError, match="kind agent, expected controller"):
        ControllerStore.open(tmp_path / "trusting.db")


def test_uploads_are_resent_unchanged_until_acknowledged_and_enter_once(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    terms = replace(TRUSTING, budget=Budget(epsilon=2e4, delta=1e-6))
    gram, moment = np.zeros((3, 3)), np.zeros(3)
    with ControllerStore.open(tmp_path / "controller.db", terms) as controller:
        for name in ("north", "south"):
            actions, rewards = _records(rng, 30)
            with AgentStore.open(tmp_path / f"{name}.db", terms) as agent:
                agent.record(actions, rewards)
                payload = agent.upload()
            gram, moment = gram + actions.T @ actions, moment + actions.T @ rewards
            with AgentStore.open(tmp_path / f"{name}.db") as agent:
                assert agent.uploads() == [Parcel(ParcelKind.UPLOAD, 1, 0, 1, payload)]
                with pytest.raises(StoreError, match="did not leave yet"):
                    agent.new_season()
                assert controller.receive(payload, from_agent=name)
                assert not controller.receive(payload, from_agent=name)
                agent.acknowledge(1, 1)
                assert agent.uploads() == []
                assert [entry.kind for entry in agent.ledger().current.entries] == ["upload"]
                assert _rows(agent.path, "SELECT payload FROM outgoing") == [(None,)]
        with pytest.raises(PrivacyError, match="twice with different content"):
            controller.receive(payload[:-1] + bytes([payload[-1] ^ 1]), from_agent="south")
        with pytest.raises(ConfigurationError, match="expected RAW2"):
            controller.receive(payload[:-8], from_agent="south")
        with pytest.raises(StoreError, match="did not leave yet"):
            controller.new_season()
    with ControllerStore.open(tmp_path / "controller.db", terms) as controller:
        release = controller.release()
        _assert_near(release, gram, moment)
        assert _rows(controller.path, "SELECT count(*) FROM received WHERE payload IS NOT NULL") == [(0,)]
        assert not controller.receive(payload, from_agent="south")
        _assert_near(controller.release(), gram, moment)
        controller.new_season()
        assert not controller.receive(payload, from_agent="south")  # known: acknowledged again, not counted
        with pytest.raises(StoreError, match="is of season 1, expected 2"):
            controller.receive(payload, from_agent="west")
        assert controller.replay(1, 1) == release


def _left_open(path: Path) -> None:
    """A process that releases once and is killed."""
    code = (
        "import os, signal, sys; import numpy as np; from feducb.storage import AgentStore; "
        "from feducb.privacy.terms import Terms; "
        "store = AgentStore.open(sys.argv[1], Terms.from_json(sys.argv[2])); "
        "store.record(np.eye(3), np.ones(3)); store.release(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(path), TERMS.to_json()], check=False)
    assert Path(f"{path}-wal").stat().st_size > 0


def test_opening_writes_the_log_of_a_killed_process_back_and_cuts_it_off(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _left_open(path)
    connection = file.connect(path)  # the log may never have reached the disk
    assert Path(f"{path}-wal").stat().st_size == 0
    connection.close()
    with AgentStore.open(path):
        assert Path(f"{path}-wal").stat().st_size == 0


def test_a_file_that_another_program_reads_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    _left_open(path)
    monkeypatch.setattr(file, "_BUSY_SECONDS", 0.05)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM store").fetchall()  # it now needs the log as it is
    with pytest.raises(StoreInUseError, match="read by another program"):
        AgentStore.open(path)
    reader.close()
    AgentStore.open(path).close()


def test_a_file_that_came_without_its_log_is_refused(tmp_path: Path) -> None:
    first, moved = tmp_path / "a.db", tmp_path / "b.db"
    _left_open(first)
    shutil.copy(first, moved)
    with pytest.raises(StoreError, match=r"came here without its log .*a\.db-wal"):
        AgentStore.open(moved, TERMS)
    shutil.copy(f"{first}-wal", f"{moved}-wal")  # with its log it is whole
    with AgentStore.open(moved, TERMS) as whole, AgentStore.open(first, TERMS) as original:
        assert whole.replay(1, 1) == original.replay(1, 1)
    os.link(first, tmp_path / "c.db")
    with pytest.raises(StoreError, match="2 names"):
        AgentStore.open(tmp_path / "c.db", TERMS)


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "letter.txt"
    other.write_text("dear all, this is not a database")
    with pytest.raises(StoreError, match="is not a store"):
        AgentStore.open(other, TERMS)
    assert [one.name for one in tmp_path.iterdir()] == ["letter.txt"]


def test_a_new_store_can_start_at_a_later_season(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "again.db", TERMS, first_season=7) as store:
        assert messages.decode(store.release()).season == 7


def test_groups_of_one_file_are_streams_of_their_own(path: Path, rng: np.random.Generator) -> None:
    sums = [(np.zeros((3, 3)), np.zeros(3)) for _ in range(3)]
    sent: dict[tuple[int, int, int], bytes] = {}
    for number in range(1, 5):
        for group in (2, 0, 1):
            actions, rewards = _records(rng, 10 * (group + 1))
            with AgentStore.open(path, GROUPED) as store:
                assert store.record(actions, rewards, group=group) == len(rewards)
            gram, moment = sums[group]
            sums[group] = gram + actions.T @ actions, moment + actions.T @ rewards
        for group in range(3):
            with AgentStore.open(path) as store:  # what waits for the others stays where it is
                payload = store.release(group)
            told = messages.decode(payload)
            assert (told.season, told.group, told.number) == (1, group, number)
            _assert_near(payload, *sums[group])
            sent[1, group, number] = payload
    with AgentStore.open(path) as store:
        assert {one.name: one.body for one in store.outbox()} == sent
        assert all(store.replay(1, number, group=g) == payload for (_, g, number), payload in sent.items())
        store.mark_sent(1, 3, group=2)
        assert {one.name for one in store.outbox()} == sent.keys() - {(1, 2, 3)}


def test_a_group_that_has_made_its_releases_leaves_the_others_theirs(path: Path) -> None:
    with AgentStore.open(path, GROUPED) as store:
        for _ in range(4):
            store.release(1)
        with pytest.raises(ReleasesExhaustedError, match="all 4 releases of season 1, group 1 have been"):
            store.release(1)
        with pytest.raises(ReleasesExhaustedError):
            store.record(np.eye(3), np.ones(3), group=1)
        assert [store.releases_left_in(group) for group in range(3)] == [4, 0, 4]
        assert store.releases_left == 8
        store.record(np.eye(3), np.ones(3), group=2)
        _assert_near(store.release(2), np.eye(3), np.ones(3))


def test_a_file_without_the_state_of_a_group_is_refused(path: Path) -> None:
    AgentStore.open(path, GROUPED).close()
    connection = sqlite3.connect(path)
    connection.execute('DELETE FROM streams WHERE "group" = 1')
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"damaged: it has states of groups \[0, 2\], expected 3 of them"):
        AgentStore.open(path)


def test_a_group_that_is_not_there_is_named(store: AgentStore, tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "grouped.db", GROUPED) as grouped:
        before = _contents(grouped.path)
        strange: list[tuple[Any, str]] = [(3, "0 to 2"), (-1, "at least 0"), (0.0, "whole"), (True, "whole")]
        for group, expected in strange:
            for step in (
                lambda group: grouped.record(np.eye(3), np.ones(3), group=group),
                grouped.release,
                grouped.releases_left_in,
            ):
                with pytest.raises(ConfigurationError, match=f"group is {group}, expected .*{expected}"):
                    step(group)
        assert _contents(grouped.path) == before
    with pytest.raises(ConfigurationError, match="group is 1, expected 0, the only one"):
        store.release(1)


def test_a_person_is_counted_over_all_groups_together(path: Path) -> None:
    with AgentStore.open(path, replace(GROUPED, records_per_person=2)) as store:
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "ann"], group=0) == 3
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "cyd"], group=1) == 2
        assert store.record(np.eye(3), np.ones(3), ["ann", "bob", "cyd"], group=2) == 1
        assert store.ledger().current.excluded == 3
        _assert_near(store.release(1), np.diag([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0]))


def test_a_season_ends_when_no_group_waits_and_may_change_their_number(path: Path) -> None:
    with AgentStore.open(path, GROUPED) as store:
        store.record(np.eye(3), np.ones(3), group=2)
        store.record(np.eye(3), np.ones(3), group=1)
        store.release(1)
        with pytest.raises(StoreError, match="agree to lose them"):
            store.new_season()
        store.new_season(replace(GROUPED, groups=5), drop_pending=True)
        assert store.ledger().accounts[0].dropped == 3
    with AgentStore.open(path) as store:
        for group in range(5):
            _assert_near(store.release(group), np.zeros((3, 3)), np.zeros(3))
        store.new_season(replace(GROUPED, groups=1))
    with AgentStore.open(path) as store:
        with pytest.raises(ConfigurationError, match="the only one"):
            store.release(1)
        assert len(store.outbox()) == 6


def test_groups_cost_nothing_in_the_ledger(path: Path) -> None:
    with AgentStore.open(path, GROUPED) as store:
        for group in (0, 2, 2):
            store.release(group)
        store.record(np.eye(3), np.ones(3), group=0)
        store.record(np.eye(3), np.ones(3), group=1)
        account = store.ledger().current
    alone = replace(GROUPED, groups=1)
    assert account.mu == account.mu_of_a_record == account.mu_spent == alone.certificate().mu
    assert [(entry.group, entry.number) for entry in account.entries] == [(0, 1), (2, 1), (2, 2)]
    assert (account.releases_made, account.releases_left, account.pending) == (3, 9, 6)
    plain = account.as_dict()
    assert (plain["groups"], plain["releases"], plain["releases_left_by_group"]) == (3, 4, [3, 4, 2])


@pytest.fixture
def old(path: Path) -> Path:
    """A file from before groups, as that version wrote it: three releases, two records that wait."""
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "data" / "store_schema_1.sql").read_text())
    connection.close()
    return path


def test_a_file_from_before_groups_goes_on_with_the_same_bytes(old: Path) -> None:
    before = _rows(old, "SELECT season, number, made_at, sent_at, sha256, payload FROM outgoing")
    with AgentStore.open(old) as store:
        assert (store.season, store.terms.groups, store.releases_left) == (2, 1, 2)
        for season, number, _, _, _, payload in before:
            assert store.replay(season, number) == payload
            assert messages.decode(payload).group == 0
        assert store.outbox() == [Parcel(ParcelKind.RELEASE, 2, 0, 2, before[2][-1])]
        told = [entry for account in store.ledger().accounts for entry in account.entries]
        assert [(e.season, e.number, e.made_at, e.sent_at, e.sha256) for e in told] == [
            row[:-1] for row in before
        ]
        assert {entry.group for entry in told} == {0}
        account = store.ledger().current
        assert (account.releases_made, account.pending, account.excluded) == (2, 2, 1)
        assert store.record([[1.0, 0.0]], [1.0], ["cyd"]) == 0  # she is still known
        _assert_near(store.release(), 3.0 * np.eye(2), np.array([3.0, -3.0]))
    with AgentStore.open(old) as store:
        assert messages.decode(store.replay(2, 3)).number == 3
    with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
        _rows(old, "DELETE FROM outgoing")


def test_a_migration_that_fails_leaves_the_file_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _contents(old)
    with monkeypatch.context() as patch:
        first, broken, *later = AgentStore.migrations
        patch.setattr(AgentStore, "migrations", (first, broken + "; DROP TABLE x", *later))
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            AgentStore.open(old)
    assert _contents(old) == before
    with AgentStore.open(old) as store:
        assert store.releases_left == 2

"""The controller's file: a number has one content an agent and one sum, for ever, whatever arrives."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.controller.collector import TrustedCollector, open_collector
from feducb.errors import ConfigurationError, StoreError, StoreInUseError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages, sums
from feducb.protocol.calendar import LINGER, Calendar
from feducb.storage import AgentStore, ReleaseBook
from feducb.storage.sqlite import is_locked
from feducb.trust import CONTROLLER

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=6)
NAMES = ("a", "b", "c")
EVERYBODY = dict.fromkeys(NAMES, TERMS)


def _stream(count: int, season: int = 1) -> list[bytes]:
    privatizer = DeployedPrivatizer(TERMS)
    return [messages.encode(privatizer.release(), season=season) for _ in range(count)]


def test_releases_and_the_sum_they_complete_share_a_commit_and_come_out_as_apart(tmp_path: Path) -> None:
    streams = {name: _stream(1) for name in NAMES}
    batch = [(name, streams[name][0]) for name in NAMES]
    with ReleaseBook(tmp_path / "apart.db", EVERYBODY) as apart:
        expected = apart.receive(batch, now=0.0), apart.publish_due(now=0.0)
    with ReleaseBook(tmp_path / "together.db", EVERYBODY) as book:
        statements: list[str] = []
        book.database.set_trace_callback(statements.append)
        assert book.exchange(batch, now=0.0) == expected
        assert statements.count("COMMIT") == 1
        known, none = book.exchange(batch, now=0.0)
        assert ({receipt.status for receipt in known}, none) == ({"known"}, [])


def test_a_commit_within_another_fails_both(tmp_path: Path) -> None:
    with ReleaseBook(tmp_path / "book.db", EVERYBODY) as book:

        def both() -> None:
            with book.writing() as db:
                db.execute("INSERT INTO terms VALUES (9, 'a', '')")
                with pytest.raises(StoreError, match="neither of them happens"), book.writing():
                    pass
                db.execute("INSERT INTO terms VALUES (9, 'b', '')")

        with pytest.raises(StoreError, match="nothing of the commit happened"):
            both()
        assert book.database.execute("SELECT count(*) FROM terms WHERE season = 9").fetchone() == (0,)


def test_if_the_sum_cannot_be_written_nothing_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [(name, _stream(1)[0]) for name in NAMES]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with ReleaseBook(tmp_path / "one.db", EVERYBODY) as book:
        with monkeypatch.context() as broken:
            broken.setattr(book, "_publish", full)
            with pytest.raises(OSError, match="No space"):
                book.exchange(batch, now=0.0)
        assert book.progress() == {}
        receipts, (first,) = book.exchange(batch, now=0.0)
        assert ([receipt.status for receipt in receipts], first.names) == (["stored"] * 3, NAMES)


def test_a_sum_is_made_when_all_are_there_and_stays_the_same_in_any_order(tmp_path: Path) -> None:
    streams = {name: _stream(2) for name in NAMES}
    with ReleaseBook(tmp_path / "one.db", EVERYBODY) as book:
        for name in NAMES:
            assert book.publish_due(now=0.0) == []
            assert book.receive([(name, streams[name][0])], now=0.0)[0].status == "stored"
        (first,) = book.publish_due(now=0.0)
        assert first.names == NAMES
        assert first.total.agents == 3
        assert book.publish_due(now=9e9) == []
        assert book.receive([("a", streams["a"][0])], now=1.0)[0].status == "known"
    with ReleaseBook(tmp_path / "two.db", EVERYBODY) as other:
        other.receive([(name, streams[name][0]) for name in reversed(NAMES)], now=5.0)
        assert other.publish_due(now=5.0) == [first]
    with ReleaseBook(tmp_path / "one.db", EVERYBODY) as book:
        assert book.newest() == first == book.published(1, 1)
        with pytest.raises(StoreError, match="sum 2 of season 1 was never made"):
            book.published(1, 2)


def test_with_a_quorum_the_deadline_decides_and_who_is_late_is_in_the_next(tmp_path: Path) -> None:
    streams = {name: _stream(2) for name in NAMES}
    path = tmp_path / "book.db"
    with ReleaseBook(path, EVERYBODY, quorum=2, deadline=10.0) as book:
        book.receive([("a", streams["a"][0])], now=100.0)
        assert book.next_due() is None  # one is not enough, however long it takes
        assert book.publish_due(now=1000.0) == []
        book.receive([("b", streams["b"][0])], now=105.0)
        assert book.next_due() == 110.0
        assert book.publish_due(now=109.0) == []
    with ReleaseBook(path, EVERYBODY, quorum=2, deadline=10.0) as book:  # the clock survives a restart
        (first,) = book.publish_due(now=110.0)
        assert first.names == ("a", "b")
        variance = messages.decode(streams["a"][0]).variance
        assert first.total.variance == pytest.approx(2 * variance)
        assert book.receive([("c", streams["c"][0])], now=111.0)[0].status == "stored"
        assert book.publish_due(now=999.0) == []
        assert book.published(1, 1) == first
        book.receive([(name, streams[name][1]) for name in NAMES], now=120.0)
        (second,) = book.publish_due(now=120.0)
        assert second.names == NAMES


def test_a_number_with_two_contents_is_refused_before_and_after_its_sum(tmp_path: Path) -> None:
    streams = {name: _stream(1) for name in NAMES}
    (other,) = _stream(1)
    with ReleaseBook(tmp_path / "book.db", EVERYBODY) as book:
        book.receive([("a", streams["a"][0])], now=0.0)
        for _ in range(2):
            receipt = book.receive([("a", other)], now=0.0)[0]
            assert (receipt.status, receipt.reason) == ("refused", "replay")
            book.receive([(name, streams[name][0]) for name in NAMES], now=0.0)
            book.publish_due(now=0.0)
        total = messages.combine([messages.decode(streams[name][0]) for name in NAMES])
        assert book.published(1, 1).payload == messages.encode(total)


def test_one_bad_message_in_a_batch_does_not_touch_the_others(tmp_path: Path) -> None:
    streams = {name: _stream(1) for name in NAMES}
    batch = [("a", streams["a"][0]), ("b", b"garbage"), ("x", streams["a"][0]), ("c", streams["c"][0])]
    with ReleaseBook(tmp_path / "book.db", EVERYBODY) as book:
        found = book.receive(batch, now=0.0)
        assert [one.status for one in found] == ["stored", "refused", "refused", "stored"]
        assert [one.reason for one in found[1:3]] == ["size", "sender"]
        assert book.progress() == {"a": 1, "c": 1}


def test_a_new_season_starts_numbers_again_and_old_ones_are_past(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    old = {name: _stream(3) for name in NAMES}
    new = {name: _stream(1, season=2) for name in NAMES}
    with ReleaseBook(path, EVERYBODY) as book:
        for number in range(2):
            book.receive([(name, old[name][number]) for name in NAMES], now=0.0)
        assert len(book.publish_due(now=0.0)) == 2
        receipt = book.receive([("a", new["a"][0])], now=0.0)[0]
        assert (receipt.status, receipt.reason) == ("refused", "season")
    with ReleaseBook(path, EVERYBODY, season=2) as book:
        newest = book.newest()
        assert newest is not None  # until there is one of this season
        assert newest.total.season == 1
        assert book.receive([("a", old["a"][2])], now=0.0)[0].status == "past"
        book.receive([(name, new[name][0]) for name in NAMES], now=0.0)
        (first,) = book.publish_due(now=0.0)
        assert (first.total.season, first.total.number) == (2, 1)
        assert book.newest() == first
    with pytest.raises(ConfigurationError, match="season is 1, expected at least 2"):
        ReleaseBook(path, EVERYBODY)


def test_the_file_has_one_opener_and_what_was_published_cannot_be_changed_in_it(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with ReleaseBook(path, EVERYBODY) as book:
        with pytest.raises(StoreInUseError, match="open elsewhere"):
            ReleaseBook(path, EVERYBODY)
        book.receive([(name, _stream(1)[0]) for name in NAMES], now=0.0)
        book.publish_due(now=0.0)
        for statement in (
            "DELETE FROM sums",
            "UPDATE sums SET named = x'00'",
            "DELETE FROM releases",
            "UPDATE releases SET sha256 = x'00'",
        ):
            with pytest.raises(Exception, match=r"never (changed|deleted)"):
                book.database.execute(statement)
    with pytest.raises(StoreError, match="is a store of kind releases, expected agent"):
        AgentStore.open(path, TERMS)


def test_a_trusted_controller_waits_as_long_and_counts_each_upload_once(tmp_path: Path) -> None:
    trusting = Terms(
        problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=3, trust=CONTROLLER
    )
    uploads = {}
    for name in NAMES:
        with AgentStore.open(tmp_path / f"{name}.db", trusting) as store:
            store.record(np.eye(2), np.ones(2))
            uploads[name] = store.upload()
    collector = open_collector(
        tmp_path / "controller.db", dict.fromkeys(NAMES, trusting), quorum=2, deadline=3600.0
    )
    assert isinstance(collector, TrustedCollector)
    assert [one.status for one in collector.receive([("a", uploads["a"])] * 2, now=0.0)] == [
        "stored",
        "known",
    ]
    other = uploads["a"][:-1] + bytes([uploads["a"][-1] ^ 1])
    found = collector.receive([("a", other), ("x", uploads["b"]), ("b", b"RAW2")], now=0.0)
    assert [one.reason for one in found] == ["replay", "sender", "malformed"]
    collector.receive([("b", uploads["b"])], now=0.0)
    due = collector.next_due()
    assert due is not None
    assert collector.publish_due(now=due - 1) == []
    assert (set(collector.last_received()), collector.sums()) == ({"a", "b"}, [])
    waits = collector.waits()
    assert waits is not None
    assert (waits["number"], waits["here"], waits["since"] + 3600.0) == (1, ["a", "b"], due)
    began = time.time() - 60.0
    (first,) = collector.publish_due(now=due)
    assert first.names == ("a", "b")
    (listed,) = collector.sums()
    at, noise = listed["published_at"], math.sqrt(first.total.variance)
    assert (listed["number"], listed["names"], listed["deviation"]) == (1, ["a", "b"], noise)
    assert set(collector.arrivals()) == {"a", "b"}
    assert began < min(at, *collector.last_received().values()) <= at <= time.time()
    collector.store.close()  # as it does where a disk fills up in the middle of a release
    (receipt,) = collector.receive([("c", uploads["c"])], now=0.0)
    assert receipt.status == "stored"
    assert collector.newest() == first  # c waits for the next
    assert sums.decode(sums.encode(first)) == first
    collector.close()


def test_looking_whether_a_file_is_open_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    assert not is_locked(path)
    with ReleaseBook(path, EVERYBODY):
        assert is_locked(path)
    assert not is_locked(path)
    looking = os.open(f"{path}.lock", os.O_RDONLY)  # a look that takes long
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.03, os.close, [looking]).start()
    with ReleaseBook(path, EVERYBODY):
        assert is_locked(path)


def test_terms_change_with_the_season_only_once_something_was_taken_in(tmp_path: Path) -> None:
    path, other = tmp_path / "book.db", replace(TERMS, budget=Budget(epsilon=8.0, delta=1e-6))
    with ReleaseBook(path, dict.fromkeys(NAMES, other)) as book:
        assert book.receive([("a", _stream(1)[0])], now=0.0)[0].reason == "variance"
    with ReleaseBook(path, EVERYBODY) as book:  # mended before anything was taken in
        assert book.receive([("a", _stream(1)[0])], now=0.0)[0].status == "stored"
    found = r"terms\.epsilon of a is 8\.0, expected 1\.0, under which .* raise `season`"
    with pytest.raises(ConfigurationError, match=found):
        ReleaseBook(path, dict.fromkeys(NAMES, other))
    with ReleaseBook(path, EVERYBODY | {"b": other}) as book:  # b has sent nothing
        assert book.progress() == {"a": 1}
    fewer = replace(TERMS, releases=5)
    with pytest.raises(ConfigurationError, match=r"terms\.releases of a is 5, expected 6"):
        ReleaseBook(path, dict.fromkeys(NAMES, fewer))
    with ReleaseBook(path, dict.fromkeys(NAMES, other), season=2) as book:
        assert (book.season, book.progress()) == (2, {})


def test_a_season_that_is_refused_for_its_terms_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with ReleaseBook(path, EVERYBODY) as book:
        book.receive([("a", _stream(1)[0])], now=0.0)
    with pytest.raises(ConfigurationError, match=r"terms\.dim of a is 3, expected 2"):
        ReleaseBook(path, dict.fromkeys(NAMES, replace(TERMS, problem=Problem(dim=3))))
    with ReleaseBook(path, EVERYBODY) as book:
        assert book.progress() == {"a": 1}


def test_agents_come_and_go_within_a_season(tmp_path: Path) -> None:
    path, stream = tmp_path / "book.db", _stream(2)
    with ReleaseBook(path, EVERYBODY) as book:
        book.receive([("a", stream[0]), ("b", _stream(1)[0])], now=0.0)
    with ReleaseBook(path, dict.fromkeys(("b", "c", "d"), TERMS)) as book:  # a has gone, d has come
        receipts = book.receive([("a", stream[1]), ("d", _stream(1)[0])], now=0.0)
        assert [(one.status, one.reason) for one in receipts] == [("refused", "sender"), ("stored", "")]
    own = replace(TERMS, budget=Budget(epsilon=2.0, delta=1e-6))
    with pytest.raises(ConfigurationError, match=r"terms\.epsilon of a is 2\.0"):  # it comes back as another
        ReleaseBook(path, EVERYBODY | {"a": own})
    with pytest.raises(ConfigurationError, match=r"terms\.releases of a is 5"):  # its release is in a sum
        ReleaseBook(path, {"c": replace(TERMS, releases=5)})


@pytest.mark.parametrize("version", [1, 2])  # before terms were kept; before seasons could wait together
def test_a_file_of_an_earlier_schema_goes_on(tmp_path: Path, version: int) -> None:
    path, payload = tmp_path / "book.db", _stream(1)[0]
    with sqlite3.connect(path) as db:
        for script in ReleaseBook.migrations[:version]:
            db.executescript(script)
        db.execute("INSERT INTO store (id, kind) VALUES (1, 'releases')")
        db.execute("INSERT INTO open_season VALUES (1, 1)")
        digest = hashlib.sha256(payload).digest()
        db.execute("INSERT INTO releases VALUES (1, 1, 'a', 0.0, ?)", (digest,))
        db.execute("INSERT INTO waiting (number, agent, payload) VALUES (1, 'a', ?)", (payload,))
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with ReleaseBook(path, EVERYBODY) as book:
        assert (book.progress(), book.last_received()) == ({"a": 1}, {"a": 0.0})
        receipts, (total,) = book.exchange([(name, _stream(1)[0]) for name in "bc"], now=1.0)
        assert ([one.status for one in receipts], total.names) == (["stored"] * 2, NAMES)
    with pytest.raises(ConfigurationError, match=r"terms\.epsilon of a"):
        ReleaseBook(path, dict.fromkeys(NAMES, replace(TERMS, budget=Budget(epsilon=8.0, delta=1e-6))))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="has schema 99, this feducb knows up to 3"):
        ReleaseBook(path, EVERYBODY)


@pytest.mark.parametrize("missing", [False, True])
def test_the_last_sum_of_a_season_is_of_those_who_were_in_it(tmp_path: Path, missing: bool) -> None:
    """With season 2 d comes and a leaves, while the last sum of season 1 waits for c; or c never sends it."""
    calendar, last = Calendar(1000.0, 100.0), TERMS.releases
    first = {name: _stream(last) for name in NAMES}
    second = {name: _stream(1, season=2)[0] for name in "bcd"}
    with ReleaseBook(tmp_path / "book.db", EVERYBODY, calendar=calendar) as book:
        book.renew(dict.fromkeys("bcd", TERMS))
        for number in range(last - 1):
            assert len(book.exchange([(name, first[name][number]) for name in NAMES], now=1010.0)[1]) == 1
        receipts, due = book.exchange([(name, first[name][-1]) for name in "ab"], now=1101.0)
        assert ([one.status for one in receipts], due) == (["stored", "stored"], [])
        (early,), _ = book.exchange([("b", second["b"])], now=1102.0)
        assert (early.status, early.reason) == ("refused", "season")  # it is offered again
        if missing:
            now = calendar.ends(1) + LINGER * calendar.length
        else:
            now = 1103.0
            _, (named,) = book.exchange([("c", first["c"][-1])], now=now)
            assert (named.season, named.number, named.names) == (1, last, NAMES)
        _, (named,) = book.exchange([(name, second[name]) for name in "bcd"], now=now)
        assert (named.season, named.number, named.names) == (2, 1, ("b", "c", "d"))
        assert book.exchange([("a", first["a"][-1])], now=now)[0][0].reason == "sender"

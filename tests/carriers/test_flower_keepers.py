"""Secure sums over Flower: rows up, cards and sums down, keepers at their agents' doors."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flower_net import Keys, Network, kill, require_flower, run_app, wait_for, wait_for_reports

from feducb.carriers.flower.desks import RowDesk, open_desk
from feducb.carriers.flower.exchange import Answer, Ask, digest_of
from feducb.carriers.flower.site import visit
from feducb.errors import ConfigurationError
from feducb.protocol.pads import Label
from feducb.protocol.roster import Signer
from feducb.storage import RowBook
from secured_sites import GAP, START, Secured, SecuredSite, running


@pytest.fixture
def world(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


def _settings(world: Secured, **changes: object) -> dict[str, Any]:
    """What a run is told."""
    (world.folder / "terms.json").write_text(world.terms.to_json(), encoding="utf-8")
    paths = {"book": "book.db", "terms": "terms.json", "roster": "federation.json", "seed": "controller.seed"}
    usual = {"agents": 1, "quorum": 0, "season": 1, "deadline-seconds": 0, "close-after-seconds": 0}
    return {name: str(world.folder / file) for name, file in paths.items()} | usual | changes


def _desk(world: Secured, **changes: object) -> RowDesk:
    desk = open_desk(_settings(world, **changes))
    assert isinstance(desk, RowDesk)
    return desk


class Rounds:
    """The ServerApp's part without Flower: sites are visited one after the other."""

    def __init__(self, desk: RowDesk, sites: dict[str, SecuredSite]) -> None:
        self.desk, self.sites, self.now = desk, sites, START
        self.answers: dict[str, Answer] = {}
        self.sent: dict[str, tuple[bytes, ...]] = {}

    def go(self, names: str = "abcd") -> list[str]:
        """One round; what the log says."""
        for name in names:
            known = self.answers.get(name, Answer())
            ask = Ask(
                nonce=b"",
                news=tuple(self.desk.news(known.place if name in self.answers else None)),
                rows=self.desk.rows_for(known.agent),
                sent=self.sent.get(name, ()),
            )
            with self.sites[name].door() as door:
                answer = self.answers[name] = visit(door, Ask.from_plain(ask.to_plain()))
            assert not answer.problems
            receipts = self.desk.take("", Answer.from_plain(answer.to_plain()), now=self.now)
            assert not [one for one in receipts if one.status == "refused"]
            self.sent[name] = tuple(digest_of(one) for one in answer.parcels)
        return self.desk.settle(now=self.now)

    def until(self, ready: Callable[[list[str]], bool], names: str = "abcd") -> None:
        """Rounds until the log says so: services build rows on their own."""
        for _ in range(600):
            if ready(self.go(names)):
                return
            time.sleep(0.1)
        raise AssertionError(self.desk.book.facts())


def test_rows_pass_through_doors_and_one_that_was_closed_empty_is_made_up_for(world: Secured) -> None:
    with running(world) as sites:
        desk = _desk(world, **{"deadline-seconds": 60, "close-after-seconds": 60})
        rounds = Rounds(desk, sites)
        world.now += GAP
        rounds.until(lambda said: "row 1 of season 1: 4 agents" in said)
        world.now += GAP  # too few come to row 2
        rounds.until(lambda said: len(desk.book.facts()["sent"]) == 2, "ab")
        rounds.now += 61.0
        rounds.until(lambda said: "row 2 of season 1: closed empty" in said, "abc")
        rounds.until(lambda said: "row 2 of season 1: 4 agents" in said)
        rounds.until(lambda said: all(one.place() == Label(1, 0, 2, 2) for one in sites.values()))
        assert all(one.decide() == "1.2" for one in sites.values())
        rounds.go()
        assert not any(answer.parcels for answer in rounds.answers.values())  # all were acknowledged
        first, empty, made_up = (world.read(body) for body in desk.book.since(None))
        assert (first.label, empty.label) == (Label(1, 0, 1), Label(1, 0, 2))
        assert made_up.label == Label(1, 0, 2, 2)
        assert empty.empty
        world.require_exact(first)
        world.require_exact(made_up)
        desk.close()


def test_nobody_is_believed_to_be_who_it_says_unless_it_signed(world: Secured) -> None:
    """A row or a card under another's name is refused, and changes nothing."""
    with running(world) as sites:
        desk = _desk(world)
        rounds = Rounds(desk, sites)
        world.now += GAP
        for name in "abc":
            rounds.go(name)
        for _ in range(600):
            rounds.go("d")
            if rounds.answers["d"].parcels:
                break
            time.sleep(0.1)
        (row,), (card,) = rounds.answers["d"].parcels, rounds.answers["a"].words
        assert desk.book.facts()["sent"] == ["d"]
        for claim in ("a", "d ", "", "nobody"):
            stolen = Answer(parcels=(row,), words=(card, b"", b"ANS1"), agent=claim)
            receipts = desk.take("", stolen, now=START)
            assert receipts[0].status == "refused"
            assert receipts[1].status == ("known" if claim == "a" else "refused")
            assert [one.status for one in receipts[2:]] == ["refused", "refused"]
        assert desk.book.facts()["sent"] == ["d"]
        assert desk.rows_for("nobody") == b""
        desk.close()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"roster": ""}, "roster is '', expected an absolute path"),
        ({"seed": "controller.seed"}, "seed is 'controller.seed', expected an absolute path"),
        ({"quorum": 2}, "quorum is 2, expected 3, all agents but those"),
        ({"deadline-seconds": 9, "close-after-seconds": 8}, "close_after"),
        ({"close-after-seconds": 60}, r"close_after is 60\.0, expected a deadline beside it"),
        ({"close-after-seconds": -1}, "close-after-seconds is -1, expected seconds"),
        ({"season": 0}, "season is 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    world: Secured, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        open_desk(_settings(world, **changes))


# Over Flower


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    require_flower()
    return Keys(tmp_path / "keys")


@pytest.fixture
def network(tmp_path: Path, keys: Keys) -> Iterator[Network]:
    opened = Network(tmp_path, keys)
    yield opened
    opened.close()


def _answers(book: Path, *, row: int) -> list[str]:
    """Who has answered the list of a row, by the running ServerApp's book."""
    with closing(sqlite3.connect(f"{book.as_uri()}?mode=ro", uri=True)) as db:
        query = "SELECT keeper FROM answers WHERE row = ? ORDER BY keeper"
        return [keeper for (keeper,) in db.execute(query, (row,))]


@pytest.mark.xdist_group("Flower")
def test_secure_sums_over_flower(world: Secured, keys: Keys, network: Network) -> None:
    """A keeper's SuperNode hangs: the row waits for it, decisions go on; the ServerApp is killed too.

    Both come back, and what opened is the sum of the rows in its list, bit for bit.
    """
    folder, nodes = world.folder, {}
    files = {"roster": folder / "federation.json", "seed": folder / "controller.seed"}
    with running(world) as sites:

        def over(row: int) -> Callable[[], bool]:
            return lambda: all(one.place() == Label(1, 0, row) for one in sites.values())

        network.start_link()
        for name, site in sites.items():
            private, public = keys.node(f"node-{name}")
            network.flwr("supernode", "register", str(public))
            nodes[name] = network.start_node(f"node-{name}", site, private)
        world.now += GAP
        times = {"poll_seconds": 6, "deadline_seconds": 1}
        run_app(network, folder, world.terms, **times, **files)
        wait_for(over(1), "row 1 is over everywhere", log=network.log, every=1.0)

        nodes["c"].send_signal(signal.SIGSTOP)
        for process in network.processes("flwr-serverapp"):
            kill(process)
        world.now += GAP
        run = run_app(network, folder, world.terms, **times, **files)
        wait_for(lambda: _answers(folder / "book.db", row=2) == ["a", "b"], "two answers", log=network.log)
        wait_for_reports(network, run, "Row 2 of season 1 waits for keeper c.")
        assert all(one.decide() == "1.1" for one in sites.values())
        assert not over(2)()
        nodes["c"].send_signal(signal.SIGCONT)
        wait_for(over(2), "row 2 is over everywhere", log=network.log, every=1.0)
        assert {one.decide() for one in sites.values()} == {"1.2"}
        network.close()
    book = RowBook(folder / "book.db", world.roster, world.terms, Signer(folder / "controller.seed"))
    with book:
        opened = [world.read(body) for body in book.since(None)]
    assert [one.label for one in opened] == [Label(1, 0, 1), Label(1, 0, 2)]
    assert opened[1].names(world.roster) == ("a", "b", "d")
    for one in opened:
        world.require_exact(one)

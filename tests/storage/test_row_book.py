"""The controller's file under keepers: one list and one sum a row, for ever, whatever arrives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.errors import ConfigurationError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import pads
from feducb.protocol.calendar import Calendar
from feducb.protocol.keeping import quorum_of
from feducb.protocol.pads import Label
from feducb.protocol.roster import Signer
from feducb.protocol.secure_rows import Answer, Ask, KeyCard, Opened, PaddedRow
from feducb.storage import RowBook
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.row_book import PublishedRow
from keepers_world import Ints, World

FIRST = Label(1, 0, 1)


def _read(world: World, body: bytes) -> Opened:
    count = world.terms.model.coordinates(world.dim)
    return Opened.read(body, world.charter, world.roster, coordinates=count, quorum=quorum_of(world.terms))


def _introduce(world: World, book: RowBook, keepers: dict[str, KeeperBook]) -> dict[str, KeyCard]:
    """Keepers show their cards; returns what agents read in them."""
    receipts = book.hear([(name, one.card()) for name, one in keepers.items()], now=0.0)
    assert {one.status for one in receipts} == {"stored"}
    return world.read_cards(book.cards())


def _answer(book: RowBook, keepers: dict[str, KeeperBook], *, now: float = 1.0) -> list[PublishedRow]:
    """All keepers answer; what opens."""
    asks = book.asks()
    receipts = book.hear([(name, keepers[name].answer(ask)) for name, ask in asks.items()], now=now)
    assert {one.status for one in receipts} == {"stored"}
    return book.publish_due(now=now)


def test_200_rows_open_as_the_sum_of_what_was_padded_bit_for_bit(tmp_path: Path) -> None:
    """20 federations of 10 rows; who is away, in which order rows come and which come twice is drawn."""
    draws, cases, empty = np.random.default_rng(1000), 0, 0
    for number in range(20):
        agents = int(draws.integers(4, 51))
        away = int(draws.integers(0, max(1, agents // 3)))
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(
            folder,
            agents=agents,
            keepers=int(draws.integers(2, min(agents, 5) + 1)),
            dim=int(draws.integers(3, 51)) if number % 2 else int(draws.integers(3, 12)),
            releases=10,
            trust=f"keepers:{away}:1",
            seed=number,
        )
        with world.row_book(deadline=1.0, close_after=1.0) as book:
            keepers = world.keeper_books()
            cards = _introduce(world, book, keepers)
            label = FIRST
            while label.row <= 10:
                cases, label = cases + 1, _one_row(world, book, keepers, cards, label, draws)
                empty += label.attempt == 2
            for one in keepers.values():
                one.close()
    assert cases == 200 + empty
    assert empty > 3


def _one_row(
    world: World,
    book: RowBook,
    keepers: dict[str, KeeperBook],
    cards: dict[str, KeyCard],
    label: Label,
    draws: np.random.Generator,
) -> Label:
    """Some agents send, some of them twice; the row opens. Returns which comes next."""
    away = int(draws.integers(0, world.agents - quorum_of(world.terms) + 1))
    if draws.random() < 0.05:
        away = world.agents - quorum_of(world.terms) + 1
    here = [str(name) for name in draws.permutation(world.names)[: world.agents - away]]
    built = {name: world.build(name, label, cards) for name in here}
    batch = [(name, row.to_bytes()) for name, (row, _) in built.items()]
    batch += [batch[index] for index in draws.integers(0, len(batch), 2)]
    order = [batch[index] for index in draws.permutation(len(batch))]
    cut = int(draws.integers(1, len(order)))
    statuses = [one.status for part in (order[:cut], order[cut:]) for one in book.receive(part, now=0.0)]
    assert sorted(statuses) == ["known"] * 2 + ["stored"] * len(here)
    assert book.publish_due(now=1.0) == []
    asks = book.asks()
    replies = [(name, keepers[name].answer(asks[name])) for name in draws.permutation(list(keepers))]
    assert {one.status for one in book.hear([*replies, replies[0]], now=1.0)} == {"stored", "known"}
    (published,) = book.publish_due(now=1.0)
    opened = _read(world, published.body)
    if len(here) < quorum_of(world.terms):
        assert opened.empty
        assert opened.values is None
    else:
        assert (opened.refused, set(opened.names(world.roster))) == ("", set(here))
        assert opened.values is not None
        assert np.array_equal(opened.values, _total([values for _, values in built.values()]))
    following = label.following(empty=opened.empty)
    if following.row > label.row:
        world.skip(label)
    return following


def _total(rows: list[Ints]) -> Ints:
    return np.asarray(np.sum(rows, axis=0, dtype=np.int64))


def test_opened_and_reopened_at_every_step_it_tells_the_same_bytes(tmp_path: Path) -> None:
    world = World(tmp_path)
    keepers = world.keeper_books()
    with world.row_book() as book:
        cards = _introduce(world, book, keepers)
    told: list[tuple[dict[str, bytes], bytes]] = []
    for number in (1, 2, 3):
        label = Label(1, 0, number)
        rows = {name: world.build(name, label, cards)[0].to_bytes() for name in world.names}
        for name, payload in rows.items():
            with world.row_book() as book:
                assert [one.status for one in book.receive([(name, payload)], now=1.0)] == ["stored"]
                assert bool(book.asks()) == (name == world.names[-1])  # all are here
        with world.row_book() as book:
            assert book.publish_due(now=1.0) == []
            asks = book.asks()
            assert asks.keys() == keepers.keys()
        for name, one in keepers.items():
            with world.row_book() as book:
                assert book.asks()[name] == asks[name]
                assert book.hear([(name, one.answer(asks[name]))], now=3.0)[0].status == "stored"
                assert name not in book.asks()
        with world.row_book() as book:
            assert book.publish_due(now=4.0) == []  # it was opened in the life before
            published = book.newest()
            assert published is not None
            assert (published.number, published.names) == (number, world.names)
            assert book.since(Label(1, 0, number - 1) if number > 1 else None) == [published.body]
            assert [one.status for one in book.receive(list(rows.items()), now=5.0)] == ["known"] * 5
            newest = book.sums()[0]
            assert (newest["number"], newest["published_at"]) == (number, 3.0)
            assert newest["deviation"] > 0.0
            assert set(book.cards()) == {one.card() for one in keepers.values()}
        told.append((asks, published.body))
    with world.row_book() as book:
        assert book.since(None) == [body for _, body in told]
        assert book.since(FIRST, most=1) == [told[1][1]]
        assert book.database.execute("SELECT count(*) FROM waiting").fetchone() == (0,)
    for one in keepers.values():
        one.close()


def test_padded_rows_are_gone_from_the_file_once_their_sum_has_opened(tmp_path: Path) -> None:
    world = World(tmp_path)
    keepers = world.keeper_books()
    with world.row_book() as book:
        cards = _introduce(world, book, keepers)
        rows = {name: world.build(name, FIRST, cards)[0] for name in world.names}
        book.exchange([(name, row.to_bytes()) for name, row in rows.items()], now=0.0)
        book.cut_log()
        assert all(row.body in (tmp_path / "controller.db").read_bytes() for row in rows.values())
        assert len(_answer(book, keepers)) == 1
    left = b"".join(path.read_bytes() for path in tmp_path.glob("controller.db*"))
    assert not any(row.body[:32] in left for row in rows.values())


def test_what_is_not_the_open_row_is_past_or_out_of_order_and_a_second_content_is_refused(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    keepers = world.keeper_books()
    with world.row_book(deadline=10.0) as book:
        cards = _introduce(world, book, keepers)
        rows = {name: world.build(name, FIRST, cards)[0] for name in world.names}
        first, *others, late = world.names

        def send(name: str, row: PaddedRow) -> tuple[str, str]:
            (receipt,) = book.receive([(name, row.to_bytes())], now=0.0)
            return receipt.status, receipt.reason

        assert send(first, rows[first]) == ("stored", "")
        again = replace(rows[first], nonce=bytes(32)).sign(world.charter, first, world.signers[first])
        assert send(first, again) == ("refused", "replay")
        second = replace(rows[late], label=Label(1, 0, 2))
        ahead = second.sign(world.charter, late, world.signers[late])
        assert send(late, ahead) == ("refused", "order")
        assert send(late, second) == ("refused", "signature")
        assert send(late, rows[first]) == ("refused", "signature")
        assert send("nobody", rows[first]) == ("refused", "sender")
        for label, reason in (
            (Label(2, 0, 1), "season"),
            (Label(1, 1, 1), "group"),
            (Label(1, 0, 9), "number"),
        ):
            other = replace(rows[late], label=label).sign(world.charter, late, world.signers[late])
            assert send(late, other) == ("refused", reason)
        assert book.receive([(late, rows[late].to_bytes()[:-8])], now=0.0)[0].reason == "size"
        for name in others:
            assert send(name, rows[name]) == ("stored", "")
        assert (book.next_due(), book.publish_due(now=9.0), book.asks()) == (10.0, [], {})
        assert book.publish_due(now=10.0) == []
        assert len(book.asks()) == 3
        assert (book.next_due(), book.facts()["waits_for_agents"]) == (None, [])
        assert send(late, rows[late]) == ("past", "")  # the list is final
        changed = replace(rows[late], nonce=bytes(32)).sign(world.charter, late, world.signers[late])
        assert send(late, changed) == ("refused", "replay")
        (published,) = _answer(book, keepers)
        assert published.names == tuple(sorted((first, *others)))
        assert send(late, rows[late]) == ("known", "")
        assert send(late, changed) == ("refused", "replay")
        assert book.progress() == dict.fromkeys(world.names, 1)


def test_answers_that_do_not_fit_are_refused_and_the_keeper_is_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    keepers = world.keeper_books()
    one, two, _ = keepers
    with world.row_book() as book:
        cards = _introduce(world, book, keepers)
        early = Answer(one, FIRST, bytes(32), bytes(8 * 9)).sign(world.charter, world.keeper_signers[one])
        assert _heard(book, one, early.to_bytes(world.roster)) == ("refused", "order")
        rows = {name: world.build(name, FIRST, cards)[0] for name in world.names}
        book.exchange([(name, row.to_bytes()) for name, row in rows.items()], now=0.0)
        asks = book.asks()
        right = keepers[one].answer(asks[one])
        for bad, reason in (
            (right[:-1], "size"),
            (b"what?", "malformed"),
            (right[:-64] + bytes(64), "signature"),
            (early.to_bytes(world.roster), "list"),
            (replace(early, label=Label(1, 0, 2)), "order"),
        ):
            data = bad
            if isinstance(bad, Answer):
                data = bad.sign(world.charter, world.keeper_signers[one]).to_bytes(world.roster)
            assert isinstance(data, bytes)
            assert _heard(book, one, data) == ("refused", reason)
            assert book.asks() == asks
        assert _heard(book, two, right) == ("refused", "sender")
        assert _heard(book, one, right) == ("stored", "")
        assert _heard(book, one, right) == ("known", "")
        ask = Ask.read(asks[one], world.charter, world.roster)
        digest = Answer.read(right, world.charter, world.roster, coordinates=9).listed
        other = Answer(one, ask.label, digest, bytes(72)).sign(world.charter, world.keeper_signers[one])
        assert _heard(book, one, other.to_bytes(world.roster)) == ("refused", "replay")
        with KeeperBook(
            tmp_path / "other.db", one, world.roster, world.terms, world.keeper_signers[one]
        ) as new:
            other_card = new.card()
        assert _heard(book, one, other_card) == ("refused", "key")


def _heard(book: RowBook, keeper: str, data: bytes) -> tuple[str, str]:
    (receipt,) = book.hear([(keeper, data)], now=0.0)
    return receipt.status, receipt.reason


def test_below_the_quorum_a_row_is_closed_empty_made_up_for_once_and_then_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    keepers = world.keeper_books()
    with world.row_book(deadline=5.0, close_after=60.0) as book:
        cards = _introduce(world, book, keepers)
        few = world.names[:3]
        bodies: list[bytes] = []
        for label in (FIRST, Label(1, 0, 1, 2)):
            rows = {name: world.build(name, label, cards)[0] for name in few}
            book.exchange([(name, row.to_bytes()) for name, row in rows.items()], now=100.0)
            assert book.facts()["waiting"].endswith("has 3 of 5 agents, and needs 4.")
            assert book.facts()["waits_for_agents"] == list(world.names[3:])
            assert (book.next_due(), book.publish_due(now=159.0), book.asks()) == (160.0, [], {})
            book.publish_due(now=160.0)
            (published,) = _answer(book, keepers, now=161.0)
            opened = _read(world, published.body)
            assert (opened.label, opened.empty) == (label, True)
            bodies.append(published.body)
        world.skip(FIRST)
        second = Label(1, 0, 2)
        rows = {name: world.build(name, second, cards)[0] for name in world.names[1:]}
        assert book.exchange([(name, row.to_bytes()) for name, row in rows.items()], now=200.0)[1] == []
        assert book.next_due() == 205.0
        book.publish_due(now=205.0)
        assert _answer(book, keepers)[0].names == world.names[1:]
        assert book.since(None)[:2] == bodies
        assert book.since(FIRST) == book.since(None)[1:]


def test_time_that_the_controller_was_away_closes_no_row(tmp_path: Path) -> None:
    """Agents that could not send meanwhile are waited for as if the first row had come just now."""
    world = World(tmp_path)
    keepers = world.keeper_books()
    with world.row_book(deadline=5.0, close_after=60.0) as book:
        cards = _introduce(world, book, keepers)
        rows = {name: world.build(name, FIRST, cards)[0].to_bytes() for name in world.names}
        book.exchange([(name, rows[name]) for name in world.names[:3]], now=100.0)
    with world.row_book(deadline=5.0, close_after=60.0) as book:
        book.listen(now=9000.0)
        assert (book.publish_due(now=9000.1), book.asks(), book.next_due()) == ([], {}, 9060.0)
        book.exchange([(world.names[3], rows[world.names[3]])], now=9001.0)
        assert (book.asks(), book.next_due()) == ({}, 9005.0)  # now a quorum
        book.listen(now=9004.0)  # away again, for a moment
        book.exchange([], now=9006.0)
        assert book.asks() == {}
        book.exchange([(world.names[4], rows[world.names[4]])], now=9007.0)
        assert _answer(book, keepers)[0].names == world.names


def test_a_sum_that_no_honest_rows_make_is_told_as_refused_and_the_next_is_read_without_it(
    tmp_path: Path,
) -> None:
    """Pads that do not cancel give `range`; an agent that sends nonsense in range gives `definite`."""
    world = World(tmp_path, dim=3)
    keepers = world.keeper_books()
    liar = world.names[0]
    with world.row_book() as book:
        cards = _introduce(world, book, keepers)
        reader = DeployedPrivatizer(world.terms)
        for number, reason in ((1, ""), (2, "range"), (3, "definite"), (4, "")):
            label = Label(1, 0, number)
            built = {name: world.build(name, label, cards) for name in world.names}
            rows = {name: row for name, (row, _) in built.items()}
            shift = {"": 0, "range": 2**61, "definite": -(10**6) * world.terms.certificate().sigma}[reason]
            words = pads.from_bytes(rows[liar].body) + pads.to_words(np.full(9, shift, dtype=np.int64))
            spoilt = replace(rows[liar], body=pads.to_bytes(words))
            rows[liar] = spoilt.sign(world.charter, liar, world.signers[liar])
            book.exchange([(name, row.to_bytes()) for name, row in rows.items()], now=0.0)
            (published,) = _answer(book, keepers)
            opened = _read(world, published.body)
            assert (opened.label, opened.refused) == (label, reason)
            told = reader.read(None if reason else opened.values, agents=5)
            world.skip(label)
        assert opened.values is not None
        assert book._reader is not None
        state = book._reader._door.dump()
        assert state == reader.dump()  # the controller reads as everybody does
        assert told.number == 4


def test_a_season_ends_after_its_last_row_and_the_next_has_new_keys_and_its_own_rows(tmp_path: Path) -> None:
    world = World(tmp_path, releases=1)
    keepers = world.keeper_books()
    with world.row_book() as book:
        cards = _introduce(world, book, keepers)
        rows = [(name, world.build(name, FIRST, cards)[0].to_bytes()) for name in world.names]
        book.exchange(rows, now=0.0)
        assert len(_answer(book, keepers)) == 1
        old = book.since(None)
        assert book.facts()["row"] is None
        assert (book.facts()["waiting"], book.asks(), book.next_due()) == ("", {}, None)
    for one in keepers.values():
        one.close()
    world.begin(2)
    with world.row_book() as book:
        assert book.receive(rows, now=1.0)[0].status == "past"
        assert (book.cards(), book.since(None)) == ([], [])
        assert book.facts()["waiting"] == "No row can be sent before keepers a02, a03, a04 showed a key."
        keepers = world.keeper_books()
        cards = _introduce(world, book, keepers)
        assert book.facts()["waiting"] == ""
        label = Label(2, 0, 1)
        book.exchange(
            [(name, world.build(name, label, cards)[0].to_bytes()) for name in world.names], now=2.0
        )
        assert book.facts()["waiting"] == "Row 1 of season 2 waits for keepers a02, a03, a04."
        (published,) = _answer(book, keepers)
        assert book.since(FIRST) == [published.body]
        assert book.since(None) == [published.body] != old
    for one in keepers.values():
        one.close()
    world.begin(1)
    with pytest.raises(ConfigurationError, match="season is 1, expected at least 2"):
        world.row_book()


def test_settings_that_do_not_go_together_are_refused_in_a_sentence(tmp_path: Path) -> None:
    world = World(tmp_path)
    path, everybody = tmp_path / "controller.db", dict.fromkeys(world.names, world.terms)
    signing = (world.roster, world.controller)
    for quorum in (1, 3, 5):
        with pytest.raises(ConfigurationError, match=f"quorum is {quorum}, expected 4, all agents but"):
            open_collector(path, everybody, quorum=quorum, signing=signing)
    open_collector(path, everybody, quorum=4, deadline=1.0, close_after=2.0, signing=signing).close()
    with pytest.raises(ConfigurationError, match="close_after is 1"):
        open_collector(path, everybody, deadline=2.0, close_after=1.0, signing=signing)
    with pytest.raises(ConfigurationError, match=r"close_after is 2\.0, expected a deadline beside it"):
        open_collector(path, everybody, close_after=2.0, signing=signing)
    with pytest.raises(ConfigurationError, match="signing is None"):
        open_collector(path, everybody)
    with pytest.raises(ConfigurationError, match="expected that of the controller"):
        open_collector(path, everybody, signing=(world.roster, Signer.fresh()))
    with pytest.raises(ConfigurationError, match="expected one with keepers"):
        open_collector(path, everybody, signing=(replace(world.roster, keepers={}), world.controller))
    other = replace(world.terms, releases=9)
    with pytest.raises(ConfigurationError, match="others need a new season"):
        open_collector(path, dict.fromkeys(world.names, other), signing=signing)
    alone = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=6)
    with pytest.raises(ConfigurationError, match=r"close_after is 3\.0, expected nothing under trust nobody"):
        open_collector(tmp_path / "other.db", {"a": alone}, close_after=3.0)


def test_a_new_key_that_is_in_place_before_its_season_waits_for_it(tmp_path: Path) -> None:
    """Under it nobody takes what a keeper says, and the controller would keep the roster of before."""
    world, calendar, new = World(tmp_path), Calendar(start=1000.0, length=100.0), Signer.fresh()
    for_controller = Signer.fresh()
    name, terms, roster = world.names[-1], world.terms, world.roster
    fourth = replace(roster, keepers=roster.keepers | {name: new.nkey}, controller=for_controller.nkey)
    own = world.keeper_signers[name]
    keeper = KeeperBook(tmp_path / "k.db", name, roster, terms, own, calendar=calendar)
    controller = RowBook(tmp_path / "c.db", roster, terms, world.controller, calendar=calendar)
    with keeper, controller:
        for season, holds in ((2, roster), (3, roster), (4, fourth)):
            keeper.renew(holds, terms, new)
            controller.renew(holds, terms, for_controller)
            now = calendar.starts(season) + 11.0
            controller.publish_due(now=now)
            assert keeper.roll(now=now)
            assert (keeper.season, controller.season, controller.roster) == (season, season, holds)
            assert keeper.duty.signer.nkey == holds.keepers[name]

"""A clock that leaves out a season is not believed at once, by keepers and controllers as by agents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from feducb.controller.collector import TrustedCollector, open_collector
from feducb.privacy.terms import Terms
from feducb.protocol import calendar
from feducb.protocol.calendar import Calendar
from feducb.storage import ReleaseBook, RowBook
from feducb.storage.keeper_book import KeeperBook
from feducb.trust import require_trust
from keepers_world import World

Book = KeeperBook | RowBook | TrustedCollector | ReleaseBook
Opened = Callable[[World], Book]
SEASONS = Calendar(start=1000.0, length=100.0)
FAR = SEASONS.starts(51) + 1.0


def _keeper(world: World) -> KeeperBook:
    name = world.names[-1]
    signer = world.keeper_signers[name]
    return KeeperBook(world.folder / "keeper.db", name, world.roster, world.terms, signer, calendar=SEASONS)


def _rows(world: World) -> RowBook:
    return RowBook(world.folder / "rows.db", world.roster, world.terms, world.controller, calendar=SEASONS)


def _trusted(world: World) -> TrustedCollector:
    terms = replace(world.terms, trust=require_trust("controller"), agents=0)
    made = open_collector(world.folder / "trusted.db", dict.fromkeys(world.names, terms), calendar=SEASONS)
    assert isinstance(made, TrustedCollector)
    return made


def _releases(world: World) -> ReleaseBook:
    made = Terms(problem=world.terms.problem, budget=world.terms.budget, releases=world.terms.releases)
    terms = Terms.from_json(made.to_json())  # as a file has them
    return ReleaseBook(world.folder / "releases.db", dict.fromkeys(world.names, terms), calendar=SEASONS)


def _look(book: Book, now: float) -> int:
    if isinstance(book, KeeperBook):
        book.roll(now=now)
    else:
        book.publish_due(now=now)
    return book.season


@pytest.mark.parametrize("opened", [_keeper, _rows, _trusted])
def test_a_leap_is_believed_after_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    world = World(tmp_path)
    with closing(opened(world)) as book:
        assert _look(book, SEASONS.starts(1) + 1.0) == 1
        assert [_look(book, now) for now in (FAR, FAR, SEASONS.starts(1) + 2.0)] == [1, 1, 1]
        assert _look(book, SEASONS.ends(1) + 11.0) == 2  # what comes next is opened as ever
        assert _look(book, FAR) == 2
        monkeypatch.setattr(calendar, "BELIEVED_AFTER", 0.0)
        assert _look(book, FAR) == 51
        assert _look(book, SEASONS.starts(3)) == 51  # and none is opened twice


@pytest.mark.parametrize("opened", [_keeper, _rows, _trusted, _releases])
def test_a_new_file_begins_with_the_season_that_runs(tmp_path: Path, opened: Opened) -> None:
    with closing(opened(World(tmp_path))) as book:
        assert _look(book, FAR) == 51


def test_who_comes_with_the_next_season_does_not_come_with_a_leap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a controller that nobody trusts: it goes back with its clock, but terms that it took stay."""
    world = World(tmp_path)
    with closing(_releases(world)) as book:
        (everybody, one), quorum = (book._terms, world.names[0]), book.quorum
        assert _look(book, SEASONS.starts(2) + 1.0) == 2
        book.renew({one: everybody[one]})
        assert [_look(book, now) for now in (FAR, FAR)] == [2, 2]
        assert (book._terms, book.quorum) == (everybody, quorum)
        assert (_look(book, SEASONS.starts(2) + 2.0), book._terms) == (2, everybody)
    with closing(_releases(world)) as book:  # nothing of the leap is in the file
        assert (book.season, book._terms) == (2, everybody)
        book.renew({one: everybody[one]})
        assert (_look(book, SEASONS.ends(2) + 11.0), set(book._terms)) == (3, {one})
        monkeypatch.setattr(calendar, "BELIEVED_AFTER", 0.0)
        assert [_look(book, now) for now in (FAR, SEASONS.starts(3) + 1.0)] == [51, 3]


def test_a_controller_that_was_restarted_knows_which_season_ran(tmp_path: Path) -> None:
    """No sum came of it yet: a minute would pass before its releases are taken, as after a leap."""
    world = World(tmp_path)
    for number in (4, 5):
        with closing(_releases(world)) as book:
            assert _look(book, SEASONS.starts(number) + 1.0) == number

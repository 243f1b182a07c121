"""A clock that leaves out a season is not believed at once, by keepers and controllers as by agents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from feducb.controller.collector import TrustedCollector, open_collector
from feducb.protocol import calendar
from feducb.protocol.calendar import Calendar
from feducb.storage import RowBook
from feducb.storage.keeper_book import KeeperBook
from feducb.trust import require_trust
from keepers_world import World

Opened = Callable[[World], KeeperBook | RowBook | TrustedCollector]
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


def _look(book: KeeperBook | RowBook | TrustedCollector, now: float) -> int:
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


@pytest.mark.parametrize("opened", [_keeper, _rows, _trusted])
def test_a_new_file_begins_with_the_season_that_runs(tmp_path: Path, opened: Opened) -> None:
    with closing(opened(World(tmp_path))) as book:
        assert _look(book, FAR) == 51

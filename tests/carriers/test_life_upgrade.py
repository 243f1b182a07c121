"""Upgrades over a real broker: federations of earlier versions go on in the middle of their season.

Their files were made by those versions' own code (`earlier/make.py`, `formats/make_files.py`); everybody is
started once, with today's.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from life_world import RELEASES, SEASON, START, Site, World
from nats_world import Broker, cut_in_a_handshake, free_port, require_server

from feducb.agent.agent_file import read_agent_file
from feducb.carriers import nats_keys as keys
from feducb.protocol import messages
from feducb.protocol.signed_roster import newest_roster
from feducb.storage import AgentStore, ControllerStore, ReleaseBook, RowBook, own_sums
from feducb.storage.keeper_book import KeeperBook
from typed import typed

pytestmark = cut_in_a_handshake
HERE = Path(__file__).parent
ARCHIVES = [*sorted((HERE / "earlier").glob("*.tar.xz")), *sorted((HERE.parent / "formats").glob("*.tar.xz"))]
# By kind of federation: the sum that is there, and the one up to which its first season is followed.
FIRST = {"keys": 1, "own": 1, "closed": 2, "uploads": 1, "keepers": 1}
LAST = {"keys": 3, "own": 2, "closed": 2, "uploads": 3, "keepers": 3}
NOISY = ("c8d6c51", "1.0.0")  # too much noise to tell whose records are in a sum
RECORDS, REWARD, NOW = 9, 0.25, 0.5  # of each agent in its file; their rewards, and those of today's
# Tables of what left
TOLD = ("outgoing", "received", "releases", "sums", "rows", "lists", "answers", "opened")
NUMBERS = {
    one.kind: len(one.migrations) for one in (AgentStore, ControllerStore, ReleaseBook, RowBook, KeeperBook)
}

Told = dict[tuple[Path, str], tuple[str, set[tuple[Any, ...]]]]


def _federations() -> Iterator[Any]:
    for path in ARCHIVES:
        version = path.name.removesuffix(".tar.xz")
        with tarfile.open(path) as archive:
            inside = {name.split("/")[0] for name in archive.getnames()}
        yield from (
            pytest.param(path, kind, version not in NOISY, id=f"{version}-{kind}")
            for kind in FIRST
            if kind in inside
        )


@pytest.mark.parametrize(("archive", "kind", "exact"), list(_federations()))
def test_files_of_an_earlier_version_go_on_in_the_middle_of_their_season(
    archive: Path, kind: str, exact: bool, tmp_path: Path
) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    folder = tmp_path / kind
    names = sorted(path.name for path in (folder / "agents").iterdir())
    _give_seasons(folder)
    told, world = _told(folder), World(_earlier_broker(folder))
    sites = world.sites

    async def run() -> None:
        world.set_clock(START + FIRST[kind] * SEASON / RELEASES + 20)
        async with AsyncExitStack() as stack:
            controller = await stack.enter_async_context(world.controller())
            books = [
                await stack.enter_async_context(world.keeper(path))
                for path in sorted((folder / "keepers").glob("*"))
            ]
            for name in names:
                sites[name] = Site(folder / "agents" / name, world)
                sites[name].start()
            counted = {name: _counts(site) for name, site in sites.items()}
            assert {site.model for site in sites.values()} == {f"1.{FIRST[kind]}"}

            for number in range(FIRST[kind] + 1, LAST[kind] + 1):
                await world.sum_of(number, *names)
                assert sorted(controller.status.members) == names
                total = _agreed(sites)
                assert total.number == number
                if exact:
                    assert _records_of_before(total) == RECORDS * len(names)
            await world.some_visitors()
            _require_unchanged(told)
            _require_todays_formats(folder)
            if kind in ("own", "closed"):
                for site in sites.values():
                    _require_own(site)
            assert controller.refusals.total == 0
            assert not any(site.status.refused for site in sites.values())
            assert not any(book.halted or book.refusals for book in books)

            if kind in ("own", "closed"):
                await _open_by_hand(world, known=kind == "own")
            else:
                await world.open_season(*names)
                await world.sum_of(1, *names)
                assert sorted(controller.status.members) == names
                _agreed(sites)
            await world.some_visitors()
            _require_unchanged(told)
            for name, site in sites.items():
                assert site.restarts == 0
                [remembered] = site.agent.snapshot()["memory"]["seasons"]
                assert remembered["season"] == 1
                _require_answered(counted[name], site)
                await site.stop()

    try:
        asyncio.run(run())
    finally:
        world.broker.stop()


async def _open_by_hand(world: World, *, known: bool) -> None:
    """Own play shares again on a person's word alone, and takes along what entered no sum."""
    world.set_clock(START + SEASON + 1)
    for site in world.sites.values():
        site.tick()
        assert site.agent.store.season == 1
        later = read_agent_file(site.folder / "agent.toml", season=2).agent
        assert site.agent.new_season(later, drop_open=True) == 2
        before = own_sums.read(site.agent.store.database, "before")
        assert before is not None
        assert (before.squares is not None) == known


def _agreed(sites: dict[str, Site]) -> messages.GridSum:
    """The newest sum: the same at all of them."""
    query = "SELECT payload FROM inbox"
    (payload,) = {site.agent.store.database.execute(query).fetchone()[0] for site in sites.values()}
    return messages.decode(payload)


def _records_of_before(total: messages.GridSum) -> int:
    """How many records with the earlier reward are in a sum, whose actions are unit vectors along an axis.

    Noise moves it by half a record at more than 8 of its deviations: false alarm below 2e-15.
    """
    read = total.read()
    deviation = np.sqrt(float(read.variance) * (2 * 2 * NOW**2 + 2)) / (NOW - REWARD)
    assert 8 * deviation < 0.5
    return round(float(NOW * np.trace(read.gram) - read.moment.sum()) / (NOW - REWARD))


def _counts(site: Site) -> Counter[str]:
    return Counter(site.agent.snapshot()["counts"])


def _require_answered(before: Counter[str], site: Site) -> None:
    """Every visitor got a decision, its reward was taken, and none of before or since was left out."""
    counts, still_open = _counts(site), site.agent.snapshot()["open_decisions"]
    assert site.decided > 0
    for what in ("decisions", "rewards"):
        assert counts[what] == before[what] + site.decided
    assert counts["settled"] + still_open == counts["decisions"]
    assert counts["defaulted"] == before["decisions"] - before["rewards"]


def _require_own(site: Site) -> None:
    """Own records of before count; how far their rewards scatter was not kept, and stays unknown."""
    own, read = site.agent.snapshot()["own"], own_sums.read(site.agent.store.database, "read")
    assert own["phase"] == "closed"
    assert own["records"] == _counts(site)["settled"]
    assert own["shared"] >= RECORDS
    assert read is not None
    assert read.squares is None


def _told(folder: Path) -> Told:
    """What left, as it is in everybody's file; by file and table, beside the names of its columns."""
    found: Told = {}
    for path in folder.rglob("*.db"):
        with closing(sqlite3.connect(path)) as db:
            for table in TOLD:
                columns = ", ".join(f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({table})"))
                rows = set(db.execute(f"SELECT {columns} FROM {table}")) if columns else set()
                if rows:
                    found[path, table] = columns, rows
        assert any(file == path for file, _ in found)
    return found


def _require_unchanged(told: Told) -> None:
    for (path, table), (columns, rows) in told.items():
        with closing(sqlite3.connect(path)) as db:
            assert rows <= set(db.execute(f"SELECT {columns} FROM {table}")), (path, table)


def _require_todays_formats(folder: Path) -> None:
    for path in folder.rglob("*.db"):
        with closing(sqlite3.connect(path)) as db:
            (kind,) = db.execute("SELECT kind FROM store").fetchone()
            assert db.execute("PRAGMA user_version").fetchone() == (NUMBERS[kind],), path


def _give_seasons(folder: Path) -> None:
    """As the changelog says to whoever comes from before 1.0: the clock opens the next season then."""
    path = folder / "controller" / "controller.toml"
    promised = typed("agent", "terms", cwd=next((folder / "agents").iterdir())).stdout
    if "[seasons]" in promised and "[seasons]" not in path.read_text():
        path.write_text(path.read_text() + promised[: promised.index("[terms]")])


def test_a_roster_of_the_earlier_version_is_followed_by_signed_ones(tmp_path: Path) -> None:
    with tarfile.open(HERE / "earlier" / "c8d6c51.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    roster = keys.remove(tmp_path / "keys", "north", season=2)
    assert (roster.version, roster.names) == (2, ("south",))
    assert newest_roster(tmp_path / "keys" / "federation.json", tmp_path / "keys" / "ca.pem") == roster


def _earlier_broker(folder: Path) -> Broker:
    """The earlier version's server configuration, as it is but for the port."""
    broker = Broker.__new__(Broker)
    broker.folder, broker.port = folder, free_port()
    for path in (*folder.rglob("*.toml"), folder / "server" / "nats-server.conf"):
        path.write_text(path.read_text().replace(":4222", f":{broker.port}"))
    require_server()
    broker.start()
    return broker

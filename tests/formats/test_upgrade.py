"""Files that earlier versions wrote open, go on and are brought up to date; those of a later one are refused.

The archives are one for each release (`make_files.py`), and federations of versions before and between them
(`tests/carriers/earlier/make.py`).
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from feducb import formats
from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.controller.collector import open_collector
from feducb.controller.controller_file import ControllerSettings
from feducb.controller.keeper_file import KeeperSettings
from feducb.errors import ConfigurationError, FeducbError, StoreError
from feducb.evaluation.lines import Lines
from feducb.formats import FORMATS, Format
from feducb.privacy.terms import Terms
from feducb.protocol import messages, peers, sums
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_wire import Reader
from feducb.service.api_keys import read_keys
from feducb.storage import AgentStore, ControllerStore, ReleaseBook, RowBook
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.peer_book import PeerBook
from feducb.storage.sqlite import SqliteFile, migrate
from feducb.worlds.features import Recipe

HERE = Path(__file__).parent
RELEASED = sorted(HERE.glob("*.tar.xz"))
ARCHIVES = [*sorted((HERE.parent / "carriers" / "earlier").glob("*.tar.xz")), *RELEASED]
PAGE = HERE.parents[1] / "docs" / "formats.md"
START, SEASON, RELEASES = 1_800_000_000.0, 3600.0, 4
STORES: dict[Format, type[SqliteFile]] = {
    formats.AGENT_STORE: AgentStore,
    formats.CONTROLLER_STORE: ControllerStore,
    formats.RELEASE_BOOK: ReleaseBook,
    formats.ROW_BOOK: RowBook,
    formats.KEEPER_BOOK: KeeperBook,
    formats.PEER_BOOK: PeerBook,
}


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder


@pytest.fixture(params=RELEASED, ids=lambda path: path.name)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return _unpack(request.param, tmp_path)


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    return _unpack(RELEASED[-1], tmp_path)


def _number(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def _left(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(
            "SELECT kind, season, number, sha256, payload FROM outgoing ORDER BY number"
        ).fetchall()


@pytest.mark.parametrize("store", STORES, ids=lambda one: one.name)
def test_the_number_of_a_store_is_how_many_steps_lead_to_it(store: Format) -> None:
    assert store.number == len(STORES[store].migrations)


def test_the_page_has_every_format_with_its_number() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.read_text().splitlines() if line.startswith("| **")]
    said = {name.strip().strip("*"): (number.strip(), read.strip()) for name, number, read in rows}
    assert said == {one.name: (str(one.number), one.readable) for one in FORMATS}


def _rows(db: sqlite3.Connection, columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is in these columns, by table."""
    found = {}
    for table, names in columns.items():
        listed = ", ".join(f'"{name}"' for name in names)
        found[table] = sorted(map(repr, db.execute(f'SELECT {listed} FROM "{table}"')))
    return found


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_steps_to_todays_format_keep_every_row_as_it_is(archive: Path, tmp_path: Path) -> None:
    files = sorted(_unpack(archive, tmp_path).rglob("*.db"))
    assert files
    for path in files:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            (kind,) = db.execute("SELECT kind FROM store").fetchone()
            (store,) = (one for one in STORES.values() if one.kind == kind)
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = {
                name: [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')] for name in tables
            }
            before = _rows(db, columns)
            migrate(db, path, store.migrations, kind)
            assert db.execute("PRAGMA user_version").fetchone() == (len(store.migrations),)
            assert _rows(db, columns) == before, path


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_federation_goes_on_in_the_middle_of_its_season(archive: Path, tmp_path: Path) -> None:
    """What left is there byte for byte, the next release enters the next sum, and agents act on it."""
    folder, now = _unpack(archive, tmp_path) / "keys", START + 2 * SEASON / RELEASES + 1
    sent, agents = [], {}
    for name in ("north", "south"):
        file = read_agent_file(folder / "agents" / name / "agent.toml")
        before, number = _left(file.store), _number(file.store)
        agents[name] = agent = Agent.open(file.store, file.agent, clock=lambda: now)
        assert number <= _number(file.store) == formats.AGENT_STORE.number
        assert agent.snapshot()["model"][0] == "1.1"
        agent.tick(alone=False)
        assert _left(file.store)[: len(before)] == before
        (item,) = agent.outbox()
        sent.append((name, item.released()))
        agent.mark_sent(item)
    settings = ControllerSettings.read(folder / "controller" / "controller.toml")
    collector = settings.open()
    assert _number(settings.state) == formats.RELEASE_BOOK.number
    receipts, (named,) = collector.exchange(sent, now=now)
    collector.close()
    assert [one.status for one in receipts] == ["stored", "stored"]
    assert isinstance(named, sums.NamedSum)
    assert named.names == ("north", "south")
    for agent in agents.values():
        assert agent.absorb(named.total)
        assert agent.snapshot()["model"][0] == "1.2"
        agent.close()


def test_a_keeper_answers_with_the_key_that_it_has(released: Path) -> None:
    folder = released / "secure"
    terms, roster = (
        Terms.from_json((folder / "terms.json").read_text()),
        Roster.read(folder / "federation.json"),
    )
    signer = Signer(folder / "keepers/b/keeper.seed")
    with KeeperBook(folder / "keeper.db", "b", roster, terms, signer) as book:
        assert book.card() == (folder / "card.bin").read_bytes()
    assert _number(folder / "keeper.db") == formats.KEEPER_BOOK.number
    with RowBook(folder / "rows.db", roster, terms, Signer(folder / "controller/controller.seed")) as rows:
        assert rows.season == 1
    assert _number(folder / "rows.db") == formats.ROW_BOOK.number


def test_a_trusted_controller_takes_the_upload_that_waits(released: Path) -> None:
    folder = released / "trusted"
    terms = Terms.from_json((folder / "terms.json").read_text())
    with AgentStore.open(folder / "agent.db") as store:
        (waiting,) = store.uploads()
    collector = open_collector(folder / "controller.db", {"a": terms})
    (receipt,), (named,) = collector.exchange([("a", waiting.body)], now=1.0)
    collector.close()
    assert (receipt.status, named.number) == ("stored", 2)
    assert _number(folder / "controller.db") == formats.CONTROLLER_STORE.number


def test_a_peer_knows_what_it_heard(released: Path) -> None:
    with PeerBook(released / "graph" / "peers.db") as book:
        ((key, (one,)),) = book.load().items()
    assert (key, one.version, one.payload) == ((1, 0), (1, 1), b"a release")


def test_files_of_text_say_the_same(released: Path) -> None:
    folder = released / "plain"
    assert Recipe.read(folder / "recipe.json") == Recipe.of_actions(["tea", "coffee"], reserve=1)
    rows = [json.loads(line) for line in (folder / "export.jsonl").read_text().splitlines()]
    lines = Lines([folder / "export.jsonl"], {})
    assert (list(lines), lines.read, rows[0]["agent"]) == ([], len(rows), "north")  # all of them still open
    (key,) = read_keys(folder / "keys.json")
    assert (key.name, key.role) == ("shop", "application")


@pytest.mark.parametrize("store", STORES, ids=lambda one: one.name)
def test_a_store_of_a_newer_version_is_refused_and_left_alone(store: Format, tmp_path: Path) -> None:
    path, kind = tmp_path / "a.db", STORES[store]
    with closing(sqlite3.connect(path)) as db:
        for script in kind.migrations:
            db.executescript(script)
        db.execute("INSERT INTO store (id, kind) VALUES (1, ?)", (kind.kind,))
        db.execute(f"PRAGMA user_version = {store.number + 1}")
        db.commit()
    before = path.read_bytes()
    file = kind.__new__(kind)
    with pytest.raises(StoreError) as refused:
        SqliteFile.__init__(file, path)
    said = f"has schema {store.number + 1}, this feducb knows up to {store.number}: update it"
    assert str(refused.value).endswith(said)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # opening it only turned its log on
    assert _number(path) == store.number + 1
    assert len(path.read_bytes()) == len(before)


def _edited(path: Path, before: str, after: str) -> Path:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    return path


NEWER: dict[str, Callable[[Path], object]] = {
    "agent.toml": lambda folder: read_agent_file(
        _edited(folder / "keys/agents/north/agent.toml", "version = 2", "version = 3\nflavour = 1")
    ),
    "controller.toml": lambda folder: ControllerSettings.read(
        _edited(
            folder / "keys/controller/controller.toml",
            "[controller]",
            "[controller]\nformat = 2\nflavour = 1",
        )
    ),
    "keeper.toml": lambda folder: KeeperSettings.read(_keeper_toml(folder)),
    "roster": lambda folder: Roster.read(
        _edited(folder / "keys/federation.json", "{", '{"format": 2, "flavour": 1,')
    ),
    "recipe": lambda folder: Recipe.read(
        _edited(folder / "plain/recipe.json", '"version": 1', '"version": 2, "flavour": 1')
    ),
    "API keys": lambda folder: read_keys(
        _edited(folder / "plain/keys.json", '"version": 1', '"version": 2, "flavour": 1')
    ),
    "export": lambda folder: list(
        Lines([_edited(folder / "plain/export.jsonl", '"format": 1', '"format": 2')], {})
    ),
    "release or sum": lambda _: messages.decode(b"\x05\x00" + bytes(80)),
    "named sum": lambda _: sums.decode(b"SUM3" + bytes(80)),
    "message between peers": lambda _: peers.decode(b"PER3" + bytes(80)),
    "secure rows": lambda _: Reader(b"ROW2" + bytes(80), b"ROW1"),
}


def _keeper_toml(folder: Path) -> Path:
    engine = (folder / "keys/controller/controller.toml").read_text().split("[engine]")[1]
    path = folder / "keys/controller/keeper.toml"
    path.write_text(f'[keeper]\nstate = "k.db"\nformat = 2\nflavour = 1\n[terms]\n[engine]\n{engine}')
    return path


@pytest.mark.parametrize("name", NEWER)
def test_what_a_newer_version_wrote_is_refused_in_one_sentence(name: str, newest: Path) -> None:
    with pytest.raises((FeducbError, ValueError)) as refused:
        NEWER[name](newest)
    said = str(refused.value)
    assert said.endswith("update feducb"), said
    assert "\n" not in said
    assert "flavour" not in said  # it is not the unknown name that is wrong


def test_an_older_format_than_is_read_is_refused_too() -> None:
    with pytest.raises(ConfigurationError, match="expected 2: an earlier feducb reads it"):
        formats.RAW_UPLOAD.require(1, "upload")
    with pytest.raises(ValueError, match="format 1, expected 2 to 4: an earlier feducb reads it"):
        messages.decode(b"\x01\x00" + bytes(80))

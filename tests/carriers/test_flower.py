"""Agents federate over a real SuperLink and real SuperNodes; what is broken is refused, the others go on."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import flower_net
import numpy as np
import pytest
from flower_net import Keys, Network, Site, kill, require_flower, run_app, wait_for, wait_for_reports
from hypothesis import given, settings
from hypothesis import strategies as st

from feducb.agent.agent_http import ServiceError
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.carriers.flower.exchange import Answer, Ask, digest_of
from feducb.carriers.flower.site import visit
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, StoreError, StoreInUseError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage import AgentStore
from feducb.storage.flower_book import FlowerBook
from feducb.trust import CONTROLLER

TERMS = Terms(problem=Problem(dim=3), budget=Budget(epsilon=1.0, delta=1e-6), releases=8)
TRUSTING = replace(TERMS, trust=CONTROLLER)


def _stream(terms: Terms, count: int, *, seed: int, season: int = 1) -> list[bytes]:
    """Releases 1 to ``count`` of one agent."""
    rng = np.random.default_rng(seed)
    agent = DeployedPrivatizer(terms)
    payloads = []
    for _ in range(count):
        agent.record(rng.uniform(-0.5, 0.5, (20, terms.problem.dim)), rng.uniform(-1.0, 1.0, 20))
        payloads.append(messages.encode(agent.release(), season=season))
    return payloads


def _sum(payloads: list[bytes]) -> bytes:
    """What the in-process controller makes of them."""
    return messages.encode(messages.combine([messages.decode(payload) for payload in payloads]))


@pytest.fixture(scope="module")
def streams() -> list[list[bytes]]:
    return [_stream(TERMS, 4, seed=seed) for seed in range(3)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path / "site", TERMS)
    yield opened
    opened.close()


def _door(site: Site, **changes: Any) -> AgentDoor:
    key = site.key_file.read_text(encoding="utf-8").strip()
    return AgentDoor(**({"url": site.url, "key": key} | changes))


# The book


def _put(book: FlowerBook, agent: str, payload: bytes, now: float = 0.0) -> str:
    """What became of a release; sums that are due are made."""
    ((receipt,), _) = book.exchange([(agent, payload)], now=now)
    return receipt.status if receipt.status != "refused" else receipt.text


def _newest(book: FlowerBook, now: float = 0.0) -> bytes | None:
    book.publish_due(now=now)
    newest = book.newest()
    return None if newest is None else newest.payload


def test_the_sums_are_those_of_combine_in_whatever_order_releases_come(
    tmp_path: Path, streams: list[list[bytes]]
) -> None:
    for trial in range(5):
        arrivals = [(agent, number) for agent in range(3) for number in range(4)]
        order = random.Random(trial)
        order.shuffle(arrivals)
        arrivals.sort(key=lambda one: one[1])  # an agent sends its oldest first
        with FlowerBook(tmp_path / f"{trial}.db", TERMS, agents=3) as book:
            for agent, number in arrivals:
                assert _put(book, f"agent-{agent}", streams[agent][number]) == "stored"
            for number in range(4):
                assert book.published(1, number + 1).payload == _sum([stream[number] for stream in streams])
            assert book.newest() == book.published(1, 4)


def test_a_book_that_was_never_closed_goes_on_where_it_was(
    tmp_path: Path, streams: list[list[bytes]]
) -> None:
    path = tmp_path / "book.db"
    book = FlowerBook(path, TERMS, agents=2)
    _put(book, "a", streams[0][0])
    os.close(book._lock or 0)  # as the system does when a process is killed
    book._lock = None
    with FlowerBook(path, TERMS, agents=2) as again:
        assert _put(again, "a", streams[0][0]) == "known"
        assert _newest(again) is None
        assert _put(again, "b", streams[1][0]) == "stored"
        published = _newest(again)
    assert published == _sum([streams[0][0], streams[1][0]])
    with FlowerBook(path, TERMS, agents=2) as again:
        assert _newest(again) == published
        with pytest.raises(StoreInUseError):
            FlowerBook(path, TERMS, agents=2)
    with pytest.raises(StoreError, match="other terms"):
        FlowerBook(path, replace(TERMS, releases=9), agents=2)


def test_a_quorum_is_enough_after_the_deadline_and_says_how_many_are_in_it(
    tmp_path: Path, streams: list[list[bytes]]
) -> None:
    with FlowerBook(tmp_path / "book.db", TERMS, agents=3, quorum=2, deadline=60.0) as book:
        _put(book, "a", streams[0][0], now=1000.0)
        assert _newest(book, now=1100.0) is None  # one is not a quorum, however late
        _put(book, "b", streams[1][0], now=1100.0)
        published = _newest(book, now=1100.0)
        assert published == _sum([streams[0][0], streams[1][0]])
        assert messages.decode(published).agents == 2
        assert _put(book, "c", streams[2][0], now=1100.0) == "stored"  # late: the sum stays what it was
        assert _newest(book, now=1100.0) == published
        for agent, stream in zip("abc", streams, strict=True):
            _put(book, agent, stream[1], now=1100.0)
        assert _newest(book, now=1100.0) == _sum([stream[1] for stream in streams])


def test_a_published_release_is_kept_as_a_digest_only(tmp_path: Path, streams: list[list[bytes]]) -> None:
    with FlowerBook(tmp_path / "book.db", TERMS, agents=1) as book:
        for payload in streams[0]:
            _put(book, "a", payload)
    connection = sqlite3.connect(tmp_path / "book.db")
    try:
        assert connection.execute("SELECT count(*) FROM releases").fetchone() == (4,)
        assert connection.execute("SELECT count(*) FROM waiting").fetchone() == (0,)
    finally:
        connection.close()


def _with_header(payload: bytes, **changes: float) -> bytes:
    names = ("format", "agents", "dim", "season", "number", "group", "exponent", "weight", "variance")
    header = dict(zip(names, struct.unpack_from("<HHIIIIidd", payload), strict=True)) | changes
    return struct.pack("<HHIIIIidd", *header.values()) + payload[40:]


def _with_values(payload: bytes, values: list[int]) -> bytes:
    return payload[:40] + struct.pack(f"<{len(values)}q", *values)


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda payload: b"",
    "cut short": lambda payload: payload[:-1],
    "too long": lambda payload: payload + b"\0",
    "of another format": lambda payload: _with_header(payload, format=9),
    "a sum": lambda payload: _with_header(payload, agents=2),
    "of another dimension": lambda payload: _stream(replace(TERMS, problem=Problem(dim=5)), 1, seed=0)[0],
    "under another header": lambda payload: _with_header(payload, dim=2),
    "number 0": lambda payload: _with_header(payload, number=0),
    "beyond the budget": lambda payload: _with_header(payload, number=9),
    "of season 0": lambda payload: _with_header(payload, season=0),
    "of a group": lambda payload: _with_header(payload, group=1),
    "on another grid": lambda payload: _with_header(payload, exponent=3),
    "with another weight": lambda payload: _with_header(payload, weight=0.5),
    "without noise, it says": lambda payload: _with_header(payload, variance=1e-9),
    "of infinite noise": lambda payload: _with_header(payload, variance=float("inf")),
    "of no number": lambda payload: _with_header(payload, variance=float("nan")),
    "so large that sums wrap": lambda payload: _with_values(payload, [2**62] * 9),
    "far from a Gram matrix": lambda payload: _with_values(payload, [-(2**40)] * 9),
    "changed since it came first": lambda payload: _with_values(payload, [1] * 9),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_release_is_refused_and_changes_nothing(
    tmp_path: Path, streams: list[list[bytes]], name: str
) -> None:
    with FlowerBook(tmp_path / "book.db", TERMS, agents=2) as book:
        _put(book, "a", streams[0][0])
        ((receipt,), _) = book.exchange([("a", BROKEN[name](streams[0][0]))], now=0.0)
        assert receipt.status == "refused"
        _put(book, "b", streams[1][0])
        assert _newest(book) == _sum([streams[0][0], streams[1][0]])


@settings(derandomize=True, deadline=None, max_examples=50)
@given(noise=st.binary(max_size=200))
def test_bytes_that_are_no_release_are_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    with FlowerBook(tmp_path_factory.mktemp("book") / "book.db", TERMS, agents=1) as book:
        assert [one.status for one in book.receive([("a", noise)], now=0.0)] == ["refused"]


def test_a_stranger_and_a_flood_of_seasons_are_refused(tmp_path: Path, streams: list[list[bytes]]) -> None:
    with FlowerBook(tmp_path / "book.db", TERMS, agents=2) as book:
        _put(book, "a", streams[0][0])
        _put(book, "b", streams[1][0])
        assert "none of the 2" in _put(book, "c", streams[2][0])
        _put(book, "a", _with_header(streams[0][0], season=2))
        _put(book, "a", _with_header(streams[0][0], season=3))
        assert "seasons waiting" in _put(book, "a", _with_header(streams[0][0], season=4))
        _put(book, "b", streams[1][1])
        _put(book, "a", streams[0][1])
        assert _newest(book) == _sum([streams[0][1], streams[1][1]])


_OLD_BOOK = """
    CREATE TABLE store (id INTEGER PRIMARY KEY CHECK (id = 1), kind TEXT NOT NULL, open_at TEXT);
    INSERT INTO store (id, kind) VALUES (1, 'flower sums');
    CREATE TABLE federation (id INTEGER PRIMARY KEY CHECK (id = 1), terms TEXT NOT NULL);
    CREATE TABLE releases (
        season INTEGER NOT NULL, number INTEGER NOT NULL, agent TEXT NOT NULL, arrived_at REAL NOT NULL,
        sha256 BLOB NOT NULL, payload BLOB, PRIMARY KEY (season, number, agent));
    CREATE INDEX waiting ON releases (season, number) WHERE payload IS NOT NULL;
    CREATE TABLE sums (
        season INTEGER NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL,
        PRIMARY KEY (season, number));
    CREATE TRIGGER a_sum_stays BEFORE DELETE ON sums
        BEGIN SELECT RAISE(ABORT, 'what was published is never deleted'); END;
    CREATE TRIGGER a_sum_is_final BEFORE UPDATE ON sums
        BEGIN SELECT RAISE(ABORT, 'what was published is never changed'); END;
    PRAGMA user_version = 1;
"""


def test_a_book_of_an_earlier_version_goes_on(tmp_path: Path, streams: list[list[bytes]]) -> None:
    path = tmp_path / "book.db"
    plain = json.loads(TERMS.to_json())
    del plain["agents_per_person"]  # as the first of them had it
    two, all_three = _sum([streams[0][0], streams[1][0]]), _sum([stream[1] for stream in streams])
    with sqlite3.connect(path) as db:
        db.executescript(_OLD_BOOK)
        db.execute("INSERT INTO federation VALUES (1, ?)", (json.dumps(plain, sort_keys=True),))
        for number in range(3):
            for at, (agent, stream) in enumerate(zip("bac", streams, strict=True)):
                if (number, agent) != (2, "c"):  # it is the one that is awaited
                    digest = hashlib.sha256(stream[number]).digest()
                    row = (
                        1,
                        number + 1,
                        agent,
                        10.0 * number + at,
                        digest,
                        stream[2] if number == 2 else None,
                    )
                    db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?)", row)
        db.executemany("INSERT INTO sums VALUES (1, ?, ?)", [(1, two), (2, all_three)])
    db.close()
    with FlowerBook(path, TERMS, agents=3) as book:
        assert [book.published(1, number).payload for number in (1, 2)] == [two, all_three]
        assert book.published(1, 1).names == ("a", "b")  # c came too late for it
        assert (_newest(book), _put(book, "a", streams[1][0])) == (all_three, "known")
        assert _put(book, "c", streams[2][2]) == "stored"
        assert _newest(book) == _sum([stream[2] for stream in streams])
    with pytest.raises(StoreError, match="other terms"):
        FlowerBook(path, replace(TERMS, releases=9), agents=3)
    with FlowerBook(path, TERMS, agents=3) as book:
        assert book.published(1, 3).names == ("a", "b", "c")


def test_terms_that_trust_the_controller_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="trust is 'controller'"):
        FlowerBook(tmp_path / "book.db", TRUSTING, agents=2)
    with pytest.raises(ConfigurationError, match="groups"):
        FlowerBook(tmp_path / "book.db", replace(TERMS, groups=2), agents=2)
    with pytest.raises(ConfigurationError, match="quorum"):
        FlowerBook(tmp_path / "book.db", TERMS, agents=2, quorum=3)


# What is said between them, and the agent's door

_TEXT = st.text("ab…\n\x1b\x00", max_size=400)
_PLAIN = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    _TEXT,
    st.binary(),
    st.booleans(),
    st.lists(st.integers()),
    st.lists(st.binary()),
    st.lists(_TEXT),
)
_ASKED = ["nonce", "news", "rows", "sent"]
_ANSWERED = ["parcels", "words", "agent", "place", "heard", "more", "problems"]
_NAMES = st.sampled_from(["version", *_ASKED, *_ANSWERED])


@settings(derandomize=True, deadline=None, max_examples=200)
@given(plain=st.dictionaries(_NAMES, _PLAIN), proper=st.booleans())
def test_whatever_the_other_side_says_is_read_or_a_value_error(plain: dict[str, Any], proper: bool) -> None:
    if proper:
        plain["version"] = 2
    for kind in (Ask, Answer):
        try:
            read = kind.from_plain(plain)
        except ValueError:
            continue
        assert kind.from_plain(read.to_plain()) == read


def test_a_flood_is_not_read() -> None:
    answer, ask = Answer().to_plain(), Ask(nonce=b"").to_plain()
    for kind, plain, names in ((Answer, answer, ("parcels", "words")), (Ask, ask, ("news", "sent"))):
        for name in names:
            with pytest.raises(ValueError, match=f"{name} has 1025 messages"):
                kind.from_plain(plain | {name: [b""] * 1025})
    said = Answer.from_plain(answer | {"problems": ["\x1b[31m\n" + "a" * 500] * 100})
    assert len(said.problems) < 10
    assert all(len(text) < 400 and text.isprintable() for text in said.problems)


def test_a_site_of_an_earlier_version_is_refused_in_one_sentence() -> None:
    earlier = {"version": 1, "releases": [], "absorbed": 0, "more": 0, "problems": []}
    with pytest.raises(ValueError, match="version 1, expected 2: use the same feducb at the SuperLink"):
        Answer.from_plain(earlier)


def test_a_place_that_is_none_is_refused() -> None:
    plain = Answer().to_plain()
    for place in (b"1", bytes(16), b"\xff" * 16):
        with pytest.raises(ValueError, match=r"place has|no row has"):
            Answer.from_plain(plain | {"place": place})


@pytest.mark.parametrize("named", [True, False])
def test_a_visit_acknowledges_brings_the_sum_and_fetches(site: Site, named: bool) -> None:
    site.named = named
    first, second = site.do(lambda store: [store.release(), store.release()])
    ask = Ask(nonce=b"", news=(_sum([first]),), sent=(digest_of(first),))
    answer = visit(_door(site), ask)
    assert answer == Answer(parcels=(second,), heard=1)
    assert site.inbox == [_sum([first])]
    assert visit(_door(site), ask) == answer  # again: the same
    assert site.inbox == [_sum([first])]


def test_what_does_not_fit_into_one_answer_follows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = site.do(lambda store: [store.release(), store.release()])
    monkeypatch.setattr("feducb.carriers.flower.site._MOST_BYTES", len(first) + 1)
    assert visit(_door(site), Ask(nonce=b"")) == Answer(parcels=(first,), more=True)
    assert visit(_door(site), Ask(nonce=b"", sent=(digest_of(first),))) == Answer(parcels=(second,))


def test_raw_uploads_stay_at_the_site(tmp_path: Path, site: Site) -> None:
    with AgentStore.open(tmp_path / "trusting.db", TRUSTING) as store:
        store.record(np.full((3, 3), 0.5), np.ones(3))
        raw = store.upload()
    release = site.do(lambda store: store.release())
    site.extra = [raw]
    answer = visit(_door(site), Ask(nonce=b""))
    assert answer.parcels == (release,)
    assert "kept back" in answer.problems[0]


def test_an_agent_that_does_not_do_as_asked_is_told_of_and_the_rest_is_done(site: Site) -> None:
    release = site.do(lambda store: store.release())
    # A sum that is none is refused by the agent; what is in the outbox goes all the same.
    answer = visit(_door(site), Ask(nonce=b"", news=(b"no sum", _sum([release]))))
    assert (answer.parcels, answer.heard, site.inbox) == ((release,), 0, [])
    assert "422" in answer.problems[0]
    answer = visit(_door(site, key="wrong"), Ask(nonce=b""))
    assert answer.parcels == ()
    assert "401" in answer.problems[0]
    assert site.refused == 1
    with pytest.raises(ServiceError, match="no answer"):
        _door(site, url="http://127.0.0.1:1").outbox()


def test_the_key_goes_to_the_right_agent_alone(tmp_path: Path, keys: Keys) -> None:
    others = Keys(tmp_path / "others")
    site = Site(tmp_path / "site", TERMS, tls=(keys.certificate, keys.key))
    try:
        assert _door(site, ca_file=keys.ca).outbox().parcels == []
        with pytest.raises(ServiceError, match="CERTIFICATE_VERIFY_FAILED"):
            _door(site, ca_file=others.ca).outbox()
        assert site.refused == 0
    finally:
        site.close()
    for url in ("http://example.org", "ftp://127.0.0.1", "127.0.0.1:80", ""):
        with pytest.raises(ConfigurationError, match="agent-url"):
            AgentDoor(url, key="k")


def test_a_site_says_which_setting_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="FEDUCB_AGENT_URL"):
        AgentDoor.configured({}, {})
    with pytest.raises(ConfigurationError, match="agent-key-file"):
        AgentDoor.configured({"agent-url": "http://127.0.0.1:1"}, {"FEDUCB_AGENT_KEY_FILE": "/nowhere"})
    (tmp_path / "key").write_text("k\n", encoding="utf-8")
    environment = {"FEDUCB_AGENT_URL": "http://localhost:1", "FEDUCB_AGENT_KEY_FILE": str(tmp_path / "key")}
    AgentDoor.configured({}, environment)


# Over Flower


def test_without_flower_one_line_says_so_and_ci_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower_net, "BINARIES", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        require_flower()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have it"):
        require_flower()
    for module in ("server_app", "client_app"):
        code = f"import sys; sys.modules['flwr'] = None; import feducb.carriers.flower.{module}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(flower_net.SOURCE)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "MissingExtraError: Flower needs flwr: pip install 'feducb[flower]'" in done.stderr


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    require_flower()
    return Keys(tmp_path / "keys")


@pytest.fixture
def network(tmp_path: Path, keys: Keys) -> Iterator[Network]:
    opened = Network(tmp_path, keys)
    yield opened
    opened.close()


def _documented() -> dict[str, set[str]]:
    """Options and environment of every command in docs/flower.md."""
    text = (flower_net.APP.parents[1] / "docs" / "flower.md").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^ {4}(.*)$", text, flags=re.MULTILINE)).replace("\\\n", " ")
    found = {"environment": set(re.findall(r"^export (\S+)", blocks, flags=re.MULTILINE))}
    for command in ("flower-superlink", "flower-supernode"):
        lines = re.findall(rf"^{command} .*$", blocks, flags=re.MULTILINE)
        found[command] = set(re.findall(r"(?<=\s)--[a-z-]+", " ".join(lines)))
    return found


def _work(store: AgentStore) -> None:
    """Three more releases."""
    rng = np.random.default_rng(store.releases_left)
    for _ in range(3):
        store.record(rng.uniform(-0.5, 0.5, (20, 3)), rng.uniform(-1.0, 1.0, 20))
        store.release()


_HOSTILE = """
from pathlib import Path

def hostile(self):
    return {"version": 2, "parcels": ["\\x1b[31m"], "place": b"", "problems": [b""]}

here = Path(__file__).with_name("now").exists()
if here and "flwr-clientapp" in Path("/proc/self/cmdline").read_text():
    from feducb.carriers.flower.exchange import Answer
    Answer.to_plain = hostile
"""


def _hostile(folder: Path) -> dict[str, str]:
    """Surroundings in which a site's answers are none while a file ``now`` is there."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_HOSTILE, encoding="utf-8")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{flower_net.SOURCE}"}


@pytest.mark.xdist_group("Flower")  # it starts many processes: one network at a time
def test_three_agents_over_flower(tmp_path: Path, keys: Keys, network: Network) -> None:
    """The ServerApp is killed, a stranger comes, an agent breaks: sums are exactly those of `combine`."""
    sites = [
        Site(tmp_path / f"site-{name}", TERMS, tls=(keys.certificate, keys.key) if name == "0" else None)
        for name in ("0", "1", "2", "stranger")
    ]
    agents, stranger = sites[:3], sites[3]
    try:
        network.start_link()
        hostile = _hostile(tmp_path / "hostile")
        for number, one in enumerate(agents):
            private, public = keys.node(f"node-{number}")
            network.flwr("supernode", "register", str(public))
            surroundings = hostile if number == 2 else None
            network.start_node(f"node-{number}", one, private, environment=surroundings)
            one.do(_work)
        started = network.options | {"environment": {"=".join(item) for item in network.environment.items()}}
        for command, options in _documented().items():
            assert options <= started[command]  # what docs/flower.md tells to start is what runs here
            assert options
        unknown = network.start_node(
            "node-stranger", stranger, keys.node("stranger")[0], "--max-retries", "3"
        )
        stranger.do(_work)
        run_app(network, tmp_path, TERMS, agents=3, poll_seconds=60)

        def sums(number: int, parts: list[Site]) -> bytes:
            return _sum([one.do(lambda store: store.replay(1, number)) for one in parts])

        def arrived(total: bytes, at: list[Site]) -> Callable[[], bool]:
            return lambda: all(total in one.inbox for one in at)

        wait_for(arrived(sums(3, agents), agents), "sum 3 at all agents", log=network.log)
        wait_for(
            lambda: not any(one.do(lambda store: store.outbox()) for one in agents),
            "acknowledged",
            log=network.log,
        )

        # Kill it; the third agent breaks; the others go on, with a quorum, from the book that is there.
        for process in network.processes("flwr-serverapp"):
            kill(process)
        for one in agents[:2]:
            one.do(_work)
        agents[2].extra = [
            agents[2].do(lambda store: store.replay(1, 1))[:-3],  # its site keeps it back
            _stream(replace(TERMS, problem=Problem(dim=5)), 1, seed=0)[0],  # the ServerApp refuses it
        ]
        (tmp_path / "hostile" / "now").touch()
        run = run_app(network, tmp_path, TERMS, agents=3, poll_seconds=8, quorum=2, deadline_seconds=1)
        wait_for(arrived(sums(6, agents[:2]), agents[:2]), "sum 6 at the first two", log=network.log)
        wait_for_reports(network, run, "parcels is not a list of bytes")
        (tmp_path / "hostile" / "now").unlink()
        wait_for_reports(
            network,
            run,
            "kept back 1 of season 1, group 0: message has 109 bytes",
            "refused: size: a release of 200 bytes (dimension 5), expected 112 (dimension 3)",
        )
        assert arrived(sums(6, agents[:2]), agents)()
        assert stranger.inbox == []
        assert len(stranger.do(lambda store: store.outbox())) == 3
        assert unknown.poll() not in (None, 0), network.log()

        # The agents go on to the next season, each by itself: the same run adds up that one too.
        for one in agents:
            one.extra = []
            one.do(lambda store: store.new_season(drop_pending=True))
            one.do(_work)
        enough = (agents, agents[:2], agents[1:], agents[::2])  # who came within the deadline of a second
        totals = [_sum([one.do(lambda store: store.replay(2, 3)) for one in parts]) for parts in enough]
        wait_for(
            lambda: all(any(total in one.inbox for total in totals) for one in agents),
            "sum 3 of season 2 at all agents",
            log=network.log,
        )
        network.close()
        with FlowerBook(tmp_path / "book.db", TERMS, agents=3) as book:
            for number, parts in ((1, agents), (2, agents), (3, agents), (6, agents[:2])):
                assert book.published(1, number).payload == sums(number, parts)
    finally:
        for one in sites:
            one.close()

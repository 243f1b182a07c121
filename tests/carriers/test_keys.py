"""`feducb keys`: what it makes is private where it must be, says exactly the graph, and can be replaced."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats_world import require_server

from feducb.carriers import nats_keys as keys
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.authority import hosts_of
from feducb.carriers.key_requests import make_request, read_request
from feducb.carriers.nats.roster_talk import answer_roster, in_time
from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import frames, sealing
from feducb.protocol.admission import Receipt
from feducb.protocol.graphs import parse_topology
from feducb.protocol.names import require_name
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import all_rosters, newest_roster, sign_roster
from typed import typed


def _process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "feducb", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_a_federation_with_a_controller_is_made_by_one_command(tmp_path: Path) -> None:
    done = _process("keys", "init", "fed", "--agents", "a,b,c", "--host", "broker.example", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "fed"
    private = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    private = {name for name in private if (folder / name).stat().st_mode & 0o077 == 0}
    assert private == {
        "ca/ca.key",
        "server/server.key",
        "controller/controller.seed",
        "controller/controller.x25519",
        *(f"agents/{name}/agent.seed" for name in "abc"),
    }
    found = Roster.read(folder / "federation.json")
    assert list(found.agents) == ["a", "b", "c"]
    for name in "abc":
        assert Signer(folder / "agents" / name / "agent.seed").nkey == found.agents[name]
        assert (folder / "agents" / name / "federation.json").read_text() == found.to_json()
    for name in private - {"ca/ca.key", "server/server.key"}:
        assert (folder / name).read_text().strip() not in found.to_json()
    again = typed("keys", "init", "fed", "--agents", "a", cwd=tmp_path)
    assert again.returncode == 2
    assert "expected a folder that does not exist yet" in again.stderr


def _permissions(configuration: str, nkey: str) -> tuple[set[str], set[str]]:
    block = configuration.split(f"nkey: {nkey}")[1].split("} } }", maxsplit=1)[0]
    publish, subscribe = (
        set(re.findall(r'"([^"]+)"', part)) for part in re.findall(r"allow: \[([^\]]*)\]", block)
    )
    return publish, subscribe


def test_permissions_are_exactly_the_edges_of_the_graph(tmp_path: Path) -> None:
    topology = parse_topology("grid:2x3", ttl=2)
    names = list("abcdef")
    made = keys.init(tmp_path / "fed", names, federation="g", topology=topology)
    configuration = (tmp_path / "fed" / "server" / "nats-server.conf").read_text()
    for number, name in enumerate(names):
        publish, subscribe = _permissions(configuration, made.agents[name])
        edges = {one for one in publish if ".peer." in one}
        assert edges == {f"feducb.g.peer.{name}.{names[other]}" for other in topology.neighbours[number]}
        assert publish - edges == {f"$JS.API.CONSUMER.MSG.NEXT.feducb-g.{name}", f"$JS.ACK.feducb-g.{name}.>"}
        assert subscribe == {f"_INBOX.{name}.>"}
    again = made.topology()
    assert (again.neighbours, again.cliques, again.ttl) == (topology.neighbours, topology.cliques, 2)


def test_keepers_have_keys_of_their_own_and_may_say_what_keepers_say_alone(tmp_path: Path) -> None:
    done = typed("keys", "init", "fed", "--agents", "a,b,c,d", "--keepers", "b, d", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "fed"
    found = Roster.read(folder / "federation.json")
    assert list(found.keepers) == ["b", "d"]
    configuration = (folder / "server" / "nats-server.conf").read_text()
    for name in found.keepers:
        seed = folder / "keepers" / name / "keeper.seed"
        assert Signer(seed).nkey == found.keepers[name] != found.agents[name]
        assert seed.stat().st_mode & 0o077 == 0
        assert (seed.parent / "federation.json").read_text() == found.to_json()
        assert (seed.parent / "ca.pem").is_file()
        publish, subscribe = _permissions(configuration, found.keepers[name])
        says = {f"feducb.feducb.{kind}.{name}" for kind in ("card", "answer")}
        assert publish == says | {f"feducb.feducb.ask.+keeper-{name}"}
        assert subscribe == {f"feducb.feducb.list.{name}", f"_INBOX.+keeper-{name}.>"}
    publish, subscribe = _permissions(configuration, found.agents["b"])
    assert publish == {f"feducb.feducb.{kind}.b" for kind in ("release", "upload", "ask", "row")}
    assert subscribe == {"feducb.feducb.sum", "_INBOX.b.>"}
    assert found.controller is not None
    publish, subscribe = _permissions(configuration, found.controller)
    assert {f"feducb.feducb.list.{name}" for name in "bd"} == {one for one in publish if ".list." in one}
    assert {one for one in subscribe if ".card." in one} == {f"feducb.feducb.card.{name}" for name in "bd"}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--keepers", "b"], "keepers is 'b', expected at least two different agents"),
        (["--keepers", "b,b"], "keepers is 'b, b', expected at least two different agents"),
        (["--keepers", "b,x"], "keepers is 'x', expected agents: a, b, c"),
        (["--keepers", "a,b", "--topology", "ring:3"], "keepers is 'a, b', expected none on a graph"),
        (["--keepers", "a,b", "--max-payload", "500"], "max_payload is 500, expected at least 572"),
    ],
)
def test_keepers_that_cannot_be_are_refused_in_a_sentence(tmp_path: Path, flags: list[str], why: str) -> None:
    done = typed("keys", "init", "fed", "--agents", "a,b,c", *flags, cwd=tmp_path)
    assert (done.returncode, (tmp_path / "fed").exists()) == (2, False)
    assert why in " ".join(done.stderr.split())


def test_a_new_key_of_a_keeper_needs_a_new_season_of_everybody(tmp_path: Path) -> None:
    before = keys.init(tmp_path / "fed", ["a", "b", "c"], keepers=["a", "b"])
    done = typed("keys", "rotate", "fed", "--keeper", "b", cwd=tmp_path)
    assert "season is None, expected from which on others go by the new keys" in " ".join(done.stderr.split())
    done = typed("keys", "rotate", "fed", "--keeper", "b", "--season", "2", cwd=tmp_path)
    after = Roster.read(tmp_path / "fed" / "federation.2.json")
    assert (after.keepers["a"], after.agents) == (before.keepers["a"], before.agents)
    assert after.keepers["b"] != before.keepers["b"]
    said = " ".join(done.stderr.split())
    steps = [
        "give federation.2.json to the controller",
        "before season 2 begins put new keys in place",
        "keepers/b to keeper b",
        "when everybody has opened season 2: server to the server, and reload",
        "nobody is restarted",
    ]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)
    assert (after.version, after.since) == (2, 2)
    nobody = typed("keys", "rotate", "fed", "--keeper", "c", "--season", "3", cwd=tmp_path)
    assert "keeper is 'c', expected one of a, b" in nobody.stderr


def test_rotation_replaces_what_was_asked_for_and_nothing_else(tmp_path: Path) -> None:
    server = keys.Server(hosts=["broker.example", "192.0.2.7"], days=10)
    before = keys.init(tmp_path / "fed", ["a", "b"], server=server)
    folder = tmp_path / "fed"
    certificate = (folder / "server" / "server.pem").read_bytes()
    done = _process("keys", "rotate", "fed", "--agent", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = newest_roster(folder / "federation.json", folder / "ca.pem")
    assert after.agents["a"] != before.agents["a"]
    assert after.agents["b"] == before.agents["b"]
    assert (folder / "server" / "server.pem").read_bytes() == certificate
    configuration = (folder / "server" / "nats-server.conf").read_text()
    assert after.agents["a"] in configuration
    assert before.agents["a"] not in configuration
    keys.rotate(folder, server=keys.Server(hosts=(), days=20), controller=True)
    assert hosts_of(folder) == ["broker.example", "192.0.2.7"]
    last = newest_roster(folder / "federation.json", folder / "ca.pem")
    assert (last.controller, last.sealing) != (after.controller, after.sealing)
    from cryptography import x509

    fresh = x509.load_pem_x509_certificate((folder / "server" / "server.pem").read_bytes())
    assert 19 <= (fresh.not_valid_after_utc - datetime.now(UTC)).days <= 20
    nothing = typed("keys", "rotate", "fed", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "--agent, --keeper, --request, --controller or" in nothing.stderr


@pytest.mark.parametrize(
    ("topology", "flags", "restarted", "given"),
    [
        (None, ["--agent", "a"], "a, with the new key", "agents/a to a; federation.2.json to the controller"),
        (None, ["--agent", "a", "--agent", "b"], "a and b, with", "agents/b to b"),
        (None, ["--controller"], "the controller, with", "federation.2.json to the controller"),
        ("ring:3", ["--agent", "a"], "a, with", "agents/a to a; federation.2.json to all agents"),
    ],
)
def test_after_a_rotation_everybody_who_must_act_is_named(
    tmp_path: Path, topology: str | None, flags: list[str], restarted: str, given: str
) -> None:
    graph = None if topology is None else parse_topology(topology)
    keys.init(tmp_path / "fed", ["a", "b", "c"], topology=graph)
    done = typed("keys", "rotate", "fed", *flags, cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert f"restart {restarted}" in said
    assert given in said
    assert "reload nats-server" in said


def test_a_new_certificate_needs_the_server_alone(tmp_path: Path) -> None:
    keys.init(tmp_path / "fed", ["a"])
    said = " ".join(typed("keys", "rotate", "fed", "--server", cwd=tmp_path).stderr.split())
    assert "reload nats-server" in said
    assert "restart" not in said


def _listens(folder: Path) -> str:
    text = (folder / "server" / "nats-server.conf").read_text()
    return next(line.removeprefix("listen: ") for line in text.splitlines() if line.startswith("listen"))


def test_the_server_is_reached_from_this_machine_alone_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    done = typed("keys", "init", "fed", "--agents", "a", "--host", "broker.example", cwd=tmp_path)
    assert _listens(tmp_path / "fed") == "127.0.0.1:4222"
    said = " ".join(done.stderr.split())
    assert "only programs on its own machine reach the server at 127.0.0.1:4222" in said
    assert "--listen 0.0.0.0:4222" in said
    done = typed(
        "keys",
        "init",
        "open",
        "--agents",
        "a",
        "--host",
        "b.example",
        "--listen",
        "0.0.0.0:4333",
        cwd=tmp_path,
    )
    assert _listens(tmp_path / "open") == "0.0.0.0:4333"
    assert "only programs" not in done.stderr
    typed("keys", "rotate", "open", "--agent", "a", cwd=tmp_path)
    assert _listens(tmp_path / "open") == "0.0.0.0:4333"
    done = typed("keys", "rotate", "fed", "--listen", "[::]:4222", cwd=tmp_path)
    assert _listens(tmp_path / "fed") == "[::]:4222"
    assert "restart nats-server" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "listen", ["", "0.0.0.0", ":4222", "0.0.0.0:", "0.0.0.0:0", "h:65536", "::1:4222", "a b:1"]
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    done = typed("keys", "init", "fed", "--agents", "a", "--listen", listen, cwd=tmp_path)
    assert done.returncode == 2
    assert "expected HOST:PORT" in " ".join(done.stderr.split())
    assert not (tmp_path / "fed").exists()


def test_a_folder_of_an_earlier_version_keeps_listening_where_it_did(tmp_path: Path) -> None:
    """They listened on all addresses and noted the port alone; a rotation must not cut agents off."""
    keys.init(tmp_path / "fed", ["a"])
    (tmp_path / "fed" / "server" / "settings").write_text("4333 65536\n")
    keys.rotate(tmp_path / "fed", agents=["a"])
    assert _listens(tmp_path / "fed") == "0.0.0.0:4333"


def test_a_graphs_server_writes_through_where_it_can_and_an_older_one_still_starts(tmp_path: Path) -> None:
    """nats-server knows `sync_interval` from 2.10 on, and refuses a configuration with fields it does not."""
    require_server()
    line = ("keys", "init", "--agents", "a,b", "--topology", "complete:2")
    said = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True).stdout
    new = [int(part) for part in said.rpartition("v")[2].split(".")[:2]] >= [2, 10]
    for name, options, through in (
        ("usual", (), new),
        ("on", ("--sync",), True),
        ("off", ("--no-sync",), False),
    ):
        assert typed(*line, name, *options, cwd=tmp_path).returncode == 0
        server = tmp_path / name / "server"
        assert ("sync_interval: always" in (server / "nats-server.conf").read_text()) == through
        tried = ["nats-server", "-t", "-c", "nats-server.conf"]
        started = subprocess.run(tried, cwd=server, capture_output=True, check=False).returncode == 0
        assert started == (new or not through)
    assert typed("keys", "rotate", "on", "--agent", "a", cwd=tmp_path).returncode == 0
    assert "sync_interval" in (tmp_path / "on" / "server" / "nats-server.conf").read_text()  # it stays so
    assert typed("keys", "rotate", "on", "--no-sync", cwd=tmp_path).returncode == 0
    assert "sync_interval" not in (tmp_path / "on" / "server" / "nats-server.conf").read_text()


def test_with_a_controller_the_server_stores_nothing_that_could_be_written_through(tmp_path: Path) -> None:
    done = typed("keys", "init", "fed", "--agents", "a", "--sync", cwd=tmp_path)
    assert done.returncode == 2
    assert "the server stores no message" in " ".join(done.stderr.split())
    assert not (tmp_path / "fed").exists()


@pytest.mark.parametrize("name", ["", "a.b", "a*", "a>", "a b", "../a", "x" * 65])
def test_names_that_could_reach_beyond_their_subject_or_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 to 64 letters"):
        keys.init(tmp_path / "fed", [name])
    assert subjects.CONTROLLER not in ("", name)
    with pytest.raises(ConfigurationError, match="expected 1 to 64 letters"):
        require_name("agent", subjects.CONTROLLER)  # nobody can be called like the controller


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "fed"
    keys.init(path, ["a", "b"])
    return path


def test_what_is_signed_for_one_thing_says_nothing_about_another(folder: Path) -> None:
    signer, known = Signer(folder / "agents" / "a" / "agent.seed"), Roster.read(folder / "federation.json")
    data = frames.frame(signer, b"body", "release", "feducb", "a")
    assert frames.unframe(known.agents["a"], data, "release", "feducb", "a") == b"body"
    for nkey, context in (
        (known.agents["b"], ("release", "feducb", "a")),
        (known.agents["a"], ("upload", "feducb", "a")),
        (known.agents["a"], ("release", "other", "a")),
        (known.agents["a"], ("release", "feducb", "b")),
        (known.agents["a"], ("release", "feducb")),
    ):
        with pytest.raises(RefusedError, match="signature"):
            frames.unframe(nkey, data, *context)


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(1, 255))
def test_what_is_sealed_is_read_by_the_controller_alone_and_as_it_was(
    payload: bytes, at: int, flip: int
) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    sealed = sealing.seal_for(key.public_key().public_bytes_raw().hex(), payload, "fed", "a")
    assert sealing.open_sealed(key.private_bytes_raw(), sealed, "fed", "a") == payload
    damaged = bytearray(sealed)
    damaged[at % len(sealed)] ^= flip
    for private, data, name in (
        (other.private_bytes_raw(), sealed, "a"),
        (key.private_bytes_raw(), sealed, "b"),
        (key.private_bytes_raw(), sealed[: at % len(sealed)], "a"),
        (key.private_bytes_raw(), bytes(damaged), "a"),
    ):
        with pytest.raises(RefusedError):
            sealing.open_sealed(private, data, "fed", name)


@given(st.binary(max_size=120))
def test_garbage_is_no_receipt_and_no_frame(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        frames.read_receipt(b"request", data)
    written = frames.write_receipt(b"request", Receipt("refused", "size", "too long"))
    assert frames.read_receipt(b"request", written) == Receipt("refused", "size", "too long")
    with pytest.raises(ValueError, match="something else"):
        frames.read_receipt(data, written)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"days": 99_999_999}, "days is 99999999, expected at most 3650: the authority's own certificate"),
        ({"days": 0}, "days is 0, expected a whole number of at least 1"),
        ({"max_payload": -1}, "max_payload is -1, expected a whole number of at least 1"),
        ({"hosts": [""]}, "host is '', expected a name or an address of the server"),
        ({"hosts": ["a name"]}, "host is 'a name', expected a name or an address of the server"),
    ],
)
def test_a_server_that_cannot_be_is_refused_before_anything_is_written(
    given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        keys.Server(**given)


@pytest.mark.parametrize("season", [1, 2**40])
def test_a_rotation_that_cannot_be_leaves_all_keys_as_they_were(tmp_path: Path, season: int) -> None:
    folder = tmp_path / "keys"
    keys.init(folder, ["a", "b"], keepers=["a", "b"])
    keys.rotate(folder, agents=["a"], season=2)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigurationError, match=f"season is {season}, expected"):
        keys.rotate(folder, agents=["a"], controller=True, season=season)
    (folder / "server" / "server.pem").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"server\.pem is .*, expected the server's certificate"):
        keys.rotate(folder, agents=["b"], server=keys.Server(hosts=()), season=2)
    (folder / "server" / "server.pem").write_bytes(before[folder / "server" / "server.pem"])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_versions_are_told_in_order_and_none_that_is_too_late(tmp_path: Path) -> None:
    """With keepers a version that came after its season began waits, and those after it with it."""
    folder = tmp_path / "keys"
    keys.init(folder, ["a", "b", "c", "d"])
    keys.remove(folder, "a", season=3)
    keys.remove(folder, "b", season=5)
    rosters = all_rosters(folder / "federation.json", folder / "ca.pem")
    texts = [one.to_json().encode() for one in rosters]

    def told(known: str, *, most: int = 2**20) -> bytes:
        return answer_roster(f"roster {known}".encode(), rosters, most=most)

    assert [told(known) for known in ("1", "2", "3", "x")] == [texts[1], texts[2], b"", b""]
    assert len(texts[1]) > len(texts[2])
    assert told("1", most=len(texts[2])) == texts[2]  # else nothing would ever come
    versions = {(1, 2): [1, 2, 3], (1, 3): [1], (2, 3): [1, 2, 3], (2, 5): [1, 2], (3, 5): [1, 2, 3]}
    for (bound, season), expected in versions.items():
        assert [one.version for one in in_time(rosters, bound, season)] == expected


def test_without_keepers_a_rotation_has_no_season(tmp_path: Path) -> None:
    """The server knows the new key alone: a season of its own would lock the agent out until then."""
    folder = tmp_path / "keys"
    keys.init(folder, ["a", "b"])
    with pytest.raises(ConfigurationError, match="season is 5, expected nothing: where there are no keepers"):
        keys.rotate(folder, agents=["a"], season=5)
    assert not (folder / "federation.2.json").exists()


def test_on_a_graph_a_rotation_has_a_season_only_where_rows_are_bound_to_it(tmp_path: Path) -> None:
    """Under any other trust everybody goes by the newest keys: the season would be passed over in silence."""
    keys.init(tmp_path / "fed", ["a", "b", "c"], topology=parse_topology("ring:3"))
    line = ("rotate", "fed", "--agent", "a", "--season", "5")
    for more in ((), ("--trust", "nobody")):
        done = typed("keys", *line, *more, cwd=tmp_path)
        said = " ".join(done.stderr.split())
        assert (done.returncode, said.count("--season is 5, expected nothing on a graph")) == (2, 1)
    assert not (tmp_path / "fed" / "federation.2.json").exists()
    at_once = typed("keys", *line[:-2], "--trust", "keepers", cwd=tmp_path)
    assert (at_once.returncode, "'keepers', expected nothing without --season" in at_once.stderr) == (2, True)
    assert not (tmp_path / "fed" / "federation.2.json").exists()
    done = typed("keys", *line, "--trust", "keepers", cwd=tmp_path)
    assert (done.returncode, "federation.2.json to all agents" in done.stderr) == (0, True)


def test_on_a_graph_a_newcomer_needs_a_consumer(tmp_path: Path) -> None:
    """Of the running server, so `add` says so after the reload; with a controller there is none."""
    for folder, topology in (("graph", parse_topology("ring:3")), ("star", None)):
        keys.init(tmp_path / folder, ["a", "b", "c"], topology=topology)
        asked = make_request(tmp_path / f"{folder}-d", "d", federation="feducb")
        near = ("--near", "a,b") if topology else ()
        done = typed("keys", "add", folder, str(asked), "--season", "2", *near, cwd=tmp_path)
        said = " ".join(done.stderr.split())
        assert done.returncode == 0, said
        assert ("- reload nats-server - run `feducb keys streams graph " in said) == (topology is not None)


@pytest.mark.parametrize("seed", ["agents/a/agent.seed", "controller/controller.seed"])
def test_a_key_that_somebody_has_already_is_refused(tmp_path: Path, seed: str) -> None:
    """The server would not start with one key twice; nothing is written."""
    folder = tmp_path / "keys"
    keys.init(folder, ["a", "b"])
    requests = {name: tmp_path / f"{name}-again" for name in ("b", "c")}
    for name, site in requests.items():
        site.mkdir()
        (site / "agent.seed").write_bytes((folder / seed).read_bytes())
        make_request(site, name, federation="feducb")
    before = {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}
    twice = "expected a key of its own for each agent, keeper and controller"
    with pytest.raises(ConfigurationError, match=twice):
        keys.add(folder, read_request(requests["c"] / "c.request.json"), season=2)
    with pytest.raises(ConfigurationError, match=twice):
        keys.rotate(folder, agents=["a"], requests=[read_request(requests["b"] / "b.request.json")])
    assert {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")} == before


def test_a_roster_of_an_earlier_version_with_a_key_twice_is_read_and_mended(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    roster = keys.init(folder, ["a", "b"])
    twice = replace(roster, agents=dict.fromkeys(("a", "b"), roster.agents["a"]))
    (folder / "federation.json").write_text(sign_roster(twice, folder / "ca" / "ca.key").to_json())
    assert Roster.read(folder / "federation.json") == twice
    assert len(set(keys.rotate(folder, agents=["b"]).agents.values())) == 2


def test_a_season_that_is_far_off_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    """No later version may hold before it, so a slip would keep everybody from changing anything."""
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b", "c"], keepers=["a", "b"])
    make_request(tmp_path, "d", federation="feducb")
    for words in (
        ["add", "fed", "d.request.json"],
        ["remove", "fed", "c"],
        ["rotate", "fed", "--agent", "a"],
    ):
        done = typed("keys", *words, "--season", "2000000", cwd=tmp_path)
        said = " ".join(done.stderr.split())
        assert "--season is 2000000, expected at most 367 (version 1 holds from season 1 on)" in said
        assert "--far if you mean it" in said
    assert not (folder / "federation.2.json").exists()
    assert typed("keys", "remove", "fed", "c", "--season", "367", cwd=tmp_path).returncode == 0
    far = ("--season", "2000000", "--far")
    assert typed("keys", "rotate", "fed", "--agent", "a", *far, cwd=tmp_path).returncode == 0
    assert newest_roster(folder / "federation.json", folder / "ca.pem").since == 2_000_000


def test_a_request_that_the_old_key_did_not_sign_is_taken_only_where_somebody_says_it_is_lost(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b"])
    asked = read_request(make_request(tmp_path, "a", federation="feducb"))
    line = ("rotate", "fed", "--request", "a.request.json")
    done = typed("keys", *line, cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert f"agent a: {asked.nkey}" in said
    assert "compare the keys above with the site over another line and say --old-key-lost" in said
    assert not (folder / "federation.2.json").exists()
    taken = typed("keys", *line, "--old-key-lost", cwd=tmp_path)
    assert taken.returncode == 0
    # its agent starts only with a roster that has its new key, and the old one asks for none any more
    assert "federation.2.json to a, beside its federation.json" in " ".join(taken.stderr.split())
    assert newest_roster(folder / "federation.json", folder / "ca.pem").agents["a"] == asked.nkey


def test_damaged_files_of_an_operator_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    keys.init(folder, ["a", "b"])
    (folder / "ca" / "ca.key").write_text("nothing")
    for server in (None, keys.Server()):
        with pytest.raises(ConfigurationError, match=r"ca\.key is .*, expected the key"):
            keys.rotate(folder, agents=["a"] if server is None else [], server=server)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    with pytest.raises(ConfigurationError, match=r"request is .*deep\.json"):
        read_request(deep)


def test_who_left_and_joins_again_by_a_request_is_not_given_its_old_key(tmp_path: Path) -> None:
    """What is in its folder goes beside the seed that it made: the old one there would lock it out."""
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b", "c"], keepers=["a", "b", "c"])
    keys.remove(folder, "c", season=2)
    asked = read_request(make_request(tmp_path / "new", "c", federation="feducb", keeper=True))
    roster = keys.add(folder, asked, season=3)
    assert (roster.agents["c"], roster.keepers["c"]) == (asked.nkey, asked.keeper)
    for kind in ("agents", "keepers"):
        given = {one.name for one in (folder / kind / "c").iterdir()}
        assert given == {"ca.pem", "federation.json", "federation.2.json", "federation.3.json"}


def test_new_keys_that_a_keeper_made_itself_are_both_among_the_steps(tmp_path: Path) -> None:
    """A keeper that opens the season with its old key is refused by everybody, and no row opens."""
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b", "c"], keepers=["a", "b"])
    before = folder / "agents" / "a" / "agent.seed"
    asked = make_request(tmp_path / "new", "a", federation="feducb", keeper=True, before=before)
    done = typed("keys", "rotate", "fed", "--request", str(asked), "--season", "2", cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert "its agent.seed to a; its keeper.seed to keeper a" in said


def test_a_request_for_another_federation_renews_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b"])
    before = folder / "agents" / "a" / "agent.seed"
    asked = read_request(make_request(tmp_path / "new", "a", federation="other", before=before))
    with pytest.raises(ConfigurationError, match=r"for other'?, expected one for feducb"):
        keys.rotate(folder, requests=[asked])


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--agent", "a", "--trust", "nobody"), "--trust is 'nobody', expected keepers"),
        (("--server",), "--season is 2, expected nothing where no keys change"),
    ],
)
def test_what_a_rotation_would_pass_over_is_refused(tmp_path: Path, flags: tuple[str, ...], why: str) -> None:
    keys.init(tmp_path / "fed", ["a", "b", "c"], keepers=["a", "b"])
    done = typed("keys", "rotate", "fed", "--season", "2", *flags, cwd=tmp_path)
    assert (done.returncode, why in " ".join(done.stderr.split())) == (2, True)
    assert not (tmp_path / "fed" / "federation.2.json").exists()

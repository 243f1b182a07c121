"""Rosters with versions: only the authority's count, none goes back, and a season says which one holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from feducb.agent.roster_place import rosters_of
from feducb.carriers import nats_keys as keys
from feducb.carriers.key_requests import make_request, new_seed, read_request
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol.graphs import parse_topology
from feducb.protocol.pads import Charter
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import (
    all_rosters,
    keep_roster,
    newest_roster,
    of_season,
    quorum_among,
    require_signed,
    sign_roster,
)


def _joined(folder: Path, site: Path, name: str, *, season: int, **more: object) -> Roster:
    request = make_request(site, name, federation="feducb", keeper=bool(more.pop("keeper", False)))
    return keys.add(folder, read_request(request), season=season, **more)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.init(tmp_path / "fed", ["a", "b"])
    return tmp_path / "fed"


def test_a_newcomers_private_key_never_leaves_its_site(folder: Path, tmp_path: Path) -> None:
    roster = _joined(folder, tmp_path / "site", "c", season=3)
    seed = (tmp_path / "site" / "agent.seed").read_text().strip()
    assert (tmp_path / "site" / "agent.seed").stat().st_mode & 0o077 == 0
    assert Signer(tmp_path / "site" / "agent.seed").nkey == roster.agents["c"]
    for path in (*folder.rglob("*"), tmp_path / "site" / "c.request.json"):
        assert path.is_dir() or seed not in path.read_text()
    assert sorted(path.name for path in (folder / "agents" / "c").iterdir()) == [
        *("ca.pem", "federation.2.json", "federation.json")
    ]
    assert roster.agents["c"] in (folder / "server" / "nats-server.conf").read_text()


def test_a_request_that_its_keys_did_not_sign_is_refused(folder: Path, tmp_path: Path) -> None:
    path = make_request(tmp_path / "site", "c", federation="feducb", keeper=True)
    plain = json.loads(path.read_text())
    for change in (
        {"name": "d"},
        {"keys": plain["keys"] | {"agent": Signer(folder / "agents" / "a" / "agent.seed").nkey}},
        {"keys": {"keeper": plain["keys"]["keeper"]}},
    ):
        path.write_text(json.dumps(plain | change))
        with pytest.raises(ConfigurationError, match=r"request is .*, expected"):
            read_request(path)
    for wrong, why in (("a", "name is 'a', expected a new one"), ("../c", "expected 1 to 64 letters")):
        with pytest.raises(ConfigurationError, match=why):
            _joined(folder, tmp_path / "other", wrong, season=2)


def test_a_request_for_another_key_is_signed_by_the_one_before_where_it_is_there(
    folder: Path, tmp_path: Path
) -> None:
    old = folder / "agents" / "a" / "agent.seed"
    before = newest_roster(folder / "federation.json", folder / "ca.pem").agents["a"]
    asked = read_request(make_request(tmp_path / "new", "a", federation="feducb", before=old))
    assert asked.before == before
    path, stranger = tmp_path / "new" / "a.request.json", tmp_path / "stranger"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"proofs": plain["proofs"] | {"before": plain["proofs"]["agent"]}}))
    with pytest.raises(ConfigurationError, match="one that its own keys signed"):
        read_request(path)
    new_seed(stranger / "agent.seed")
    forged = make_request(tmp_path / "forged", "a", federation="feducb", before=stranger / "agent.seed")
    with pytest.raises(ConfigurationError, match=f"expected the key of a in the roster, {before}"):
        keys.rotate(folder, requests=[read_request(forged)])
    assert keys.rotate(folder, requests=[asked]).agents["a"] == asked.nkey


def test_a_season_says_which_version_holds(folder: Path, tmp_path: Path) -> None:
    _joined(folder, tmp_path / "c", "c", season=3)
    keys.remove(folder, "a", season=5)
    keys.rotate(folder, agents=["b"])
    rosters = all_rosters(folder / "federation.json", folder / "ca.pem")
    assert [one.version for one in rosters] == [1, 2, 3, 4]
    held = {season: of_season(rosters, season) for season in (1, 2, 3, 4, 5, 9)}
    assert {season: one.version for season, one in held.items()} == {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 9: 4}
    assert (held[2].names, held[3].names, held[9].names) == (("a", "b"), ("a", "b", "c"), ("b", "c"))
    with pytest.raises(ConfigurationError, match="season is 4, expected at least 5"):
        keys.remove(folder, "c", season=4)
    assert (quorum_among(2, 3, 4), quorum_among(3, 3, 2), quorum_among(None, 3, 9)) == (3, 2, None)


def test_what_the_authority_did_not_sign_or_what_goes_back_is_refused(folder: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("federation.json", "ca.pem"):
        (here / name).write_bytes((folder / name).read_bytes())
    path, authority = here / "federation.json", here / "ca.pem"
    second = _joined(folder, tmp_path / "c", "c", season=3)
    third = keys.remove(folder, "a", season=4)
    strangers = keys.init(tmp_path / "others", ["a", "b"], federation="others")
    forged = sign_roster(replace(third, version=9), tmp_path / "others" / "ca" / "ca.key")
    for bad, why in (
        (forged, "signature: version 9 is not signed"),
        (replace(second, since=2), "signature: version 2 is not signed"),
        (replace(second, version=3), "signature: version 3 is not signed"),
        (replace(second, signature=""), "malformed: roster is"),
        (strangers, "sender: a roster of others, expected feducb"),
    ):
        with pytest.raises(RefusedError, match=why):
            keep_roster(path, authority, bad.to_json().encode() if bad.signature else _stripped(bad))
    assert keep_roster(path, authority, third.to_json().encode()) == third
    assert keep_roster(path, authority, third.to_json().encode()) is None
    with pytest.raises(RefusedError, match="replay: version 2 from season 3 on, expected a later one than v"):
        keep_roster(path, authority, second.to_json().encode())
    another = sign_roster(replace(third, ttl=2), folder / "ca" / "ca.key")  # two contents of one version
    with pytest.raises(RefusedError, match="replay: version 3"):
        keep_roster(path, authority, another.to_json().encode())
    assert newest_roster(path, authority) == third
    (here / "federation.4.json").write_text(replace(third, version=4).to_json())
    with pytest.raises(ConfigurationError, match="expected one that is signed"):
        newest_roster(path, authority)


def _stripped(roster: Roster) -> bytes:
    plain = json.loads(roster.content()) | {"version": roster.version, "since": roster.since}
    return json.dumps(plain).encode()


def test_a_roster_of_the_earlier_version_is_the_first_and_its_seasons_go_on(folder: Path) -> None:
    signed = Roster.read(folder / "federation.json")
    require_signed(signed, folder / "ca.pem")
    (folder / "federation.json").write_text(signed.content())  # as it was written before there were versions
    earlier = Roster.read(folder / "federation.json")
    assert (earlier, earlier.version, earlier.since, earlier.signature) == (signed, 1, 1, "")
    terms = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4)
    assert Charter.of(earlier, terms, 1) == Charter.of(signed, terms, 1)
    second = keys.remove(folder, "a", season=2)
    assert (second.version, second.names) == (2, ("b",))
    require_signed(second, folder / "ca.pem")


def test_on_a_graph_a_newcomer_names_its_neighbours_and_who_leaves_takes_edges_along(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b", "c"], topology=parse_topology("ring:3", ttl=1))
    with pytest.raises(ConfigurationError, match="near is '', expected neighbours: a, b, c"):
        _joined(folder, tmp_path / "d", "d", season=2)
    roster = _joined(folder, tmp_path / "d", "d", season=2, near=["b", "c"])
    assert {("b", "d"), ("c", "d")} <= set(roster.edges or ())
    after = keys.remove(folder, "b", season=3)
    assert after.edges == (("a", "c"), ("c", "d"))
    with pytest.raises(ConfigurationError, match="expected a connected graph"):
        keys.remove(folder, "c", season=4)


def test_keepers_come_and_go_with_their_agents_and_never_fall_below_two(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    keys.init(folder, ["a", "b", "c"], keepers=["a", "b"])
    roster = _joined(folder, tmp_path / "d", "d", season=2, keeper=True)
    assert list(roster.keepers) == ["a", "b", "d"]
    assert Signer(tmp_path / "d" / "keeper.seed").nkey == roster.keepers["d"]
    assert list(keys.remove(folder, "a", season=3).keepers) == ["b", "d"]
    with pytest.raises(ConfigurationError, match="at least two"):
        keys.remove(folder, "b", season=4)


def test_without_the_authority_no_later_version_is_taken(folder: Path, tmp_path: Path) -> None:
    """As at an agent that others carry for: anybody could have put it there."""
    engine = {"kind": "door", "roster": "federation.json"}
    assert [one.version for one in rosters_of(engine, folder)] == [1]
    _joined(folder, tmp_path / "site", "c", season=3)
    with pytest.raises(ConfigurationError, match=r"engine\.ca is None, expected ca\.pem, which proves who"):
        rosters_of(engine, folder)
    assert [one.version for one in rosters_of(engine | {"ca": "ca.pem"}, folder)] == [1, 2]

"""An agent's file in a clique: rows are settled, masked and opened once, in any order, over restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clique_world import CliqueWorld
from feducb.errors import PrivacyError, RefusedError
from feducb.protocol import pads
from feducb.protocol.masks import MaskedRow, RowNonce, read_word
from feducb.protocol.pads import Label
from feducb.protocol.parcels import ParcelKind
from feducb.storage import agent_rows


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CliqueWorld]:
    one = CliqueWorld(tmp_path, names=("a", "b", "c"))
    with one.watched():
        yield one
    one.close()


def tell(world: CliqueWorld, name: str, data: bytes) -> str:
    """The reason for which a word is refused; empty if it is not."""
    try:
        world.hear(name, data)
    except RefusedError as error:
        return error.reason
    return ""


def spread(world: CliqueWorld, *, but: tuple[str, ...] = ()) -> None:
    """Everything that waits reaches everybody, but for words of some."""
    for _ in range(3):
        for sender in world.names:
            for data in world.words(sender):
                for name in world.names:
                    if sender not in but and name != sender:
                        tell(world, name, data)


def read(world: CliqueWorld, data: bytes) -> RowNonce | MaskedRow:
    return read_word(data, world.members["a"].roster, coordinates=world.dim * (world.dim + 3) // 2)


def resigned(world: CliqueWorld, data: bytes, **changes: Any) -> bytes:
    """What its member would send if it wanted to deceive."""
    word = replace(read(world, data), **changes)
    roster = world.members[word.agent].roster
    return word.sign(roster, world.signers[word.agent]).to_bytes(roster)


@pytest.mark.parametrize("groups", [1, 2])
def test_sums_are_those_of_the_rows_whatever_the_order_the_copies_and_the_restarts(
    tmp_path: Path, groups: int
) -> None:
    world, draws = CliqueWorld(tmp_path, groups=groups, releases=3), random.Random(3)
    flying: list[tuple[str, bytes]] = []
    with world.watched():
        while any(world.stores["a"].next_label(group).row <= 3 for group in range(groups)):
            for name, store in world.stores.items():
                for group in range(groups):
                    if store.may_build(group) and draws.random() < 0.3:
                        world.settle(name, group)
                for data in world.words(name):  # again and again
                    flying += [(other, data) for other in world.names if other != name]
            if draws.random() < 0.3:
                world.reopen(draws.choice(world.names))
            draws.shuffle(flying)
            flying = [(to, data) for to, data in flying if tell(world, to, data) in ("order", "season")]
        for name in world.names:
            for group in range(groups):
                sums = world.read[name, group]
                tried, read = sums[::2], sums[1::2]  # looked at before it is used
                assert len(read) == 3
                for number, values in enumerate(read, start=1):
                    np.testing.assert_array_equal(values, world.expected(name, number, group))
                    np.testing.assert_array_equal(values, tried[number - 1])
            store = world.stores[name]
            assert store.halted == ""
            assert [item.number for item in store.rows()] == [3, 3] * groups  # somebody may lack it still
    world.close()


def test_what_is_sent_again_is_the_same_and_stays_until_all_have_it(world: CliqueWorld) -> None:
    for name in world.names:
        world.settle(name)
    before = {name: world.words(name) for name in world.names}
    for name in world.names:
        for item in world.stores[name].rows():
            world.stores[name].mark_row_sent(item)
        world.reopen(name)
    assert {name: world.words(name) for name in world.names} == before
    spread(world, but=("a",))
    assert [len(world.words(name)) for name in world.names] == [2, 1, 1]  # a has all nonces, the others not
    assert world.words("a")[:1] == before["a"]
    spread(world)
    assert {name: world.words(name)[:1] for name in world.names} == before
    for name in world.names:
        assert world.stores[name].next_label() == Label(1, 0, 2)  # over, but who has everybody's row?
        world.settle(name)
    spread(world)
    assert [[item.number for item in world.stores[name].rows()] for name in world.names] == [[2, 2]] * 3
    world.settle("a")
    with pytest.raises(PrivacyError, match="cannot be built"):
        world.stores["a"].build_row()


def test_the_row_that_waits_is_nowhere_in_the_file_as_it_is(world: CliqueWorld, tmp_path: Path) -> None:
    world.settle("a")
    (row,) = world.rows["a", 0, 1]
    files = b"".join(path.read_bytes() for path in tmp_path.glob("a.db*"))
    assert row.astype("<i8").tobytes() not in files
    assert world.stores["a"].database.execute("SELECT count(*) FROM settled").fetchone() == (1,)
    world.settle("b"), world.settle("c")
    spread(world)
    assert world.stores["a"].database.execute("SELECT count(*) FROM settled").fetchone() == (0,)


def keys_of_masks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, bytes]]:
    """What every stream is made of, from now on."""
    used: list[tuple[bytes, bytes, bytes]] = []
    original = pads.pad

    def pad(common: bytes, label: Label, nonce: bytes, count: int) -> pads.Words:
        used.append((common, label.to_bytes(), nonce))
        return original(common, label, nonce, count)

    monkeypatch.setattr(pads, "pad", pad)
    return used


def test_a_file_from_before_the_nonce_makes_another_one_and_no_mask_is_used_for_two_rows(
    world: CliqueWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = world.copy("a")
    for name in world.names:
        world.settle(name)
    spread(world, but=("a",))
    first = world.words("a")
    tell(world, "b", first[0]), tell(world, "c", first[0])  # its row is withheld
    used = keys_of_masks(monkeypatch)
    world.put_back("a", copied)
    again = world.settle("a")
    assert read(world, again) != read(world, first[0])
    assert tell(world, "b", again) == tell(world, "c", again) == "replay"
    for name in ("b", "c"):
        assert tell(world, "a", world.words(name)[0]) == ""
    second = world.words("a")
    before = {nonce for _, _, nonce in used}
    nonces = [read(world, one[0]) for one in (first, second)]
    old, new = (word.nonce for word in nonces if isinstance(word, RowNonce))
    assert all(new in nonce and old not in nonce for nonce in before)  # other streams than those of before
    assert tell(world, "b", second[1]) == "list"
    tell(world, "a", world.words("b")[1])  # masked for the nonce that it does not have
    assert "another copy of this agent has sent another nonce" in world.reopen("a").halted
    assert not world.stores["a"].may_build()
    assert tell(world, "b", first[1]) == ""  # the others go on with what the first copy sent
    assert world.stores["b"].halted == ""


def test_a_file_from_between_nonce_and_row_masks_the_same_row_again(world: CliqueWorld) -> None:
    world.settle("a")
    copied = world.copy("a")
    world.settle("b"), world.settle("c")
    spread(world, but=("a",))
    sent = world.words("a")
    assert len(sent) == 2
    world.put_back("a", copied)
    world.record("a")  # other data would be in a row that is built now
    spread(world, but=("a",))
    assert world.words("a") == sent
    spread(world)
    for name in world.names:
        np.testing.assert_array_equal(world.read[name, 0][-1], world.expected(name, 1))


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_file_that_is_rows_behind_halts_when_it_hears_how_far_the_others_are(
    world: CliqueWorld, ahead: int
) -> None:
    copied = world.copy("a")
    for _ in range(ahead):
        for name in world.names:
            world.settle(name)
        spread(world)
    world.settle("b")
    world.put_back("a", copied)
    assert tell(world, "a", world.words("b")[-1]) == ""
    assert f"another copy of this agent has sent row {ahead}" in world.stores["a"].halted
    with pytest.raises(PrivacyError, match="another copy"):
        world.stores["a"].build_row()


def test_an_agent_halts_at_a_word_in_its_own_name_that_it_never_made(world: CliqueWorld) -> None:
    copied = world.copy("a")
    own = world.settle("a")
    assert tell(world, "a", own) == ""
    assert world.stores["a"].halted == ""
    world.put_back("a", copied)
    tell(world, "a", own)
    assert "another copy of this agent" in world.stores["a"].halted
    assert world.stores["a"].new_season(drop_pending=True) == 2
    assert world.stores["a"].halted == ""


def test_whatever_does_not_belong_is_refused_for_its_own_reason(world: CliqueWorld, tmp_path: Path) -> None:
    first = {name: world.settle(name) for name in world.names}
    assert tell(world, "a", first["b"]) == tell(world, "a", first["b"]) == ""  # twice is no error
    label = Label(1, 0, 1)
    refused = {
        "replay": resigned(world, first["b"], nonce=bytes(32)),
        "terms": resigned(world, first["b"], charter="00" * 32),
        "season": resigned(world, first["b"], label=replace(label, season=2), charter="00" * 32),
        "number": resigned(world, first["b"], label=replace(label, row=7)),
        "signature": first["c"][:-1] + bytes([first["c"][-1] ^ 1]),
        "malformed": b"????" + first["c"],
        "size": first["c"] + b"\0",
        "key": resigned(world, first["c"], public=bytes(32)),
    }
    assert {reason: tell(world, "a", data) for reason, data in refused.items()} == {
        reason: reason for reason in refused
    }
    tell(world, "a", first["c"])
    for name in ("b", "c"):
        for other in world.names:
            tell(world, name, first[other])
    row = world.words("b")[1]
    word = read(world, row)
    assert isinstance(word, MaskedRow)
    own, _, last = word.leaves
    assert tell(world, "a", resigned(world, row, leaves=(own, bytes(16), last))) == "list"
    assert tell(world, "a", resigned(world, row, leaves=(own,))) == "list"
    assert tell(world, "a", row) == ""
    assert tell(world, "a", resigned(world, row, body=bytes(len(word.body)))) == "replay"
    assert world.stores["a"].halted == ""


def test_a_row_that_comes_before_the_nonces_is_told_again(world: CliqueWorld) -> None:
    for name in world.names:
        world.settle(name)
    spread(world, but=("c",))
    for data in world.words("c"):
        tell(world, "b", data)
    early = world.words("b")[1]
    assert tell(world, "a", early) == "order"
    tell(world, "a", world.words("c")[0])
    assert tell(world, "a", early) == ""


def test_agents_of_another_clique_are_strangers(tmp_path: Path) -> None:
    names = tuple("abcdef")
    edges = (("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("d", "f"))
    world = CliqueWorld(tmp_path, names=names, edges=edges)
    assert world.members["a"].clique == ("a", "b", "c")
    assert tell(world, "a", world.settle("d")) == "sender"
    world.close()


@pytest.mark.parametrize(("spoilt", "reason"), [(2**61, "range"), (-(2**40), "definite")])
def test_a_sum_that_no_honest_rows_add_up_to_is_spent_and_not_used(
    world: CliqueWorld, spoilt: int, reason: str
) -> None:
    """A member lies about its row: nobody sees which, all leave the row out, and the next one counts."""
    for name in world.names:
        world.settle(name)
    spread(world, but=("b",))
    for name in ("a", "c"):
        tell(world, name, world.words("b")[0])
    spread(world, but=("b",))
    (_, row) = world.words("b")
    word = read(world, row)
    assert isinstance(word, MaskedRow)
    wrong = pads.to_bytes(pads.from_bytes(word.body) + np.int64(spoilt).view(np.uint64))
    for name in ("a", "c"):
        assert tell(world, name, resigned(world, row, body=wrong)) == ""
        db = world.stores[name].database
        assert db.execute("SELECT row, agents, refused FROM opened").fetchall() == [(1, 3, reason)]
        assert world.read[name, 0][-1] is None
        assert agent_rows.next_label(db, 1, 0) == Label(1, 0, 2)


def test_a_new_season_forgets_what_was_said_and_old_words_change_nothing(world: CliqueWorld) -> None:
    for name in world.names:
        world.settle(name)
    spread(world, but=("a",))
    old = world.words("b")
    for name in world.names:
        assert world.stores[name].new_season(drop_pending=True) == 2
        db = world.stores[name].database
        assert db.execute("SELECT count(*) FROM said").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM settled").fetchone() == (0,)
    for name in world.names:
        world.settle(name)
    assert [tell(world, "a", data) for data in old] == [""]
    spread(world)
    for name in world.names:
        assert world.stores[name].next_label() == Label(2, 0, 2)
        kinds = [entry.kind for entry in world.stores[name].ledger().accounts[1].entries]
        assert kinds == [ParcelKind.NONCE, ParcelKind.ROW]

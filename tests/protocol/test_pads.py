"""Pads: both sides have the same one, nobody has it twice, and each primitive is the one it is said to be."""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import pads
from feducb.protocol.admission import Receipt
from feducb.protocol.pads import Charter, Label, SeasonKey, make_nonce, pad, require_key
from feducb.protocol.roster import Roster
from feducb.protocol.row_gate import RowGate
from feducb.protocol.secure_rows import KeyCard, PaddedRow
from secure_federation import FIRST, SecureFederation, bytes_of

# RFC 7748, 6.1
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
CHARTER = Charter("tests", 1, "c" * 64)
PINNED_PAD = "e404fedbd9371560c85fd6e535629cb0494a126b3a846230"
PINNED_ROW = "f74a37ab1258fee90c4b45fcdd43bd1b796d130c1d9d0243b4a2ccf4b2c58e73"
PINNED_CHARTER = "905e5f8f0c2422789b2c98621b242dc561b8540142786fa63441dfdb8d1ea022"

_P = 2**255 - 19
_ORDER_8 = (  # u of the points of order 8
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
# 0 (order 2 and the point at infinity), ±1 (order 4), order 8; each also plus p, where that fits, and with
# the top bit set, which X25519 ignores.
_SMALL = (0, 1, _P - 1, *_ORDER_8, _P, _P + 1)
SMALL_ORDER = [(u | top).to_bytes(32, "little") for u in _SMALL for top in (0, 2**255)]


def _hkdf(secret: bytes, info: bytes, size: int) -> bytes:
    """RFC 5869 with SHA-256 and no salt, written down once more."""
    key, block, found = hmac.digest(bytes(32), secret, "sha256"), b"", b""
    for number in range(1, -(-size // 32) + 1):
        block = hmac.digest(key, block + info + bytes([number]), "sha256")
        found += block
    return found[:size]


def _chacha20(key: bytes, size: int) -> bytes:
    """RFC 8439 with a nonce of zeros, from block 0, written down once more."""

    def turn(state: list[int], one: int, other: int, third: int, bits: int) -> None:
        state[one] = (state[one] + state[other]) % 2**32
        mixed = state[third] ^ state[one]
        state[third] = (mixed << bits | mixed >> (32 - bits)) % 2**32

    found = b""
    for counter in range(-(-size // 64)):
        start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, 0, 0, 0]
        state = list(start)
        for number in range(80):
            column, diagonal = number % 4, number // 4 % 2
            a, b, c, d = (4 * row + (column + row * diagonal) % 4 for row in range(4))
            for one, other, third, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                turn(state, one, other, third, bits)
        found += struct.pack("<16I", *((x + y) % 2**32 for x, y in zip(state, start, strict=True)))
    return found[:size]


def test_the_references_of_these_tests_hold_to_the_vectors_of_the_rfcs() -> None:
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    assert _hkdf(b"\x0b" * 22, b"", 42).hex() == expected  # RFC 5869, A.3
    expected = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    assert _chacha20(bytes(32), 32).hex() == expected  # RFC 8439, A.1


def test_the_secret_is_x25519_then_hkdf_over_charter_names_and_keys() -> None:
    alice, bob = SeasonKey(ALICE), SeasonKey(BOB)
    assert (alice.public, bob.public) == (ALICE_PUBLIC, BOB_PUBLIC)
    info = b"feducb pad 1\0" + b"c" * 64 + b"\0agent\0keeper\0" + ALICE_PUBLIC + BOB_PUBLIC
    expected = _hkdf(SHARED, info, 32)
    assert alice.common(BOB_PUBLIC, CHARTER, agent="agent", keeper="keeper") == expected
    assert bob.common(ALICE_PUBLIC, CHARTER, agent="agent", keeper="keeper") == expected


@pytest.mark.parametrize("count", [1, 8, 9, 65])
def test_a_pad_is_the_stream_of_chacha20_under_a_key_of_its_own(count: int) -> None:
    common, nonce = bytes_of("common"), bytes_of("nonce")
    key = hashlib.sha256(common + struct.pack("<IIII", 3, 0, 7, 2) + nonce).digest()
    expected = struct.unpack(f"<{count}Q", _chacha20(key, 8 * count))
    assert tuple(pad(common, Label(3, 0, 7, 2), nonce, count).tolist()) == expected


def test_nobody_changes_pads_or_padded_rows_by_accident() -> None:
    """Agents, keepers and controllers of one season may have different versions: pinned."""
    world = SecureFederation()
    common = SeasonKey(ALICE).common(BOB_PUBLIC, CHARTER, agent="agent", keeper="keeper")
    assert pads.to_bytes(pad(common, FIRST, bytes(32), 3)).hex() == PINNED_PAD
    row = PaddedRow(FIRST, ALICE_PUBLIC, bytes(32), bytes(8 * world.coordinates))
    signed = row.sign(world.charter, "a0", world.signers["a0"])
    assert hashlib.sha256(signed.to_bytes()).hexdigest() == PINNED_ROW
    assert world.charter.digest == PINNED_CHARTER


NAMES = st.text("abc-_XYZ019", min_size=1, max_size=6)


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_two_pairs_of_names_have_the_same_secret_only_if_they_are_the_same(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """Also where one name and the next run together to the same letters."""
    key = SeasonKey(ALICE)
    found = [key.common(BOB_PUBLIC, CHARTER, agent=pair[0], keeper=pair[1]) for pair in (one, other)]
    assert (found[0] == found[1]) == (one == other)


def test_anything_else_makes_another_secret() -> None:
    """Another charter, another key, the roles exchanged, and a key that X25519 takes for the same."""
    key = SeasonKey(ALICE)
    same = (int.from_bytes(BOB_PUBLIC, "little") | 2**255).to_bytes(32, "little")
    found = {
        key.common(BOB_PUBLIC, CHARTER, agent="a", keeper="b"),
        key.common(BOB_PUBLIC, CHARTER, agent="b", keeper="a"),
        key.common(BOB_PUBLIC, replace(CHARTER, digest="d" * 64), agent="a", keeper="b"),
        key.common(SeasonKey(bytes_of(1)).public, CHARTER, agent="a", keeper="b"),
        key.common(same, CHARTER, agent="a", keeper="b"),
        SeasonKey(bytes_of(2)).common(BOB_PUBLIC, CHARTER, agent="a", keeper="b"),
    }
    assert len(found) == 6


def test_a_key_of_small_order_is_refused_wherever_one_comes_in(rng: np.random.Generator) -> None:
    """It makes the secret zero, whoever has the other key: then everybody has the pad."""
    world = SecureFederation()
    gate = RowGate.of(world.roster, world.terms, world.controller, season=1)
    row = PaddedRow(FIRST, bytes(32), bytes(32), bytes(8 * world.coordinates))
    for public in SMALL_ORDER:
        signed = replace(row, public=public).sign(world.charter, "a1", world.signers["a1"])
        receipt = gate.row("a1", signed.to_bytes())  # the controller: before such a row is in a final list
        assert isinstance(receipt, Receipt)
        assert receipt.reason == "key"
        ask = world.ask(world.hide(world.rows(rng)) | {"a1": signed}, world.names)
        card = KeyCard.make(world.charter, "a0", public, world.keepers["a0"]).to_bytes(world.roster)
        for taken_in in (
            lambda public=public: require_key(public),
            lambda public=public: SeasonKey(ALICE).common(public, CHARTER, agent="a", keeper="b"),
            lambda ask=ask: world.answers(ask),
            lambda card=card: KeyCard.read(card, world.charter, world.roster),
        ):
            with pytest.raises(RefusedError) as refused:
                taken_in()
            assert refused.value.reason == "key"
    require_key(ALICE_PUBLIC)


def test_changing_keys_fill_no_memory() -> None:
    key = SeasonKey(ALICE)
    for number in range(20):
        other = SeasonKey(bytes_of(number))
        common = key.common(other.public, CHARTER, agent="a", keeper="b")
        assert common == other.common(key.public, CHARTER, agent="a", keeper="b")
    assert len(key._common) == 1


@given(
    st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1), st.sampled_from([1, 2])
)
def test_a_label_is_read_as_it_was_written(season: int, group: int, row: int, attempt: int) -> None:
    label = Label(season, group, row, attempt)
    assert len(label.to_bytes()) == 16
    assert Label.from_bytes(label.to_bytes()) == label


@pytest.mark.parametrize("numbers", [(0, 0, 1, 1), (1, 0, 0, 1), (1, 0, 1, 0), (1, 0, 1, 3)])
def test_what_is_no_label_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(RefusedError):
        Label.from_bytes(struct.pack("<IIII", *numbers))


def test_a_row_that_was_closed_empty_is_made_up_for_once() -> None:
    row = Label(1, 0, 5)
    assert row.following(empty=False) == Label(1, 0, 6)
    assert row.following(empty=True) == Label(1, 0, 5, 2)
    assert {Label(1, 0, 5, 2).following(empty=empty) for empty in (True, False)} == {Label(1, 0, 6)}


def test_a_charter_says_who_in_which_order_what_and_when() -> None:
    """The order is in it: agents and keepers are told by their place."""
    world = SecureFederation()
    roster = world.roster
    turned = replace(roster, agents=dict(reversed(roster.agents.items())))
    others = [
        (turned, world.terms, 1),
        (replace(roster, keepers=dict(reversed(roster.keepers.items()))), world.terms, 1),
        (replace(roster, federation="others"), world.terms, 1),
        (roster, world.terms, 2),
        (roster, replace(world.terms, releases=5), 1),
        (roster, SecureFederation(epsilon=2.0).terms, 1),
        (roster, SecureFederation(away=2).terms, 1),
    ]
    digests = {Charter.of(*one).digest for one in [(roster, world.terms, 1), *others]}
    assert len(digests) == 1 + len(others)


def test_a_season_that_no_label_can_name_is_refused() -> None:
    world = SecureFederation()
    with pytest.raises(ConfigurationError, match="at most 4294967295") as refused:
        Charter.of(world.roster, world.terms, 2**32)
    assert refused.value.setting == "season"


def test_a_whole_number_is_the_same_promise_written_with_a_point_or_without() -> None:
    one, other = SecureFederation(epsilon=1), SecureFederation(epsilon=1.0)
    assert one.charter == other.charter


def test_with_keepers_one_key_has_one_name_and_one_role() -> None:
    roster = SecureFederation().roster
    first, second = list(roster.agents.values())[:2]
    faults: list[dict[str, object]] = [
        {"agents": {**roster.agents, "a1": first}},
        {"keepers": {**roster.keepers, "a1": roster.keepers["a0"]}},
        {"keepers": {**roster.keepers, "a1": second}},
        {"controller": first},
        {"keepers": {"a0": roster.keepers["a0"]}},
    ]
    for fault in faults:
        with pytest.raises(ConfigurationError):
            replace(roster, **fault)  # type: ignore[arg-type]


def test_more_agents_than_a_list_can_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feducb.protocol.roster._MOST_AGENTS", 5)
    with pytest.raises(ConfigurationError, match="at most 5 with keepers"):
        SecureFederation(agents=6)
    assert isinstance(SecureFederation(agents=5).roster, Roster)


def test_neither_a_copied_file_nor_a_copied_generator_makes_a_nonce_twice(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A restored file has the old secret; a cloned machine draws the same 16 bytes. The row differs still."""
    secret, rows = bytes_of("secret"), rng.integers(-(2**40), 2**40, (50, 9))
    fresh = {make_nonce(secret, FIRST, rows[0]) for _ in range(50)}
    assert len(fresh) == 50
    monkeypatch.setattr("secrets.token_bytes", bytes)  # zeros, each time
    cloned = {make_nonce(secret, FIRST, row) for row in rows}
    assert len(cloned) == 50
    nearly = rows[0].copy()
    nearly[8] += 1
    labels = [FIRST, replace(FIRST, attempt=2), replace(FIRST, row=2), replace(FIRST, season=2)]
    assert len({make_nonce(secret, label, row) for label in labels for row in (rows[0], nearly)}) == 8
    assert make_nonce(secret, FIRST, rows[0]) != make_nonce(bytes_of("another"), FIRST, rows[0])


def test_no_pad_is_used_twice_over_agents_keepers_labels_and_nonces() -> None:
    """By the pads themselves, 9 numbers each: two that agree have the same key."""
    world = SecureFederation()
    labels = [Label(1, 0, row, attempt) for row in (1, 2, 3) for attempt in (1, 2)]
    nonces = [bytes_of("nonce", number) for number in range(3)]
    found = [
        pads.to_bytes(pad(common, label, nonce, world.coordinates))
        for agent, cover in world.covers.items()
        for keeper, card in world.cards.items()
        for common in [cover.key.common(card.public, world.charter, agent=agent, keeper=keeper)]
        for label in labels
        for nonce in nonces
    ]
    assert len(set(found)) == len(found) == 6 * 3 * 6 * 3

"""What travels for secure sums: read as written, refused if a byte differs, and opened only as the sum."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.rows import require_in_range
from feducb.protocol import pads
from feducb.protocol.admission import REASONS
from feducb.protocol.hiding import Member
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import (
    Answer,
    Ask,
    KeyCard,
    Listed,
    Opened,
    PaddedRow,
    list_digest,
    open_sum,
    require_list,
    require_signed,
    row_size,
)
from feducb.protocol.two_lists import TwoLists
from secure_federation import FIRST, SecureFederation

WORLD = SecureFederation()
MOST = WORLD.names[:5]  # one is away
Rows = dict[str, NDArray[np.int64]]
Padded = dict[str, PaddedRow]


def _hidden(seed: int = 1, world: SecureFederation = WORLD, label: Label = FIRST) -> tuple[Rows, Padded]:
    rows = world.rows(np.random.default_rng(seed))
    return rows, world.hide(rows, label)


ROWS, PADDED = _hidden()


def _two_lists() -> bytes:
    asks = (WORLD.ask(PADDED, names) for names in (MOST, WORLD.names))
    one, other = (Ask.read(ask, WORLD.charter, WORLD.roster).signed for ask in asks)
    return TwoLists.of(FIRST, one, other).to_bytes()


def _read_row(data: bytes, world: SecureFederation = WORLD) -> PaddedRow:
    row = PaddedRow.read(data, coordinates=world.coordinates)
    require_signed(row.entry(2), row.label, world.charter, world.roster)
    return row


def _read_answer(data: bytes, world: SecureFederation = WORLD) -> Answer:
    return Answer.read(data, world.charter, world.roster, coordinates=world.coordinates)


MESSAGES: dict[str, tuple[bytes, Callable[[bytes, SecureFederation], object]]] = {
    "card": (
        WORLD.duties["a1"].card(),
        lambda data, world: KeyCard.read(data, world.charter, world.roster),
    ),
    "row": (PADDED["a2"].to_bytes(), _read_row),
    "ask": (WORLD.ask(PADDED, MOST), lambda data, world: Ask.read(data, world.charter, world.roster)),
    "empty ask": (WORLD.ask(PADDED, []), lambda data, world: Ask.read(data, world.charter, world.roster)),
    "answer": (WORLD.answers(WORLD.ask(PADDED, MOST))[1].to_bytes(WORLD.roster), _read_answer),
    "opened": (WORLD.opened(PADDED, MOST), lambda data, world: world.read_opened(data)),
    "refused": (
        WORLD.opened(PADDED, MOST, refused="range"),
        lambda data, world: world.read_opened(data),
    ),
    "closed empty": (WORLD.opened(PADDED, []), lambda data, world: world.read_opened(data)),
    "two lists": (_two_lists(), lambda data, world: TwoLists.read(data, world.charter, world.roster)),
}


def _written(message: object) -> bytes:
    if isinstance(message, KeyCard | Answer):
        return message.to_bytes(WORLD.roster)
    if isinstance(message, Ask):
        return message.to_bytes(WORLD.charter, WORLD.controller)
    if isinstance(message, Opened):
        return message.to_bytes(WORLD.charter, WORLD.roster, WORLD.controller)
    assert isinstance(message, PaddedRow | TwoLists)
    return message.to_bytes()


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_is_read_as_it_was_written(kind: str) -> None:
    data, read = MESSAGES[kind]
    assert _written(read(data, WORLD)) == data


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_change_of_a_single_byte_is_refused(kind: str, rng: np.random.Generator) -> None:
    """Each byte in turn, by a bit and by something else; also one byte more, or fewer."""
    data, read = MESSAGES[kind]
    for place in range(len(data)):
        for change in (1 << int(rng.integers(8)), int(rng.integers(1, 256))):
            with pytest.raises(RefusedError) as refused:
                read(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :], WORLD)
            assert refused.value.reason in REASONS
    for size in (*range(0, len(data), 7), len(data) - 1):
        with pytest.raises(RefusedError):
            read(data[:size], WORLD)
    with pytest.raises(RefusedError):
        read(data + b"\0", WORLD)


OTHERS = {
    "federation": SecureFederation(federation="others"),
    "terms": SecureFederation(epsilon=2.0),
    "roster": SecureFederation(agents=7),
    "season": SecureFederation(season=2),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_is_of_one_season_roster_and_terms(kind: str, what: str) -> None:
    """The same keys, and something else agreed on. Cards say no season in words: their signature does."""
    data, read = MESSAGES[kind]
    with pytest.raises(RefusedError) as refused:
        read(data, OTHERS[what])
    assert refused.value.reason == ("season" if what == "season" and kind != "card" else "signature")


def test_a_signature_for_one_kind_of_message_is_none_for_another() -> None:
    """Whatever the bytes: contexts differ before they do."""
    card = WORLD.cards["a1"]
    body = card.public
    for kind in ("row", "ask", "answer", "opened"):
        signature = WORLD.keepers["a1"].sign(body, "secure sums", kind, "tests", WORLD.charter.digest, "a1")
        forged = replace(card, signature=signature).to_bytes(WORLD.roster)
        with pytest.raises(RefusedError):
            KeyCard.read(forged, WORLD.charter, WORLD.roster)


def test_an_agents_key_is_no_keepers_key() -> None:
    """Though both have one owner and one name: roles have keys of their own."""
    forged = KeyCard.make(WORLD.charter, "a1", WORLD.cards["a1"].public, WORLD.signers["a1"])
    with pytest.raises(RefusedError) as refused:
        KeyCard.read(forged.to_bytes(WORLD.roster), WORLD.charter, WORLD.roster)
    assert refused.value.reason == "signature"


def test_sizes_are_as_stated() -> None:
    world = SecureFederation(dim=10)
    row = world.hide(world.rows(np.random.default_rng(1)))["a0"]
    assert len(row.to_bytes()) == row_size(world.coordinates) == 148 + 8 * 65 == 668
    data, _ = MESSAGES["answer"]
    assert len(data) == 118 + 8 * WORLD.coordinates
    assert len(MESSAGES["card"][0]) == 102
    assert len(MESSAGES["two lists"][0]) == 212


@settings(max_examples=60)
@given(
    agents=st.integers(4, 9),
    keepers=st.integers(2, 4),
    seed=st.integers(0, 2**32 - 1),
    large=st.booleans(),
    data=st.data(),
)
def test_what_opens_is_the_sum_bit_for_bit(
    agents: int, keepers: int, seed: int, large: bool, data: st.DataObject
) -> None:
    """Also where it wraps, whatever the order in which rows and answers came."""
    world, rng = SecureFederation(agents, keepers), np.random.default_rng(seed)
    rows = world.rows(rng)
    if large:
        rows = {name: rng.integers(-(2**63), 2**63 - 1, world.coordinates) for name in rows}
    away = data.draw(st.sampled_from([None, *world.names]))
    names = [name for name in world.names if name != away]
    padded = world.hide(rows)
    answers = world.answers(world.ask(padded, names))
    shuffled = [names[place] for place in rng.permutation(len(names))]
    opened = world.open(padded, shuffled, answers[::-1])
    expected = np.sum([rows[name].view(np.uint64) for name in names], axis=0, dtype=np.uint64)
    assert np.array_equal(opened.view(np.uint64), expected)


def test_a_sum_that_is_over_says_who_is_in_it_and_that_all_keepers_say_so() -> None:
    over = WORLD.read_opened(WORLD.opened(PADDED, MOST))
    assert over.names(WORLD.roster) == tuple(MOST)
    assert over.values is not None
    assert (over.values == sum(ROWS[name] for name in MOST)).all()
    assert [proof.keeper for proof in over.proofs] == list(WORLD.roster.keepers)
    assert over.listed[2] == PADDED["a2"].entry(2).listed("a2")
    empty = WORLD.read_opened(WORLD.opened(PADDED, []))
    assert empty.empty
    assert empty.values is None


LISTS: dict[str, list[tuple[int, ...]]] = {
    "list": [(0, 1, 1, 2, 3, 4), (1, 0, 2, 3, 4)],  # an agent twice, out of order
    "sender": [(0, 1, 2, 3, 6), (0, 1, 2, 3, 65_535)],  # nobody
    "quorum": [(0,), (0, 1, 2, 3)],  # M − D is 5
}


@pytest.mark.parametrize("reason", LISTS)
def test_a_list_is_of_enough_agents_each_once(reason: str) -> None:
    """Asked of keepers, and once more by whoever reads what they signed."""
    answers = WORLD.answers(WORLD.ask(PADDED, MOST))
    for places in LISTS[reason]:
        with pytest.raises(RefusedError) as refused:
            require_list(places, WORLD.roster, WORLD.quorum)
        assert refused.value.reason == reason
        listed = tuple(Listed(place, bytes(16)) for place in places)
        digest = list_digest(FIRST, listed)
        signed = [
            replace(answer, listed=digest).sign(WORLD.charter, WORLD.keepers[answer.keeper])
            for answer in answers
        ]
        values = np.zeros(WORLD.coordinates, dtype=np.int64)
        over = Opened(FIRST, listed, tuple(answer.proof for answer in signed), values)
        with pytest.raises(RefusedError) as refused:
            WORLD.read_opened(_written(over))
        assert refused.value.reason == reason
    require_list((), WORLD.roster, WORLD.quorum)
    require_list(range(5), WORLD.roster, WORLD.quorum)


def _over(names: list[str] = MOST, label: Label = FIRST) -> Opened:
    padded = PADDED if label == FIRST else _hidden(label=label)[1]
    return WORLD.read_opened(WORLD.opened(padded, names, label))


FORGED: dict[str, Callable[[], Opened]] = {
    "a proof for another list": lambda: replace(_over(), proofs=_over(WORLD.names).proofs),
    "a proof for another row": lambda: replace(_over(), proofs=_over(label=Label(1, 0, 2)).proofs),
    "a proof for another attempt": lambda: replace(_over(), label=Label(1, 0, 1, 2)),
    "closed empty by nobody": lambda: replace(_over(), listed=(), values=None),
    "somebody put in": lambda: replace(_over(), listed=_over(WORLD.names).listed),
    "another row of somebody": lambda: replace(_over(), listed=(Listed(0, bytes(16)), *_over().listed[1:])),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_controller_forges_no_certificate(what: str) -> None:
    """It signs what it likes; keepers have signed one list for one row."""
    with pytest.raises(RefusedError) as refused:
        WORLD.read_opened(_written(FORGED[what]()))
    assert refused.value.reason == "signature"


def test_a_certificate_has_one_proof_of_each_keeper_and_refuses_only_a_sum() -> None:
    over = _over()
    faults = [
        replace(over, proofs=(over.proofs[0], *over.proofs[:2])),
        replace(over, proofs=over.proofs[::-1]),
        replace(_over([]), refused="range"),
    ]
    for fault in faults:
        with pytest.raises(RefusedError) as refused:
            WORLD.read_opened(_written(fault))
        assert refused.value.reason == "malformed"
    with pytest.raises(RefusedError) as refused:
        WORLD.read_opened(_written(replace(over, proofs=over.proofs[:2])))
    assert refused.value.reason in ("malformed", "sender", "size", "signature")


def test_one_list_is_no_proof_of_two() -> None:
    signed = Ask.read(WORLD.ask(PADDED, MOST), WORLD.charter, WORLD.roster).signed
    with pytest.raises(RefusedError) as refused:
        TwoLists.read(TwoLists.of(FIRST, signed, signed).to_bytes(), WORLD.charter, WORLD.roster)
    assert refused.value.reason == "malformed"
    other = Ask.read(WORLD.ask(PADDED, [], Label(1, 0, 2)), WORLD.charter, WORLD.roster).signed
    with pytest.raises(RefusedError) as refused:  # signed for another row
        TwoLists.read(TwoLists.of(FIRST, signed, other).to_bytes(), WORLD.charter, WORLD.roster)
    assert refused.value.reason == "signature"


def _require_uniform(words: list[NDArray[np.int64]]) -> None:
    """Pearson's test on all bytes; it would cry wolf once in 1,000 times, were the bytes not seeded.

    With 9,000 bytes it notices if one number in 25 were bare, since its upper bytes are then all alike.
    """
    found = np.frombuffer(b"".join(one.tobytes() for one in words), dtype=np.uint8)
    assert len(found) >= 9000
    assert stats.chisquare(np.bincount(found, minlength=256)).pvalue > 0.001


def _openings(
    monkeypatch: pytest.MonkeyPatch, attack: Callable[[Padded], NDArray[np.int64]], rows: Rows = ROWS
) -> list[NDArray[np.int64]]:
    """What an attack opens, 128 times under fresh pads; nonces are seeded."""
    monkeypatch.setattr("secrets.token_bytes", np.random.default_rng(7).bytes)
    return [attack(WORLD.hide(rows)) for _ in range(128)]


def _require_nothing_recovered(found: list[NDArray[np.int64]]) -> None:
    """It is uniform, out of range, and no number of it is that of any agents' sum or difference."""
    _require_uniform(found)
    for one in found:
        with pytest.raises(RefusedError, match="no honest rows"):
            require_in_range(one, WORLD.terms)
    signs = np.array(list(itertools.product((-1, 0, 1), repeat=6)))
    known = signs @ np.stack([ROWS[name] for name in WORLD.names])
    assert not np.isin(np.stack(found), known).any()


def test_the_uniformity_test_finds_honest_sums_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is hidden where lists are the same, and little where one number in 20 is not."""

    def honest(padded: Padded) -> NDArray[np.int64]:
        return WORLD.open(padded, MOST, WORLD.answers(WORLD.ask(padded, MOST)))

    found = _openings(monkeypatch, honest)
    with pytest.raises(AssertionError):
        _require_uniform(found)
    mixed = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, (128, 9))
    mixed.reshape(-1)[::20] = np.stack(found).reshape(-1)[::20]
    with pytest.raises(AssertionError):
        _require_uniform(list(mixed))


@pytest.mark.parametrize("summed", [MOST, WORLD.names])
def test_different_lists_to_two_keepers_open_to_nothing(
    monkeypatch: pytest.MonkeyPatch, summed: list[str]
) -> None:
    """Keepers need not compare lists: the pads of whoever is in one of them alone stay in."""

    def attack(padded: Padded) -> NDArray[np.int64]:
        few, all_of_them = (WORLD.answers(WORLD.ask(padded, names)) for names in (MOST, WORLD.names))
        return WORLD.open(padded, summed, [few[0], all_of_them[1], few[2]])

    _require_nothing_recovered(_openings(monkeypatch, attack))


@pytest.mark.parametrize("summed", [["a5"], WORLD.names[1:], ["a3"]])
def test_with_all_keepers_but_one_nothing_opens_but_the_sum_that_it_answered_for(
    monkeypatch: pytest.MonkeyPatch, summed: list[str]
) -> None:
    """Colluding keepers tell each pad of theirs; the honest one told one sum, of other rows."""

    def attack(padded: Padded) -> NDArray[np.int64]:
        honest = WORLD.answers(WORLD.ask(padded, MOST))[0]
        return open_sum([_without(padded[name], name, ["a1", "a2"]) for name in summed], [honest])

    _require_nothing_recovered(_openings(monkeypatch, attack))


def _without(row: PaddedRow, agent: str, keepers: list[str]) -> bytes:
    """A padded row less the pads of colluding keepers, which they compute as they like."""
    words = pads.from_bytes(row.body)
    for keeper in keepers:
        key = WORLD.duties[keeper].key
        common = key.common(row.public, WORLD.charter, agent=agent, keeper=keeper)
        words = words - pads.pad(common, row.label, row.nonce, WORLD.coordinates)
    return pads.to_bytes(words)


def test_a_copied_upload_in_another_slot_opens_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A colluding agent sends what the victim sent, key and nonce and all, under its own name."""

    def attack(padded: Padded) -> NDArray[np.int64]:
        copy = padded["a3"].sign(WORLD.charter, "a4", WORLD.signers["a4"])
        mixed = padded | {"a4": copy}
        return WORLD.open(mixed, MOST, WORLD.answers(WORLD.ask(mixed, MOST)))

    _require_nothing_recovered(_openings(monkeypatch, attack))


def test_a_fixed_nonce_would_show_the_difference_of_two_rows_and_ours_never_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file put back makes another row for the same label; a cloned generator draws the same bytes."""
    rows, others = (WORLD.rows(np.random.default_rng(seed)) for seed in (1, 2))
    cover = WORLD.covers["a3"]

    def difference() -> NDArray[np.int64]:
        one, other = (pads.from_bytes(cover.hide(FIRST, r["a3"], WORLD.cards).body) for r in (rows, others))
        return np.asarray(one - other).view(np.int64)

    monkeypatch.setattr("secrets.token_bytes", bytes)  # zeros: the generator of a clone
    assert not np.isin(difference(), rows["a3"] - others["a3"]).any()
    monkeypatch.setattr(pads, "make_nonce", lambda *_: bytes(32))
    assert (difference() == rows["a3"] - others["a3"]).all()  # were it fixed


def test_a_keepers_own_row_is_padded_for_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the other keepers colluding nothing else hides it; without that pad they would read it."""

    def left(padded: Padded) -> NDArray[np.int64]:
        return pads.from_bytes(_without(padded["a0"], "a0", ["a1", "a2"])).view(np.int64)

    _require_nothing_recovered(_openings(monkeypatch, left))
    bare = pads.from_bytes(_without(PADDED["a0"], "a0", ["a0", "a1", "a2"])).view(np.int64)
    assert (bare == ROWS["a0"]).all()  # what the self-pad alone keeps from them


@pytest.mark.parametrize("keepers", [["a1", "a2"], ["a0", "a1"], [], ["a0", "a1", "a2", "a3"]])
def test_no_row_leaves_unless_it_is_padded_for_every_keeper(keepers: list[str]) -> None:
    cards = {name: WORLD.cards.get(name, WORLD.cards["a0"]) for name in keepers}
    with pytest.raises(RefusedError) as refused:
        WORLD.covers["a0"].hide(FIRST, ROWS["a0"], cards)
    assert refused.value.reason == "key"


def test_an_agent_hides_nothing_under_a_roster_without_keepers() -> None:
    bare = replace(WORLD.roster, keepers={})
    with pytest.raises(ConfigurationError, match="expected one with keepers"):
        Member("a0", bare, WORLD.signers["a0"])
    with pytest.raises(RefusedError, match="padded for all keepers"):
        replace(WORLD.covers["a0"], roster=bare).hide(FIRST, ROWS["a0"], {})

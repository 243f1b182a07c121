"""A keeper's rules: which list it may answer, and that every attack it can see has its own refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feducb.errors import RefusedError
from feducb.protocol import pads
from feducb.protocol.admission import REASONS
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import Ask, PaddedRow, list_digest
from secure_federation import FIRST, SecureFederation, bytes_of

WORLD = SecureFederation()
DUTY = WORLD.duties["a0"]
MOST = WORLD.names[:5]
ROWS = WORLD.rows(np.random.default_rng(1))
PADDED = WORLD.hide(ROWS)
NEXT = Label(1, 0, 2)


def test_an_answer_is_the_sum_of_the_keepers_pads_for_the_list() -> None:
    answer = DUTY.answer(DUTY.read(WORLD.ask(PADDED, MOST)))
    expected = np.zeros(WORLD.coordinates, dtype=np.uint64)
    for name in MOST:
        common = WORLD.covers[name].key.common(
            WORLD.cards["a0"].public, WORLD.charter, agent=name, keeper="a0"
        )
        expected += pads.pad(common, FIRST, PADDED[name].nonce, WORLD.coordinates)
    assert np.array_equal(pads.from_bytes(answer.body), expected)
    assert (answer.keeper, answer.label) == ("a0", FIRST)
    assert answer.listed == list_digest(FIRST, WORLD.ask_for(PADDED, MOST).listed(WORLD.roster))


def test_an_answer_has_the_same_bytes_each_time() -> None:
    ask = WORLD.ask(PADDED, MOST)
    assert WORLD.answers(ask) == WORLD.answers(ask)


def test_an_empty_list_tells_no_pad() -> None:
    assert DUTY.answer(DUTY.read(WORLD.ask({}, []))).body == bytes(8 * WORLD.coordinates)


def _signed(world: SecureFederation, agent: str, signer: str, label: Label = FIRST) -> PaddedRow:
    """A row that somebody signs in an agent's name."""
    key = world.covers[agent].key.public
    row = PaddedRow(label, key, bytes_of(agent), bytes(8 * world.coordinates))
    return row.sign(world.charter, agent, world.signers[signer])


def _ask(padded: dict[str, PaddedRow], names: list[str] = MOST, label: Label = FIRST) -> bytes:
    return WORLD.ask(PADDED | padded, names, label)


def _listed(*places: int) -> bytes:
    """A list of the rows at these places, in this order."""
    entries = tuple(PADDED[WORLD.names[place]].entry(place) for place in places)
    return Ask(FIRST, entries).to_bytes(WORLD.charter, WORLD.controller)


def _of_another(world: SecureFederation) -> bytes:
    """An honest list of a federation with the same keys that agreed on something else."""
    label = replace(FIRST, season=world.season)
    return world.ask(world.hide(world.rows(np.random.default_rng(1)), label), world.names, label)


def _uploaded_in(world: SecureFederation) -> bytes:
    """This federation's controller asks for rows that were made for another charter."""
    padded = world.hide(world.rows(np.random.default_rng(1)))
    return WORLD.ask(padded, MOST)


def _swapped() -> bytes:
    """A row of a1 under the place of a2, and the other way round."""
    entries = [PADDED[name].entry(place) for place, name in enumerate(MOST)]
    entries[1], entries[2] = entries[2]._replace(place=1), entries[1]._replace(place=2)
    return Ask(FIRST, tuple(entries)).to_bytes(WORLD.charter, WORLD.controller)


def _changed(**fields: bytes) -> bytes:
    """One agent's entry says something else than it signed."""
    entries = [PADDED[name].entry(place) for place, name in enumerate(MOST)]
    entries[3] = entries[3]._replace(**fields)  # type: ignore[arg-type]
    return Ask(FIRST, tuple(entries)).to_bytes(WORLD.charter, WORLD.controller)


ATTACKS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "an upload of an earlier row": ("signature", lambda: _ask({}, label=NEXT)),
    "an upload of the first attempt": ("signature", lambda: _ask({}, label=Label(1, 0, 1, 2))),
    "uploads made for another roster": ("signature", lambda: _uploaded_in(SecureFederation(agents=7))),
    "uploads made for other terms": ("signature", lambda: _uploaded_in(SecureFederation(epsilon=2.0))),
    "a list of another roster": ("signature", lambda: _of_another(SecureFederation(agents=7))),
    "a list of other terms": ("signature", lambda: _of_another(SecureFederation(epsilon=2.0))),
    "a list of another federation": ("signature", lambda: _of_another(SecureFederation(federation="x"))),
    "a list of another season": ("season", lambda: _of_another(SecureFederation(season=2))),
    "an invented survivor": ("signature", lambda: _ask({"a4": replace(PADDED["a4"], signature=bytes(64))})),
    "a survivor signed by another agent": ("signature", lambda: _ask({"a4": _signed(WORLD, "a4", "a3")})),
    "rows exchanged between agents": ("signature", _swapped),
    "another nonce than was signed": ("signature", lambda: _changed(nonce=bytes_of("other"))),
    "another key than was signed": ("signature", lambda: _changed(public=DUTY.key.public)),
    "another row than was signed": ("signature", lambda: _changed(digest=bytes_of("other"))),
    "a list below the quorum": ("quorum", lambda: _ask({}, MOST[:4])),
    "a list of one": ("quorum", lambda: _ask({}, ["a5"])),
    "an agent twice": ("list", lambda: _listed(0, 1, 2, 2, 3, 4)),
    "an agent twice, to fill the quorum": ("list", lambda: _listed(0, 1, 2, 3, 3)),
    "agents out of order": ("list", lambda: _listed(1, 0, 2, 3, 4)),
    "somebody who is in no roster": (
        "sender",
        lambda: Ask(FIRST, (*WORLD.ask_for(PADDED, MOST).entries, PADDED["a5"].entry(6))).to_bytes(
            WORLD.charter, WORLD.controller
        ),
    ),
    "a row beyond those agreed on": ("number", lambda: WORLD.ask({}, [], Label(1, 0, 5))),
    "a group that there is not": ("number", lambda: WORLD.ask({}, [], Label(1, 1, 1))),
    "a list that an agent signed": (
        "signature",
        lambda: WORLD.ask_for(PADDED, MOST).to_bytes(WORLD.charter, WORLD.signers["a1"]),
    ),
    "a list that a keeper signed": (
        "signature",
        lambda: WORLD.ask_for(PADDED, MOST).to_bytes(WORLD.charter, WORLD.keepers["a1"]),
    ),
    "something else": ("malformed", PADDED["a1"].to_bytes),
    "a list that ends too early": ("size", lambda: WORLD.ask(PADDED, MOST)[:-1]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_under_its_reason(attack: str) -> None:
    reason, ask = ATTACKS[attack]
    with pytest.raises(RefusedError) as refused:
        DUTY.answer(DUTY.read(ask()))
    assert refused.value.reason == reason
    assert reason in REASONS


def test_all_but_a_few_colluding_agents_cannot_be_made_up() -> None:
    """Whom the adversary has no key of is in a list by its own signature alone: any subset of forged rows."""
    for forged in (["a1"], ["a1", "a2"], MOST):
        padded = {name: _signed(WORLD, name, "a5") for name in forged}
        with pytest.raises(RefusedError) as refused:
            DUTY.answer(DUTY.read(_ask(padded)))
        assert refused.value.reason == "signature"


@given(st.integers(1, 4), st.sampled_from([1, 2]), st.integers(1, 4), st.sampled_from([1, 2]), st.booleans())
def test_rows_are_answered_in_order(
    row: int, attempt: int, last: int, last_attempt: int, empty: bool
) -> None:
    asked, newest = Label(1, 0, row, attempt), Label(1, 0, last, last_attempt)
    made_up = empty and last_attempt == 1
    expected = (last, 2) if made_up else (last + 1, 1)
    if (row, attempt) == expected:
        DUTY.require_next(asked, (newest, empty))
    else:
        with pytest.raises(RefusedError) as refused:
            DUTY.require_next(asked, (newest, empty))
        assert refused.value.reason == "order"


def test_the_first_row_is_the_first() -> None:
    DUTY.require_next(FIRST, None)
    for label in (NEXT, Label(1, 0, 1, 2)):
        with pytest.raises(RefusedError):
            DUTY.require_next(label, None)

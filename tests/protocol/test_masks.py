"""Rows that are masked in pairs: what opens, what does not, and what every message is signed for."""

from __future__ import annotations

import hashlib
import secrets
import struct
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from scipy import stats

from feducb.config import Budget, Problem
from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import masks, pads
from feducb.protocol.hiding import Cover
from feducb.protocol.masks import MaskedRow, RowNonce, add_rows, mask_row, read_word, settle_row
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import is_card

Ints = NDArray[np.int64]
LABEL = Label(1, 0, 3)


def make_covers(count: int, *, fixed: bool = False) -> dict[str, Cover]:
    """A clique of so many; with keys that are always the same, if a vector is to be pinned."""
    names = [f"m{index}" for index in range(count)]
    signers = {name: Signer.fresh() for name in names}
    edges = tuple((one, other) for one in names for other in names if one < other)
    nkeys = {name: signer.nkey for name, signer in signers.items()}
    roster = Roster(federation="tests", agents=nkeys, edges=edges)
    terms = Terms(
        problem=Problem(dim=2),
        budget=Budget(epsilon=1.0, delta=1e-6),
        releases=4,
        trust="keepers:0:1",  # type: ignore[arg-type]
        agents=count,
    )
    charter = Charter("tests", 1, "ab" * 32) if fixed else Charter.of(roster, terms, 1)
    return {
        name: Cover(
            name,
            roster,
            signers[name],
            SeasonKey(hashlib.sha256(name.encode()).digest() if fixed else None),
            hashlib.sha256(b"secret" + name.encode()).digest() if fixed else secrets.token_bytes(32),
            charter,
        )
        for name in names
    }


def mask_all(covers: dict[str, Cover], rows: dict[str, Ints]) -> dict[str, MaskedRow]:
    settled = {name: settle_row(cover, LABEL, rows[name]) for name, cover in covers.items()}
    nonces = {name: nonce for name, (nonce, _) in settled.items()}
    return {name: mask_row(cover, settled[name][1], nonces) for name, cover in covers.items()}


def test_the_rows_of_all_members_add_up_bit_for_bit() -> None:
    draws = np.random.default_rng(1)
    for count in (3, 4, 5, 9):
        covers = make_covers(count)
        for size, largest in ((1, 2**62), (5, 2**20), (65, 2**62)):  # 2^62: sums wrap, as they are said to
            rows = {name: draws.integers(-largest, largest, size) for name in covers}
            masked = list(mask_all(covers, rows).values())
            draws.shuffle(masked)
            expected = np.sum(list(rows.values()), axis=0, dtype=np.int64)
            np.testing.assert_array_equal(add_rows(masked), expected)


def _p_of_uniform(values: Ints) -> float:
    counts = np.bincount(np.frombuffer(values.tobytes(), dtype=np.uint8), minlength=256)
    return float(stats.chisquare(counts).pvalue)


def test_without_one_member_the_others_rows_tell_nothing() -> None:
    """Bytes of every proper subset's sum, 40,000 of them, pass χ² for uniformity.

    Two subsets are looked at, each fails by chance once in 10⁶ runs. Rows of zeros would give p = 0; a byte
    value that came three times as often as it should would be found nearly always.
    """
    covers = make_covers(3)
    masked = mask_all(covers, {name: np.zeros(5000, dtype=np.int64) for name in covers})
    for some in (["m0"], ["m1", "m2"]):
        assert _p_of_uniform(add_rows(masked[name] for name in some)) > 1e-6
    assert _p_of_uniform(add_rows(masked.values())) == 0.0


def test_a_colluding_member_can_take_its_own_masks_off_and_no_others() -> None:
    """What c knows of a's row: the mask of a and b is still on it (false alarm: once in 10⁶ runs)."""
    covers = make_covers(3)
    rows = {name: np.zeros(5000, dtype=np.int64) for name in covers}
    settled = {name: settle_row(cover, LABEL, rows[name]) for name, cover in covers.items()}
    nonces = {name: nonce for name, (nonce, _) in settled.items()}
    masked = mask_row(covers["m0"], settled["m0"][1], nonces)
    liar = covers["m2"]
    common = liar.key.common(nonces["m0"].public, liar.charter, agent="m0", keeper="m2")
    known = pads.pad(common, LABEL, nonces["m0"].nonce + nonces["m2"].nonce, 5000)
    left = (pads.from_bytes(masked.body) - known).view(np.int64)
    assert _p_of_uniform(left) > 1e-6
    both = covers["m1"].key.common(nonces["m0"].public, liar.charter, agent="m0", keeper="m1")
    rest = left.view(np.uint64) - pads.pad(both, LABEL, nonces["m0"].nonce + nonces["m1"].nonce, 5000)
    assert not rest.any()  # that was all there was on it


def test_a_row_that_waits_is_not_on_disk_as_it_is_and_is_masked_the_same_way_each_time() -> None:
    covers = make_covers(3)
    row = np.arange(1, 6, dtype=np.int64)
    settled = {name: settle_row(cover, LABEL, row) for name, cover in covers.items()}
    nonces = {name: nonce for name, (nonce, _) in settled.items()}
    hidden = settled["m1"][1]
    assert row.tobytes() not in hidden
    assert mask_row(covers["m1"], hidden, nonces) == mask_row(covers["m1"], hidden, nonces)


def test_a_nonce_is_of_its_row_though_the_random_generator_was_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cover = make_covers(3)["m0"]
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    zeros = np.zeros(5, dtype=np.int64)
    one, again, other = (settle_row(cover, LABEL, row)[0] for row in (zeros, zeros, zeros + 1))
    assert one.nonce == again.nonce != other.nonce
    assert len({one.nonce, settle_row(cover, replace(LABEL, row=4), zeros)[0].nonce}) == 2


def _words() -> tuple[dict[str, Cover], RowNonce, MaskedRow]:
    covers = make_covers(3)
    rows = {name: np.arange(3, dtype=np.int64) for name in covers}
    return covers, settle_row(covers["m1"], LABEL, rows["m1"])[0], mask_all(covers, rows)["m1"]


def test_messages_are_read_back_and_any_changed_byte_is_refused() -> None:
    covers, nonce, row = _words()
    roster = covers["m1"].roster
    assert len(nonce.to_bytes(roster)) == 182
    assert len(row.to_bytes(roster)) == 120 + 16 * 3 + 8 * 3
    for word in (nonce, row):
        data = word.to_bytes(roster)
        assert read_word(data, roster, coordinates=3) == word
        assert masks.is_word(data)
        assert not is_card(data)
        for place in range(len(data)):
            changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            with pytest.raises(RefusedError):
                read_word(changed, roster, coordinates=3)
        for cut in (data[:-1], data + b"\0", b""):
            with pytest.raises(RefusedError):
                read_word(cut, roster, coordinates=3)


def test_a_word_is_signed_in_one_name_for_one_charter_and_row() -> None:
    covers, nonce, row = _words()
    roster, signer = covers["m1"].roster, covers["m1"].signer
    for word in (nonce, row):
        for forged in (
            replace(word, charter="00" * 32),
            replace(word, agent="m2"),
            replace(word, label=replace(LABEL, row=4)),
            replace(word, label=replace(LABEL, season=2)),
        ):
            with pytest.raises(RefusedError, match="signed"):
                read_word(forged.to_bytes(roster), roster, coordinates=3)
        made_up = replace(word, label=replace(LABEL, attempt=2)).sign(roster, signer)
        with pytest.raises(RefusedError) as refused:
            read_word(made_up.to_bytes(roster), roster, coordinates=3)
        assert refused.value.reason == "malformed"
    weak = replace(nonce, public=bytes(32)).sign(roster, signer)
    with pytest.raises(RefusedError) as refused:
        read_word(weak.to_bytes(roster), roster, coordinates=3)
    assert refused.value.reason == "key"


def test_the_composition_is_pinned() -> None:
    """Whoever changes keys, streams, signs or order changes these bytes: no two versions could talk."""
    covers = make_covers(3, fixed=True)
    nonces = {
        name: RowNonce(
            charter=cover.charter.digest,
            agent=name,
            label=LABEL,
            public=cover.key.public,
            nonce=hashlib.sha256(b"nonce" + name.encode()).digest(),
        )
        for name, cover in covers.items()
    }
    row = np.arange(4, dtype=np.int64)
    bodies = []
    for name, cover in covers.items():
        own = masks._own_pad(cover, nonces[name], 4)
        bodies.append(mask_row(cover, pads.to_bytes(pads.to_words(row) + own), nonces).body)
    assert hashlib.sha256(b"".join(bodies)).hexdigest() == (
        "8afefd439f6e8b122b8433d684877d51e547a9fab843b12549b2675cdc510aed"
    )
    # The same by the primitives alone: the first of two members adds their mask, the second takes it away.
    first = row.view(np.uint64) + _mask(covers, nonces, "m0", "m1") + _mask(covers, nonces, "m0", "m2")
    middle = row.view(np.uint64) - _mask(covers, nonces, "m0", "m1") + _mask(covers, nonces, "m1", "m2")
    assert bodies[:2] == [first.tobytes(), middle.tobytes()]


def _mask(covers: dict[str, Cover], nonces: dict[str, RowNonce], one: str, other: str) -> NDArray[np.uint64]:
    private = X25519PrivateKey.from_private_bytes(covers[one].key.private)
    keys = [covers[name].key.public for name in (one, other)]
    shared = private.exchange(X25519PublicKey.from_public_bytes(keys[1]))
    names = f"feducb pad 1\0{'ab' * 32}\0{one}\0{other}\0".encode()
    common = HKDF(SHA256(), 32, salt=None, info=names + b"".join(sorted(keys))).derive(shared)
    label = struct.pack("<IIII", 1, 0, 3, 1)
    key = hashlib.sha256(common + label + nonces[one].nonce + nonces[other].nonce).digest()
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(32))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)

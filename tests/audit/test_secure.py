"""Checks of rows that leave under pads: what they say of sound files, and that none of them is idle.

That the claim holds, and that each planted fault is seen by its own check alone, is in `test_audit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feducb.audit import secure
from feducb.audit.broken_rows import BrokenMove, BrokenSelfPad, BrokenShare
from feducb.audit.checks import SECURE
from feducb.audit.circle import BuiltRow, Circle, watch_rows
from feducb.audit.columns import check_columns, check_spaced_rows
from feducb.audit.exact import check_sensitivity
from feducb.audit.findings import Check
from feducb.audit.secure import check_disk, check_pads, check_restored, check_value
from feducb.audit.trials import Job, draw
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import GridNoise
from feducb.privacy.terms import Terms
from feducb.protocol import pads
from feducb.protocol.hiding import Cover
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import KeyCard, PaddedRow
from feducb.storage import AgentStore

BUDGET = Budget(epsilon=8.0, delta=1e-6)
TERMS = Terms(problem=Problem(dim=2), budget=BUDGET, releases=3, **SECURE)


def test_opened_rows_carry_the_noise_of_all_who_are_in_them_and_enough_without_colluders() -> None:
    """Rows of the real code, under pads, opened by keepers: M = 4, D = C = 1, d = 10, 54,600 numbers.

    The variance of so many is within 3 % of the truth but with a chance of 7e-7, three times; a share whose
    deviation is off by 3 % is missed with a chance below 1e-5. What is left when one agent is away and
    another tells its row is the noise of two, which is σ² or more by the certificate alone.
    """
    terms = Terms(problem=Problem(dim=10), budget=BUDGET, releases=1, **SECURE)
    circle, certificate = Circle(terms), terms.certificate()
    doors, label = [DeployedPrivatizer(terms) for _ in range(4)], Label(1, 0, 1)
    fresh, seen = doors[0].dump(), dict[int, list[np.ndarray]]({4: [], 3: [], 2: []})
    for _ in range(840):
        for door in doors:
            door.load(fresh)
        rows = [door.row() for door in doors]
        padded = {place: circle.pad(row, label, place) for place, row in enumerate(rows)}
        everybody = circle.opened(label, padded).values
        del padded[3]  # away
        quorum = circle.opened(label, padded).values
        assert everybody is not None
        assert quorum is not None
        for count, values in ((4, everybody), (3, quorum), (2, quorum - rows[2].values)):
            seen[count].append(values)
    for count, sums in seen.items():
        noise = np.concatenate(sums) / float(certificate.sigma)
        assert len(noise) == 54_600
        assert float((noise**2).mean()) == pytest.approx(count, rel=0.03)
    one_noise = Terms(problem=terms.problem, budget=BUDGET, releases=1).certificate()
    assert certificate.shares * certificate.sigma**2 >= one_noise.sigma**2 * (1.0 - 1e-9)


@pytest.mark.parametrize("check", [check_columns, check_pads, check_restored, check_disk, check_value])
def test_sound_files_pass(check: Callable[[type[AgentStore], Terms], Check]) -> None:
    made = check(AgentStore, TERMS)
    assert made.passed, made.detail


def test_spaced_records_are_in_rows_as_far_apart_as_stated_and_not_farther() -> None:
    """Away from rows 1, 4 and 5 of 8, with a visit before each: hers enter 2, 6 (due for 4) and 8."""
    check = check_spaced_rows(AgentStore, replace(TERMS, records_per_person=4, spacing=2))
    assert check.passed, check.detail
    assert "in the rows [2, 6, 8]" in check.detail


def test_columns_are_as_long_as_their_records_and_no_longer() -> None:
    """One that is there in all rows that are built reaches its length; moved, a batch goes far beyond."""
    sound, moved = (check_columns(kind, TERMS).detail for kind in (AgentStore, BrokenMove))
    assert sound.endswith("to 1.000000 of its length")
    assert float(moved.split(" to ")[1].split()[0]) > 1.35


class _Losing(AgentStore):
    """Builds rows without data: private, but a check of columns would be idle."""

    def _load(self) -> None:
        super()._load()
        door = self._privatizers[0]
        encode = door._encoder.encode
        vars(door._encoder).update(encode=lambda batch: encode(np.zeros_like(batch)))


def test_rows_without_data_do_not_pass_for_sound() -> None:
    check = check_columns(_Losing, TERMS)
    assert not check.passed
    assert "by 0.000000 to 0.000000" in check.detail


class _BareCover(Cover):
    def hide(self, label: Label, row: np.ndarray, cards: Mapping[str, KeyCard]) -> PaddedRow:
        body = pads.to_bytes(pads.to_words(row))
        padded = PaddedRow(label, self.key.public, bytes(32), body)
        return padded.sign(self.charter, self.agent, self.signer)


class _Bare(AgentStore):
    """No pad at all."""

    covering = _BareCover


def test_rows_without_pads_are_seen_by_their_pads_and_on_disk() -> None:
    assert not check_pads(_Bare, TERMS).passed
    assert "the row under noise yes" in check_disk(_Bare, TERMS).detail


def test_a_row_that_others_see_names_the_keeper_without_whom() -> None:
    detail = check_pads(BrokenSelfPad, TERMS).detail
    assert "[(1, 'agent-0'), (2, 'agent-0')]" in detail


def test_numbers_are_found_on_disk_in_any_order_of_bytes_and_as_text() -> None:
    numbers = np.array([-5, 123_456, 7, 99, 8, -1], dtype=np.int64)
    for hidden in (
        numbers.astype("<i8").tobytes(),
        numbers.astype(">i8").tobytes(),
        b"[123456, 7, 99, 8, -1]",
        b"-5 123456 7 99 8",
    ):
        assert secure._on_disk(numbers, [b"nothing", b"before" + hidden + b"after"])
    assert not secure._on_disk(numbers, [numbers[:4].tobytes(), numbers[::-1].tobytes()])


def test_trials_open_the_sum_of_honest_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colluders add 1,000 steps to each number and take them out again; whoever is away adds nothing."""
    calls = iter(range(10**6))

    def draw_known(_: GridNoise, count: int) -> np.ndarray:
        place = next(calls) % 3
        return np.full(count, 1000 if place == 2 else 0, dtype=np.int64)

    monkeypatch.setattr(GridNoise, "draw", draw_known)
    seen = draw(Job(make=DeployedPrivatizer, terms=TERMS, placement=1, world=0, trials=2))
    assert next(calls) == 2 * 3 * 3  # trials, rows, agents of a quorum
    np.testing.assert_array_equal(seen.values[0], seen.values[1])
    alone = Job(
        make=_Silent,
        terms=Terms(problem=TERMS.problem, budget=BUDGET, releases=3),
        placement=1,
        world=0,
        trials=1,
    )
    plain = draw(alone).values
    steps = 2.0 ** (TERMS.certificate().exponent - alone.terms.certificate().exponent)
    np.testing.assert_allclose(seen.values[0] * steps, plain[0], atol=16)


class _Silent(DeployedPrivatizer):
    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        vars(self._noise).update(draw=lambda count: np.zeros(count, dtype=np.int64))


def test_sensitivity_counts_the_shares_that_are_sure_to_be_there() -> None:
    """Not those that a certificate of its own says."""
    assert check_sensitivity(DeployedPrivatizer, TERMS).passed
    check = check_sensitivity(BrokenShare, TERMS)
    assert not check.passed
    found = float(check.detail.split("accounted anew ")[1].split()[0])
    assert found == pytest.approx(12.1, abs=0.2)  # √2 times the μ of ε = 8


def test_a_circle_gives_back_a_row_bit_for_bit(tmp_path: Path) -> None:
    circle = Circle(TERMS)
    with circle.open(AgentStore, tmp_path / "agent.db") as store:
        built = list[BuiltRow]()
        watch_rows(store, built)
        row = circle.build(store)
        opened = circle.close(row.label, {0: row}, [store])
        assert opened.values is not None
        np.testing.assert_array_equal(opened.values, built[0].values)
        np.testing.assert_array_equal(circle.bare(row, 0), built[0].values)
        assert store.next_label() == Label(1, 0, 2)
        assert not store.halted


def test_the_noise_of_one_agent_is_too_little_by_itself() -> None:
    """Or pads would not be needed, and the checks of them idle."""
    certificate = TERMS.certificate()
    assert certificate.mu_with(1) == pytest.approx(math.sqrt(2.0) * certificate.mu, rel=1e-6)

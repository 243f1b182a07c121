"""Rows that are missing, and what opened sums then tell: through agents' files and pads, without noise."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.audit.circle import Circle
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, RefusedError, UnsealedReleaseError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.encoders import make_decoder
from feducb.privacy.grid import GridNoise
from feducb.privacy.mechanisms import Dense
from feducb.privacy.rows import MOST_RECORDS, largest_sum, require_in_range
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.secure_rows import PaddedRow
from feducb.storage import AgentStore

AGENTS, ROWS, DIM = 6, 10, 2
MECHANISMS: dict[str, dict[str, Any]] = {
    "dense": {"mechanism": "dense"},
    "quiet": {"mechanism": "dense", "quiet": 3},
    "buffered": {"mechanism": "blt"},
}


def _terms(**changes: Any) -> Terms:
    plain: dict[str, Any] = {
        "problem": Problem(dim=DIM),
        "budget": Budget(epsilon=1.0, delta=1e-6),
        "releases": ROWS,
        "trust": "keepers:3:1",
        "agents": AGENTS,
    }
    return Terms(**(plain | changes))


@pytest.fixture(autouse=True)
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that sums can be compared to the last digits."""
    monkeypatch.setattr(GridNoise, "draw", lambda _, count: np.zeros(count, dtype=np.int64))


@dataclass
class Season:
    """Agents with files, which get records, build rows and hear sums.

    Attributes:
        columns: (agents, n, q), what entered each column of E at each agent, in real units; by hand.
        sent: (agents, n), whose rows are in which sum.
    """

    terms: Terms
    folder: Path
    opened: ExitStack
    waiting: np.ndarray = field(init=False)
    columns: np.ndarray = field(init=False)
    sent: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.circle, self.draws = Circle(self.terms), np.random.default_rng(7)
        self.stores = [
            self.opened.enter_context(self.circle.open(AgentStore, self.folder / f"{place}.db", place))
            for place in range(AGENTS)
        ]
        count = self.circle.coordinates
        self.waiting = np.zeros((AGENTS, count))
        self.columns = np.zeros((AGENTS, ROWS, count))
        self.sent = np.zeros((AGENTS, ROWS), dtype=bool)

    def visit(self, records: int = 30) -> None:
        """Records at every agent."""
        for place, store in enumerate(self.stores):
            actions = self.draws.normal(size=(records, DIM))
            actions /= np.maximum(1.0, np.linalg.norm(actions, axis=1))[:, None]
            rewards = self.draws.uniform(-1.0, 1.0, records)
            store.record(actions, rewards)
            self.waiting[place] += self.terms.model.flatten(actions, rewards, self.terms.weight).sum(axis=0)

    def build(self, place: int) -> PaddedRow:
        """The agent's next row; its batch enters the column of that row, unless the row is spent."""
        store = self.stores[place]
        row = PaddedRow.read(store.build_row(), coordinates=self.circle.coordinates)
        if not self.columns[place, row.label.row - 1].any():
            self.columns[place, row.label.row - 1] = self.waiting[place]
            self.waiting[place] = 0.0
        return row

    def over(self, rows: dict[int, PaddedRow]) -> list[bytes | None]:
        """The open row ends with these; what everybody then knows."""
        label = self.stores[0].next_label()
        self.sent[list(rows), label.row - 1] = True
        return self.circle.publish(self.circle.opened(label, rows), self.stores)

    def weights(self, place: int, release: int) -> np.ndarray:
        """(n,), by column, how much of what is in it counts in a release, which is counted from 1."""
        encoder, decoder = np.asarray(self.terms.factors.encoder()), np.asarray(self.terms.factors.decoder())
        return np.asarray((decoder[release - 1] * self.sent[place]) @ encoder)

    def require_told(self, told: list[bytes | None], release: int) -> None:
        """Everybody knows the same: the weighted prefix sums, to 1e-6 of their size."""
        assert len(set(told)) == 1
        assert told[0] is not None
        message = messages.decode(told[0])
        assert message.number == release
        expected = sum(self.weights(place, release) @ self.columns[place] for place in range(AGENTS))
        read = np.ldexp(message.values.astype(np.float64), self.terms.certificate().exponent)
        whole = np.abs(self.columns[:, :release].sum(axis=(0, 1))).max()
        np.testing.assert_allclose(read, expected, rtol=0.0, atol=1e-6 * whole)


@pytest.fixture(params=list(MECHANISMS))
def season(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with ExitStack() as opened:
        yield Season(_terms(**MECHANISMS[request.param]), tmp_path, opened)


def test_with_a_fifth_of_rows_missing_sums_tell_weighted_prefix_sums(season: Season) -> None:
    """Each agent misses each row with a chance of 1/5: away, or built too late to be listed."""
    draws = np.random.default_rng(3)
    weights = []
    for number in range(1, ROWS + 1):
        season.visit()
        there = draws.random(AGENTS) >= 0.2
        late = ~there & (draws.random(AGENTS) < 0.5)
        rows = {place: season.build(place) for place in np.flatnonzero(there | late).tolist()}
        told = season.over({place: row for place, row in rows.items() if there[place]})
        season.require_told(told, number)
        weights += [season.weights(place, number)[:number] for place in range(AGENTS)]
    assert 0.1 < 1.0 - season.sent.mean() < 0.3
    every = np.concatenate(weights)
    assert -1e-9 <= every.min() <= every.max() <= 1.0 + 1e-9
    assert (every < 0.99).any()  # or nothing was missing


def test_a_row_made_up_for_counts_in_full_for_those_who_never_built_it(season: Season) -> None:
    """Half of the agents had built row 3 when it was closed empty: their batch in it is spent."""
    spent = range(AGENTS // 2)
    for number in range(1, ROWS + 1):
        season.visit()
        if number == 3:
            for place in spent:
                season.build(place)
            assert season.over({}) == [None] * AGENTS
            assert season.stores[0].next_label().attempt == 2
        told = season.over({place: season.build(place) for place in range(AGENTS)})
        if number == 3:
            season.sent[list(spent), 2] = False  # they sent noise alone
        season.require_told(told, number)
        for place in range(AGENTS):
            own = season.weights(place, number)[:number]
            if place not in spent or number < 3:
                np.testing.assert_allclose(own, 1.0, atol=1e-9)
            else:
                assert own.min() < 0.999


def test_a_sum_that_was_refused_counts_as_missed_by_all(season: Season) -> None:
    for number in range(1, 5):
        season.visit()
        rows = {place: season.build(place) for place in range(AGENTS)}
        if number == 2:
            opened = season.circle.opened(rows[0].label, rows)
            refused = type(opened)(opened.label, opened.listed, opened.proofs, opened.values, "definite")
            assert season.circle.publish(refused, season.stores) == [None] * AGENTS
        else:
            season.require_told(season.over(rows), number)
    assert season.weights(0, 4)[:4].min() < 0.999


def test_a_mechanism_whose_decoder_is_negative_somewhere_takes_no_gaps() -> None:
    """Its batches could count more than once."""

    class Negative(Dense):
        def decoder(self) -> Any:
            found = np.array(super().decoder())
            found[-1, 0] = -0.01
            return found

    make_decoder(Negative(4), 5)
    with pytest.raises(ConfigurationError, match="no negative entry"):
        make_decoder(Negative(4), 5, gaps=True)


def test_sums_that_honest_rows_can_reach_are_in_range_and_no_others() -> None:
    terms = _terms()
    largest = largest_sum(terms)
    step = 2.0 ** terms.certificate().exponent
    assert largest * step > AGENTS * MOST_RECORDS * np.sqrt(2.0) * terms.radius
    for sign in (1, -1):
        row = np.zeros(5, dtype=np.int64)
        row[3] = sign * largest
        require_in_range(row, terms)
        row[3] += sign
        with pytest.raises(RefusedError) as error:
            require_in_range(row, terms)
        assert error.value.reason == "range"
    least = np.full(5, np.iinfo(np.int64).min)
    with pytest.raises(RefusedError, match="no honest rows add up to"):
        require_in_range(least, terms)


def test_rows_that_could_wrap_are_refused_with_the_terms() -> None:
    huge = Problem(dim=2, action_bound=1.0)
    assert largest_sum(_terms(problem=huge, agents=1000)) < 2**62
    with pytest.raises(ConfigurationError, match="could wrap"):
        largest_sum(_terms(problem=huge, agents=10**9))


def test_a_share_of_noise_leaves_neither_as_a_release_nor_twice() -> None:
    door = DeployedPrivatizer(_terms(releases=1))
    door.record(np.array([[1.0, 0.0]]), np.array([1.0]))
    with pytest.raises(UnsealedReleaseError, match="does not hide a row"):
        door.release()
    assert door.row().values.any()
    assert not door.row(data=False).values.any()  # the row is spent, and there is no noise in this test

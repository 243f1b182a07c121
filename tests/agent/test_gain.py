"""What the federation is worth to a site: lanes, their intervals, and that nobody held out leaves."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.anytime import interval
from feducb.agent.upkeep import export
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.privacy import grid
from feducb.storage import own_sums
from feducb.storage.events import ALONE, FEDERATED, UNIFORM
from own_sites import START, THETA, Sites, visitors

RELEASED = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=8.0, delta=1e-6),
    decisions=800,
    season=800.0,
    window=5.0,
    start=START,
    schedule="geometric",
    releases=4,
    first_release=60.0,
    holdout=0.25,
    uniform_share=0.2,
    keep_events=1e6,
)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, so that what is released can be told to the last bit."""
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))


class Site:
    """One agent under released play; a visitor a second, whose reward may be moved if it is held out."""

    def __init__(self, path: Path, *, moved: float = 0.0, **changes: Any) -> None:
        self.now, self.moved, self.path = START, moved, path
        settings = replace(RELEASED, **changes)
        self.agent = Agent.open(path, settings, clock=lambda: self.now)
        self.agent.store.database.execute("PRAGMA synchronous = OFF")
        self.agent._state.coins, self._visits = random.Random(5), visitors(2)
        self.chosen: list[tuple[int | None, np.ndarray]] = []

    def visit(self, count: int, person: str | None = None) -> None:
        for _ in range(count):
            candidates, noise = next(self._visits)
            decision = self.agent.decide(candidates, person=person)
            (lane,) = self.agent.store.database.execute(
                "SELECT lane FROM decisions ORDER BY number DESC LIMIT 1"
            ).fetchone()
            reward = float(candidates[decision.index] @ THETA + noise)
            reward += self.moved if lane == ALONE else 0.0
            self.agent.reward(decision.id, float(np.clip(reward, -1.0, 1.0)))
            self.chosen.append((lane, candidates[decision.index]))
            self.now += 1.0
            self.agent.tick()

    def released(self) -> list[bytes]:
        query = "SELECT payload FROM outgoing ORDER BY number"
        return [payload for (payload,) in self.agent.store.database.execute(query)]


@pytest.mark.usefixtures("quiet")
def test_who_was_held_out_moves_nothing_that_leaves_and_no_decision_of_the_others(tmp_path: Path) -> None:
    """Two worlds whose held out visitors have other rewards: the same releases, the same other decisions."""
    one, other = (Site(tmp_path / f"{moved}.db", moved=moved) for moved in (0.0, -0.6))
    for site in (one, other):
        site.visit(300)
    assert len(one.released()) >= 2
    assert one.released() == other.released()
    lanes = [lane for lane, _ in one.chosen]
    assert lanes == [lane for lane, _ in other.chosen]  # coins, which no reward moves
    for (lane, mine), (_, theirs) in zip(one.chosen, other.chosen, strict=True):
        assert lane == ALONE or np.array_equal(mine, theirs)
    read = [own_sums.read(site.agent.store.database, "held_out_read") for site in (one, other)]
    assert all(part is not None for part in read)
    held_out = [mine for lane, mine in one.chosen if lane == ALONE]
    assert any(
        not np.array_equal(mine, theirs)
        for mine, theirs in zip(held_out, [x for lane, x in other.chosen if lane == ALONE], strict=True)
    )  # they learn, from each other
    counts = one.agent.snapshot()["counts"]
    assert counts["held_out"] + one.agent.store._privatizers[0].taken == counts["settled"]


def test_a_person_who_was_held_out_enters_no_later_release(tmp_path: Path) -> None:
    site = Site(tmp_path / "a.db", holdout=0.5, records_per_person=400)
    for number in range(120):
        site.visit(1, person=f"person {number % 12}")
    site.now += 10.0
    site.agent.tick()
    barred: set[str] = set()
    entered = 0
    for number, (lane, _) in enumerate(site.chosen):
        person = f"person {number % 12}"
        if lane == ALONE:
            barred.add(person)
        elif person not in barred:
            entered += 1
    assert len(barred) == 12
    assert site.agent.store._privatizers[0].taken == entered < 60


def test_lanes_are_drawn_by_their_public_shares_and_an_export_says_whose_raw_records_decided(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path / "a.db")
    site.visit(400)
    shares = site.agent.settings.lane_shares
    assert sum(shares.values()) == pytest.approx(1.0)
    for lane in (FEDERATED, ALONE, UNIFORM):
        count, share = sum(one == lane for one, _ in site.chosen), shares[lane]
        assert abs(count - 400 * share) < 4.5 * (400 * share * (1 - share)) ** 0.5  # false alarm 1e-5
    rows = list(export(site.path))
    assert [row["own_phase"] for row in rows] == [row["lane"] == "alone" for row in rows]
    assert all(row["batch"] is None for row in rows if row["lane"] == "alone")
    lanes = site.agent.snapshot()["gain"]["lanes"]
    assert list(lanes) == ["federated", "alone", "uniform"]
    assert sum(one["visits"] for one in lanes.values()) == site.agent.snapshot()["counts"]["settled"]


def test_under_own_play_nobody_is_held_out_before_the_close_and_alone_reads_all_own_records(
    tmp_path: Path,
) -> None:
    sites = Sites(tmp_path, holdout=0.25)
    sites.run(79)
    sites.visit(10)
    assert {row["lane"] for row in export(tmp_path / "a.db")} == {None}
    sites.exchange()
    assert sites.phase() == "closed"
    agent = sites.live["a"]
    sites.visit(120)
    held_out = [row for row in export(tmp_path / "a.db") if row["lane"] == "alone"]
    assert 10 < len(held_out) < 60
    read = own_sums.read(agent.store.database, "read")
    assert read is not None
    assert read.records > 150  # of visitors of both lanes
    assert agent._state.chooser.alone is not None
    np.testing.assert_allclose(agent._state.chooser.alone.belief.theta, THETA, atol=0.2)
    gain = agent.snapshot()["gain"]
    assert gain["difference"]["low"] <= 0.0 <= gain["difference"]["high"]  # sites are alike and know enough
    assert "federated − alone" in gain["says"]
    sites.close()


def test_what_lanes_came_to_is_in_the_file_and_begins_anew_with_a_season(tmp_path: Path) -> None:
    site = Site(tmp_path / "a.db")
    site.visit(100)
    before = site.agent.snapshot()["gain"]
    alone = site.agent._state.chooser.alone
    assert alone is not None
    site.agent.close()
    site.agent = Agent.open(site.path, clock=lambda: site.now)
    assert site.agent.snapshot()["gain"] == before
    assert site.agent._state.chooser.alone is not None
    np.testing.assert_array_equal(site.agent._state.chooser.alone.belief.theta, alone.belief.theta)
    site.agent.new_season(drop_open=True)
    assert site.agent.snapshot()["gain"]["visits"] == 0
    assert site.agent._state.chooser.alone is None


def test_a_holdout_means_nothing_in_shadow_mode_and_alone() -> None:
    for changes in ({"shadow": True}, {"holdout": 0.6}, {"holdout": -0.1}):
        with pytest.raises(ConfigurationError, match="holdout"):
            replace(RELEASED, **changes)


def _sums(rewards: np.ndarray, lanes: np.ndarray, shares: np.ndarray) -> dict[str, Any]:
    """What `gain` keeps after each of the visitors (runs, n): counts, Σm, and by lane Σ(r − m), Σ(r − m)²."""
    before = np.cumsum(rewards, axis=1) - rewards
    guess = (before + 0.5) / (np.arange(rewards.shape[1]) + 1.0)
    off = rewards - guess
    return {
        "guessed": np.cumsum(guess, axis=1),
        "moved": [np.cumsum(off * (lanes == lane), axis=1) for lane in range(len(shares))],
        "square": [np.cumsum(off**2 * (lanes == lane), axis=1) for lane in range(len(shares))],
    }


def test_intervals_hold_whenever_one_looks_for_each_lane_and_for_the_difference() -> None:
    """1,000 runs, looked at after every visit: 5 % of them may fail at any of these, ever.

    Rewards are 0 or 1 and means move, as an agent learns. What fails is far less, as
    docs/theory.md, 12, says; seeded.
    """
    runs, visits, shares = 1000, 1500, np.array([0.7, 0.1, 0.2])
    draws = np.random.default_rng(14)
    at = np.arange(visits)
    means = np.array([0.3 + 0.4 * at / visits, np.where(at < 300, 0.3, 0.65), np.full(visits, 0.26)])
    lanes = draws.choice(3, size=(runs, visits), p=shares)
    rewards = (draws.random((runs, visits)) < means[lanes, at]).astype(np.float64)
    kept = _sums(rewards, lanes, shares)
    failed = np.zeros((4, runs), dtype=bool)
    truth = np.cumsum(means, axis=1)
    table = _Boundaries()
    for look in range(visits):
        squares = [kept["square"][lane][:, look] / shares[lane] ** 2 for lane in range(3)]
        for lane in range(3):
            total = kept["guessed"][:, look] + kept["moved"][lane][:, look] / shares[lane]
            slack = table.slack(squares[lane], 1.0 / shares[lane])
            failed[lane] |= np.abs(total - truth[lane, look]) > slack
        total = kept["moved"][0][:, look] / shares[0] - kept["moved"][1][:, look] / shares[1]
        slack = table.slack(squares[0] + squares[1], 1.0 / shares[:2].min())
        failed[3] |= np.abs(total - (truth[0, look] - truth[1, look])) > slack
    misses = failed.mean(axis=1)
    print(f"\never missed: federated, alone, uniform, difference {misses}")
    assert misses.max() < 0.01


class _Boundaries:
    """`interval` at many variances at once, from a fine grid of them."""

    def __init__(self) -> None:
        self.at = np.r_[0.0, np.geomspace(1e-3, 1e7, 4000)]
        self.wide = np.array([interval(1, 0.0, one, 1.0).high for one in self.at])

    def slack(self, squares: np.ndarray, reach: float) -> np.ndarray:
        place = np.searchsorted(self.at, squares / reach**2, side="right") - 1  # narrower, if anything
        return np.asarray(reach * self.wide[place])


def test_an_interval_shrinks_to_twice_what_a_single_look_would_have() -> None:
    counts = (1_000, 100_000)
    fixed = [1.96 * (0.25 / count) ** 0.5 for count in counts]
    always = [interval(count, 0.5 * count, 0.25 * count, 1.0) for count in counts]
    ratios = [(one.high - one.mean) / half for one, half in zip(always, fixed, strict=True)]
    assert all(1.0 < ratio < 2.1 for ratio in ratios)

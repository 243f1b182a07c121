"""Own play in durable agents: as ever until the close, then own records too, and nothing leaves any more."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.upkeep import backup, export, restore, warm_start
from feducb.agent.view import look
from feducb.config import Budget, Problem
from feducb.controller.collector import TrustedCollector, open_collector
from feducb.errors import ConfigurationError, ReleasesExhaustedError, StoreError
from feducb.models import LINEAR
from feducb.models.joint import Others
from feducb.privacy import grid
from feducb.protocol import messages, sums
from feducb.storage import RowBook, own_sums
from feducb.types import Belief, ReleasedSum, Statistics, add, zeros
from own_sites import CLOSE, START, THETA, WINDOW, Sites, settings_of
from secure_net import SecureNet
from troubles import troubles

LEFT_OUT: dict[str, Any] = {"releases": None, "first_release": None, "last_release": None}


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, so that sums can be told."""
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))


@pytest.fixture
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sites]:
    made = Sites(tmp_path, **getattr(request, "param", {}))
    yield made
    made.close()


def _sums(records: list[tuple[np.ndarray, float]]) -> Statistics:
    actions, rewards = np.array([one for one, _ in records]), np.array([one for _, one in records])
    return add(zeros(actions.shape[1]), actions, rewards)


def _belief(agent: Agent) -> Belief:
    return agent._state.chooser.deciders[0].belief


def _same(one: Belief, other: Belief) -> bool:
    return all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1e-9)
        for name in ("theta", "inverse", "ellipsoid_width", "estimate")
    )


def _made(agent: Agent) -> int:
    return int(agent.store.database.execute("SELECT count(*) FROM outgoing").fetchone()[0])


@pytest.mark.usefixtures("quiet")
def test_an_agent_closes_with_the_last_total_and_reads_its_own_records_and_the_others(sites: Sites) -> None:
    """What it knows then is what a joint reading makes of raw own records and of others' that were shared."""
    sites.run(79)
    assert sites.phase() == "sharing"
    sites.visit(1)  # the last releases are made, and nothing has come back
    for _ in range(10):
        sites.visit(1)
        assert sites.phase() == "waiting"  # an agent that hears nothing goes on as in the shared phase
    before = _belief(sites.live["a"])
    sites.exchange("ab")  # c is late: there is no total of all
    assert [sites.phase(name) for name in "abc"] == ["waiting"] * 3
    assert _belief(sites.live["a"]) is before
    sites.exchange()
    assert [sites.phase(name) for name in "abc"] == ["closed"] * 3
    agent, settled = sites.live["a"], int(90 - WINDOW) + 1
    total = agent._state.inbox.newest(0)
    assert total is not None
    assert total.number == CLOSE["releases"]
    shared = {name: _sums(sites.records[name][: int(80 - WINDOW) + 1]) for name in "abc"}
    others = Others.of(shared["b"].gram + shared["c"].gram, shared["b"].moment + shared["c"].moment)
    expected = agent.settings.joint_for(total.read()).belief(_sums(sites.records["a"][:settled]), others)
    assert _same(_belief(agent), expected)
    assert agent.settings.joint_for(total.read()).rounding > 0.0
    made = [_made(one) for one in sites.live.values()]
    sites.run(40)
    assert not _same(_belief(agent), expected)  # it goes on learning
    assert [_made(one) for one in sites.live.values()] == made == [CLOSE["releases"]] * 3
    assert all(not one.outbox() and not one.releases_due() for one in sites.live.values())


@pytest.mark.usefixtures("quiet")
def test_until_the_close_own_records_move_no_decision(tmp_path: Path) -> None:
    """Two agents with the same coins and other rewards decide alike while no sum holds them; then not."""
    decided: list[list[int]] = []
    clock = [START]
    for folder, turn in (("one", 1.0), ("other", -1.0)):
        (tmp_path / folder).mkdir()
        clock[0] = START
        agent = Agent.open(tmp_path / folder / "a.db", settings_of("a"), clock=lambda: clock[0])
        agent._state.coins, draws = random.Random(5), np.random.default_rng(3)
        chosen = []
        for _ in range(140):
            candidates = draws.uniform(-0.7, 0.7, (3, 2))
            decision = agent.decide(candidates)
            chosen.append(decision.index)
            agent.reward(decision.id, turn * float(candidates[decision.index][0]))
            clock[0] += 1.0
            agent.tick(alone=False)
            for item in agent.outbox():
                agent.mark_sent(item)
                if clock[0] >= START + 100:  # others' sums come late
                    total = messages.decode(item.released())
                    agent.absorb(messages.combine([total, _of_others(total), _of_others(total)]))
            if clock[0] == START + 100:
                last = messages.decode(agent.store.replay(1, 2))
                agent.absorb(messages.combine([last, _of_others(last), _of_others(last)]))
        assert agent.snapshot()["own"]["phase"] == "closed"
        agent.close()
        decided.append(chosen)
    assert decided[0][:100] == decided[1][:100]
    assert decided[0][100:] != decided[1][100:]


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_nothing_is_made_after_the_last_release_by_hand_either(tmp_path: Path, trust: str) -> None:
    sites = Sites(tmp_path, trust=trust)
    sites.run(90)
    assert sites.phase() == "closed"
    with pytest.raises(ReleasesExhaustedError, match="all 2"):
        sites.live["a"].release()
    assert _made(sites.live["a"]) == CLOSE["releases"]
    assert not sites.live["a"].outbox()
    sites.close()


def test_an_agent_that_sends_no_more_after_its_restoration_does_not_say_that_it_shares(sites: Sites) -> None:
    sites.run(60)
    backup(sites.folder / "a.db", sites.folder / "copy.db")
    sites.run(15)
    sites.live["a"].close()
    for file in sites.folder.glob("a.db*"):
        file.unlink()
    assert not restore(sites.folder / "copy.db", sites.folder / "a.db", clock=lambda: sites.now).sends
    sites.live["a"] = sites.open("a")
    assert sites.live["a"].snapshot()["own"]["says"] == "waiting for the last sum of all 3 agents"


@pytest.mark.parametrize("sites", [{"trust": "nobody"}, {"trust": "controller"}], indirect=True)
def test_an_agent_that_is_restored_after_the_close_closes_again_and_takes_no_log_twice(sites: Sites) -> None:
    """What it sends no more it does not wait for; the others' sum may have a log from the lost file."""
    log = np.full((20, 2), 0.5), np.full(20, 0.2)
    sites.run(60)
    backup(sites.folder / "a.db", sites.folder / "copy.db")
    warm_start(sites.live["a"], *log, policy="fixed")
    sites.run(25)
    assert [sites.phase(name) for name in "abc"] == ["closed"] * 3
    sites.live["a"].close()
    for file in sites.folder.glob("a.db*"):
        file.unlink()
    assert not restore(sites.folder / "copy.db", sites.folder / "a.db", clock=lambda: sites.now).sends
    sites.live["a"] = sites.open("a")
    with pytest.raises(StoreError, match="load them in the next season"):
        warm_start(sites.live["a"], *log, policy="fixed")
    sites.visit(1)
    sites.exchange()
    sites.visit(1)
    assert sites.phase() == "closed"
    assert sites.live["a"].snapshot()["own"]["hearing"] == "heard"


def test_records_of_the_own_phase_wait_for_no_release_even_if_the_clock_opened_the_next_season(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fences: own play does not roll by the clock, and if it did nothing would go along."""
    monkeypatch.setattr(AgentSettings, "rolls", property(lambda self: True))
    sites.run(100)
    assert sites.phase() == "closed"
    kept = own_sums.read(sites.live["a"].store.database, "kept")
    assert kept is not None
    assert kept.records > 0
    assert sites.live["a"].store.pending == 0


def test_an_export_knows_what_raw_records_decided_though_the_clock_was_set_back(sites: Sites) -> None:
    sites.run(90)
    assert sites.phase() == "closed"
    before = [row["own_phase"] for row in export(sites.folder / "a.db")]
    assert before == [False] * 80 + [True] * 10
    sites.now -= 50.0
    sites.visit(5)
    assert [row["own_phase"] for row in export(sites.folder / "a.db")] == before + [True] * 5


def _of_others(total: messages.GridSum) -> messages.GridSum:
    """A release with nothing in it."""
    return replace(total, values=np.zeros_like(total.values), seal=messages._SEAL)


@pytest.mark.parametrize("sites", [{"records_per_person": 2}], indirect=True)
@pytest.mark.usefixtures("quiet")
def test_what_enters_is_told_from_what_the_agent_keeps_for_itself(sites: Sites) -> None:
    """Beyond the cap, after the last release, loaded late: kept; what entered is what the sum has."""
    agent = sites.live["a"]
    sites.visit(6, person="regular")  # two of them enter
    for _ in range(4):
        sites.visit(1, person=f"p{sites.now}")
    loaded = warm_start(agent, [[0.1, 0.2], [3.0, 0.0]], [0.5, 0.5], ["x", "y"], policy="fixed")
    assert (loaded.entered, loaded.clipped, loaded.kept) == (2, 1, 0)
    for _ in range(90):
        sites.visit(1, person=f"p{sites.now}")
        sites.exchange()
    assert sites.phase() == "closed"
    shared, kept = (own_sums.read(agent.store.database, part) for part in ("shared", "kept"))
    assert shared is not None
    assert kept is not None
    own = messages.decode(agent.store.replay(1, CLOSE["releases"]))
    assert np.abs(own.values - (shared.values / 2**grid.FINE_BITS).astype(float)).max() <= 2.0  # rounded rows
    settled = 100 - int(WINDOW) + 1
    entered = 2 + (int(80 - WINDOW) + 1 - 6)
    assert (shared.records, kept.records) == (entered + 2, settled - entered)
    later = warm_start(agent, [[0.3, 0.2]], [0.5], ["z"], policy="fixed")
    assert (later.entered, later.kept) == (0, 1)
    assert own_sums.count(agent.store.database) == settled + 3
    with pytest.raises(StoreError, match="loaded before"):
        warm_start(agent, [[0.3, 0.2]], [0.5], ["z"], policy="fixed")


def test_opened_anew_it_goes_on_by_the_same_belief(sites: Sites) -> None:
    for step in range(130):
        sites.run(1)
        if step % 7 == 0 or 76 <= step <= 90:
            known = sites.live["a"]._state.chooser.deciders.get(0)
            sites.reopen("a")
            again = sites.live["a"]._state.chooser.deciders.get(0)
            assert (known is None) == (again is None)
            if known is not None and again is not None:
                assert all(
                    np.array_equal(getattr(known.belief, name), getattr(again.belief, name))
                    for name in ("theta", "inverse", "ellipsoid_width", "estimate")
                )
    assert sites.phase() == "closed"


def test_own_records_are_read_at_the_close_however_few_and_then_ever_more_rarely(sites: Sites) -> None:
    sites.now += 81.0  # nobody came, and releases are of nothing
    sites.run(1)
    assert sites.phase() == "closed"
    agent = sites.live["a"]
    assert not agent.settings.reads_own(0, 0)
    assert agent.settings.reads_own(0, 1)
    assert agent.settings.reads_own(1000, 1008)
    assert not agent.settings.reads_own(1000, 1007)
    sites.run(20)
    counts = agent.snapshot()["counts"]
    assert counts["own_readings"] == 1 + counts["settled"]


def test_a_new_season_shares_again_and_looks_at_nothing_of_the_own_phase_before_its_close(
    sites: Sites,
) -> None:
    sites.run(100)
    agent = sites.live["a"]
    kept = own_sums.read(agent.store.database, "kept")
    assert kept is not None
    assert kept.records > 0
    agent.new_season(replace(agent.settings, start=sites.now, promised=None), drop_open=True)
    assert agent.snapshot()["own"] | {"says": ""} == {
        "phase": "sharing",
        "shares_until": sites.now + CLOSE["last_release"],
        "closed_at": None,
        "records": kept.records,  # those that are in nobody's sum, for after the close
        "shared": 0,
        "missing": None,
        "hearing": None,
        "says": "",
    }
    assert agent.store.pending == 0
    assert own_sums.read(agent.store.database, "read") is None
    (decider,) = agent._state.chooser.deciders.values()  # by what was released, and nothing else
    remembered = agent._state.memory.belief(0, [])
    assert remembered is not None
    np.testing.assert_array_equal(decider.belief.theta, remembered.theta.squeeze())
    before = own_sums.read(agent.store.database, "before")
    assert before is not None
    np.testing.assert_array_equal(before.values, kept.values)
    agent.new_season(replace(agent.settings, start=sites.now + 1.0, promised=None, remember="none"))
    assert own_sums.count(agent.store.database) == 0


def test_rounding_of_remembered_seasons_adds_up_after_the_close_as_before_it(sites: Sites) -> None:
    """The noise of each season is off Gaussian noise by its own part: three more make it twice as far."""
    sites.run(100)
    agent = sites.live["a"]
    total = agent._state.inbox.newest(0)
    assert total is not None
    one, settings = total.read(), agent.settings
    alone, among = settings.joint_for(one), settings.joint_with(one, 100.0, 3)
    assert among.rounding == pytest.approx(2.0 * alone.rounding)


@pytest.mark.parametrize("sites", [{"shadow": True, "follow_policy": "fixed"}], indirect=True)
def test_an_agent_in_shadow_mode_never_closes(sites: Sites) -> None:
    agent = sites.live["a"]
    for _ in range(100):
        for name in sites.live:
            sites.live[name].decide(np.eye(2), follow=0)
            sites.now += 0.3
            sites.live[name].tick(alone=False)
        sites.exchange()
    assert agent.season_over
    assert sites.phase() == "waiting"
    assert own_sums.count(agent.store.database) == 0


@pytest.fixture
def net(tmp_path: Path) -> Iterator[SecureNet]:
    made = SecureNet(tmp_path, settings={"schedule": "planned", "play": "own", "season": 3600.0, **_TWO})
    yield made
    made.close()


_TWO = {"releases": 2, "first_release": 600.0, "last_release": 1200.0}


@pytest.mark.usefixtures("quiet")
def test_under_keepers_an_agent_closes_once_the_last_row_is_over(net: SecureNet) -> None:
    asyncio.run(net.step(until=net.now))
    for seed in range(2):
        net.visit(seed=seed)
        assert {agent.snapshot()["own"]["phase"] for agent in net.live.values()} == {"sharing"}
        asyncio.run(net.step())
    assert {agent.snapshot()["own"]["phase"] for agent in net.live.values()} == {"closed"}
    for name, agent in net.live.items():
        total = agent._state.inbox.newest(0)
        assert total is not None
        theirs = [_shared(one) for one in net.live.values() if one is not agent]
        others = agent.store.real(np.sum(theirs, axis=0))
        rest = total.values * 2.0**total.exponent - agent.store.real(_shared(agent))
        assert np.allclose(rest, others, atol=1e-4), name
    before = [_made(agent) for agent in net.live.values()]
    net.visit(seed=2)
    asyncio.run(net.step())
    assert [_made(agent) for agent in net.live.values()] == before
    assert not any(agent.outbox() for agent in net.live.values())


def _shared(agent: Agent) -> Any:
    shared = own_sums.read(agent.store.database, "shared")
    assert shared is not None
    return shared.values


@pytest.mark.parametrize("missed", [0, 1])
def test_under_keepers_an_agent_whose_row_did_not_open_goes_by_its_own_records_alone(
    net: SecureNet, missed: int
) -> None:
    """What it shared is not in the total with its whole weight, so that nothing is taken off it."""
    asyncio.run(net.step(until=net.now))
    for row in range(2):
        net.visit(seed=row)
        asyncio.run(net.step(away=["a4"] if row == missed else []))
    asyncio.run(net.step(until=net.now + 10))  # it hears what it missed
    agent, other = net.live["a4"], net.live["a0"]
    assert agent.snapshot()["own"]["phase"] == other.snapshot()["own"]["phase"] == "closed"
    seen = own_sums.read(agent.store.database, "read")
    assert seen is not None
    own = agent.store.real(seen.values)
    sums = LINEAR.read(own, dim=2, weight=agent.store.terms.weight)
    alone = agent.settings.unheard(Statistics(*sums, seen.records))
    # the first row it missed was before anything of it was shared: then all of it is in the second
    assert _same(_belief(agent), alone) == (missed == 1)
    assert (agent.snapshot()["own"]["hearing"] == "unknown") == (missed == 1)
    assert ("not all that you shared is in the last sum" in agent.snapshot()["own"]["says"]) == (missed == 1)


def test_under_keepers_who_shared_nothing_takes_all_of_the_sum_for_the_others(net: SecureNet) -> None:
    asyncio.run(net.step(until=net.now))
    for row in range(2):
        net.visit(seed=row)
        asyncio.run(net.step(away=["a4"]))
    asyncio.run(net.step(until=net.now + 10))  # it hears what it missed
    agent = net.live["a4"]
    stands = agent.snapshot()["own"]
    assert [stands[one] for one in ("phase", "hearing", "shared")] == ["closed", "heard", 0]
    seen, total = own_sums.read(agent.store.database, "read"), agent._state.inbox.newest(0)
    assert seen is not None
    assert total is not None
    own, newest = agent.store.read_own(seen), total.read()
    expected = agent.settings.joint_for(newest).belief(own, Others.of(newest.gram, newest.moment))
    assert _same(_belief(agent), expected)


def test_a_last_sum_that_lacks_an_agent_closes_nobody_and_everybody_is_told(sites: Sites) -> None:
    """A controller with a quorum of two: c is late for the last sum, which is final."""
    sites.run(79)
    sites.visit(1)
    late = sites.live["c"].outbox()
    short = messages.combine([messages.decode(sites.live[name].store.replay(1, 2)) for name in "ab"])
    for name in "ab":
        with pytest.raises(ValueError, match="sum 2 is over 2 agents, expected 3"):
            sites.live[name].absorb(short)
    sites.reopen("a")  # it is remembered
    for _ in range(2):
        sites.visit(20)
        told = look(sites.folder / "a.db")
        says = "waiting for the last sum of all 3 agents; 1 is missing in the one that was published"
        assert (told["own"]["phase"], told["own"]["missing"], told["own"]["says"]) == ("waiting", 1, says)
        assert "published with 2 of 3 agents, and is final" in troubles(told)["last_sum"]
        assert "until a new season" in sites.live["a"].warnings["last_sum"]
    assert "last_sum" not in sites.live["c"].warnings  # which has heard nothing
    assert [sites.phase(name) for name in "abc"] == ["waiting"] * 3
    assert late == sites.live["c"].outbox()
    agent = sites.live["a"]
    agent.new_season(replace(agent.settings, start=sites.now, promised=None), drop_open=True)
    assert agent.snapshot()["own"]["missing"] is None
    assert agent.warnings == {}


def test_a_sum_of_all_that_comes_after_all_ends_the_warning(sites: Sites) -> None:
    sites.run(79)
    sites.visit(1)
    parts = [messages.decode(agent.store.replay(1, 2)) for agent in sites.live.values()]
    agent = sites.live["a"]
    with pytest.raises(ValueError, match="over 1 agent"):
        agent.absorb(parts[0])
    assert "last_sum" in agent.warnings
    agent.absorb(messages.combine(parts))
    assert agent.closed
    assert agent.warnings == {}
    assert agent.snapshot()["own"]["missing"] is None


TRUSTED = {"trust": "controller"}


@pytest.mark.parametrize("sites", [TRUSTED], indirect=True)
@pytest.mark.parametrize("late_from", [39, 79], ids=["for all releases", "for the last"])
@pytest.mark.usefixtures("quiet")
def test_a_trusted_controller_says_that_everybody_s_last_batch_is_in(sites: Sites, late_from: int) -> None:
    """One late agent: nobody closes until it is in. Then all do, and read what was handed over raw."""
    sites.run(late_from)
    while sites.now < START + 100:
        sites.visit(1)
        sites.exchange("ab")  # what c makes does not arrive
    assert [sites.phase(name) for name in "abc"] == ["waiting"] * 3
    assert look(sites.folder / "a.db")["own"]["says"] == "waiting for the last sum of all 3 agents"
    sites.exchange()
    sites.exchange()  # a release takes all that is there; newest sums come back
    assert [sites.phase(name) for name in "abc"] == ["closed"] * 3
    agent = sites.live["a"]
    total = agent._state.inbox.newest(0)
    assert total is not None
    assert total.number == (2 if late_from == 79 else 1)  # all that c has comes at once
    shared = {name: _sums(sites.records[name][: int(80 - WINDOW) + 1]) for name in "abc"}
    others = Others.of(shared["b"].gram + shared["c"].gram, shared["b"].moment + shared["c"].moment)
    own = _sums(sites.records["a"][: int(100 - WINDOW) + 1])
    expected = agent.settings.joint_for(total.read()).belief(own, others)
    assert _same(_belief(agent), expected)
    before = _belief(agent)
    sites.reopen("a")
    assert _same(_belief(sites.live["a"]), before)
    made = [_made(one) for one in sites.live.values()]
    sites.run(30)
    assert [_made(one) for one in sites.live.values()] == made == [CLOSE["releases"]] * 3


@pytest.mark.parametrize("distance", [None, 0.0])
@pytest.mark.parametrize("variance", [1.0, 9.0], ids=["as planned", "more noise"])
def test_the_shared_phase_may_have_read_the_last_sum_before_the_close(
    distance: float | None, variance: float
) -> None:
    """Also where it is the only one: the chances of all sets that may be read add up to α."""
    one = {"releases": 1, "first_release": 80.0, "last_release": 80.0, "distance": distance}
    settings = settings_of("a", trust="controller", **one)
    assert settings.rule.first >= settings.releases
    own = math.exp(-settings.alone.log_threshold)  # the joint set has as much
    assert settings.share_of_alpha() + 2 * own == pytest.approx(settings.alpha)
    privatizer = settings.estimator.privatizer
    assert privatizer is not None
    planned = float(np.linalg.norm(privatizer.noise_scale)) ** 2 * privatizer.mechanism.error(1) ** 2
    total = ReleasedSum(1, np.eye(2), np.zeros(2), np.asarray(variance * planned), agents=3)
    bound = settings.joint_for(total)
    assert math.exp(-bound.alone.log_threshold) == pytest.approx(own)


@pytest.mark.parametrize("sites", [TRUSTED], indirect=True)
def test_a_release_that_comes_after_the_close_changes_nothing(sites: Sites) -> None:
    """A controller that publishes again when all are closed: the set at the close is of one sum."""
    sites.run(39)
    while sites.now < START + 100:
        sites.visit(1)
        sites.exchange("ab")
    sites.exchange()
    sites.exchange()
    agent = sites.live["a"]
    before = _belief(agent)
    assert isinstance(sites.collector, TrustedCollector)
    sites.collector.store.release()
    again = sites.collector.newest()
    assert again is not None
    assert again.total.number == agent._state.inbox.number(0) + 1
    assert not agent.absorb(again.total, agents=3, sealed=again.sealed)
    assert agent.closed
    assert _same(_belief(agent), before)
    sites.reopen("a")
    assert _same(_belief(sites.live["a"]), before)


@pytest.mark.parametrize("sites", [TRUSTED], indirect=True)
def test_a_trusted_controller_that_does_not_wait_for_all_closes_nobody_and_all_are_told(sites: Sites) -> None:
    """All have handed records over, which sums say by names; but not all their last ones."""
    sites.run(60)
    sites.collector.close()
    terms = {name: agent.store.terms for name, agent in sites.live.items()}
    collector = open_collector(sites.folder / "controller.db", terms, quorum=2, deadline=0.0)
    assert not isinstance(collector, RowBook)
    sites.collector = collector
    sites.visit(21)
    for _ in range(10):
        sites.now = max(sites.now, time.time()) + 1.0  # files of a controller go by the clock on the wall
        sites.exchange("ab")
    assert sites.live["a"]._state.inbox.number(0) == CLOSE["releases"]
    for _ in range(3):
        sites.exchange()  # c comes too late: no release is left to hold it
        sites.visit(1)
    assert [sites.phase(name) for name in "abc"] == ["waiting"] * 3
    told = look(sites.folder / "a.db")
    assert told["own"]["missing"] == 1
    assert "1 is missing in the one that was published" in told["own"]["says"]
    assert "published with 2 of 3 agents, and is final" in troubles(told)["last_sum"]


@pytest.mark.parametrize("sites", [TRUSTED], indirect=True)
def test_an_agent_that_took_anothers_place_is_not_sealed_by_what_that_one_sent(sites: Sites) -> None:
    """c is done, and d takes its place within the season: all of three are done once d is."""
    sites.run(79)
    sites.visit(1)
    sites.exchange()
    newest = sites.collector.newest()
    assert newest is not None
    assert newest.sealed == 3
    sites.collector.close()
    terms = dict.fromkeys("abd", sites.live["a"].store.terms)
    collector = open_collector(sites.folder / "controller.db", terms)
    assert not isinstance(collector, RowBook)
    sites.collector = collector
    newest = collector.newest()
    assert newest is not None
    assert (newest.names, newest.sealed) == (("a", "b", "c"), 2)


@pytest.mark.parametrize("sites", [TRUSTED], indirect=True)
def test_names_alone_close_nobody_where_the_controller_is_trusted(sites: Sites) -> None:
    """A carrier that does not tell whose last batch is in: an agent waits, and closes once it is told."""
    sites.run(79)
    sites.visit(1)
    boxes = {name: sites.live[name].outbox() for name in "abc"}
    sites.collector.receive([(name, box[0].body) for name, box in boxes.items()], now=sites.now)
    (named,) = sites.collector.publish_due(now=sites.now)
    agent = sites.live["a"]
    assert sums.decode(sums.encode(named)) == named
    assert (named.number, len(named.names), named.sealed) == (2, 3, 3)
    assert agent.absorb(named.total, agents=3)
    assert not agent.closed
    assert not agent.absorb(named.total, agents=3, sealed=2)
    assert not agent.closed
    assert not agent.absorb(named.total, agents=3, sealed=3)
    assert agent.closed


def test_settings_that_cannot_be_are_named() -> None:
    good = settings_of("a")
    for changes, match in (
        ({"quorum": 2}, "quorum is 2, expected 3, or nothing, under own play"),
        ({"schedule": "periodic", "first_release": None, "last_release": None}, "expected planned under own"),
        ({"clique": ("a", "b"), "cliques": 2}, "no common close"),
        ({"groups": 2}, "no common close"),
        ({"play": "mine"}, "expected released or own"),
        ({"last_release": None}, "it goes with releases and first_release"),
        ({"last_release": 900.0}, "at most the season's 800 seconds"),
        ({"last_release": 40.0}, "after the first release"),
        ({"releases": 1}, "or the same where there is one"),
        ({"play": "released"}, "nothing but under own play"),
        ({"play": "released", "last_release": None, "distance": 0.1}, "distance is 0.1"),
        ({"distance": 3.0}, "at most 2"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            replace(good, **changes)
    assert replace(good, quorum=3).closes


def test_a_plan_ends_at_the_close_and_is_kept_as_numbers() -> None:
    planned = settings_of("a", agents=100, decisions=2000, season=2000.0, **LEFT_OUT)
    assert planned.releases >= 1
    assert planned.last_release is not None
    assert planned.release_times[-1] == planned.last_release < 0.2 * planned.season
    assert planned.release_times[0] == pytest.approx(planned.first_release)
    # windows of as many decisions as were planned are over by then
    assert planned.estimator.release_rounds[-1] == pytest.approx(planned.last_release - WINDOW, abs=1)
    again = AgentSettings.from_json(planned.to_json())
    assert again == planned
    assert again.release_times == planned.release_times
    alike = replace(planned, distance=0.0, **LEFT_OUT)
    assert alike.last_release is not None
    assert alike.last_release > planned.last_release  # sharing goes on for longer


def test_where_an_agent_alone_does_better_own_play_is_refused_and_can_be_overruled() -> None:
    poor = Budget(epsilon=0.1, delta=1e-6)
    with pytest.raises(ConfigurationError, match="an agent alone does better") as refused:
        settings_of("a", budget=poor, problem=Problem(dim=10), **LEFT_OUT)
    assert "overrule it" in str(refused.value)
    assert settings_of("a", budget=poor, problem=Problem(dim=10)).closes


def test_other_noise_than_planned_is_read_with_a_threshold_that_holds_under_any(sites: Sites) -> None:
    sites.run(81)
    agent = sites.live["a"]
    total = agent._state.inbox.newest(0)
    assert total is not None
    planned = agent.settings.joint_for(total.read())
    other = agent.settings.joint_for(replace(total.read(), variance=3.0 * total.read().variance))
    assert other.variance == pytest.approx(3.0 * planned.variance)
    assert planned.log_threshold <= other.log_threshold
    assert other.weight < planned.weight  # and more noise makes others' records worth less


@pytest.mark.parametrize("play", ["own", "released"])
def test_a_forged_variance_is_refused_and_counted(tmp_path: Path, play: str) -> None:
    """No promise has so much noise; read, it would stop the agent with an overflow that nobody counts."""
    clock, changes = [START], {} if play == "own" else {"play": "released", "last_release": None}
    with Agent.open(tmp_path / "a.db", settings_of("a", **changes), clock=lambda: clock[0]) as agent:
        clock[0] += 799.0
        agent.tick(alone=False)
        own = messages.decode(agent.store.replay(1, 2))
        total = messages.combine([own, own, own])
        for count, variance in enumerate((1.7e308, 1e300, 1e40), start=1):
            forged = replace(total, variance=variance, seal=messages._SEAL)
            with pytest.raises(ValueError, match="more than any noise that can be promised"):
                agent.absorb(messages.decode(messages.encode(forged)))
            assert agent.snapshot()["counts"] == {"refused_sums": count}
        assert not agent.closed
        # others may have a smaller budget, down to the least that can be certified
        assert agent.absorb(replace(total, variance=1e12 * total.variance, seal=messages._SEAL))
        assert np.isfinite(agent._state.chooser.scores(0, np.eye(2))).all()  # type: ignore[arg-type]
        assert agent.closed == (play == "own")


def test_status_says_where_it_stands(sites: Sites) -> None:
    sites.run(10)
    path = sites.folder / "a.db"
    assert look(path)["own"]["says"] == "sharing until 2027-01-15 08:01 UTC"
    sites.visit(75)
    assert look(path)["own"]["says"] == "waiting for the last sum of all 3 agents"
    sites.run(1)
    closed = "closed, on your own records since 2027-01-15 08:01 UTC"
    assert look(path)["own"]["says"] == f"{closed}; the others are heard"
    assert look(path)["own"]["hearing"] == "heard"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("sites", "heard"), [({"history": 2000}, True), ({}, False)], indirect=["sites"])
def test_histories_that_are_announced_are_weighed_and_heard(sites: Sites, heard: bool) -> None:
    """Sums of far more records than were planned are left, as nobody's honest: a history is planned."""
    draws = np.random.default_rng(7)
    for agent in sites.live.values():
        actions = draws.standard_normal((2000, 2))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        rewards = np.clip(actions @ THETA + draws.uniform(-0.2, 0.2, 2000), -1.0, 1.0)
        warm_start(agent, actions, rewards, policy="fixed")
    sites.run(90)
    assert sites.phase() == "closed"
    agent = sites.live["a"]
    (total,) = agent._state.inbox.read(0)
    assert total is not None
    bound = agent.settings.joint_for(total)
    others = Others.of(total.gram * (2.0 / 3.0), total.moment * (2.0 / 3.0))  # the three are alike
    assert bool(bound.possible(others)) == heard
    planned = settings_of("a").joint_for(total)
    if heard:  # and the more records others have the less each of them weighs
        assert bound.evenly > 20.0 * planned.evenly
        assert bound.weight < planned.weight

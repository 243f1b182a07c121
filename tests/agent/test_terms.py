"""What an agent's settings come to: whose records the noise covers, and planning that knows that noise."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.errors import ConfigurationError
from feducb.privacy.mechanisms import Dense
from feducb.privacy.statement import statement
from feducb.privacy.uploads import decode_upload
from feducb.protocol import messages
from feducb.storage import AgentStore, ControllerStore
from feducb.trust import CONTROLLER

SETTINGS = AgentSettings(
    problem=Problem(dim=3),
    budget=Budget(epsilon=4.0, delta=1e-6),
    agents=3,
    decisions=200,
    releases=16,
    schedule="periodic",
    season=1600.0,
    window=60.0,
    start=0.0,
)
TRUSTING = replace(SETTINGS, trust=CONTROLLER, records_per_person=2)


def test_where_the_controller_is_trusted_a_person_may_visit_all_agents_unless_told_otherwise() -> None:
    assert SETTINGS.terms.agents_per_person == 1
    assert (TRUSTING.terms.agents_per_person, TRUSTING.terms.records_covered) == (3, 6)
    stated = replace(TRUSTING, agents_per_person=1)
    assert (stated.terms.agents_per_person, stated.terms.records_covered) == (1, 2)
    assert TRUSTING.terms.certificate().sigma == pytest.approx(3 * stated.terms.certificate().sigma, rel=1e-4)
    for count, named in ((4, "at most the number of agents, 3"), (0, "a whole number of at least 1")):
        with pytest.raises(ConfigurationError, match=f"agents_per_person is {count}, expected {named}"):
            replace(SETTINGS, agents_per_person=count)


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_an_agent_plans_with_the_noise_that_its_terms_have(trust: Any) -> None:
    """√v of the plan is that of the certificate, and what follows from it moves with it."""
    once = replace(SETTINGS, trust=trust, agents_per_person=1)
    for records, agents in ((1, 1), (3, 1), (1, 3)):
        settings = replace(once, records_per_person=records, agents_per_person=agents)
        privatizer, certificate = settings.estimator.privatizer, settings.terms.certificate()
        assert privatizer is not None
        scales = np.asarray(privatizer.noise_scale)
        np.testing.assert_allclose(scales * np.sqrt(2.0), certificate.scale, rtol=1e-4)
        if settings.terms.records_covered > 1:
            assert settings.rule.first > once.rule.first
        assert isinstance(settings.terms.factors, Dense)
        assert settings.terms.quiet == min(settings.rule.first, settings.releases) - 1


@pytest.mark.parametrize("trust", ["nobody", "controller"])
@pytest.mark.parametrize("spacing", [0, 1, 4])
def test_an_agent_s_terms_spread_noise_as_it_plans_to(trust: Any, spacing: int) -> None:
    """At a budget with which sums are read: decay, quiet start and spaced records are in both."""
    settings = replace(
        SETTINGS,
        trust=trust,
        budget=Budget(epsilon=100.0, delta=1e-6),
        records_per_person=3,
        agents_per_person=2,
        spacing=spacing,
    )
    terms, privatizer = settings.terms, settings.estimator.privatizer
    assert privatizer is not None
    assert terms.factors == privatizer.mechanism
    assert terms.decay is not None
    assert terms.spacing == spacing
    scales = np.asarray(privatizer.noise_scale)
    np.testing.assert_allclose(scales * np.sqrt(2.0), terms.certificate().scale, rtol=1e-4)
    covered = terms.records_covered
    assert terms.reach == covered if spacing == 0 else terms.reach < 0.95 * covered


def test_a_person_at_three_agents_is_under_the_controllers_promise(tmp_path: Path) -> None:
    """p = 2 at 3 agents: what her records move in the controller's sums is what its certificate covers.

    Through files and bytes; in whole numbers, so there is no false alarm.
    """
    terms = TRUSTING.terms
    action, fine = np.array([[1.0, 0.0, 0.0]]), []
    for world, reward in enumerate((1.0, -1.0)):
        total = np.zeros(9, dtype=object)
        for agent in range(3):
            with AgentStore.open(tmp_path / f"{world}-{agent}.db", terms) as store:
                for _ in range(5):
                    store.record(action, [reward], ["she"])
                total = total + decode_upload(store.upload(), terms)[2].values.astype(object)
        fine.append(total)
    certificate = terms.certificate()
    moved = np.linalg.norm((fine[0] - fine[1]).astype(np.float64)) * 2.0 ** (certificate.exponent - 16)
    one = replace(terms, records_per_person=1, agents_per_person=1).certificate()
    assert moved <= certificate.sensitivity
    assert moved > 3 * one.sensitivity  # three agents' worth and more: a bound at p alone would not cover it


@pytest.mark.parametrize("agents_per_person", [None, 1])
def test_a_sum_with_other_noise_than_the_terms_promise_is_refused(
    tmp_path: Path, agents_per_person: int | None
) -> None:
    terms = replace(TRUSTING, agents_per_person=agents_per_person).terms
    terms = replace(terms, quiet=TRUSTING.terms.quiet, decay=TRUSTING.terms.decay)
    with ControllerStore.open(tmp_path / "controller.db", terms) as controller:
        payload = controller.release()
    with Agent.open(tmp_path / "agent.db", TRUSTING, clock=lambda: 1.0) as agent:
        if agents_per_person is None:
            assert agent.absorb(messages.decode(payload), agents=3)
            return
        with pytest.raises(ValueError, match=r"controller's terms differ .* agents_per_person or spacing"):
            agent.absorb(messages.decode(payload), agents=3)


@pytest.mark.parametrize(
    "other",
    [
        {"agents_per_person": 1},
        {"records_per_person": 1},
        {"budget": Budget(epsilon=9.0, delta=1e-6)},
        {"releases": 15, "quiet": 14},
        {"quiet": 0},
        {"quiet": 0, "decay": 1.25},
        {"spacing": 1},
        {"mechanism": "tree", "quiet": 0, "decay": None},
        {"problem": Problem(dim=3, parameter_bound=2.0)},
    ],
)
def test_an_upload_of_other_terms_is_refused_before_anything_is_released(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """The controller's noise would not be what the agent promises: its raw sums do not enter."""
    promised = TRUSTING.terms
    with AgentStore.open(tmp_path / "a.db", promised) as store:
        store.record(np.eye(3), np.ones(3), ["she", "he", "they"])
        payload = store.upload()
    for name, terms in (("other", replace(promised, **other)), ("same", replace(promised, excess="refuse"))):
        collector = open_collector(tmp_path / f"{name}.db", {"a": terms})
        (receipt,), sums = collector.exchange([("a", payload)], now=0.0)
        if name == "same":
            assert (receipt.status, len(sums)) == ("stored", 1)
        else:
            assert (receipt.status, receipt.reason, sums) == ("refused", "terms", [])
            assert "records_per_person, agents_per_person and spacing must be the same" in receipt.text
        collector.close()


def test_an_upload_of_the_earlier_version_does_not_enter(tmp_path: Path) -> None:
    """It does not say what its agent promises; of a season that is over it is passed by, as any other."""
    with AgentStore.open(tmp_path / "a.db", TRUSTING.terms) as store:
        payload = store.upload()
    earlier = b"RAW1" + payload[4:20] + payload[28:]
    for season, status in ((1, "refused"), (2, "past")):
        collector = open_collector(tmp_path / "controller.db", {"a": TRUSTING.terms}, season=season)
        (receipt,), sums = collector.exchange([("a", earlier)], now=0.0)
        assert (receipt.status, sums) == (status, [])
        assert status == "past" or (receipt.reason, "earlier version" in receipt.text) == ("terms", True)
        collector.close()


def test_agents_of_a_trusted_controller_state_the_same(tmp_path: Path) -> None:
    terms = {"a": TRUSTING.terms, "b": replace(TRUSTING, agents_per_person=1).terms}
    terms["b"] = replace(terms["b"], quiet=terms["a"].quiet, decay=terms["a"].decay)
    with pytest.raises(ConfigurationError, match=r"terms.agents_per_person of b is 1, expected 3"):
        open_collector(tmp_path / "controller.db", terms)


def test_a_file_from_before_keeps_what_it_promised_until_a_new_season(tmp_path: Path) -> None:
    """Its noise covers people at one agent: so it is read, so its statement says, and no more is claimed."""
    path = tmp_path / "agent.db"
    before = replace(TRUSTING, agents_per_person=1)
    with Agent.open(path, before, clock=lambda: 1.0) as agent:
        decision = agent.decide(np.eye(3), person="ada")
    _forget_agents_per_person(path)
    with AgentStore.open(path) as store:
        assert store.terms == replace(before.terms, mechanism=store.terms.mechanism)
        assert "nothing checks it" in statement(store.terms)["several_agents"]
    with pytest.raises(
        ConfigurationError, match=r"agents_per_person is 3, expected 1 as stored; a new season"
    ):
        Agent.open(path, TRUSTING, clock=lambda: 1.0)
    Agent.open(path, before, clock=lambda: 1.0).close()
    _forget_agents_per_person(path)
    with Agent.open(path, clock=lambda: 1.0) as agent:
        agent.discard(decision.id)
        agent.new_season(replace(TRUSTING, start=2.0))
        assert agent.store.terms.records_covered == 6


def test_a_file_that_was_planned_otherwise_goes_on_as_it_was(
    tmp_path: Path,
) -> None:
    """Settings with p > 1 led to a shorter quiet start once."""
    path, settings = tmp_path / "agent.db", replace(SETTINGS, records_per_person=3)
    with Agent.open(path, settings, clock=lambda: 1.0) as agent:
        decision = agent.decide(np.eye(3), person="ada")
    _edit(path, "seasons", "terms", lambda plain: plain | {"quiet": 0})
    with Agent.open(path, settings, clock=lambda: 1.0) as agent:
        assert agent.store.terms == agent.settings.terms != settings.terms
        agent.discard(decision.id)
        agent.new_season(replace(settings, start=2.0))
    with Agent.open(path, replace(settings, start=2.0), clock=lambda: 1.0) as agent:
        assert agent.store.season == 2


def _forget_agents_per_person(path: Path) -> None:
    for table, column in (("seasons", "terms"), ("settings", "body")):
        _edit(path, table, column, lambda plain: {k: v for k, v in plain.items() if k != "agents_per_person"})


def _edit(path: Path, table: str, column: str, change: Any) -> None:
    db = sqlite3.connect(path)
    (text,) = db.execute(f"SELECT {column} FROM {table}").fetchone()
    db.execute(f"UPDATE {table} SET {column} = ?", (json.dumps(change(json.loads(text)), sort_keys=True),))
    db.commit()
    db.close()

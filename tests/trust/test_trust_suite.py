"""One conformance suite that every trust passes, and the skeleton in docs/extending/trust.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import feducb
from feducb.controller.collector import open_collector
from feducb.errors import ConfigurationError, UnsealedReleaseError
from feducb.interfaces import Feature, TrustWords
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.statement import statement, to_markdown
from feducb.privacy.terms import Neighbours, Terms
from feducb.protocol.parcels import ParcelKind
from feducb.storage import AgentStore
from feducb.trust import NOBODY, TRUSTS, Trust, require_trust
from page_code import run_page

SKELETON: Trust = run_page("extending/trust.md")["Notary"]()
EVERY = {**TRUSTS, "the page's skeleton": SKELETON}
ALL = pytest.mark.parametrize("trust", list(EVERY.values()), ids=list(EVERY))
FEATURES: tuple[Feature, ...] = get_args(Feature)

PROBLEM, BUDGET = feducb.Problem(dim=2), feducb.Budget(epsilon=1.0, delta=1e-6)
NAMES = ("a", "b", "c", "d", "e")
AGENTS = len(NAMES)


def _terms(trust: Trust, **changes: Any) -> Terms:
    setting: dict[str, Any] = {"releases": 4, "mechanism": "dense", "agents": AGENTS} | changes
    return Terms(problem=PROBLEM, budget=BUDGET, trust=trust, **setting)


SETTINGS = feducb.AgentSettings(
    name="a",
    problem=PROBLEM,
    budget=BUDGET,
    releases=4,
    schedule="periodic",
    agents=AGENTS,
    start=0.0,
    season=3600.0,
    window=60.0,
)
SMALL: dict[str, Any] = {"agents": 3, "dim": 2, "arms": 3, "horizon": 60, "runs": 1, "epsilon": 8.0}
# What is set so that a trust comes upon each feature.
USES: dict[Feature, Callable[[Trust], object]] = {
    "groups": lambda trust: _terms(trust, groups=2),
    "graph": lambda trust: replace(SETTINGS, trust=trust, clique=NAMES),
    "budgets": lambda trust: replace(SETTINGS, trust=trust, budgets=dict.fromkeys(NAMES, BUDGET)),
    "topology": lambda trust: feducb.simulate(**SMALL, trust=trust, topology="ring:3"),
    "paper mode": lambda trust: feducb.simulate(**SMALL, trust=trust, mode="paper"),
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The skeleton has a line in the registry, as its page asks for."""
    monkeypatch.setitem(TRUSTS, SKELETON.name, SKELETON)


@ALL
def test_it_is_a_value_and_its_name_stands_for_it(trust: Trust) -> None:
    assert trust == type(trust)()
    assert hash(trust) == hash(type(trust)())
    assert TRUSTS[trust.name] is trust is require_trust(trust.name) is require_trust(trust)
    assert str(trust) == f"{trust}" == trust.name
    assert [one for one in TRUSTS.values() if one == trust] == [trust]
    with pytest.raises((AttributeError, TypeError)):  # one object serves all: nothing may be set
        trust.name = "somebody"  # type: ignore[misc]


@ALL
def test_files_keep_its_name_and_give_it_back(trust: Trust) -> None:
    terms, made = _terms(trust, records_per_person=2, agents_per_person=3), trust.among(AGENTS)
    assert json.loads(terms.to_json())["trust"] == made.name
    assert Terms.from_json(terms.to_json()) == terms
    assert Terms.from_json(terms.to_json()).trust == made == made.among(AGENTS) == require_trust(made.name)
    settings = replace(SETTINGS, trust=trust)
    assert json.loads(settings.to_json())["trust"] == made.name
    assert feducb.AgentSettings.from_json(settings.to_json()).trust == made


@ALL
@pytest.mark.parametrize("agents", [1, 2, 7, 20])
def test_a_sum_has_as_many_noises_as_it_says_and_they_are_large_enough(trust: Trust, agents: int) -> None:
    assert trust.noises(agents) == (1 if trust.pooled else agents)
    own = np.linspace(1.0, 3.0, agents)
    if trust.padded and agents < 3:
        with pytest.raises(ConfigurationError, match="at least 2 honest shares of noise a row"):
            trust.scales(own)
        return
    scales, shares = trust.scales(own), trust.shares(agents)
    assert scales.shape == (trust.noises(agents),)
    assert 1 <= shares <= len(scales)
    # Whichever of the noises are left to it, so many of them are as large as the budgets need.
    assert np.all(scales * np.sqrt(shares) >= (own.max() if trust.joint else own) * (1.0 - 1e-12))
    if agents == 1:
        np.testing.assert_array_equal(scales, own)


@ALL
@pytest.mark.parametrize("records", [(1,), (3,), (1, 1), (2, 1, 4)])
def test_a_person_costs_how_far_her_records_move_what_is_shown(
    trust: Trust, records: tuple[int, ...]
) -> None:
    mus, everywhere = np.linspace(0.2, 0.9, AGENTS), np.zeros(AGENTS, dtype=np.int64)
    everywhere[: len(records)] = records
    scales, cost = trust.scales(1.0 / mus), trust.spend(mus.tolist(), everywhere.tolist())
    # A record moves what is shown by 1: one sum under one noise, or under shares of it, or one at each agent.
    together = sum(records) / (scales.max() * np.sqrt(trust.shares(AGENTS)))
    assert cost == pytest.approx(together if trust.joint else np.linalg.norm(everywhere / scales))
    assert cost <= float(everywhere @ mus) + 1e-12  # never more than the sum of all records' costs


@ALL
def test_a_person_costs_at_least_one_of_her_records_and_more_with_more_of_them(trust: Trust) -> None:
    assert trust.spend([0.4], [1]) == pytest.approx(0.4)
    for agents in (1, 2, 5):
        costs = [trust.spend([0.4] * agents, [p] * agents) for p in (1, 2, 3)]
        assert costs[0] >= 0.4 - 1e-12
        assert costs == sorted(costs)
        assert costs[2] == pytest.approx(3.0 * costs[0])


@ALL
@pytest.mark.parametrize(("records", "agents"), [(1, 1), (1, 4), (3, 1), (2, 3)])
def test_the_noise_of_a_promise_covers_the_person_it_is_made_to(
    trust: Trust, records: int, agents: int
) -> None:
    covered, seen = trust.records_covered(records, agents), trust.records_covered(1, agents)
    assert covered == records * seen
    assert seen == (agents if trust.joint else 1)
    # One record may cost mu / covered; with all that one noise sees, she pays mu and no more.
    assert trust.spend([1.0 / covered] * seen, [records] * seen) == pytest.approx(1.0)
    for visited in (1, 2, 6):
        at_several = trust.mu_at(1.0, visited, agents_per_person=agents)
        cost = trust.spend([1.0 / covered] * visited, [records] * visited)
        assert at_several == pytest.approx(cost)


@ALL
def test_what_nobody_rules_out_is_covered(trust: Trust) -> None:
    for agents in (3, 4, 9):
        assert trust.agents_visited(agents) == (agents if trust.joint else 1)
        assert replace(SETTINGS, trust=trust, agents=agents).terms.agents_per_person == (
            trust.agents_visited(agents)
        )
    at_all = _terms(trust, agents_per_person=AGENTS)
    assert at_all.neighbours is (Neighbours.ONE_PERSON if trust.joint else Neighbours.ONE_RECORD)


@ALL
@pytest.mark.parametrize(("records", "agents"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_the_statement_says_it_in_words(trust: Trust, records: int, agents: int) -> None:
    words = {one.name: getattr(trust.words, one.name) for one in fields(TrustWords)}
    assert all(isinstance(word, str) and word.strip() == word != "" for word in words.values())
    assert trust.words.adversary.endswith(".")
    assert trust.words.trusted.endswith(".")
    terms = _terms(trust, records_per_person=records, agents_per_person=agents)
    plain = statement(terms)
    assert plain["trust"] == trust.among(AGENTS).name
    assert plain["several_agents"].endswith(".")
    page = to_markdown(json.loads(json.dumps(plain)))
    for sentence in (trust.words.adversary, trust.words.trusted, plain["several_agents"]):
        assert sentence in page
    if trust.joint and agents > 1:
        assert f"at each of up to {agents} agents" in plain["unit"]
    elif records > 1:
        assert plain["unit"].endswith("at one agent")


@ALL
def test_what_it_refuses_is_known_and_has_a_sentence(trust: Trust) -> None:
    assert set(trust.refusals) <= set(FEATURES)
    for feature in FEATURES:
        if feature not in trust.refusals:
            trust.refuse(feature, "setting", 3)
            continue
        with pytest.raises(ConfigurationError) as raised:
            trust.refuse(feature, "setting", 3)
        assert str(raised.value) == f"setting is 3, expected {trust.refusals[feature]}"


@ALL
@pytest.mark.parametrize("feature", FEATURES)
def test_it_is_asked_wherever_a_feature_is_used(trust: Trust, feature: Feature) -> None:
    if feature not in trust.refusals:
        USES[feature](trust)
        return
    with pytest.raises(ConfigurationError) as raised:
        USES[feature](trust)
    assert raised.value.expected == trust.refusals[feature]


@ALL
def test_raw_sums_leave_an_agent_only_if_it_lets_them(trust: Trust, tmp_path: Path) -> None:
    terms = _terms(trust)
    privatizer = DeployedPrivatizer(terms)
    privatizer.record(np.array([[0.5, 0.5]]), np.array([0.5]))
    with AgentStore.open(tmp_path / "agent.db", terms) as store:
        store.record(np.array([[0.5, 0.5]]), np.array([0.5]))
        if trust.padded:  # a share of noise alone hides nothing: rows leave under pads
            with pytest.raises(UnsealedReleaseError, match="it leaves padded"):
                privatizer.release()
            with pytest.raises(feducb.PrivacyError, match="rows leave under pads"):
                store.release()
        if trust.raw:
            privatizer.upload()
            store.upload()
            with pytest.raises(feducb.PrivacyError, match="the controller releases"):
                store.release()
        else:
            with pytest.raises(UnsealedReleaseError, match="raw sums leave an agent only if"):
                privatizer.upload()
            with pytest.raises(UnsealedReleaseError):
                store.upload()
            if not trust.padded:
                store.release()
    if trust.padded:
        return  # who takes padded rows: tests/controller
    collector = open_collector(tmp_path / "controller.db", {"a": terms})
    assert collector.takes is (ParcelKind.UPLOAD if trust.raw else ParcelKind.RELEASE)
    collector.close()


@ALL
def test_agents_of_a_federation_agree_on_it(trust: Trust, tmp_path: Path) -> None:
    other = next(one for one in TRUSTS.values() if one != trust)
    terms = {"a": _terms(other), "b": _terms(trust)}
    with pytest.raises(ConfigurationError) as raised:
        open_collector(tmp_path / "controller.db", terms)
    ours, theirs = (one.among(AGENTS).name for one in (trust, other))
    assert str(raised.value) == f"terms.trust of b is {ours!r}, expected {theirs!r} as for others"


@ALL
def test_a_simulation_plays_it_and_names_it(trust: Trust) -> None:
    result = feducb.simulate(**SMALL, trust=trust)
    assert result.config["trust"] == result.privacy["trust"] == trust.among(SMALL["agents"]).name
    assert trust.words.reads in result.privacy["adversary"]
    several = feducb.simulate(**SMALL, trust=trust, records_per_person=2)
    assert trust.words.where in several.privacy["unit"]
    assert json.loads(json.dumps(result.config)) == result.config
    baseline = feducb.simulate(**SMALL, trust=trust, baseline="alone")
    assert baseline.privacy["trust"] == NOBODY.name

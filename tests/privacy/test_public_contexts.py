"""Actions and contexts are public: noise on what rewards move alone, and a statement that says so."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import feducb
from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.agent.upkeep import warm_start
from feducb.cli.agent import app
from feducb.config import Budget, Problem
from feducb.controller.controller_file import terms_from_table
from feducb.errors import ConfigurationError, RefusedError
from feducb.models import LINEAR, PublicContexts, require_model, with_contexts
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.mechanisms import Dense
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer
from feducb.privacy.statement import statement, to_markdown
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Neighbours, Terms
from feducb.protocol import messages
from feducb.protocol.admission import check_release
from feducb.trust import CONTROLLER

MODEL = PublicContexts(LINEAR)
TERMS = Terms(problem=Problem(dim=3), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, model=MODEL)
PRIVATE = replace(TERMS, model=LINEAR)


def test_an_entry_of_the_residual_carries_three_quarters_of_the_noise() -> None:
    """h alone, against h − Hθ* across θ*, at L = B = S = 1."""
    entries = {}
    for terms in (TERMS, PRIVATE):
        scales = terms.model.residual_scales(terms.problem, terms.weight)
        entries[terms.contexts] = terms.certificate().scale * math.sqrt(scales[-1])
    assert entries["public"] / entries["private"] == pytest.approx(0.770, abs=0.001)


def test_the_gram_leaves_as_it_is_and_the_moment_under_noise(rng: np.random.Generator) -> None:
    actions, rewards = 0.5 * rng.uniform(-1, 1, (40, 3)), rng.uniform(-1, 1, 40)
    door = DeployedPrivatizer(TERMS)
    for _ in range(3):
        door.record(actions, rewards)
        message = messages.encode(door.release(), season=1)
    read = check_release(message, TERMS, agents=1).read()
    np.testing.assert_allclose(read.gram, 3 * actions.T @ actions, atol=1e-3)
    off = (read.moment - 3 * rewards @ actions) / math.sqrt(read.variance)
    assert (np.abs(off) < 8).all()
    assert (np.abs(off) > 1e-6).all()  # a chance of 1e-6 each
    with pytest.raises(RefusedError, match="terms differ"):  # nobody takes one for the other
        check_release(message, PRIVATE, agents=1)


def test_simulated_releases_have_noise_where_deployed_ones_have(rng: np.random.Generator) -> None:
    door = Privatizer(problem=Problem(dim=3), mechanism=Dense(2), noise_scale=2.0, model=MODEL)
    noise = SeededNoise([[np.random.default_rng(3)]])
    moments = []
    for _ in range(2_000):
        _, release = door.release(door.start((1, 1)), noise)
        assert not release.gram.any()
        moments.append(release.moment[0, 0])
    expected = 2.0 * door.mechanism.error(1)
    np.testing.assert_allclose(np.std(moments, axis=0), expected, rtol=0.1)  # six standard errors


def test_only_rewards_are_promised_and_the_statement_says_so() -> None:
    assert TERMS.neighbours is Neighbours.ONE_REWARD
    several = replace(TERMS, records_per_person=2)
    assert several.neighbours is Neighbours.REWARDS_OF_ONE
    page, plain = to_markdown(statement(TERMS)), statement(several)
    for said in (
        "**Contexts** | Public, and NOT protected",
        "the reward of one interaction",
        "Not covered: that",
    ):
        assert said in page
    assert plain["unit"] == "the rewards of one person, with up to 2 interactions at one agent"
    assert "tally" not in plain["also_shown"]
    assert tally_scale(TERMS, 0.0) is None
    assert "**Contexts**" not in to_markdown(statement(PRIVATE))
    assert DeployedPrivatizer(TERMS).terms.contexts == "public"


def test_files_keep_it(tmp_path: Path) -> None:
    plain = TERMS.to_json()
    assert json.loads(plain)["model"] == "public:linear"
    assert Terms.from_json(plain).model == MODEL
    assert TERMS.digest() != PRIVATE.digest()
    settings = AgentSettings(problem=Problem(dim=3), budget=TERMS.budget, contexts="public", start=0.0)
    assert settings.terms.model == MODEL
    assert AgentSettings.from_json(settings.to_json()) == settings
    old = json.loads(settings.to_json())
    del old["contexts"]  # as of earlier versions
    assert AgentSettings.from_json(json.dumps(old)).terms.model == LINEAR
    table = {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "releases": 4, "model": "public:linear"}
    assert terms_from_table(table).model == MODEL


def test_an_agent_is_made_with_it_and_its_ledger_says_it(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    assert CliRunner().invoke(app, ["init", str(config), "--contexts", "public"]).exit_code == 0
    file = read_agent_file(config)
    with Agent.open(file.store, file.agent) as agent:
        assert agent.ledger().as_dict()["seasons"][0]["contexts"] == "public"
    told = CliRunner().invoke(app, ["terms", "--config", str(config)]).stdout
    assert 'model = "public:linear"' in told


def test_under_a_trusted_controller_its_noise_is_on_the_moment_alone(rng: np.random.Generator) -> None:
    terms = replace(TERMS, trust=CONTROLLER)
    agent, controller = DeployedPrivatizer(terms), DeployedPrivatizer(terms)
    actions = 0.5 * rng.uniform(-1, 1, (10, 3))
    agent.record(actions, np.ones(10))
    controller.receive(agent.upload(), 10)
    values = np.ldexp(controller.release().values.astype(float), controller.certificate.exponent)
    gram, moment = LINEAR.read(values, dim=3, weight=1.0)
    np.testing.assert_allclose(gram, actions.T @ actions, atol=1e-3)
    assert np.abs(moment - actions.sum(axis=0)).max() > 1e-3


def test_a_federation_states_it_and_what_cannot_be_is_refused() -> None:
    federation = feducb.Federation(problem=Problem(dim=3), agents=2, contexts="public")
    assert federation.model == MODEL == replace(federation, agents=3).model
    assert (
        feducb.Federation(problem=Problem(dim=3), agents=2, model=require_model("public:linear")).contexts
        == "public"
    )
    with pytest.raises(ConfigurationError):
        with_contexts(LINEAR, "secret")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        require_model("public:public:linear")
    world = feducb.PaperEnvironment(problem=Problem(dim=3), arms=4)
    result = feducb.simulate(federation, world, horizon=40, runs=1)
    assert result.privacy["unit"].startswith("the reward of one interaction")
    assert result.privacy["mu"] == pytest.approx(TERMS.certificate().mu, rel=1e-3)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1.7e308, -7.0])
@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_no_reward_moves_the_exact_sums(reward: float, centre: float) -> None:
    """The Gram leaves without noise: it must be the same whatever was paid."""
    terms, action = replace(TERMS, problem=Problem(dim=3, reward_centre=centre)), np.array([[0.6, 0.0, 0.8]])
    sums = []
    for paid in (0.3, reward):
        door = DeployedPrivatizer(terms)
        door.record(action, np.array([paid]))
        sums.append(json.loads(door.dump_batch())["batch"])
    noisy = MODEL.noisy(3)
    exact, protected = (np.array([np.array(one)[place] for one in sums]) for place in (~noisy, noisy))
    assert exact[0].tolist() == exact[1].tolist()
    step = 2.0 ** (door.certificate.exponent - FINE_BITS)
    assert np.linalg.norm(step * (protected[0] - protected[1])) <= door.certificate.sensitivity


def test_a_record_is_not_left_out_for_its_reward(tmp_path: Path) -> None:
    """Neither by terms that refuse, nor of an own log: its absence would be seen in exact sums."""
    with pytest.raises(ConfigurationError, match="excess is 'refuse', expected clip where contexts are pub"):
        replace(TERMS, excess="refuse")
    settings = AgentSettings(
        problem=Problem(dim=3), budget=TERMS.budget, contexts="public", start=0.0, default_reward=0.2
    )
    log, batches = np.array([[0.6, 0.0, 0.8], [0.1, 0.2, 0.3]]), []
    for place, paid in enumerate((0.2, math.nan, math.inf, None)):
        with Agent.open(tmp_path / f"{place}.db", settings, clock=lambda: 1.0) as agent:
            loaded = warm_start(agent, log, [0.5, paid], policy="fixed")  # type: ignore[list-item]
            assert (loaded.entered, loaded.dropped) == (2, 0)
            batches.append(agent.store._privatizers[0].dump_batch())
    assert len(set(batches)) == 1  # as a decision without a reward: the default one

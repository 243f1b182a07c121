"""An agent whose rewards are centred: users see and send their own units everywhere."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.agent.upkeep import export, warm_start
from feducb.cli.agent import app
from feducb.config import Budget, Problem
from feducb.controller.controller_file import terms_from_table
from feducb.errors import ConfigurationError
from feducb.evaluation.exports import open_exports
from feducb.worlds.features import Category, Number, Recipe, problem_for

SETTINGS = AgentSettings(
    problem=Problem(dim=2, reward_bound=0.5, reward_centre=0.5),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=4,
    schedule="periodic",
    season=800.0,
    window=60.0,
    start=0.0,
    uniform_share=1.0,
    keep_events=800.0,
)
PAIR = np.array([[0.5, 0.6], [-0.5, 0.6]])
LOG = [0.0, 1.0, 0.25, 1.5], [0.0, 1.0, 0.25, 1.0]  # as logged, and as it counts


def _sums(path: Path, settings: AgentSettings, less: float) -> tuple[bytes, dict[str, object]]:
    """What waits for the first release, and what the agent's page shows, after the same visitors."""
    now = 1.0
    with Agent.open(path, settings, clock=lambda: now) as agent:
        agent._state.coins = random.Random(3)
        warm_start(agent, [PAIR[0]] * 4, [one - less for one in LOG[0]], policy="fixed")
        for reward in (0.0, 1.0, None, 0.75):
            decision = agent.decide(PAIR)
            if reward is not None:
                agent.reward(decision.id, reward - less)
        now = 100.0
        agent.tick(alone=False)
        return agent.store._privatizers[0].dump_batch(), agent.overview()


def test_what_leaves_is_what_rewards_shifted_by_hand_would_make(tmp_path: Path) -> None:
    by_hand = replace(SETTINGS, problem=replace(SETTINGS.problem, reward_centre=0.0), default_reward=-0.5)
    (centred, shown), (shifted, _) = (
        _sums(tmp_path / "a.db", SETTINGS, 0.0),
        _sums(tmp_path / "b.db", by_hand, 0.5),
    )
    assert centred == shifted
    assert shown["reward_range"] == (0.0, 1.0)
    (point,) = shown["curve"]["points"]  # type: ignore[index]
    assert point["value"] == pytest.approx(1.75 / 4)  # what came, and 0 where nothing did


def test_rewards_are_asked_for_in_the_users_own_range(tmp_path: Path) -> None:
    with Agent.open(tmp_path / "a.db", SETTINGS, clock=lambda: 1.0) as agent:
        decision = agent.decide(PAIR)
        for wrong in (-0.1, 1.1):
            with pytest.raises(ConfigurationError, match=r"reward is .*, expected from 0 to 1"):
                agent.reward(decision.id, wrong)
        agent.reward(decision.id, 1.0)
    with pytest.raises(ConfigurationError, match=r"default_reward is -0.25, expected from 0 to 1"):
        replace(SETTINGS, default_reward=-0.25)


def test_an_export_keeps_rewards_as_they_came_and_says_the_centre(tmp_path: Path) -> None:
    now = 1.0
    with Agent.open(tmp_path / "a.db", SETTINGS, clock=lambda: now) as agent:
        for reward in (0.0, 1.0):
            agent.reward(agent.decide(PAIR).id, reward)
        now = 100.0
        agent.tick(alone=False)
    rows = list(export(tmp_path / "a.db"))
    assert [row["reward"] for row in rows] == [0.0, 1.0]
    assert rows[0]["problem"]["reward_centre"] == 0.5
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_exports([path])
    facts, (block,) = source.facts, source.blocks()
    assert (facts.shift, facts.reward_range, facts.problem.reward_centre) == (0.5, (0.0, 1.0), 0.0)
    assert (block.rewards.tolist(), block.scaled.tolist()) == ([0.0, 1.0], [-0.5, 0.5])


def test_settings_come_back_from_files_also_of_earlier_versions(tmp_path: Path) -> None:
    assert AgentSettings.from_json(SETTINGS.to_json()) == SETTINGS
    uncentred = replace(SETTINGS, problem=Problem(dim=2))
    assert "reward_centre" not in uncentred.to_json()
    assert AgentSettings.from_json(uncentred.to_json()) == uncentred


@pytest.mark.parametrize(
    ("given", "bound", "centre"), [("0:1", 0.5, 0.5), ("-1:3", 2.0, 1.0), (None, 1.0, 0.0)]
)
def test_a_range_makes_the_configuration(
    tmp_path: Path, given: str | None, bound: float, centre: float
) -> None:
    asked = [] if given is None else ["--reward-range", given]
    assert CliRunner().invoke(app, ["init", str(tmp_path / "agent.toml"), *asked]).exit_code == 0
    problem = read_agent_file(tmp_path / "agent.toml").agent.problem
    assert (problem.reward_bound, problem.reward_centre) == (bound, centre)
    assert problem.noise_scale == (0.5 if given is None else bound)


def test_a_range_that_is_none_is_refused(tmp_path: Path) -> None:
    for wrong in ("1:0", "half", "0:1:2", "nan:1", "0:inf"):
        failed = CliRunner().invoke(app, ["init", str(tmp_path / "agent.toml"), "--reward-range", wrong])
        assert isinstance(failed.exception, ConfigurationError)
        assert f"--reward-range is '{wrong}', expected LOW:HIGH" in str(failed.exception)


def test_a_controllers_file_takes_it() -> None:
    table = {
        "dim": 2,
        "reward_bound": 0.5,
        "reward_centre": 0.5,
        "epsilon": 1.0,
        "delta": 1e-6,
        "releases": 4,
    }
    assert terms_from_table(table).problem == SETTINGS.problem


def test_a_recipe_must_have_something_constant_in_it() -> None:
    age, offer = Number("age", 0.0, 100.0), Category("offer", ("a", "b"))
    for terms, fits in (([()], True), ([("offer",)], True), ([], False)):
        recipe = Recipe(context=(age,), action=(offer,), terms=(*terms, ("age", "offer")))
        rows = recipe.candidates({"age": [10.0, 70.0]}, ("a", "b")).reshape(-1, recipe.dim)
        solution, *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
        assert np.allclose(rows @ solution, 1.0) or not fits  # a direction in which all vectors agree
        assert recipe.has_constant is fits
        if fits:
            assert problem_for(recipe, reward_centre=0.5).reward_centre == 0.5
            continue
        with pytest.raises(ConfigurationError, match=r"reward_centre is 0.5, expected 0 with terms"):
            problem_for(recipe, reward_centre=0.5)

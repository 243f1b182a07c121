"""`feducb.evaluate` says what `feducb evaluate` says, of every kind of source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import feducb
from feducb import Budget, ConfigurationError, Federation, Geometric
from feducb.cli.evaluate import evaluate as command
from feducb.errors import UnfitSettingError
from feducb.evaluation import Online, Study
from feducb.evaluation.learning import federation_name
from feducb.policies import Greedy
from feducb.trust import CONTROLLER
from feducb.worlds.features import problem_for

COLUMNS: dict[str, Any] = {"agent_column": "shop", "action": "offer", "reward": "bought", "propensity": "p"}
QUICK = Study(epsilons=(8.0,), trusts=(CONTROLLER,), folds=2, repeats=1)
FLAGS = ["--epsilon", "8", "--trust", "controller", "--folds", "2", "--repeats", "1", "--json", "-"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four hundred decisions of 20 shops."""
    rng = np.random.default_rng(3)
    lines = ["shop,age,offer,bought,p"]
    for _ in range(400):
        age, offer = rng.integers(18, 90), rng.choice(["a", "b"])
        bought = int(rng.random() < 0.1 + 0.8 * ((age > 50) == (offer == "a")))
        lines.append(f"{rng.integers(20)},{age},{offer},{bought},0.5")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _by_command(*arguments: str) -> Any:
    import typer

    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, [*arguments, *FLAGS])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_of_a_log_python_and_the_command_line_say_the_same(log: Path) -> None:
    made = feducb.evaluate(log, study=QUICK, context="age:0:120", actions="a,b", **COLUMNS)
    flags = [f"--{name.replace('_', '-')}={column}" for name, column in COLUMNS.items()]
    expected = _by_command(str(log), *flags, "--context", "age:0:120", "--actions", "a,b")
    assert json.loads(made.to_json()) == expected
    assert made.recipe is not None
    again = feducb.evaluate(log, study=QUICK, recipe=made.recipe, **COLUMNS)
    assert [row.as_dict() for row in again.rows] == [row.as_dict() for row in made.rows]


def test_a_data_frame_is_a_log_too(log: Path) -> None:
    pandas = pytest.importorskip("pandas")
    by_path = feducb.evaluate(log, study=QUICK, context="age:0:120", **COLUMNS)
    by_frame = feducb.evaluate(pandas.read_csv(log), study=QUICK, context="age:0:120", **COLUMNS)
    for ours, theirs in zip(by_path.rows, by_frame.rows, strict=True):
        assert ours.value.value == pytest.approx(theirs.value.value, rel=1e-12)


def test_a_federation_of_the_sources_problem_is_compared(log: Path) -> None:
    usual = feducb.evaluate(log, study=replace(QUICK, releases=4), context="age:0:120", **COLUMNS)
    assert usual.recipe is not None
    federation = Federation(
        problem=problem_for(usual.recipe),
        agents=usual.settings["agents"],
        budget=Budget(epsilon=8.0, delta=1e-6),
        trust=CONTROLLER,
    )
    study = Study(folds=2, repeats=1, releases=4)
    with pytest.raises(ConfigurationError, match="agents is 3, expected 20, as in the source"):
        feducb.evaluate(log, replace(federation, agents=3), study=study, context="age:0:120", **COLUMNS)
    other = replace(federation, problem=feducb.Problem(dim=2))
    with pytest.raises(ConfigurationError, match=r"problem is .*, as in the source"):
        feducb.evaluate(log, other, study=study, context="age:0:120", **COLUMNS)
    made = feducb.evaluate(log, federation, study=study, context="age:0:120", **COLUMNS)
    assert made.as_dict() == usual.as_dict()
    own = replace(federation, schedule=Geometric(first=2, releases=3))
    made = feducb.evaluate(log, own, study=Study(folds=2, repeats=1), context="age:0:120", **COLUMNS)
    assert made.settings["releases"] == 3
    bold = replace(federation, policy=Greedy())
    made = feducb.evaluate(log, bold, study=study, context="age:0:120", **COLUMNS)
    assert made.settings["policy"] == "Greedy()"
    name = federation_name(federation)
    assert made.row(name, "played").value == made.row(name, "greedy").value


@pytest.mark.parametrize("wrong", [{"baseline": "alone"}, {"mode": "paper"}])
def test_a_federation_that_no_log_can_teach_is_refused(log: Path, wrong: dict[str, Any]) -> None:
    federation = Federation(problem=feducb.Problem(dim=2), agents=20, **wrong)
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=f"^{name} is"):
        feducb.evaluate(log, federation, **COLUMNS)


def test_a_data_set_by_name_is_played_online() -> None:
    online = Online(runs=2, horizon=20)
    made = feducb.evaluate("movielens", study=QUICK, online=online)
    expected = _by_command("movielens", "--runs", "2", "--horizon", "20")
    assert json.loads(made.to_json()) == expected


@pytest.mark.parametrize(
    ("source", "reading", "named"),
    [
        ("log.csv", {}, "agent_column is None, expected the name of a column"),
        ("log.csv", COLUMNS | {"agents": 3}, "agents is 3, expected nothing beside a log"),
        ("log.csv", COLUMNS | {"reward_range": "high"}, "reward_range is 'high', expected LOW:HIGH"),
        ("actg175", {"context": "age"}, "context is 'age', expected nothing beside the data set"),
        ("north.jsonl", {"action": "offer"}, "action is 'offer', expected nothing beside exports"),
        ("north.jsonl", {"reward_range": (1.0, 0.0)}, "reward_range is .*, expected LOW:HIGH"),
    ],
)
def test_what_does_not_go_with_a_source_is_refused(
    log: Path, source: str, reading: dict[str, Any], named: str
) -> None:
    where = source if source == "actg175" else log.parent / source
    with pytest.raises(UnfitSettingError, match=f"^{named}"):
        feducb.evaluate(where, **reading)


def test_an_unknown_word_and_an_unknown_source_are_named() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        feducb.evaluate("star", colour="red")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="source is 'stars', expected a data set"):
        feducb.evaluate("stars")

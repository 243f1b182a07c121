"""From agents that keep what they decided to a yes or no: `feducb agent export`, `feducb evaluate`."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from feducb import Agent
from feducb.agent.agent_file import read_agent_file
from typed import typed

QUICK = ["--epsilon", "8", "--trust", "controller", "--folds", "2", "--repeats", "1"]


def _feducb(*arguments: str, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = typed(*arguments, cwd=cwd)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


pytestmark = pytest.mark.xdist_group("exports")  # one federation for all


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents, each with its own configuration, after a day's work."""
    folder = tmp_path_factory.mktemp("agents")
    for seed, name in enumerate(("north", "south")):
        config = folder / f"{name}.toml"
        _feducb(
            "agent",
            "init",
            config.name,
            "--name",
            name,
            "--dim",
            "2",
            "--window",
            "1s",
            "--schedule",
            "periodic",
            "--releases",
            "2",
            cwd=folder,
        )
        text = config.read_text(encoding="utf-8")
        for old, new in (
            ("uniform_share = 0.0", "uniform_share = 0.2"),
            ('keep_events = "0s"', 'keep_events = "7d"'),
        ):
            assert old in text
            text = text.replace(old, new)
        config.write_text(text, encoding="utf-8")
        _feducb("agent", "new-season", "--config", config.name, cwd=folder)  # a share is a season's promise
        told, rng, now = read_agent_file(config), np.random.default_rng(seed), [time.time()]
        with Agent.open(told.store, told.agent, clock=lambda now=now: now[0]) as agent:  # type: ignore[misc]
            with agent.writing():
                for _ in range(300):
                    vectors = rng.uniform(-0.7, 0.7, (int(rng.integers(2, 5)), 2))
                    decision = agent.decide(vectors)
                    agent.reward(decision.id, float(rng.random() < 0.5 + 0.6 * vectors[decision.index, 0]))
            now[0] += 10.0  # all windows have closed
            agent.tick()
            agent.decide(vectors)  # still open when the export is made
        _feducb("agent", "export", "--config", config.name, "--out", f"{name}.jsonl", cwd=folder)
    return folder


def test_exports_get_a_table_a_verdict_json_and_a_picture(exported: Path) -> None:
    done = _feducb(
        "evaluate", "north.jsonl", "south.jsonl", *QUICK, "--json", "out.json", "--plot", "out.png",
        cwd=exported,
    )  # fmt: skip
    told = " ".join(done.stdout.split())
    for part in ("logged policy", "uniform", "alone, greedy", "private ε=8, controller, greedy", "SNIPS"):
        assert part in told
    assert "2 of 602 lines are left out: 2 still open" in told
    assert "there is no best single action" in told
    found = json.loads((exported / "out.json").read_text(encoding="utf-8"))
    assert found["verdict"] in told
    assert (found["settings"]["rows"], found["settings"]["agents"]) == (600, 2)
    assert (found["settings"]["candidates"], found["settings"]["actions"]) == ([2, 4], None)
    assert "the best single action" not in {row["policy"] for row in found["policies"]}
    assert (exported / "out.png").read_bytes().startswith(b"\x89PNG")


def test_an_agent_is_called_as_its_lines_say_not_as_its_file_is(exported: Path) -> None:
    shutil.copy(exported / "north.jsonl", exported / "copy.jsonl")
    done = _feducb("evaluate", "north.jsonl", "copy.jsonl", cwd=exported, status=2)
    assert "number in copy.jsonl line 1 is 1, expected one above 301: numbers of agent north" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["north.jsonl", "log.csv"], "source is 'north.jsonl log.csv', expected one data set or log"),
        (["actg175", "star"], "source is 'actg175 star', expected one data set or log"),
        (["north.jsonl", "none.jsonl"], "export is 'none.jsonl', expected a file that exists"),
        (["north.jsonl", "--context", "age"], "--context is 'age', expected nothing beside exports"),
        (["north.jsonl", "--recipe", "r.json"], "recipe is 'r.json', expected a file; `feducb recipe init`"),
        (["north.jsonl", "--person-column", "p"], "--person-column is 'p', expected nothing beside exports"),
        (["north.jsonl", "--agents", "3"], "--agents is 3, expected nothing beside exports"),
        (["north.jsonl", "--save-recipe", "r.json"], "--save-recipe is 'r.json', expected nothing beside"),
        (["north.jsonl", "--reward-range", "1:0"], "--reward-range is '1:0', expected LOW:HIGH"),
        (["north.jsonl", "--action-bound", "0.1"], "expected finite numbers, of length at most 0.1"),
        (["north.jsonl", "--action-bound", "0"], "action_bound is 0.0"),
        (["actg175", "--action-bound", "2"], "--action-bound is 2.0, expected nothing beside the data set"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_with_exports_is_refused(
    exported: Path, arguments: list[str], named: str
) -> None:
    done = _feducb("evaluate", *arguments, cwd=exported, status=2)
    assert named in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_an_agent_that_keeps_nothing_is_told_what_to_set(exported: Path, tmp_path: Path) -> None:
    lines = (exported / "north.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "north.jsonl").write_text(f"{lines[-1]}\n", encoding="utf-8")
    done = _feducb("evaluate", "north.jsonl", cwd=tmp_path, status=2)
    assert "1 line: 1 still open" in done.stderr
    for setting in ("keep_events", "uniform_share"):
        assert setting in done.stderr

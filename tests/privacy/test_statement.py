"""The page to sign says under which conditions the promise holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feducb.agent import Agent, AgentSettings
from feducb.cli.privacy import app
from feducb.config import Budget, Problem

SETTINGS = AgentSettings(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4)
LIVE, LEARNING, FIXED = (
    SETTINGS,
    replace(SETTINGS, shadow=True),
    replace(SETTINGS, shadow=True, follow_policy="fixed"),
)


@pytest.mark.parametrize(
    ("settings", "said", "unsaid"),
    [
        (LIVE, "popularity or click rates", "Shadow mode"),
        (LEARNING, "enters no release", "does not learn from rewards"),
        (FIXED, "The followed policy is public and does not learn from rewards", "enters no release"),
    ],
)
def test_what_is_followed_is_a_condition(
    tmp_path: Path, settings: AgentSettings, said: str, unsaid: str
) -> None:
    Agent.open(tmp_path / "agent.db", settings).close()
    page = CliRunner().invoke(app, ["statement", "--store", str(tmp_path / "agent.db"), "--out", "-"])
    assert page.exit_code == 0, page.output
    assert said in page.output
    assert unsaid not in page.output


def test_presence_and_features_are_spoken_of_without_a_store() -> None:
    page = CliRunner().invoke(app, ["statement", "--groups", "3", "--out", "-"])
    assert "that a record is there at all" in page.output
    assert "popularity or click rates" in page.output
    assert "drawn by a private coin" in page.output

"""One pattern for names: what a roster takes, an agent's settings take, and nothing else."""

from __future__ import annotations

import pytest

from feducb.agent.settings import AgentSettings
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.protocol.names import require_name


def _settings(name: str) -> AgentSettings:
    return AgentSettings(name=name, problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6))


@pytest.mark.parametrize("name", ["a", "_north", "-north", "north_1-b", "x" * 64])
def test_a_name_that_one_place_takes_all_take(name: str) -> None:
    assert require_name("agent", name) == name
    assert _settings(name).name == name


@pytest.mark.parametrize("name", ["", ".", "a.b", "a/b", "a b", "ä", "a\n", "x" * 65])
def test_others_are_refused_with_the_same_words(name: str) -> None:
    for take in (lambda: require_name("name", name), lambda: _settings(name)):
        with pytest.raises(ConfigurationError, match=r"name is .*, expected 1 to 64 letters, digits, - or _"):
            take()

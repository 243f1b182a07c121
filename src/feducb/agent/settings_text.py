"""An agent's settings as its file keeps them: JSON, also that of earlier versions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from feducb.config import Budget, Problem
from feducb.worlds.features import Recipe

if TYPE_CHECKING:
    from feducb.agent.settings import AgentSettings

__all__ = ["read_json", "write_json"]


def write_json(settings: AgentSettings) -> str:
    """As text, for the file."""
    recipe = None if settings.recipe is None else settings.recipe.as_plain()
    plain = asdict(replace(settings, recipe=None)) | {"problem": settings.problem.as_dict(), "recipe": recipe}
    plain["trust"] = settings.trust.name
    del plain["promised"]  # the file has the terms of every season
    return json.dumps(plain, sort_keys=True)


def read_json(text: str, *, started_at: float | None = None) -> dict[str, Any]:
    """What settings are made with, back from text.

    Args:
        text: what `write_json` wrote.
        started_at: when the season started, for files from before several agents had to name a start.
            One from before ``agents_per_person`` promised for p records alone, and one from before there
            were other policies was optimistic.
    """
    plain = json.loads(text)
    if plain.get("start") is None and plain["agents"] > 1:
        plain["start"] = started_at
    return {
        **{"agents_per_person": 1, "policy": "optimistic"},
        **plain,
        "problem": Problem(**plain["problem"]),
        "budget": Budget(**plain["budget"]),
        "recipe": Recipe.from_plain(plain["recipe"]) if plain.get("recipe") else None,
        # absent in files from before agents had budgets of their own, or knew their clique
        "budgets": {name: Budget(**one) for name, one in plain.get("budgets", {}).items()},
        "clique": tuple(plain.get("clique", ())),
    }

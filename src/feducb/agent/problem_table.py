"""The ``[problem]`` table of `agent.toml`: bounds as they are given, or as they follow from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.worlds.features import Recipe
from feducb.worlds.features.bounds import derive_bounds, require_agreeing

__all__ = ["read_problem"]

_NAMES = ("actions", "reserve", "added", "retired")
_WAYS = ("problem.recipe", "problem.actions", "[recipe]")


def read_problem(table: Mapping[str, Any], inline: object, base: Path) -> tuple[Problem, Recipe | None]:
    """The public bounds, and the recipe if there is one.

    Args:
        table: ``[problem]``; its ``recipe`` names a file, its ``actions`` are a recipe of nothing else.
        inline: the ``[recipe]`` table, if there is one.
        base: the folder that paths are relative to.
    """
    given = dict(table)
    names: dict[str, Any] = {name: given.pop(name) for name in _NAMES if name in given}
    recipe = _recipe(given.pop("recipe", None), names, inline, base)
    rewards = _reward_range(given)
    if recipe is None:
        if "dim" not in given:
            expected = "a number: it has no default without a recipe or actions"
            raise ConfigurationError("problem.dim", None, expected)
        if rewards is not None:
            low, high = rewards
            given |= {"reward_bound": (high - low) / 2.0, "reward_centre": (low + high) / 2.0}
        return Problem(**given), None
    if rewards is None and given.keys() & {"reward_bound", "reward_centre"}:
        centre, bound = given.get("reward_centre", 0.0), given.get("reward_bound", 1.0)
        rewards = (centre - bound, centre + bound)
    derived = derive_bounds(recipe, rewards or (0.0, 1.0)).problem
    problem = Problem(**(derived.as_dict() | {"reward_centre": derived.reward_centre} | given))
    require_agreeing(problem, recipe)
    return problem, recipe


def _recipe(path: str | None, names: Mapping[str, Any], inline: object, base: Path) -> Recipe | None:
    actions = names.get("actions")
    if names and actions is None:
        expected = "nothing without actions: a recipe has it in its own file"
        raise ConfigurationError(f"problem.{min(names)}", names[min(names)], expected)
    ways = [way for way, one in zip(_WAYS, (path, actions, inline), strict=True) if one is not None]
    if len(ways) > 1:
        raise ConfigurationError("recipe", " and ".join(ways), "one of them")
    if path is not None:
        return Recipe.read(base / path)
    if actions is not None:
        for name in ("actions", "added", "retired"):
            listed = names.get(name, [])
            if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
                raise ConfigurationError(f"problem.{name}", listed, "names, such as ['a', 'b', 'c']")
        more = {name: value for name, value in names.items() if name != "actions"}
        return Recipe.of_actions(actions, **more)
    if inline is not None and not isinstance(inline, Mapping):
        raise ConfigurationError("recipe", inline, "a table; a file is named by `recipe` in [problem]")
    return None if inline is None else Recipe.from_plain(inline)


def _reward_range(given: dict[str, Any]) -> tuple[float, float] | None:
    """Taken out of the table; two numbers, the lower one first."""
    value = given.pop("reward_range", None)
    if value is None:
        return None
    numbers = [one for one in value if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) != 2 or len(value) != 2 or not numbers[0] < numbers[1]:
        raise ConfigurationError("problem.reward_range", value, "[LOW, HIGH], the lower one first")
    if beside := given.keys() & {"reward_bound", "reward_centre"}:
        raise ConfigurationError("problem.reward_range", value, f"nothing beside {min(beside)}")
    return float(numbers[0]), float(numbers[1])

"""Own logs with columns, read by the agent's recipe: what `warm_start` takes, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from feducb.errors import ConfigurationError
from feducb.types import Array
from feducb.worlds.features import Column, Number, Recipe
from feducb.worlds.features.coded import as_number
from feducb.worlds.features.encoder import Encoder

__all__ = ["read_rows", "require_header"]


def require_header(header: Sequence[str], recipe: Recipe, reward: str) -> None:
    """Raise unless a log has the recipe's columns and the reward: one that is forgotten would be all gaps."""
    declared = recipe.actions and recipe.naming is not None
    needed = [column.name for column in recipe.context]
    needed += [str(recipe.naming)] if declared else [column.name for column in recipe.action]
    for name in (*needed, reward):
        if name not in header:
            raise ConfigurationError("column", name, f"one of those of the log: {', '.join(header)}")


def read_rows(
    rows: Iterable[Mapping[str, str]], recipe: Recipe, reward: str
) -> tuple[list[Array | tuple[()]], list[float]]:
    """Vectors of what was shown, and rewards; a row that cannot be read has no vector, and is dropped then.

    Args:
        rows: of texts by column; an empty one is a missing value. In the column that names actions stands
            what requests say: the name of one that is declared, retired or not; or a level.
        recipe: the agent's.
        reward: the column with what came of it.
    """
    encoder, vectors, rewards = Encoder(recipe), list[Array | tuple[()]](), list[float]()
    declared = frozenset(recipe.declared)
    for row in rows:
        rewards.append(as_number(row.get(reward)))
        try:
            action = {one.name: _value(one, row[one.name]) for one in recipe.action if row.get(one.name)}
            if (name := row.get(recipe.naming or "")) in declared:  # as requests name it, not by its level
                action = {"id": name} | {one: value for one, value in action.items() if one != recipe.naming}
            context = {one.name: _value(one, row.get(one.name)) for one in recipe.context}
            (vector,) = encoder.vectors(context, [action])
            vectors.append(vector)
        except ConfigurationError:
            vectors.append(())
    return vectors, rewards


def _value(column: Column, text: str | None) -> Any:
    """As an application would say it: a number, a text, or nothing; NaN where it is no number."""
    return as_number(text) if text and isinstance(column, Number) else text

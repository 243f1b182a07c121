"""What may change of a recipe within a season: names for entries that it kept in reserve, and who is retired.

A name that is added takes the next entry in reserve, in the order of the recipe's file. Entries and bounds
are there from the start, so that vectors keep their length and their meaning, and what was promised about
releases does not depend on the names. All else is a promise (`fixed_part`), and is known by its digest.

Guarantees:
    Of two recipes of one season (`require_continued`), a name that both know has the same entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from feducb.errors import ConfigurationError
from feducb.worlds.features.columns import Category, Column
from feducb.worlds.features.recipe import Recipe

__all__ = [
    "added_to",
    "continues",
    "fixed_part",
    "naming_column",
    "require_continued",
    "slots_left",
    "with_added",
]


def naming_column(recipe: Recipe) -> Category | None:
    """The column of which a season may add names; None if actions have no public levels."""
    column = next((one for one in recipe.action if one.name == recipe.naming), None)
    return column if isinstance(column, Category) else None


def added_to(recipe: Recipe) -> tuple[str, ...]:
    """Names that were added since the season's recipe was published."""
    column = naming_column(recipe)
    return () if column is None else column.added


def slots_left(recipe: Recipe) -> int:
    """For how many more names there is room."""
    column = naming_column(recipe)
    return 0 if column is None else column.reserve - len(column.added)


def fixed_part(recipe: Recipe) -> Recipe:
    """What a season keeps: the recipe as it is before anything is added or retired."""
    added = added_to(recipe)
    if not added and not recipe.retired:
        return recipe
    actions = tuple(action for action in recipe.actions if action["id"] not in added)
    return replace(recipe, action=_named(recipe, ()), actions=actions, retired=())


def require_continued(before: Recipe, after: Recipe) -> None:
    """Raise unless a season may go on with another recipe: names were added at the end, or some retired.

    Retired actions may come back; names that were added stay.
    """
    if fixed_part(before).fingerprint != fixed_part(after).fingerprint:
        first, second = (f"one of fingerprint {fixed_part(one).fingerprint}" for one in (after, before))
        raise ConfigurationError("recipe", first, repr(second))
    old, new = added_to(before), added_to(after)
    if new[: len(old)] != old:
        expected = f"{list(old)}, and then more: each name keeps its entry"
        raise ConfigurationError("added actions", list(new), expected)
    for name in old:
        if before.described(name) != after.described(name):
            raise ConfigurationError(f"action {name}", after.described(name), f"{before.described(name)}")


def continues(before: Recipe | None, after: Recipe | None) -> bool:
    """Whether entries mean the same by both: actions may have been added to a reserve, or retired."""
    if before is None or after is None:
        return before is after
    try:
        require_continued(before, after)
    except ConfigurationError:
        return False
    return True


def with_added(recipe: Recipe, action: str | Mapping[str, Any]) -> Recipe:
    """The same recipe with one more action, in the next entry in reserve.

    Args:
        recipe: which must have room.
        action: its name; or a mapping with its ``id`` and columns, where the recipe declares them.
    """
    plain: dict[str, Any] = {"id": action} if isinstance(action, str) else dict(action)
    if not isinstance(plain.get("id"), str):
        raise ConfigurationError("id of the action", plain.get("id"), "a text")
    column, name = naming_column(recipe), plain["id"]
    if column is None or not column.reserve:
        expected = "a recipe with room for more: `reserve` in its column of names, from a season's start"
        raise ConfigurationError("action", name, expected)
    if not name or name in column.known:
        raise ConfigurationError("action", name, f"a name other than {', '.join(column.known)}")
    if not slots_left(recipe):
        raise ConfigurationError("action", name, f"room for it: all {column.reserve} in reserve are taken")
    actions = (*recipe.actions, plain) if recipe.actions else ()
    return replace(recipe, action=_named(recipe, (*column.added, name)), actions=actions)


def _named(recipe: Recipe, added: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns of actions, with these names added."""
    column = naming_column(recipe)
    return tuple(replace(column, added=added) if one is column and column else one for one in recipe.action)

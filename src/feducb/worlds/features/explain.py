"""What a recipe does, in words."""

from __future__ import annotations

from collections.abc import Iterator

from feducb.system import counted
from feducb.worlds.features.columns import Category, Column, Flag, Hashed, Number, Tags
from feducb.worlds.features.recipe import Recipe

__all__ = ["describe", "explain", "meaning", "refuses"]


def refuses(recipe: Recipe) -> list[str]:
    """Columns of the visitor by whose values one may be refused: the recipe has no rule for them."""
    return [
        column.name
        for column in recipe.context
        if column.missing == "refuse" or (isinstance(column, Category) and column.unknown == "refuse")
    ]


def describe(recipe: Recipe) -> Iterator[str]:
    """What it does, in one line per column."""
    for column in (*recipe.context, *recipe.action):
        if isinstance(column, Number):
            yield f"{column.name}: {column.low:g} to {column.high:g}, clipped, scaled to −1 to 1"
        elif isinstance(column, Hashed):
            yield f"{column.name}: hashed into {counted(column.buckets, 'bucket')}"
        elif isinstance(column, Flag):
            yield f"{column.name}: true or false, as 1 or −1"
        else:
            levels = counted(len(column.levels), f"{column.kind} level")
            yield f"{column.name}: {levels}: {column.shown}"
    terms = ", ".join(" × ".join(term) or "intercept" for term in recipe.terms)
    yield f"d = {recipe.dim}: {terms}; each times {recipe.action_bound:g}/√{len(recipe.terms)}"
    if recipe.personal:
        personal = ", ".join(" × ".join(term) or "intercept" for term in recipe.personal)
        yield f"never leave an agent: {personal}"


def explain(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """What a recipe does, in words: its columns with their rules, and its terms with their entries."""
    columns = {column.name: column for column in (*recipe.context, *recipe.action)}
    for column in columns.values():
        of = "action" if column in recipe.action else "visitor"
        yield f"{column.name} ({of})", "; ".join((_what(column), *_rules(column)))
    for term in recipe.terms:
        yield f"term {'*'.join(term) or '1'}", f"{meaning(recipe, term)} ({recipe.width_of(term)})"


def _what(column: Column) -> str:
    if isinstance(column, Number):
        return f"a number from {column.low:g} to {column.high:g}, scaled to −1 to 1; clipped beyond"
    if isinstance(column, Flag):
        return "true or false, as 1 or −1"
    if isinstance(column, Hashed):
        return f"one of many names, hashed into {column.buckets} buckets"
    if isinstance(column, Tags):
        return f"some of {column.shown}; others are ignored"
    return f"one of {column.shown}"


def _rules(column: Column) -> Iterator[str]:
    said = {"zero": "counts as nothing", "own": "has an entry of its own", "other": "is 'other', an entry"}
    if isinstance(column, Category):
        yield f"another one {said.get(column.unknown, 'is REFUSED')}"
    yield f"a missing one {said.get(column.missing, 'is REFUSED')}"


def meaning(recipe: Recipe, term: tuple[str, ...]) -> str:
    """What a term is for, in a sentence."""
    acts = {column.name for column in recipe.action}
    own, others = [name for name in term if name in acts], [name for name in term if name not in acts]
    if not term:
        return "the level that all rewards share"
    if not others:
        return f"what each {' and '.join(own)} adds, for everybody"
    if not own:
        return (
            f"what {' with '.join(others)} adds, whatever is shown: it explains rewards, and decides nothing"
        )
    return f"how much {' with '.join(others)} matters for each {' and '.join(own)}"

"""The entries of a recipe's vectors in words, and a visitor to compare actions at: public, without data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from feducb.types import Array, Indices
from feducb.worlds.features.columns import Category, Column, Flag, Hashed, Number, Tags
from feducb.worlds.features.recipe import Recipe

__all__ = [
    "Counting",
    "Entry",
    "counting_places",
    "entries_of",
    "entry_scale",
    "typical_actions",
    "typical_visitor",
]


class Entry(NamedTuple):
    """One of the d numbers.

    Attributes:
        term: that it is of, as recipes write it.
        words: what a coefficient of 1 is the effect of.
        name: shorter, for somebody of whom the values are known.
    """

    term: str
    words: str
    name: str


def entry_scale(recipe: Recipe) -> float:
    """L/√m, what an entry is at most: times a coefficient, it is an effect in units of rewards."""
    return recipe.action_bound / math.sqrt(len(recipe.terms))


def entries_of(recipe: Recipe) -> tuple[Entry, ...]:
    """All d entries, in the order of the vectors."""
    columns = {column.name: column for column in (*recipe.context, *recipe.action)}
    acts = {column.name for column in recipe.action}
    made = []
    for term in recipe.terms:
        for places in product(*(range(columns[name].width) for name in term)):
            parts = [_entry(columns[name], place) for name, place in zip(term, places, strict=True)]
            own = [name in acts for name in term]
            words, name = (_joined(own, [part[which] for part in parts]) for which in (0, 1))
            made.append(Entry("*".join(term) or "1", words, name))
    return tuple(made)


def _joined(acts: Sequence[bool], texts: Sequence[str]) -> str:
    own = [text for act, text in zip(acts, texts, strict=True) if act]
    others = [text for act, text in zip(acts, texts, strict=True) if not act]
    if not texts:
        return "every reward"
    if not others:
        return f"{' with '.join(own)}, for everybody"
    return " with ".join(others) + (f", for {' with '.join(own)}" if own else ", whatever is shown")


def _entry(column: Column, place: int) -> tuple[str, str]:
    """What an entry of a column's block stands for where it is 1; and in short."""
    name = column.name
    if column.missing == "own" and place == column.width - 1:
        return f"{name} missing", f"{name} missing"
    if isinstance(column, Number):
        return f"{name} {column.high:g} ({column.low:g}: the opposite)", name
    if isinstance(column, Flag):
        return f"{name} true (false: the opposite)", name
    if isinstance(column, Hashed):
        return f"{name} in bucket {place + 1}", f"{name} in bucket {place + 1}"
    level = _slots(column)[place]
    return f"{name} {level}", f"{name} {level}"


def _slots(column: Category | Tags) -> list[str]:
    """Who has each entry: a level, a name that may come, or all others."""
    if isinstance(column, Tags):
        return list(column.levels)
    free = [f"in reserve {place}" for place in range(len(column.known) + 1, column.named + 1)]
    return [*column.known, *free, "other"]


def typical_visitor(recipe: Recipe) -> dict[str, str]:
    """By column, whom actions are compared at: known from the recipe alone."""
    return {column.name: _typical(column)[1] for column in recipe.context}


def typical_actions(recipe: Recipe) -> Array:
    """(K, d), the declared actions for that visitor: the mean over visitors who have all values alike."""
    visitor = {column.name: _typical(column)[0] for column in recipe.context}
    made = np.zeros((len(recipe.declared), recipe.dim))
    for row, name in zip(made, recipe.declared, strict=True):
        described = recipe.described(name)
        blocks = visitor | {one.name: one.block([described[one.name]])[0] for one in recipe.action}
        row[:] = np.concatenate([_product([blocks[column] for column in term]) for term in recipe.terms])
    return entry_scale(recipe) * made


def _product(blocks: Sequence[Array]) -> Array:
    """The outer product of some blocks, flat; the last moves fastest."""
    made = np.ones(1)
    for block in blocks:
        made = np.asarray(np.kron(made, block))
    return made


def _typical(column: Column) -> tuple[Array, str]:
    """A block between all those of a column's values, and what that is."""
    block = np.zeros(column.width)
    if isinstance(column, Number):
        return block, f"{(column.low + column.high) / 2:g}, the middle of its range"
    if isinstance(column, Flag):
        return block, "true or false alike"
    if isinstance(column, Tags):
        return block, "none"
    if isinstance(column, Hashed):
        return block, "none in particular"
    block[: len(column.levels)] = 1.0 / len(column.levels)
    return block, f"{column.shown} alike" if len(column.levels) > 1 else column.levels[0]


class Counting(NamedTuple):
    """Where a Gram's diagonal tells how often each action was shown.

    Attributes:
        places: by declared action, entries whose squares add up to L²/m when it is shown, else to 0.
        everything: entries whose squares add up to L²/m whatever is shown.
    """

    places: tuple[Indices, ...]
    everything: Indices


def counting_places(recipe: Recipe) -> Counting | None:
    """So it is in a term of one-hots alone that has the action's name.

    None if there is no such term, or if two of the actions are the same to it.
    """
    acts = {column.name for column in recipe.action}
    columns = {column.name: column for column in (*recipe.context, *recipe.action)}
    terms = [
        term
        for term in recipe.terms
        if recipe.naming in term
        and all(isinstance(columns[name], Category) and columns[name].one_hot for name in term)  # type: ignore[union-attr]
    ]
    if not terms or not recipe.declared:
        return None
    term = min(terms, key=recipe.width_of)
    first = sum(recipe.width_of(one) for one in recipe.terms[: recipe.terms.index(term)])
    found = []
    for action in recipe.declared:
        described = recipe.described(action)
        blocks = [
            columns[name].block([described[name]])[0] if name in acts else np.ones(columns[name].width)
            for name in term
        ]
        found.append(first + np.flatnonzero(_product(blocks)))
    together = np.concatenate(found)
    if len(set(together.tolist())) < len(together):
        return None
    return Counting(tuple(found), first + np.arange(recipe.width_of(term)))

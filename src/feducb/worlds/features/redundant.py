"""Terms that tell nothing which others do not tell: known from the recipe, without data.

Entries of a one-hot add up to 1. So a term is contained in another one that has all its columns and none but
one-hots beside them: ``1`` in ``offer``, ``offer`` in ``offer*country``. Along the direction in which the two
differ no vector ever points: nothing can be learnt there, noise is added all the same, and the confidence set
stays as wide there as the bound on the parameter, which makes it wider elsewhere.
"""

from __future__ import annotations

from collections import Counter

from feducb.worlds.features.columns import Category
from feducb.worlds.features.recipe import Recipe

__all__ = ["redundant"]


def redundant(recipe: Recipe) -> dict[str, str]:
    """By term that is contained in another one, that other; of several the shortest."""
    full = {
        column.name
        for column in (*recipe.context, *recipe.action)
        if isinstance(column, Category) and column.one_hot
    }
    found: dict[str, str] = {}
    for term in recipe.terms:
        more = sorted((one for one in recipe.terms if one != term), key=recipe.width_of)
        for other in more:
            beside = Counter(other) - Counter(term)
            if not Counter(term) - Counter(other) and beside and set(beside) <= full:
                found["*".join(term) or "1"] = "*".join(other)
                break
    return found

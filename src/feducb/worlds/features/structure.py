"""Which entries of a Gram a recipe knows to be zero: the model that leaves them out."""

from __future__ import annotations

from feducb.errors import ConfigurationError
from feducb.models import LINEAR, Model, Products
from feducb.models.products import MOST_ENTRIES, Factor
from feducb.worlds.features.columns import Category, Hashed
from feducb.worlds.features.recipe import Recipe

__all__ = ["model_of"]


def model_of(recipe: Recipe | None, *, spaced: bool = False) -> Model:
    """What is learnt of a recipe's vectors: linear, without the entries of x xᵀ that are always zero.

    Of the levels of a one-hot column, hashed or not, a vector has one at most. So what belongs to one action
    is never beside what belongs to another; nor is one region beside another. Whoever knows the recipe knows
    that, and it is public.

    Args:
        recipe: how vectors are made; None where nobody knows, or the application does.
        spaced: whether a person's records are apart (`Terms.spacing`): then one-hots are as any others, since
            their smaller noise is not proven to cover presence there (docs/theory.md, 2).
    """
    if recipe is None or recipe.dim > MOST_ENTRIES:
        return LINEAR
    columns = {column.name: column for column in (*recipe.context, *recipe.action)}

    def factors(term: tuple[str, ...]) -> list[Factor]:
        made: list[Factor] = []
        for place, name in enumerate(term):
            exclusive = isinstance(columns[name], Category | Hashed) and name not in term[:place]
            made.append((name if exclusive else "", columns[name].width))
        return made

    try:
        model = Products.of([factors(term) for term in recipe.terms])
    except ConfigurationError:  # more terms than a name holds
        return LINEAR
    dense = model.coordinates(recipe.dim) == LINEAR.coordinates(recipe.dim)
    return LINEAR if dense or (spaced and model.one_hot(recipe.dim)) else model

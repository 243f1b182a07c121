"""Ratings as visits: films that a user rated one after another are offered, and one is recommended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feducb.types import Array, Indices
from feducb.worlds.features import Number, Recipe, Tags

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHOICE", "Visits", "film_recipe", "visits_of"]

CHOICE = 5


def film_recipe(genres: tuple[str, ...], separator: str = "|") -> Recipe:
    """A film by its genres and its year, whoever looks at it."""
    return Recipe(
        context=(),
        action=(Tags("genres", genres, separator=separator), Number("year", 1920.0, 2020.0)),
        terms=((), ("genres",), ("year",)),
    )


@dataclass(frozen=True, slots=True)
class Visits:
    """n visits of a few films each."""

    users: Indices  # (n,)
    films: Array  # (n, CHOICE, d)
    rewards: Array  # (n, CHOICE), ratings scaled to 0 to 1
    oldest: Array  # (n,), the reward of the oldest film
    left_over: int  # ratings of no visit


def visits_of(ratings: pd.DataFrame, recipe: Recipe, *, lowest: float) -> Visits:
    """Five by five in the order of time.

    Args:
        ratings: userId, movieId, rating, timestamp, genres and year.
        recipe: what is known of films.
        lowest: the lowest rating that can be given; the highest is 5.
    """
    rated = ratings[ratings["year"].notna()].sort_values(["userId", "timestamp", "movieId"], kind="stable")
    visit = rated.groupby("userId").cumcount() // CHOICE
    full = rated.groupby(["userId", visit])["rating"].transform("size") == CHOICE
    kept = rated[full]
    rewards = ((kept["rating"].to_numpy() - lowest) / (5.0 - lowest)).reshape(-1, CHOICE)
    films = recipe.rows({"genres": kept["genres"].to_numpy(), "year": kept["year"].to_numpy()})
    oldest = kept["year"].to_numpy().reshape(-1, CHOICE).argmin(axis=1)
    return Visits(
        users=kept["userId"].to_numpy()[::CHOICE],
        films=films.reshape(-1, CHOICE, recipe.dim),
        rewards=rewards,
        oldest=rewards[np.arange(len(rewards)), oldest],
        left_over=len(ratings) - len(kept),
    )

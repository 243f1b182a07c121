"""From a raw context and an action to a shared-θ vector; `recipe` says how."""

from __future__ import annotations

from feducb.worlds.features.bounds import problem_for
from feducb.worlds.features.coded import Coded, as_text
from feducb.worlds.features.columns import Category, Column, Flag, Hashed, Number, Tags
from feducb.worlds.features.recipe import Recipe
from feducb.worlds.features.structure import model_of

__all__ = [
    "Category",
    "Coded",
    "Column",
    "Flag",
    "Hashed",
    "Number",
    "Recipe",
    "Tags",
    "as_text",
    "model_of",
    "problem_for",
]

"""From a raw context and an action to a shared-θ vector; `recipe` says how."""

from __future__ import annotations

from feducb.worlds.features.columns import Category, Coded, Column, Hashed, Number, Tags, as_text
from feducb.worlds.features.recipe import Recipe, problem_for

__all__ = ["Category", "Coded", "Column", "Hashed", "Number", "Recipe", "Tags", "as_text", "problem_for"]

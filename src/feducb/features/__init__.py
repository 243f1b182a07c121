"""From a raw context and an action to a shared-θ vector; `recipe` says how."""

from __future__ import annotations

from feducb.features.columns import Category, Coded, Column, Hashed, Number, Tags, as_text
from feducb.features.recipe import Recipe

__all__ = ["Category", "Coded", "Column", "Hashed", "Number", "Recipe", "Tags", "as_text"]

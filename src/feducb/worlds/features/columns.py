"""Columns of a record as blocks of numbers, each of length at most 1. Nothing is estimated from data.

A column says by a public rule what becomes of a value that it does not know, or that is missing: it is
refused (the default), counts as nothing (``zero``), or has an entry of its own (``other``, ``own``). Numbers
out of range are clipped. Each kind reads many values at once (`block`, for logs) and one visitor's (`reader`,
for agents), to the same numbers; what cannot be meant, such as text in a column of numbers, is always
refused.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from feducb.worlds.features.levels import Category, Hashed, Tags
from feducb.worlds.features.rules import Pairs, Reader
from feducb.worlds.features.scalars import Flag, Number

__all__ = ["COLUMN_KINDS", "Category", "Column", "Flag", "Hashed", "Number", "Pairs", "Reader", "Tags"]

Column: TypeAlias = Number | Flag | Category | Hashed | Tags
COLUMN_KINDS: dict[str, type[Any]] = {one.kind: one for one in (Number, Flag, Category, Hashed, Tags)}

"""A recipe proposed from a log's columns: their kinds are looked at, what ought to be public is not read off.

Ranges and levels decide how everybody's values are scaled. They must be known without the data, so what is
not given stays open in the proposal (None), and such a recipe is refused until somebody fills it in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from feducb.errors import ConfigurationError
from feducb.worlds.features.coded import as_number
from feducb.worlds.features.columns import Category, Column, Flag, Hashed, Number
from feducb.worlds.features.recipe import Recipe

__all__ = ["Proposal", "propose", "with_rules"]

_MANY_LEVELS = 50  # a text column with more is hashed
_BUCKETS = 16
_READ = {"number": "range", "category": "list of levels"}
_BOOLEAN = ({"true", "false"}, {"yes", "no"}, {"0", "1"})


@dataclass(frozen=True, slots=True)
class Proposal:
    """A recipe with places that somebody must fill in.

    Attributes:
        plain: as a recipe's file has it, with None in these places.
        notes: what was looked at in the log, and decided.
    """

    plain: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def open(self) -> list[dict[str, Any]]:
        """The columns that are not complete, as they stand in ``plain``: what is filled in there counts."""
        return [one for one in self.plain["context"] if None in one.values()]

    def to_json(self) -> str:
        """As a file, with null where something must be filled in."""
        return json.dumps(self.plain, indent=1, ensure_ascii=False) + "\n"


def propose(
    columns: Mapping[str, Sequence[str]],
    *,
    action: str,
    known: Mapping[str, Column] | None = None,
    public: Sequence[str] = (),
    lean: bool = False,
) -> Proposal:
    """Propose how a log's columns make vectors: the action, and its part in the effect of each column.

    Args:
        columns: by name, the texts of some rows of the log: the action's, and those of the context.
        action: which of them names what was done; its levels are the application's own, and are read off.
        known: columns of which range or levels are known in public.
        public: columns of which what the log shows is public: its owner says so.
        lean: values that are missing or unknown count as nothing, in place of entries of their own, which
            make vectors longer.
    """
    if action not in columns:
        raise ConfigurationError("--action", action, f"a column of the log: {', '.join(columns)}")
    offers, known = _levels(columns[action]), known or {}
    context: list[dict[str, Any]] = []
    notes = [f"the actions are those of the log: {', '.join(offers)}"]
    for name, texts in columns.items():
        if name == action:
            continue
        one = known.get(name) or _looked_at(name, texts, read=name in public)
        context.append(_left_open(one, lean) if isinstance(one, dict) else _plain(with_rules(one, lean=lean)))
        kind = context[-1]["kind"]
        notes.append(f"{name} is a {kind}, {'as was said' if name in known else 'by its values in the log'}")
        if name in public and name not in known and kind in _READ:
            notes.append(f"the {_READ[kind]} of {name}, as the log has it, is public: it was said")
    terms = [[], [action], *([action, one["name"]] for one in context)]
    plain = {
        **{"format": "feducb-recipe", "version": 1, "action_bound": 1.0, "public": True, "context": context},
        **{"action": [{"kind": "category", "name": action, "levels": list(offers)}], "terms": terms},
    }
    return Proposal(plain, tuple(notes))


def _left_open(column: dict[str, Any], lean: bool) -> dict[str, Any]:
    """A column that somebody must complete, with rules that refuse nobody."""
    rules = {"unknown": "zero" if lean else "other"} if column["kind"] == "category" else {}
    return column | rules | {"missing": "zero" if lean else "own"}


def with_rules(column: Column, *, lean: bool = False) -> Column:
    """The same column, refusing nobody: what is missing or unknown has an entry, or counts as nothing."""
    if isinstance(column, Category):
        return replace(column, unknown="zero" if lean else "other", missing="zero" if lean else "own")
    return replace(column, missing="zero" if lean else "own")


def _plain(column: Column) -> dict[str, Any]:
    offer = Category("offer of a proposal", ("a",))
    made = Recipe(context=(column,), action=(offer,), terms=((offer.name,),)).as_plain()
    found: dict[str, Any] = made["context"][0]
    return found


def _looked_at(name: str, texts: Sequence[str], *, read: bool) -> Column | dict[str, Any]:
    """A column by the kind of its values; with range or levels only if they may be read."""
    there = [text for text in texts if text]
    different = {text.strip().lower() for text in there}
    if there and any(different <= some for some in _BOOLEAN):
        return Flag(name)
    numbers = [as_number(text) for text in there]
    if there and not any(map(math.isnan, numbers)):
        if read and min(numbers) < max(numbers):
            return Number(name, min(numbers), max(numbers))
        return {"kind": "number", "name": name, "low": None, "high": None}
    levels = _levels(texts)
    if len(levels) > _MANY_LEVELS:
        return Hashed(name, _BUCKETS)
    if read and levels:
        return Category(name, levels)
    return {"kind": "category", "name": name, "levels": None}


def _levels(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if text}))

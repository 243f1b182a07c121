"""The first reading of a log: every row is checked, and what the comparison must know in advance is counted.

Memory does not depend on the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, RowError
from feducb.evaluation.sources import Progress, Survey, numbers_of, silent
from feducb.worlds.features import Category, Coded, Column, Flag, Hashed, Number, Recipe, problem_for
from feducb.worlds.features.coded import as_number, require_column
from feducb.worlds.logs import Chunk, Log, LogColumns, lines_in_errors

__all__ = ["Survey", "parse_context", "parse_terms", "survey"]

_MANY_LEVELS = 50  # a text column with more is hashed
_BUCKETS = 64
_MOST_AGENTS = 100_000
_MOST_ACTIONS = 1_000

Terms = tuple[tuple[str, ...], ...]


def parse_context(texts: Sequence[str]) -> dict[str, Column | str]:
    """Columns as the command line writes them.

    ``age:0:120`` is a number, ``region:a|b|c`` a category, ``new:bool`` true or false, ``zip:hash:64`` one of
    many levels. Of a name alone, or ``region:category``, the log tells range or levels; then the value is
    ``number``, ``category`` or nothing.
    """
    context: dict[str, Column | str] = {}
    for text in texts:
        name, *rest = text.split(":")
        try:
            if not rest or rest in (["number"], ["category"]):
                context[name] = rest[0] if rest else ""
            elif rest == ["bool"]:
                context[name] = Flag(name)
            elif rest[0] == "hash" and len(rest) == 2:
                context[name] = Hashed(name, int(rest[1]))
            elif len(rest) == 2:
                context[name] = Number(name, float(rest[0]), float(rest[1]))
            elif len(rest) == 1 and "|" in rest[0]:
                context[name] = Category(name, tuple(rest[0].split("|")))
            else:
                raise ValueError
        except ConfigurationError:
            raise
        except ValueError:
            expected = (
                "NAME, NAME:LOW:HIGH, NAME:LEVEL|LEVEL|…, NAME:bool, NAME:hash:BUCKETS or NAME:category"
            )
            raise ConfigurationError("context", text, expected) from None
    return context


def parse_terms(text: str) -> Terms:
    """Terms as the command line writes them: ``offer,age,offer*age``; 1 is the intercept."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(() if part == "1" else tuple(part.split("*")) for part in parts)


class _Levels:
    """Different texts seen, in order; complains, or stops looking, beyond a number."""

    def __init__(self, name: str, most: int, *, strict: bool) -> None:
        self.name, self.most, self.strict = name, most, strict
        self.seen: dict[str, None] = {}
        self.too_many = False

    def add(self, values: NDArray[Any] | Coded, first_row: int) -> None:
        assert isinstance(values, Coded)
        texts, rows = values.texts, len(values.codes)
        codes = values.look_up(range(len(texts)), self.name, first_row, "a value: it is missing")
        first = np.full(len(texts), rows)  # where each text comes first; beyond the end: it does not
        np.minimum.at(first, codes, np.arange(rows))
        for code in np.argsort(first, kind="stable").tolist():
            if first[code] == rows or self.too_many:
                break
            if texts[code] not in self.seen and len(self.seen) >= self.most:
                if self.strict:
                    raise ConfigurationError(self.name, f"more than {self.most:,} values", "fewer")
                self.too_many = True
            self.seen[texts[code]] = None

    def read_off(self) -> tuple[Column, str]:
        """The column that these levels make, and what is said of it."""
        if self.too_many:
            note = f"{self.name} has more than {self.most} levels and is hashed: {self.name}:hash:{_BUCKETS}"
            return Hashed(self.name, _BUCKETS), note
        levels = tuple(sorted(self.seen))
        note = f"the levels of {self.name} were read off the log: {self.name}:{'|'.join(levels)}"
        return Category(self.name, levels), note


class _Range:
    """The least and the largest number seen."""

    def __init__(self, name: str) -> None:
        self.name, self.low, self.high = name, math.inf, -math.inf

    def add(self, values: NDArray[Any] | Coded, first_row: int) -> None:
        numbers = require_column(self.name, values, first_row=first_row)
        self.low = min(self.low, float(numbers.min(initial=math.inf)))
        self.high = max(self.high, float(numbers.max(initial=-math.inf)))

    def read_off(self) -> tuple[Column, str]:
        """The column that this range makes, and what is said of it."""
        top = self.high if self.high > self.low else self.low + 1.0
        note = f"the range of {self.name} was read off the log: {self.name}:{self.low:g}:{top:g}"
        return Number(self.name, self.low, top), note


def survey(
    log: Log,
    columns: LogColumns,
    *,
    context: Recipe | Mapping[str, Column | str] | None = None,
    actions: Sequence[str] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    terms: Terms | None = None,
    progress: Progress = silent,
) -> Survey:
    """Read a log once.

    Args:
        log: the log.
        columns: which column is what; its context is replaced by that of ``context``.
        context: what is known of each column in public (`parse_context`); or a recipe made before, which says
            what actions and terms there are, too.
        actions: all there can be; those in the log if not given.
        reward_range: the public range of rewards.
        terms: of the recipe; if not given, each action has its level, and each column of the context its
            effect, on all actions and on each.
        progress: hears how many rows were read.

    Raises:
        ConfigurationError: a row cannot be; the message names it.
    """
    low, high = reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigurationError("reward range", reward_range, "two finite numbers, the lower one first")
    recipe: Recipe | None = None
    if isinstance(context, Recipe):
        recipe, actions = context, _levels_of(context, columns.action)
        context = {column.name: column for column in recipe.context}
    known: dict[str, Column | str] = dict(context or {})
    columns = replace(columns, context=tuple(known), texts=())
    with lines_in_errors(log):
        known = _decided(log, columns, known)
    texts = [n for n, c in known.items() if c == "category" or isinstance(c, Category | Hashed)]
    columns = replace(columns, texts=tuple(texts))
    agents_seen = _Levels(columns.agent, _MOST_AGENTS, strict=True)
    actions_seen = _Levels(columns.action, _MOST_ACTIONS, strict=True)
    watched: dict[str, _Levels | _Range] = {
        name: _Levels(name, _MANY_LEVELS, strict=False) if kind == "category" else _Range(name)
        for name, kind in known.items()
        if isinstance(kind, str)
    }
    checks = {n: watched[n].add if isinstance(kind, str) else kind.block for n, kind in known.items()}
    allowed = None if actions is None else Category(columns.action, tuple(actions))
    least, rows = 1.0, 0
    with lines_in_errors(log):
        for chunk in log.chunks(columns):
            agents_seen.add(chunk.columns[columns.agent], chunk.first_row)
            actions_seen.add(chunk.columns[columns.action], chunk.first_row)
            if allowed is not None:
                allowed.index(chunk.columns[columns.action], chunk.first_row)
            _, propensity = numbers_of(chunk, columns, reward_range)
            least = min(least, float(propensity.min(initial=1.0)))
            for name, check in checks.items():
                check(chunk.columns[name], chunk.first_row)
            rows += chunk.rows
            progress("checking", chunk.rows)
    if rows == 0:
        raise ConfigurationError("log", log.name, "at least one row")
    names = tuple(actions) if actions is not None else tuple(sorted(actions_seen.seen))
    if len(names) < 2:
        raise ConfigurationError(columns.action, ", ".join(names), "two actions or more to choose from")
    notes: list[str] = []
    if recipe is None:
        for name, one in watched.items():
            known[name], note = one.read_off()
            notes.append(note)
        if actions is None:
            notes.append(f"the actions were read off the log: {', '.join(names)}")
        recipe = _recipe(known, Category(columns.action, names), terms, public=not notes)
    return Survey(
        name=log.name,
        rows=rows,
        agents=tuple(agents_seen.seen),
        actions=names,
        problem=problem_for(recipe),
        reward_range=reward_range,
        shift=(low + high) / 2,
        scale=high - low,
        least_propensity=least,
        notes=tuple(notes),
        settings={"recipe_is_public": recipe.public},
        log=log,
        columns=columns,
        recipe=recipe,
    )


def _decided(log: Log, columns: LogColumns, known: Mapping[str, Column | str]) -> dict[str, Column | str]:
    """Columns of which nothing was said are numbers or categories as the first rows have them."""
    if "" not in known.values():
        return dict(known)
    first = next(iter(log.chunks(columns)), None)
    return {name: _kind(name, first) if kind == "" and first else kind for name, kind in known.items()}


def _kind(name: str, chunk: Chunk) -> str:
    """A column of numbers with a few other things in it is a column of numbers with mistakes."""
    values = chunk.columns[name]
    if not isinstance(values, Coded):
        return "number"
    number = np.array([math.isfinite(as_number(text)) for text in values.texts] + [False])  # −1: missing
    rows = number[values.codes]
    if 2 * int(rows.sum()) < len(rows) or rows.all():
        return "category"
    row = int(np.argmin(rows))
    expected = f"a number, as in most rows (if they are names, say {name}:category or {name}:hash:64)"
    raise RowError(name, chunk.first_row + row, values.values()[row], expected)


def _recipe(
    known: Mapping[str, Column | str], action: Category, terms: Terms | None, *, public: bool
) -> Recipe:
    if terms is None:
        terms = ((action.name,), *((name,) for name in known), *((action.name, name) for name in known))
    context = tuple(column for column in known.values() if not isinstance(column, str))
    return Recipe(context=context, action=(action,), terms=terms, public=public)


def _levels_of(recipe: Recipe, action: str) -> tuple[str, ...]:
    if recipe.offered and recipe.naming == action:
        return recipe.offered
    names = ", ".join(column.name for column in recipe.action)
    expected = f"one category, {action}, or actions that it declares by that name"
    raise ConfigurationError("recipe", f"with the action {names}", expected)

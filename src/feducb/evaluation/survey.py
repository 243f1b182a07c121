"""The first reading of a log: every row is checked, and what the comparison must know in advance is counted.

Memory does not depend on the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, RowError
from feducb.worlds.features import Category, Coded, Column, Hashed, Number, Recipe
from feducb.worlds.features.columns import as_number, require_column
from feducb.worlds.logs import Chunk, Log, LogColumns, lines_in_errors

__all__ = ["Survey", "default_terms", "numbers_of", "parse_context", "parse_terms", "survey"]

_MANY_LEVELS = 50  # a text column with more is hashed
_BUCKETS = 64
_MOST_AGENTS = 100_000
_MOST_ACTIONS = 1_000

Progress = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What is in a log.

    Attributes:
        columns: which column is what.
        recipe: how vectors are made.
        rows: how many.
        agents: by name, in the order of their first rows.
        agent_rows: (M,), rows of each.
        actions: by name.
        action_rows: (K,), rows of each.
        least_propensity: the smallest.
        reward_low: the public range of rewards.
        reward_high: its upper end.
        notes: what was read off the log that ought to be public.
    """

    columns: LogColumns
    recipe: Recipe
    rows: int
    agents: tuple[str, ...]
    agent_rows: NDArray[np.int64]
    actions: tuple[str, ...]
    action_rows: NDArray[np.int64]
    least_propensity: float
    reward_low: float
    reward_high: float
    notes: tuple[str, ...]


def parse_context(texts: Sequence[str]) -> dict[str, Column | str]:
    """Columns as the command line writes them: ``age:0:120``, ``region:a|b|c``, ``zip:hash:64``, or a name.

    Of a name alone, or ``region:category``, the log tells range or levels; then the value is ``number``,
    ``category`` or nothing.
    """
    found: dict[str, Column | str] = {}
    for text in texts:
        name, *rest = text.split(":")
        try:
            if not rest or rest in (["number"], ["category"]):
                found[name] = rest[0] if rest else ""
            elif rest[0] == "hash" and len(rest) == 2:
                found[name] = Hashed(name, int(rest[1]))
            elif len(rest) == 2:
                found[name] = Number(name, float(rest[0]), float(rest[1]))
            elif len(rest) == 1 and "|" in rest[0]:
                found[name] = Category(name, tuple(rest[0].split("|")))
            else:
                raise ValueError
        except ConfigurationError:
            raise
        except ValueError:
            expected = "NAME, NAME:LOW:HIGH, NAME:LEVEL|LEVEL|…, NAME:hash:BUCKETS or NAME:category"
            raise ConfigurationError("context", text, expected) from None
    return found


def parse_terms(text: str) -> tuple[tuple[str, ...], ...]:
    """Terms as the command line writes them: ``offer,age,offer*age``; 1 is the intercept."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(() if part == "1" else tuple(part.split("*")) for part in parts)


def default_terms(context: Sequence[str], action: str) -> tuple[tuple[str, ...], ...]:
    """Each action its level, each column of the context its effect, on all actions and on each."""
    return ((action,), *((name,) for name in context), *((action, name) for name in context))


class _Levels:
    """Different texts seen, in order, with how often; complains, or stops counting, beyond a number."""

    def __init__(self, name: str, most: int, *, strict: bool) -> None:
        self.name, self.most, self.strict = name, most, strict
        self.counts: dict[str, int] = {}

    def add(self, values: NDArray[Any] | Coded, first_row: int) -> None:
        assert isinstance(values, Coded)
        if len(values.codes) and values.codes.min() < 0:
            row = first_row + int(np.argmax(values.codes < 0))
            raise RowError(self.name, row, None, "a value: it is missing")
        rows = np.bincount(values.codes, minlength=len(values.texts))
        order = np.full(len(values.texts), len(values.codes))
        np.minimum.at(order, values.codes, np.arange(len(values.codes)))
        for code in np.argsort(order, kind="stable").tolist():
            if rows[code] == 0:
                continue
            text = values.texts[code]
            if text not in self.counts and len(self.counts) >= self.most:
                if self.strict:
                    raise ConfigurationError(self.name, f"more than {self.most:,} values", "fewer")
                self.counts.setdefault("", 0)
                continue
            self.counts[text] = self.counts.get(text, 0) + int(rows[code])


class _Range:
    """The least and the largest number seen."""

    def __init__(self, name: str) -> None:
        self.name, self.low, self.high = name, math.inf, -math.inf

    def add(self, values: NDArray[Any] | Coded, first_row: int) -> None:
        if isinstance(values, Coded):
            texts = [None if code < 0 else values.texts[code] for code in values.codes.tolist()]
            values = np.array(texts, dtype=object)
        numbers = require_column(self.name, values, first_row=first_row)
        self.low = min(self.low, float(numbers.min(initial=math.inf)))
        self.high = max(self.high, float(numbers.max(initial=-math.inf)))


def survey(
    log: Log,
    columns: LogColumns,
    *,
    context: Recipe | Mapping[str, Column | str] | None = None,
    actions: Sequence[str] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    terms: tuple[tuple[str, ...], ...] | None = None,
    progress: Progress = lambda stage, rows: None,
) -> Survey:
    """Read a log once.

    Args:
        log: the log.
        columns: which column is what; its context is replaced by that of ``context``.
        context: what is known of each column in public (`parse_context`); or a recipe made before, which says
            what actions and terms there are, too.
        actions: all there can be; those in the log if not given.
        reward_range: the public range of rewards.
        terms: of the recipe; `default_terms` if not given.
        progress: told how many rows were read.

    Raises:
        ConfigurationError: a row cannot be; the message names it.
    """
    low, high = reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigurationError("reward range", reward_range, "two finite numbers, the lower one first")
    recipe = context if isinstance(context, Recipe) else None
    if recipe is not None:
        actions = _levels_of(recipe, columns.action)
    known = _known(context)
    columns = replace(columns, context=tuple(known), texts=())
    with lines_in_errors(log):
        known = _decided(log, columns, known)
    texts = [n for n, c in known.items() if c == "category" or isinstance(c, Category | Hashed)]
    columns = replace(columns, texts=tuple(texts))
    agent_levels = _Levels(columns.agent, _MOST_AGENTS, strict=True)
    action_levels = _Levels(columns.action, _MOST_ACTIONS, strict=True)
    open_columns: dict[str, _Levels | _Range] = {
        name: _Levels(name, _MANY_LEVELS, strict=False) if kind == "category" else _Range(name)
        for name, kind in known.items()
        if isinstance(kind, str)
    }
    allowed = None if actions is None else Category(columns.action, tuple(actions))
    least, rows = 1.0, 0
    with lines_in_errors(log):
        for chunk in log.chunks(columns):
            agent_levels.add(chunk.columns[columns.agent], chunk.first_row)
            action_levels.add(chunk.columns[columns.action], chunk.first_row)
            if allowed is not None:
                allowed.index(chunk.columns[columns.action], chunk.first_row)
            _, propensity = numbers_of(chunk, columns, low, high)
            least = min(least, float(propensity.min(initial=1.0)))
            for name, kind in known.items():
                if isinstance(kind, str):
                    open_columns[name].add(chunk.columns[name], chunk.first_row)
                else:
                    kind.block(chunk.columns[name], chunk.first_row)
            rows += chunk.rows
            progress("checking", chunk.rows)
    if rows == 0:
        raise ConfigurationError("log", log.name, "at least one row")
    names = tuple(actions) if actions is not None else tuple(sorted(action_levels.counts))
    if len(names) < 2:
        raise ConfigurationError(columns.action, ", ".join(names), "two actions or more to choose from")
    notes: list[str] = []
    if recipe is None:
        recipe = _recipe(known, open_columns, columns.action, names, actions is not None, terms, notes)
    return Survey(
        columns=columns,
        recipe=recipe,
        rows=rows,
        agents=tuple(agent_levels.counts),
        agent_rows=np.array(list(agent_levels.counts.values()), dtype=np.int64),
        actions=names,
        action_rows=np.array([action_levels.counts.get(name, 0) for name in names], dtype=np.int64),
        least_propensity=least,
        reward_low=low,
        reward_high=high,
        notes=tuple(notes),
    )


def _known(context: Recipe | Mapping[str, Column | str] | None) -> dict[str, Column | str]:
    """What is known of each column of the context, by its name."""
    if isinstance(context, Recipe):
        return {column.name: column for column in context.context}
    return dict(context or {})


def numbers_of(chunk: Chunk, columns: LogColumns, low: float, high: float) -> tuple[Any, Any]:
    """Rewards and propensities, checked."""
    parts = {name: chunk.columns[name] for name in (columns.reward, columns.propensity)}
    for name, values in parts.items():
        if isinstance(values, Coded):
            texts = [None if code < 0 else values.texts[code] for code in values.codes.tolist()]
            parts[name] = np.array(texts, dtype=object)
    first = chunk.first_row
    reward = require_column(columns.reward, parts[columns.reward], first_row=first, low=low, high=high)  # type: ignore[arg-type]
    propensity = require_column(
        columns.propensity,
        parts[columns.propensity],  # type: ignore[arg-type]
        first_row=first,
        low=0.0,
        high=1.0,
        above=True,
    )
    return reward, propensity


def _decided(log: Log, columns: LogColumns, known: Mapping[str, Column | str]) -> dict[str, Column | str]:
    """Columns of which nothing was said are numbers or categories as the first rows have them."""
    decided = dict(known)
    if all(kind != "" for kind in known.values()):
        return decided
    first = next(iter(log.chunks(columns)), None)
    if first is None:
        raise ConfigurationError("log", log.name, "at least one row")
    for name, kind in known.items():
        if kind == "":
            decided[name] = _kind(name, first)
    return decided


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
    found = None if values.codes[row] < 0 else values.texts[values.codes[row]]
    expected = f"a number, as in most rows (if they are names, say {name}:category or {name}:hash:64)"
    raise RowError(name, chunk.first_row + row, found, expected)


def _recipe(
    known: Mapping[str, Column | str],
    seen: Mapping[str, _Levels | _Range],
    action: str,
    actions: tuple[str, ...],
    told: bool,
    terms: tuple[tuple[str, ...], ...] | None,
    notes: list[str],
) -> Recipe:
    made: list[Column] = []
    for name, kind in known.items():
        if not isinstance(kind, str):
            made.append(kind)
            continue
        found = seen[name]
        if isinstance(found, _Range):
            top = found.high if found.high > found.low else found.low + 1.0
            made.append(Number(name, found.low, top))
            notes.append(f"the range of {name} was read off the log: {name}:{found.low:g}:{top:g}")
        elif len(found.counts) > _MANY_LEVELS:
            made.append(Hashed(name, _BUCKETS))
            notes.append(f"{name} has more than {_MANY_LEVELS} levels and is hashed: {name}:hash:{_BUCKETS}")
        else:
            levels = tuple(sorted(found.counts))
            made.append(Category(name, levels))
            notes.append(f"the levels of {name} were read off the log: {name}:{'|'.join(levels)}")
    public = all(not isinstance(kind, str) for kind in known.values())
    if not told:
        notes.append(f"the actions were read off the log: {', '.join(actions)}")
    return Recipe(
        context=tuple(made),
        action=(Category(action, actions),),
        terms=default_terms(list(known), action) if terms is None else terms,
        public=public and told,
    )


def _levels_of(recipe: Recipe, action: str) -> tuple[str, ...]:
    if len(recipe.action) == 1 and isinstance(recipe.action[0], Category) and recipe.action[0].name == action:
        return recipe.action[0].levels
    names = ", ".join(column.name for column in recipe.action)
    raise ConfigurationError("recipe", f"with the action {names}", f"one category, {action}")

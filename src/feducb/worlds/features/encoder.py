"""One visitor at a time, fast: what a recipe makes of a context and some actions, and which rules it took.

Nearly all entries of a vector are zero, and where the others are follows from the visitor and the action
separately: an action's part of each term is laid out once, and a visitor's shifts and scales it.

Guarantees:
    The vectors are those of `Recipe.vectors`, hence of length at most L for whatever is not refused: each
    column's block is at most 1 long by its construction, so is each term's, their product, and L/√m times m
    of them is at most L.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from feducb.errors import ConfigurationError
from feducb.types import Array, Indices
from feducb.worlds.features.coded import as_text
from feducb.worlds.features.columns import Column, Pairs, Reader
from feducb.worlds.features.recipe import Recipe
from feducb.worlds.features.season import fixed_part

__all__ = ["Encoded", "Encoder", "Offers"]

_TABLES = 256  # of sets of names that were asked for
_JUST_BELOW = 1.0 - 1e-12  # as in `Recipe`: rounding must not leave a vector beyond L

_Combos = list[tuple[int, float]]  # where, from the start of a term, and by what


class Offers(NamedTuple):
    """Actions, laid out: the entries of all their vectors that may be other than zero."""

    names: tuple[str, ...]
    actions: tuple[Mapping[str, Any], ...]  # each with its id and all its columns
    places: Indices  # in the flat (K, d), for a visitor whose blocks are all in their first entry
    terms: Indices  # the term that each belongs to
    numbers: Array
    rules: tuple[tuple[str, str], ...]  # column and rule, wherever one was taken
    ignored: int = 0  # how many columns were given that the recipe does not have


class Encoded(NamedTuple):
    """A visitor's candidates."""

    offers: Offers
    vectors: Array  # (K, d)
    context: dict[str, Any]  # what was said about columns of the recipe, and nothing else
    rules: tuple[
        tuple[str, str], ...
    ]  # column and rule, wherever one was taken; not of columns alone unknown
    ignored: int  # how many columns were given that the recipe does not have


class _Layout(NamedTuple):
    """Where a term is, and by how much each of its columns moves an entry."""

    first: int
    context: tuple[tuple[str, int], ...]  # column and stride
    action: tuple[tuple[str, int], ...]


class Encoder:
    """Makes vectors by a recipe, which must be of what leaves an agent alone (`Recipe.shared`).

    Attributes:
        recipe: how they are made.
        offers_declared: the recipe's own actions, without retired ones; None if every request says them.
    """

    def __init__(self, recipe: Recipe) -> None:
        if recipe.personal:
            personal = ["*".join(term) or "1" for term in recipe.personal]
            raise ConfigurationError("personal", personal, "none in a deployed agent: take `shared`")
        self.recipe, self._dim = recipe, recipe.dim
        self._scale = recipe.action_bound * _JUST_BELOW / math.sqrt(len(recipe.terms))
        self._context = _readers(recipe.context, "context.")
        self._action = _readers(recipe.action, "action.")
        self._layout = _layout(recipe)
        self._of_names = lru_cache(maxsize=_TABLES)(self._lay_out)
        self._retired = frozenset(recipe.retired)
        there = {self._level(recipe.described(name)) for name in recipe.offered}
        self._gone = {self._level(recipe.described(name)) for name in recipe.retired} - {*there, None}
        self.offers_declared = self._lay_out(recipe.offered) if recipe.offered else None

    def offers(self, actions: Sequence[Any] | None = None) -> Offers:
        """Actions as they are asked for: names, or mappings with an ``id``; the recipe's if left out."""
        if actions is None:
            if self.offers_declared is None:
                raise ConfigurationError("actions", None, "what there is to choose from: the recipe has none")
            return self.offers_declared
        if not actions:
            raise ConfigurationError("actions", "none", "one or more")
        offers = self.laid_out(actions)
        for place, (asked, action) in enumerate(zip(actions, offers.actions, strict=True)):
            if self._retired or isinstance(asked, Mapping):
                self._require_offered(place, action)
        return offers

    def _require_offered(self, place: int, action: Mapping[str, Any]) -> None:
        """Raise if an action is retired, by its name or by what it is; or is another than its name says."""
        name, level = action["id"], self._level(action)
        if name in self._retired or (name not in self.recipe.declared and level in self._gone):
            gone = name if name in self._retired else level
            expected = f"actions that are offered: {', '.join(self.recipe.offered)}"
            raise ConfigurationError(f"actions[{place}]", f"{gone}, which is retired", expected)
        if name in self.recipe.declared and level != (declared := self._level(self.recipe.described(name))):
            expected = f"{declared}, which the recipe declares for {name}, or another id"
            raise ConfigurationError(f"actions[{place}].{self.recipe.naming}", "another one", expected)

    def _level(self, action: Mapping[str, Any]) -> str | None:
        """What an action is, by the column that its name stands for; None where that is missing."""
        value = None if self.recipe.naming is None else action[self.recipe.naming]
        text = None if value is None else as_text(value)
        return text.lower() if text in ("True", "False") else text  # as `Category` finds them

    def laid_out(self, actions: Sequence[Any] | None) -> Offers:
        """Actions as they were kept, retired ones too; None: those that the recipe was published with."""
        if actions is None:
            actions = fixed_part(self.recipe).offered
        if all(type(action) is str for action in actions):
            return self._of_names(tuple(actions))
        return self._lay_out(actions)

    def is_declared(self, action: Mapping[str, Any]) -> bool:
        """Whether an action with all its columns is as the recipe has it, or all follows from its name."""
        try:
            return self.recipe.described(action["id"]) == action
        except ConfigurationError:  # some column must be said
            return False

    def encode(self, context: Mapping[str, Any], offers: Offers) -> Encoded:
        """A visitor's candidates.

        Raises:
            ConfigurationError: a value cannot be meant, or the recipe's rule is to refuse it; the message
                names the column.
        """
        read: dict[str, Pairs] = {}
        rules = offers.rules
        for name, reader in self._context.items():
            read[name], rule = reader(context.get(name))
            if rule:
                rules = (*rules, (name, rule))
        said = {name: context[name] for name in self._context if name in context}
        vectors = np.zeros((len(offers.names), self._dim))
        flat = vectors.reshape(-1)
        for shifts, scales in self._passes(read):
            flat[offers.places + shifts[offers.terms]] += offers.numbers * scales[offers.terms]
        vectors *= self._scale
        return Encoded(offers, vectors, said, rules, len(context) - len(said) + offers.ignored)

    def vectors(self, context: Mapping[str, Any], actions: Sequence[Any] | None = None) -> Array:
        """(K, d), a visitor's candidates alone; of a log, in which retired actions are what they were."""
        offers = self.offers() if actions is None else self.laid_out(actions)
        return self.encode(context, offers).vectors

    def _passes(self, read: Mapping[str, Pairs]) -> list[tuple[Indices, Array]]:
        """By term, where a visitor's entries are and how large; more than one pass if a block has several."""
        combos = [_product(read, layout.context) for layout in self._layout]
        most = max(map(len, combos))
        passes = []
        for place in range(most):
            own = [some[place] if place < len(some) else (0, 0.0) for some in combos]
            shifts, scales = zip(*own, strict=True)
            passes.append((np.array(shifts, dtype=np.int64), np.array(scales)))
        return passes

    def _lay_out(self, actions: Sequence[Any]) -> Offers:
        both = [self._read(place, action) for place, action in enumerate(actions)]
        described, read = tuple(one for one, _ in both), [one for _, one in both]
        names = tuple(action["id"] for action in described)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigurationError("actions", twice, "all different")
        places, terms, numbers, rules = [], [], [], []
        for row, values in enumerate(read):
            rules += [(name, rule) for name, (_, rule) in values.items() if rule]
            blocks = {name: pairs for name, (pairs, _) in values.items()}
            for term, layout in enumerate(self._layout):
                for shift, number in _product(blocks, layout.action):
                    places.append(row * self._dim + layout.first + shift)
                    terms.append(term)
                    numbers.append(number)
        of_places, of_terms = (np.array(some, dtype=np.int64) for some in (places, terms))
        ignored = sum(
            len(action.keys() - {"id", *self._action}) for action in actions if isinstance(action, Mapping)
        )
        return Offers(names, described, of_places, of_terms, np.array(numbers), tuple(rules), ignored)

    def _read(self, place: int, action: Any) -> tuple[dict[str, Any], dict[str, tuple[Pairs, str]]]:
        """An action with all its columns, and what they make; an error says which of the request's it is."""
        try:
            described = self.recipe.described(action)
            return described, {name: reader(described[name]) for name, reader in self._action.items()}
        except ConfigurationError as error:
            column = error.setting.removeprefix("action")
            raise ConfigurationError(f"actions[{place}]{column}", error.value, error.expected) from None


def _readers(columns: Sequence[Column], place: str) -> dict[str, Reader]:
    return {column.name: column.reader(f"{place}{column.name}") for column in columns}


def _layout(recipe: Recipe) -> tuple[_Layout, ...]:
    """Terms one after another; within one, the last of its columns moves fastest."""
    widths = {column.name: column.width for column in (*recipe.context, *recipe.action)}
    of_action = {column.name for column in recipe.action}
    made, first = [], 0
    for term in recipe.terms:
        strides = [math.prod(widths[name] for name in term[place + 1 :]) for place in range(len(term))]
        placed = list(zip(term, strides, strict=True))
        context = tuple(one for one in placed if one[0] not in of_action)
        made.append(_Layout(first, context, tuple(one for one in placed if one[0] in of_action)))
        first += recipe.width_of(term)
    return tuple(made)


def _product(read: Mapping[str, Pairs], columns: Sequence[tuple[str, int]]) -> _Combos:
    """Entries of the outer product of some blocks that are not zero."""
    combos = [(0, 1.0)]
    for name, stride in columns:
        pairs = read[name]
        if len(pairs) == 1:
            ((index, value),) = pairs
            combos = [(shift + index * stride, number * value) for shift, number in combos]
        else:
            combos = [
                (shift + index * stride, number * value) for shift, number in combos for index, value in pairs
            ]
    return combos

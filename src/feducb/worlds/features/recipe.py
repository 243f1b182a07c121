"""From a raw context and an action to a shared-θ vector: one recipe for simulation, evaluation and agents.

A recipe lists columns and *terms*. Each column becomes a block of length at most 1: a number scaled by a
public range, a one-hot, a hashed one-hot, or a set of tags. A term is the outer product of some columns'
blocks, the empty term is the intercept, and

    x(context, action) = L/√m · (term 1, …, term m),   hence ‖x‖ ≤ L

whatever the data are. ``("offer",)`` gives every offer its own level, ``("age",)`` is the same for all offers
and only explains rewards, ``("offer", "age")`` lets the effect of age depend on the offer.

Guarantees:
    Nothing here is estimated: a vector depends on its own record and on the recipe alone. If the ranges,
    levels and bucket numbers are public, so is the scaling, and it costs no privacy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from feducb.config import require_finite
from feducb.errors import ConfigurationError
from feducb.formats import RECIPE
from feducb.types import Array, Indices
from feducb.worlds.features.coded import Values, as_text
from feducb.worlds.features.columns import Category, Column, Hashed
from feducb.worlds.features.plain import (
    FORMAT,
    VERSION,
    as_bound,
    as_column,
    as_flag,
    as_list,
    as_names,
    as_term,
    plain_column,
    read_plain,
    read_text,
)

__all__ = ["Recipe"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How vectors are made; saved with a model, so that whoever uses it makes the same ones.

    Attributes:
        context: columns that describe the visitor.
        action: columns that describe a candidate; often one, its name.
        terms: each the names of the columns whose blocks are multiplied; () is the intercept.
        action_bound: L.
        personal: those of the terms that never leave an agent: it learns them from its own records alone, in
            its own phase, and what is shared is of the others (`shared`).
        public: whether ranges and levels were chosen without looking at private data.
        actions: what there is to choose from, declared once: each a mapping with its ``id`` and its columns.
            Left out, they are the levels, where the only action column is a category; else every request says
            them.
        parameter_bound: S, where it is stated; left out, it is derived (`bounds`).
        retired: names of actions that are no longer offered; what was shown of them keeps its meaning.
    """

    context: tuple[Column, ...]
    action: tuple[Column, ...]
    terms: tuple[tuple[str, ...], ...]
    action_bound: float = 1.0
    public: bool = True
    personal: tuple[tuple[str, ...], ...] = ()
    actions: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    parameter_bound: float | None = None
    retired: tuple[str, ...] = ()
    _columns: Mapping[str, Column] = field(init=False, repr=False, compare=False)
    _declared: Mapping[str, Mapping[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = (*self.context, *self.action)
        by_name = {column.name: column for column in columns}
        if len(by_name) != len(columns):
            raise ConfigurationError("columns", [column.name for column in columns], "all different")
        if not self.action:
            raise ConfigurationError("action", self.action, "at least one column")
        terms = tuple(tuple(term) for term in self.terms)
        if not terms or len({tuple(sorted(term)) for term in terms}) != len(terms):
            named = ["*".join(term) or "1" for term in terms]
            raise ConfigurationError("terms", named, "one or more, all different")
        for name in (name for term in terms for name in term):
            if name not in by_name:
                raise ConfigurationError("terms", name, f"columns among {', '.join(by_name)}")
        acts = {column.name for column in self.action}
        if not any(acts & set(term) for term in terms):
            raise ConfigurationError("terms", terms, f"one with {' or '.join(sorted(acts))}, to tell actions")
        require_finite("action_bound", self.action_bound, above=0)
        if self.parameter_bound is not None:
            require_finite("parameter_bound", self.parameter_bound, above=0)
        personal = tuple(tuple(term) for term in self.personal)
        for term in personal:
            if term not in terms or personal.count(term) > 1:
                raise ConfigurationError("personal", "*".join(term) or "1", "some of the terms, once each")
        if personal and not any(acts & set(term) for term in set(terms) - set(personal)):
            names = ", ".join("*".join(term) or "1" for term in personal)
            raise ConfigurationError("personal", names, "another term that tells actions, which is shared")
        made = {
            "context": tuple(self.context),
            "action": tuple(self.action),
            "terms": terms,
            "personal": personal,
            "retired": tuple(as_text(name) for name in self.retired),
        }
        for name, value in {**made, "_columns": by_name, "_declared": {}}.items():
            object.__setattr__(self, name, value)
        self._declare()
        try:  # all of it is said in answers, after what they tell was written down
            json.dumps(self.as_plain(), default=str, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ConfigurationError("recipe", "half a character in a name", "text") from None

    def _declare(self) -> None:
        """Settle what there is to choose from: each has a name of its own, and can be read."""
        for column in self._columns.values():
            if isinstance(column, Category) and column.reserve and column.name != self.naming:
                expected = f"0 but for {self.naming}, which names actions"
                raise ConfigurationError(f"reserve of {column.name}", column.reserve, expected)
        actions = [self.described(action) for action in self.actions]
        (first, *others) = self.action
        if not actions and not others and isinstance(first, Category):
            actions = [{"id": level, first.name: level} for level in first.known]
        declared = {action["id"]: action for action in actions}
        if len(declared) != len(actions):
            names = [action["id"] for action in actions]
            raise ConfigurationError("actions", names, "all different, each with an id")
        for action in actions:
            for column in self.action:
                column.reader(f"actions.{column.name} of {action['id']}")(action[column.name])
        if self.actions:
            object.__setattr__(self, "actions", tuple(actions))
        object.__setattr__(self, "_declared", declared)
        for name in self.retired:
            if self.retired.count(name) > 1:
                raise ConfigurationError("retired", name, "each name once: it is retired already")
            if name not in declared:
                expected = f"some of the declared actions: {', '.join(declared)}"
                raise ConfigurationError("retired", name, expected)
        if declared and not self.offered:
            raise ConfigurationError("retired", list(self.retired), "not all of the actions")

    @property
    def dim(self) -> int:
        """d, the length of the vectors it makes."""
        return sum(map(self.width_of, self.terms))

    @property
    def shared(self) -> Recipe:
        """What may leave an agent: the same vectors without their personal coordinates, hence shorter."""
        terms = tuple(term for term in self.terms if term not in self.personal)
        shorter = self.action_bound * math.sqrt(len(terms) / len(self.terms))
        return replace(self, terms=terms, personal=(), action_bound=shorter)

    @property
    def shared_places(self) -> Indices:
        """Where the coordinates of `shared` are among all."""
        widths = [self.width_of(term) for term in self.terms]
        return np.flatnonzero(np.repeat([term not in self.personal for term in self.terms], widths))

    @property
    def has_constant(self) -> bool:
        """Whether all vectors agree in some direction, so that rewards may be centred (docs/theory.md, 1).

        So it is with an intercept, and with a term of one-hots alone, whose entries add up to L/√m. Other
        terms may happen to do so on some data; they are not counted.
        """
        return self.constant_width is not None

    @property
    def constant_width(self) -> int | None:
        """How many entries share what all vectors agree in: 1 with an intercept; None if they do not."""
        widths = [self.width_of(term) for term in self.terms if self._is_one_hot(term)]
        return min(widths, default=None)

    def _is_one_hot(self, term: tuple[str, ...]) -> bool:
        """Whether a single entry of a term is 1 and the others 0, whoever comes."""
        columns = (self._columns[name] for name in term)
        return all(isinstance(column, Category) and column.one_hot for column in columns)

    def width_of(self, term: tuple[str, ...]) -> int:
        """How many entries a term has."""
        return math.prod(self._columns[name].width for name in term)

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of the actions that are declared, retired ones too; none if every request says them."""
        return tuple(self._declared)

    @property
    def offered(self) -> tuple[str, ...]:
        """Those of them that are not retired."""
        return tuple(name for name in self._declared if name not in self.retired)

    @property
    def naming(self) -> str | None:
        """The action column that an action's ``id`` stands for: the first of names, if there is one."""
        return next((one.name for one in self.action if isinstance(one, Category | Hashed)), None)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, the context's first."""
        return tuple(self._columns)

    def rows(self, columns: Mapping[str, Values], *, first_row: int = 1) -> Array:
        """(n, d), ‖x‖ ≤ L: one vector per row, from n values for each column of context and action.

        Errors number rows from ``first_row``.
        """
        return self._assembled(_blocks((*self.context, *self.action), columns, first_row))

    def candidates(
        self,
        context: Mapping[str, Values],
        actions: Sequence[Any],
        *,
        first_row: int = 1,
        rows: int | None = None,
    ) -> Array:
        """The same actions for each of n visitors: (n, K, d).

        Args:
            context: n values for each column of the context.
            actions: K of them: values of the only action column, or mappings with all action columns.
            first_row: the number of the first row, for errors.
            rows: n, needed only where the context has no columns.
        """
        visitor = _blocks(self.context, context, first_row)
        described = [self.described(action) for action in actions]
        rows = len(next(iter(visitor.values()))) if visitor else 1 if rows is None else rows
        made = np.empty((rows, len(described), self.dim))
        for index, action in enumerate(described):
            blocks = dict(visitor)
            for column in self.action:
                block = column.block([action[column.name]])
                blocks[column.name] = np.broadcast_to(block, (rows, column.width))
            made[:, index] = self._assembled(blocks)
        return made

    def vectors(self, context: Mapping[str, Any], actions: Sequence[Any]) -> Array:
        """(K, d), one visitor's `candidates`, from a value for each column of the context.

        Raises:
            ConfigurationError: some terms are personal: a deployed agent releases all that it is given.
        """
        if self.personal:
            expected = (
                "none where vectors are for a deployed agent, which releases all of them: take `shared`"
            )
            raise ConfigurationError("personal", ["*".join(term) or "1" for term in self.personal], expected)
        gaps = {column.name: [None] for column in self.context if column.missing != "refuse"}
        columns = gaps | {name: [value] for name, value in context.items()}
        return np.asarray(self.candidates(columns, actions)[0])

    def described(self, action: Any) -> dict[str, Any]:
        """An action with its ``id`` and a value for each action column; None where that is missing.

        Args:
            action: a name, or a mapping with an ``id`` and columns; what is declared of it need not be said.
                With one action column its value will do.
        """
        names, naming = [column.name for column in self.action], self.naming
        if isinstance(action, Mapping):
            given = dict(action)
        elif isinstance(action, str) and (action in self._declared or naming is not None):
            given = {"id": action}
        elif len(names) == 1:
            given = {names[0]: action}
        else:
            raise ConfigurationError("action", action, f"a mapping with {', '.join(names)}")
        name = given.get("id", given.get(naming or names[0]))
        odd = isinstance(given.get("id"), bool) or (isinstance(name, float) and not math.isfinite(name))
        if odd or not isinstance(name, str | int | float) or not as_text(name):
            raise ConfigurationError("action", _columns_of(given), "a name, as its id")
        text = as_text(name)
        found: dict[str, Any] = {"id": text, **({} if naming is None else {naming: name})}
        found |= {**self._declared.get(text, {}), **{one: given[one] for one in names if one in given}}
        for column in self.action:
            if found.setdefault(column.name, None) is None and column.missing == "refuse":
                raise ConfigurationError("action", _columns_of(given), f"also {column.name}")
        return found

    def _assembled(self, blocks: Mapping[str, Array]) -> Array:
        rows = len(next(iter(blocks.values())))
        parts = []
        for term in self.terms:
            made = np.ones((rows, 1))
            for name in term:
                made = np.einsum("ni,nj->nij", made, blocks[name]).reshape(rows, -1)
            parts.append(made)
        # A hair below L: rounding must not leave a vector beyond it.
        return np.concatenate(parts, axis=1) * (self.action_bound * (1.0 - 1e-12) / math.sqrt(len(parts)))

    def as_plain(self) -> dict[str, Any]:
        """As plain data; rules that are the default go without saying."""
        return {
            "action_bound": self.action_bound,
            "public": self.public,
            "context": list(map(plain_column, self.context)),
            "action": list(map(plain_column, self.action)),
            "terms": self.terms,
            **({"personal": self.personal} if self.personal else {}),
            **({"actions": list(self.actions)} if self.actions else {}),
            **({} if self.parameter_bound is None else {"parameter_bound": self.parameter_bound}),
            **({"retired": self.retired} if self.retired else {}),
        }

    @property
    def fingerprint(self) -> str:
        """The same for two recipes that make the same vectors of the same actions, and for no others."""
        plain = {name: part for name, part in self.as_plain().items() if name != "public"}
        return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """As text, to be kept beside a model."""
        plain = {"format": FORMAT, "version": VERSION, **self.as_plain()}
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Recipe:
        """From plain data, as a file or `as_plain` has it; terms may be texts, such as offer*age and 1."""
        given = (plain.get("format", FORMAT), plain.get("version", VERSION))
        if given[0] != FORMAT:
            raise ConfigurationError("recipe", f"{given[0]} {given[1]}", f"{FORMAT} {VERSION}")
        RECIPE.require(given[1], "version of the recipe")
        unknown = plain.keys() - {one.name for one in fields(cls) if one.init} - {"format", "version"}
        if unknown:
            known = ", ".join(one.name for one in fields(cls) if one.init)
            raise ConfigurationError("recipe", min(unknown), f"nothing but {known}")
        for name in ("action", "terms"):
            if name not in plain:
                expected = f"{name} too, as `feducb recipe init` writes it"
                raise ConfigurationError("recipe", f"one of {', '.join(plain)}", expected)
        return cls(
            context=tuple(map(as_column, as_list(plain, "context"))),
            action=tuple(map(as_column, as_list(plain, "action"))),
            terms=tuple(map(as_term, as_list(plain, "terms"))),
            action_bound=float(as_bound(plain, "action_bound", 1.0)),
            public=as_flag(plain, "public", default=True),
            personal=tuple(map(as_term, as_list(plain, "personal"))),
            actions=as_list(plain, "actions"),
            parameter_bound=as_bound(plain, "parameter_bound", None),
            retired=as_names(plain.get("retired", ()), "retired"),
        )

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """Read what `to_json` wrote."""
        return cls.from_plain(read_text(text))

    @classmethod
    def read(cls, path: str | Path) -> Recipe:
        """From a file: TOML if it ends so, else JSON."""
        return cls.from_plain(read_plain(Path(path)))

    @classmethod
    def of_actions(
        cls,
        names: Sequence[str],
        column: str = "action",
        *,
        reserve: int = 0,
        added: Sequence[str] = (),
        retired: Sequence[str] = (),
    ) -> Recipe:
        """For actions without features: one entry each, and some in reserve."""
        named = Category(column, tuple(names), reserve=reserve, added=tuple(added))
        return cls(context=(), action=(named,), terms=((column,),), retired=tuple(retired))


def _columns_of(given: Mapping[str, Any]) -> str:
    """What a refused action has, without its values: they may tell of somebody."""
    return f"one with {', '.join(map(str, given)) or 'nothing'}"


def _blocks(columns: Sequence[Column], given: Mapping[str, Values], first_row: int) -> dict[str, Array]:
    """The block of each column, by its name."""
    for column in columns:
        if column.name not in given:
            among = f"among {', '.join(given) or 'none'}"
            raise ConfigurationError(f"column {column.name}", "missing", among)
    return {column.name: column.block(given[column.name], first_row) for column in columns}

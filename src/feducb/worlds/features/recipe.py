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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from feducb.config import Problem, require_finite
from feducb.errors import ConfigurationError
from feducb.system import counted
from feducb.types import Array, Indices
from feducb.worlds.features.columns import COLUMN_KINDS, Category, Column, Hashed, Number, Values

__all__ = ["Recipe", "problem_for"]

_FORMAT = "feducb-recipe"
_VERSION = 1


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
    """

    context: tuple[Column, ...]
    action: tuple[Column, ...]
    terms: tuple[tuple[str, ...], ...]
    action_bound: float = 1.0
    public: bool = True
    personal: tuple[tuple[str, ...], ...] = ()
    _columns: Mapping[str, Column] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = (*self.context, *self.action)
        by_name = {column.name: column for column in columns}
        if len(by_name) != len(columns):
            raise ConfigurationError("columns", [column.name for column in columns], "all different")
        if not self.action:
            raise ConfigurationError("action", self.action, "at least one column")
        terms = tuple(tuple(term) for term in self.terms)
        if not terms or len(set(terms)) != len(terms):
            raise ConfigurationError("terms", terms, "one or more, all different")
        for name in (name for term in terms for name in term):
            if name not in by_name:
                raise ConfigurationError("terms", name, f"columns among {', '.join(by_name)}")
        acts = {column.name for column in self.action}
        if not any(acts & set(term) for term in terms):
            raise ConfigurationError("terms", terms, f"one with {' or '.join(sorted(acts))}, to tell actions")
        require_finite("action_bound", self.action_bound, above=0)
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
        }
        for name, value in {**made, "_columns": by_name}.items():
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """d, the length of the vectors it makes."""
        return sum(math.prod(self._columns[name].width for name in term) for term in self.terms)

    @property
    def shared(self) -> Recipe:
        """What may leave an agent: the same vectors without their personal coordinates, hence shorter."""
        terms = tuple(term for term in self.terms if term not in self.personal)
        shorter = self.action_bound * math.sqrt(len(terms) / len(self.terms))
        return replace(self, terms=terms, personal=(), action_bound=shorter)

    @property
    def shared_places(self) -> Indices:
        """Where the coordinates of `shared` are among all."""
        widths = [math.prod(self._columns[name].width for name in term) for term in self.terms]
        return np.flatnonzero(np.repeat([term not in self.personal for term in self.terms], widths))

    @property
    def has_constant(self) -> bool:
        """Whether all vectors agree in some direction, so that rewards may be centred (docs/theory.md, 1).

        So it is with an intercept, and with a term of one-hots alone, whose entries add up to L/√m. Other
        terms may happen to do so on some data; they are not counted.
        """
        return any(all(isinstance(self._columns[name], Category) for name in term) for term in self.terms)

    @property
    def blocks(self) -> tuple[int, ...] | None:
        """(d,), the action that each entry belongs to, if every vector is zero but for its own action's.

        So it is if there is one action column, a one-hot, and every term has it; else None.
        """
        column, name = self.action[0], self.action[0].name
        in_all = len(self.action) == 1 and all(name in term for term in self.terms)
        if not in_all or not isinstance(column, Category):
            return None
        alone = {one: np.zeros((1, self._columns[one].width)) for one in self._columns}
        owners = np.zeros(self.dim, dtype=np.int64)
        for level in range(column.width):
            blocks = {one: np.ones_like(block) for one, block in alone.items()}
            blocks[name] = np.eye(column.width)[[level]]
            owners[np.flatnonzero(self._assembled(blocks)[0])] = level
        return tuple(owners.tolist())

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
        described = [self._described(action) for action in actions]
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
        return np.asarray(self.candidates({name: [value] for name, value in context.items()}, actions)[0])

    def _described(self, action: Any) -> Mapping[str, Any]:
        names = [column.name for column in self.action]
        if not isinstance(action, Mapping):
            if len(names) != 1:
                raise ConfigurationError("action", action, f"a mapping with {', '.join(names)}")
            return {names[0]: action}
        if missing := [name for name in names if name not in action]:
            raise ConfigurationError("action", dict(action), f"also {', '.join(missing)}")
        return action

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

    def to_json(self) -> str:
        """As text, to be kept beside a model."""
        plain = {
            "format": _FORMAT,
            "version": _VERSION,
            "action_bound": self.action_bound,
            "public": self.public,
            "context": [{"kind": column.kind, **asdict(column)} for column in self.context],
            "action": [{"kind": column.kind, **asdict(column)} for column in self.action],
            "terms": self.terms,
            **({"personal": self.personal} if self.personal else {}),
        }
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """Read what `to_json` wrote."""
        try:
            plain = json.loads(text)
            if plain["format"] != _FORMAT or plain["version"] != _VERSION:
                given = f"{plain['format']} {plain['version']}"
                raise ConfigurationError("recipe", given, f"{_FORMAT} {_VERSION}")
            return cls(
                context=tuple(map(_as_column, plain["context"])),
                action=tuple(map(_as_column, plain["action"])),
                terms=tuple(tuple(term) for term in plain["terms"]),
                action_bound=float(plain["action_bound"]),
                public=bool(plain["public"]),
                personal=tuple(tuple(term) for term in plain.get("personal", ())),
            )
        except ConfigurationError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            expected = f"what `feducb evaluate --save-recipe` or to_json wrote ({error!r})"
            raise ConfigurationError("recipe", f"{text[:40]}…", expected) from None

    def describe(self) -> Iterable[str]:
        """What it does, in one line per column."""
        for column in self._columns.values():
            if isinstance(column, Number):
                yield f"{column.name}: {column.low:g} to {column.high:g}, clipped, scaled to −1 to 1"
            elif isinstance(column, Hashed):
                yield f"{column.name}: hashed into {counted(column.buckets, 'bucket')}"
            else:
                levels = counted(column.width, f"{column.kind} level")
                yield f"{column.name}: {levels}: {column.shown}"
        terms = ", ".join(" × ".join(term) or "intercept" for term in self.terms)
        yield f"d = {self.dim}: {terms}; each times {self.action_bound:g}/√{len(self.terms)}"
        if self.personal:
            personal = ", ".join(" × ".join(term) or "intercept" for term in self.personal)
            yield f"never leave an agent: {personal}"


def _blocks(columns: Sequence[Column], given: Mapping[str, Values], first_row: int) -> dict[str, Array]:
    """The block of each column, by its name."""
    for column in columns:
        if column.name not in given:
            among = f"among {', '.join(given) or 'none'}"
            raise ConfigurationError(f"column {column.name}", "missing", among)
    return {column.name: column.block(given[column.name], first_row) for column in columns}


def _as_column(plain: Mapping[str, Any]) -> Column:
    fields = dict(plain)
    kind = fields.pop("kind")
    if kind not in COLUMN_KINDS:
        raise ConfigurationError("kind of column", kind, f"one of {', '.join(COLUMN_KINDS)}")
    made: Column = COLUMN_KINDS[kind](**fields)
    return made


def problem_for(recipe: Recipe, *, reward_bound: float = 0.5, reward_centre: float = 0.0) -> Problem:
    """The public bounds for rewards of range 1: ‖x‖ ≤ L, |y − c| ≤ B, σ = ½, S = √m B/L.

    S is an assumption, as everywhere: a parameter that puts a reward of size B into one of the m terms is
    that long.

    Raises:
        ConfigurationError: rewards are to be centred, and no term is constant.
    """
    if reward_centre and not recipe.has_constant:
        raise ConfigurationError(
            "reward_centre", reward_centre, "0 with terms of which none is the intercept or of one-hots alone"
        )
    bound = math.sqrt(len(recipe.terms)) * reward_bound / recipe.action_bound
    return Problem(
        dim=recipe.dim,
        action_bound=recipe.action_bound,
        reward_bound=reward_bound,
        parameter_bound=bound,
        noise_scale=0.5,
        reward_centre=reward_centre,
    )

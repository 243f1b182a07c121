"""Columns of names: a few public levels, many that are hashed, or some at once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.types import Array, Indices
from feducb.worlds.features.coded import Values, as_coded, as_text
from feducb.worlds.features.rules import Missing, Pairs, Reader, Unknown, gap_reader, require_rule, text_of

__all__ = ["Category", "Hashed", "Tags"]

_SHOWN = 8  # levels that are named


@dataclass(frozen=True, slots=True)
class _OfLevels:
    """A column of a few public levels; a block has one entry per level."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            expected = "public levels, written in by hand: they must not be read from private data"
            raise ConfigurationError(f"levels of {self.name}", self.levels, expected)
        if isinstance(self.levels, str):
            raise ConfigurationError(f"levels of {self.name}", self.levels, "a list")
        levels = tuple(as_text(level) for level in self.levels)
        if len(set(levels)) != len(levels):
            raise ConfigurationError(f"levels of {self.name}", levels, "one or more, all different")
        object.__setattr__(self, "levels", levels)

    @property
    def shown(self) -> str:
        """The first levels, for texts."""
        return ", ".join(self.levels[:_SHOWN]) + (", …" if len(self.levels) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Category(_OfLevels):
    """One of a few public levels, as a one-hot.

    A value that is none of them is refused; counts as nothing, its block being zero; or is ``other``, a level
    of its own that all such values share. One that is missing likewise; an empty text is missing.

    Attributes:
        unknown: what becomes of a value that is none of the levels.
        missing: what becomes of one that is missing.
        reserve: how many entries are there for names that come later: a public number.
        added: these names, in the order in which they came; each has the next of the entries.
    """

    kind: ClassVar[str] = "category"
    unknown: Unknown = "refuse"
    missing: Missing = "refuse"
    reserve: int = 0
    added: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _OfLevels.__post_init__(self)
        require_rule(self.name, "unknown", self.unknown, Unknown)
        require_rule(self.name, "missing", self.missing, Missing)
        require_integer(f"reserve of {self.name}", self.reserve, at_least=0)
        if isinstance(self.added, str):
            raise ConfigurationError(f"added to {self.name}", self.added, "a list")
        object.__setattr__(self, "added", tuple(as_text(name) for name in self.added))
        if len(self.added) > self.reserve:
            expected = f"at most {self.reserve}, for which there is room (reserve); more in a new season"
            raise ConfigurationError(f"added to {self.name}", list(self.added), expected)
        if len(set(self.known)) != len(self.known):
            raise ConfigurationError(f"added to {self.name}", list(self.added), "names that are new")

    @property
    def known(self) -> tuple[str, ...]:
        """All names that have an entry: the levels, then what was added."""
        return (*self.levels, *self.added)

    @property
    def named(self) -> int:
        """Entries for names: those of the levels and those in reserve."""
        return len(self.levels) + self.reserve

    @property
    def width(self) -> int:
        """One entry per level, those in reserve, and those for what is not known and what is missing."""
        return self.named + (self.unknown == "other") + (self.missing == "own")

    @property
    def shown(self) -> str:
        """The first names, for texts."""
        return ", ".join(self.known[:_SHOWN]) + (", …" if len(self.known) > _SHOWN else "")

    @property
    def one_hot(self) -> bool:
        """Whether every row has a single 1: none counts as nothing."""
        return "zero" not in (self.unknown, self.missing)

    @property
    def _places(self) -> Mapping[str, int]:
        """By level; true and false are found however they are spelled."""
        places = {level: index for index, level in enumerate(self.known)}
        aliases = {"True": "true", "False": "false", "true": "True", "false": "False"}
        return {alias: places[one] for alias, one in aliases.items() if one in places} | places

    @property
    def _special(self) -> tuple[int, int]:
        """The places of what is not known and of what is missing: −1 is refused, the width counts nothing."""
        unknown = {"refuse": -1, "zero": self.width, "other": self.named}[self.unknown]
        return unknown, {"refuse": -1, "zero": self.width, "own": self.width - 1}[self.missing]

    def index(self, values: Values, first_row: int = 1) -> Indices:
        """(n,), which entry each value has; the width if none."""
        coded, (unknown, missing) = as_coded(values), self._special
        places = self._places
        found = [places.get(text, unknown if text else missing) for text in coded.texts]
        return coded.look_up(found, self.name, first_row, f"one of {self.shown}", missing=missing)

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), a single 1 per row, or none where a value counts as nothing."""
        return np.asarray(np.eye(self.width + 1, self.width)[self.index(values, first_row)])

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        known: dict[str, tuple[Pairs, str]] = {
            text: (((index, 1.0),), "") for text, index in self._places.items()
        }
        entry, expected = self._special[0], f"one of {self.shown}"
        other: tuple[Pairs, str] = ((((entry, 1.0),) if self.unknown == "other" else ()), "unknown")
        missing = gap_reader(self.missing, place, self.width - 1, expected)

        def read(value: Any) -> tuple[Pairs, str]:
            if value is None:
                return missing()
            found = known.get(value if type(value) is str else text_of(value, place))
            if found is not None:
                return found
            if value == "":
                return missing()
            if self.unknown == "refuse":
                raise ConfigurationError(place, "another one", expected)
            return other

        return read


@dataclass(frozen=True, slots=True)
class Hashed:
    """One of many levels, known or not, hashed into a fixed number of signed buckets.

    Two levels in one bucket share what is learnt (with a random sign); the buckets are the same everywhere.
    """

    kind: ClassVar[str] = "hashed"
    name: str
    buckets: int
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        require_integer(f"buckets of {self.name}", self.buckets, at_least=1)
        require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One entry per bucket, and one more if it may be missing."""
        return self.buckets + (self.missing == "own")

    def _entry(self, text: str) -> tuple[int, float]:
        named = f"{self.name}={text}".encode(errors="surrogatepass")
        hashed = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big")
        return (hashed >> 1) % self.buckets, 1.0 if hashed & 1 else -1.0

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), one entry of ±1 per row."""
        coded = as_coded(values)
        table = np.zeros((len(coded.texts) + 1, self.width))
        for row, text in enumerate(coded.texts):
            bucket, sign = self._entry(text)
            table[row, bucket] = sign
        if self.missing == "own":
            table[-1, -1] = 1.0
        gone = -1 if self.missing == "refuse" else len(coded.texts)
        places = [place if text else gone for place, text in enumerate(coded.texts)]
        return np.asarray(table[coded.look_up(places, self.name, first_row, "a value", missing=gone)])

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        missing = gap_reader(self.missing, place, self.buckets, "a value")

        def read(value: Any) -> tuple[Pairs, str]:
            if value is None:
                return missing()
            text = text_of(value, place)
            return ((self._entry(text),), "") if text else missing()

        return read


@dataclass(frozen=True, slots=True)
class Tags(_OfLevels):
    """Some of a few public levels at once, as text with a separator or as a list; k tags count 1/√k each.

    Tags that are none of the levels are ignored. An empty text is missing; where that is refused, no tags.
    """

    kind: ClassVar[str] = "tags"
    separator: str = "|"
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        _OfLevels.__post_init__(self)
        if not isinstance(self.separator, str) or not self.separator:
            raise ConfigurationError(f"separator of {self.name}", self.separator, "a text such as |")
        require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One entry per level, and one more if they may be missing."""
        return len(self.levels) + (self.missing == "own")

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), rows of length 1, or 0 where no tag counts."""
        if isinstance(values, list | tuple) and any(isinstance(one, list | tuple) for one in values):
            return self._of_lists(values, first_row)
        coded = as_coded(values)
        table = np.zeros((len(coded.texts) + 1, self.width))
        for row, text in enumerate(coded.texts):
            tags = set(text.split(self.separator))
            table[row, : len(self.levels)] = [level in tags for level in self.levels]
        table /= np.sqrt(np.maximum(table.sum(axis=1, keepdims=True), 1.0))
        if self.missing == "own":
            table[-1, -1] = 1.0
        gone = -1 if self.missing == "refuse" else len(coded.texts)
        places = [
            place if text or self.missing == "refuse" else gone for place, text in enumerate(coded.texts)
        ]
        return np.asarray(table[coded.look_up(places, self.name, first_row, "tags", missing=gone)])

    def _of_lists(self, values: Sequence[Any], first_row: int) -> Array:
        """A block where some tags are lists, as in a recipe's actions: each read as a visitor's."""
        table = np.zeros((len(values), self.width))
        for row, value in enumerate(values):
            for index, number in self.reader(f"{self.name} in row {first_row + row}")(value)[0]:
                table[row, index] = number
        return table

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        places = {level: index for index, level in enumerate(self.levels)}
        missing = gap_reader(self.missing, place, self.width - 1, "tags")

        def read(value: Any) -> tuple[Pairs, str]:
            if value is None or (self.missing != "refuse" and isinstance(value, str) and not value):
                return missing()
            if isinstance(value, list | tuple):
                tags = {text_of(one, place) for one in value}
            else:
                tags = set(text_of(value, place).split(self.separator))
            known = sorted(places[tag] for tag in tags if tag in places)
            each = 1.0 / math.sqrt(max(1, len(known)))
            rule = "unknown" if len(known) < len(tags - {""}) else ""
            return tuple((index, each) for index in known), rule

        return read

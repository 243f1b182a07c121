"""Columns of a record as blocks of numbers, each of length at most 1. Nothing is estimated from data.

A column says by a public rule what becomes of a value that it does not know, or that is missing: it is
refused (the default), counts as nothing (``zero``), or has an entry of its own (``other``, ``own``). Numbers
out of range are clipped. Each kind reads many values at once (`block`, for logs) and one visitor's (`reader`,
for agents), to the same numbers; what cannot be meant, such as text in a column of numbers, is always
refused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError, RowError
from feducb.types import Array, Indices
from feducb.worlds.features.coded import Coded, Values, as_coded, as_text, gaps, require_column

__all__ = ["COLUMN_KINDS", "Category", "Column", "Flag", "Hashed", "Number", "Pairs", "Reader", "Tags"]

Missing = Literal["refuse", "zero", "own"]
Unknown = Literal["refuse", "zero", "other"]
Pairs: TypeAlias = tuple[tuple[int, float], ...]  # the entries of a block that are not 0, and their numbers
Reader: TypeAlias = "Callable[[Any], tuple[Pairs, str]]"  # of a value: its entries, and which rule it took

_SHOWN = 8  # levels that are named
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


def _require_rule(name: str, rule: str, value: object, choices: object) -> None:
    if value not in get_args(choices):
        raise ConfigurationError(f"{rule} of {name}", value, f"one of {', '.join(get_args(choices))}")


def _kind(value: Any) -> str:
    """What a refused value is, without repeating it: it may tell of somebody."""
    if isinstance(value, float | np.floating):
        return str(float(value)) if not math.isfinite(value) else "a number"
    kinds = {bool: "true or false", str: "a text", dict: "an object", list: "a list", tuple: "a list"}
    return next((text for kind, text in kinds.items() if isinstance(value, kind)), "a number")


def _gap(rule: Missing, place: str, entry: int, expected: str) -> Callable[[], tuple[Pairs, str]]:
    """How a reader answers where a value is missing; ``entry`` is the one of its own."""
    found: tuple[Pairs, str] = ((((entry, 1.0),) if rule == "own" else ()), "missing")

    def answer() -> tuple[Pairs, str]:
        if rule == "refuse":
            raise ConfigurationError(place, "missing", expected)
        return found

    return answer


def _text_of(value: Any, place: str) -> str:
    """The text of a level; a number or true will do, what is not finite or has parts will not."""
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise ConfigurationError(place, _kind(value), "a text")
    if not isinstance(value, str | bool | int | float | np.generic):
        raise ConfigurationError(place, _kind(value), "a text")
    return as_text(value)


@dataclass(frozen=True, slots=True)
class _OneNumber:
    """A column whose block is one number in [−1, 1], and one more entry where a missing value has its own."""

    name: str

    def _filled(self, numbers: Array, missing: NDArray[np.bool_], rule: Missing) -> Array:
        """(n, width), the block of scaled numbers, of which some are missing."""
        block = np.where(missing, 0.0, numbers)[:, None]
        return np.concatenate([block, missing[:, None].astype(float)], axis=1) if rule == "own" else block


@dataclass(frozen=True, slots=True)
class Number(_OneNumber):
    """A number, clipped to a public range, ``low`` to ``high``, and scaled to [−1, 1]."""

    kind: ClassVar[str] = "number"
    low: float
    high: float
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            if getattr(self, end) is None:
                expected = "a public number, written in by hand: it must not be read from private data"
                raise ConfigurationError(f"{end} of {self.name}", None, expected)
        object.__setattr__(self, "low", require_finite(f"low of {self.name}", self.low))
        high = require_finite(f"high of {self.name}", self.high, above=self.low)
        object.__setattr__(self, "high", high)
        _require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One number, and one more if it may be missing."""
        return 1 + (self.missing == "own")

    @property
    def _middle(self) -> tuple[float, float]:
        return (self.low + self.high) / 2.0, (self.high - self.low) / 2.0

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), each value in [−1, 1]."""
        middle, half = self._middle
        missing = gaps(values)
        if self.missing != "refuse" and missing.any():
            given = values.values() if isinstance(values, Coded) else values
            values = [middle if gone else value for gone, value in zip(missing, given, strict=True)]
        numbers = require_column(self.name, values, first_row=first_row)
        scaled = np.asarray((np.clip(numbers, self.low, self.high) - middle) / half)
        return self._filled(scaled, missing, self.missing)

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        low, high, (middle, half) = self.low, self.high, self._middle
        missing = _gap(self.missing, place, 1, "a number")

        def read(value: Any) -> tuple[Pairs, str]:
            if type(value) is not float:
                if value is None:
                    return missing()
                if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                    raise ConfigurationError(place, _kind(value), "a number")
                try:
                    value = float(value)
                except OverflowError:  # a whole number with hundreds of digits
                    value = 2.0 * high if value > 0 else -2.0 * abs(low) - 1.0
            if low <= value <= high:
                return ((0, (value - middle) / half),), ""
            if not math.isfinite(value):
                raise ConfigurationError(place, str(value), "a finite number")
            end = low if value < low else high
            return ((0, (end - middle) / half),), "clipped"

        return read


@dataclass(frozen=True, slots=True)
class Flag(_OneNumber):
    """True or false, as 1 or −1; yes, no, 1 and 0 will do."""

    kind: ClassVar[str] = "boolean"
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        _require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One number, and one more if it may be missing."""
        return 1 + (self.missing == "own")

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), each value −1 or 1."""
        coded = as_coded(values)
        signs = np.array([_sign(text) for text in coded.texts] + [0.0])
        gone = np.array([not text for text in coded.texts] + [True])[coded.codes]
        numbers = signs[coded.codes]
        bad = (numbers == 0.0) & ~gone if self.missing != "refuse" else numbers == 0.0
        if bad.any():
            row = int(np.argmax(bad))
            raise RowError(self.name, first_row + row, coded.values()[row], "true or false")
        return self._filled(numbers, gone, self.missing)

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        yes: tuple[Pairs, str] = ((0, 1.0),), ""
        no: tuple[Pairs, str] = ((0, -1.0),), ""
        missing = _gap(self.missing, place, 1, "true or false")

        def read(value: Any) -> tuple[Pairs, str]:
            if value is True:
                return yes
            if value is False:
                return no
            if value is None:
                return missing()
            sign = _sign(_text_of(value, place))
            if not sign:
                raise ConfigurationError(place, _kind(value), "true or false")
            return yes if sign > 0 else no

        return read


def _sign(text: str) -> float:
    """1 for yes, −1 for no, 0 for anything else."""
    plain = text.strip().lower()
    return 1.0 if plain in _YES else -1.0 if plain in _NO else 0.0


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
    of its own that all such values share. One that is missing likewise.
    """

    kind: ClassVar[str] = "category"
    unknown: Unknown = "refuse"
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        _OfLevels.__post_init__(self)
        _require_rule(self.name, "unknown", self.unknown, Unknown)
        _require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One entry per level, and those for what is not known and what is missing."""
        return len(self.levels) + (self.unknown == "other") + (self.missing == "own")

    @property
    def one_hot(self) -> bool:
        """Whether every row has a single 1: none counts as nothing."""
        return "zero" not in (self.unknown, self.missing)

    @property
    def _places(self) -> Mapping[str, int]:
        """By level; true and false are found however they are spelled."""
        places = {level: index for index, level in enumerate(self.levels)}
        aliases = {"True": "true", "False": "false", "true": "True", "false": "False"}
        return {alias: places[one] for alias, one in aliases.items() if one in places} | places

    @property
    def _special(self) -> tuple[int, int]:
        """The places of what is not known and of what is missing: −1 is refused, the width counts nothing."""
        unknown = {"refuse": -1, "zero": self.width, "other": len(self.levels)}[self.unknown]
        return unknown, {"refuse": -1, "zero": self.width, "own": self.width - 1}[self.missing]

    def index(self, values: Values, first_row: int = 1) -> Indices:
        """(n,), which entry each value has; the width if none."""
        coded, (unknown, missing) = as_coded(values), self._special
        places = self._places
        found = [places.get(text, unknown) for text in coded.texts]
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
        missing = _gap(self.missing, place, self.width - 1, expected)

        def read(value: Any) -> tuple[Pairs, str]:
            if value is None:
                return missing()
            found = known.get(value if type(value) is str else _text_of(value, place))
            if found is not None:
                return found
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
        _require_rule(self.name, "missing", self.missing, Missing)

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
        places = range(len(coded.texts))
        return np.asarray(table[coded.look_up(places, self.name, first_row, "a value", missing=gone)])

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        missing = _gap(self.missing, place, self.buckets, "a value")

        def read(value: Any) -> tuple[Pairs, str]:
            if value is None:
                return missing()
            return (self._entry(_text_of(value, place)),), ""

        return read


@dataclass(frozen=True, slots=True)
class Tags(_OfLevels):
    """Some of a few public levels at once, as text with a separator or as a list; k tags count 1/√k each.

    Tags that are none of the levels are ignored.
    """

    kind: ClassVar[str] = "tags"
    separator: str = "|"
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        _OfLevels.__post_init__(self)
        if not isinstance(self.separator, str) or not self.separator:
            raise ConfigurationError(f"separator of {self.name}", self.separator, "a text such as |")
        _require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One entry per level, and one more if they may be missing."""
        return len(self.levels) + (self.missing == "own")

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), rows of length 1, or 0 where no tag counts."""
        coded = as_coded(values)
        table = np.zeros((len(coded.texts) + 1, self.width))
        for row, text in enumerate(coded.texts):
            tags = set(text.split(self.separator))
            table[row, : len(self.levels)] = [level in tags for level in self.levels]
        table /= np.sqrt(np.maximum(table.sum(axis=1, keepdims=True), 1.0))
        if self.missing == "own":
            table[-1, -1] = 1.0
        gone = -1 if self.missing == "refuse" else len(coded.texts)
        places = range(len(coded.texts))
        return np.asarray(table[coded.look_up(places, self.name, first_row, "tags", missing=gone)])

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        places = {level: index for index, level in enumerate(self.levels)}
        missing = _gap(self.missing, place, self.width - 1, "tags")

        def read(value: Any) -> tuple[Pairs, str]:
            if value is None:
                return missing()
            if isinstance(value, list | tuple):
                tags = {_text_of(one, place) for one in value}
            else:
                tags = set(_text_of(value, place).split(self.separator))
            known = sorted(places[tag] for tag in tags if tag in places)
            each = 1.0 / math.sqrt(max(1, len(known)))
            rule = "unknown" if len(known) < len(tags - {""}) else ""
            return tuple((index, each) for index in known), rule

        return read


Column: TypeAlias = Number | Flag | Category | Hashed | Tags
COLUMN_KINDS: dict[str, type[Any]] = {one.kind: one for one in (Number, Flag, Category, Hashed, Tags)}

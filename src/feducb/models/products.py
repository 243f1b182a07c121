"""Vectors made of terms, each a product of columns, some of them one-hots, as recipes make them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from feducb.errors import ConfigurationError
from feducb.models.known_zeros import ANY, KnownZeros
from feducb.types import Indices

__all__ = ["LONGEST_LAYOUT", "MOST_ENTRIES", "Factor", "Products"]

Factor = tuple[str, int]  # the name of a one-hot column, or nothing, and how many entries it has

LONGEST_LAYOUT = 8_192
MOST_ENTRIES = 2_048  # of a vector: a pattern of all pairs is made of them
_FACTOR = re.compile(r"([a-z]*)([1-9][0-9]{0,5})")
_TIMES = re.compile(r"([1-9][0-9]{0,5})\((.+)\)")
_EXPECTED = "terms such as 4+a6+a6*b3+5(a6), a letter for each one-hot, with one width each"


@dataclass(frozen=True, slots=True)
class Products(KnownZeros):
    """The linear model over terms one after another, the last factor of each moving fastest.

    Two entries exclude each other if they belong to different levels of a one-hot column, in whatever term:
    per-action terms are blocks, and terms that actions share go with all of them.

    Attributes:
        layout: terms joined by +, factors by *: a number of entries, with a letter before it where they are
            levels of a one-hot. ``3(a10)`` is ``a10+a10+a10``. There is one way to write it.
    """

    layout: str

    def __post_init__(self) -> None:
        if _written(_terms(self.layout)) != self.layout:
            raise ConfigurationError("layout", self.layout, f"{_written(_terms(self.layout))}, the same")

    @classmethod
    def of(cls, terms: Sequence[Sequence[Factor]]) -> Products:
        """From terms, each a sequence of factors; names of columns may be any."""
        letters: dict[str, str] = {}
        plain = tuple(
            tuple(
                (letters.setdefault(name, _letters(len(letters))) if name and width > 1 else "", width)
                for name, width in term
            )
            for term in terms
        )
        return cls(_written(plain))

    @classmethod
    def parse(cls, text: str) -> Products:
        """From what stands after ``zeros:``."""
        return cls(text)

    @property
    def name(self) -> str:
        """``zeros:17(a10)``: ten blocks of seventeen, interleaved."""
        return f"zeros:{self.layout}"

    def labels(self, dim: int) -> Indices:
        """(c, d): of each one-hot column the level that an entry belongs to."""
        labels = _labels(self.layout)
        if labels.shape[1] != dim:
            raise ConfigurationError("model", self.name, f"terms that add up to dim = {dim}")
        return labels


@lru_cache(maxsize=16)
def _labels(layout: str) -> Indices:
    terms = _terms(layout)
    names = sorted({name for term in terms for name, _ in term if name}, key=lambda one: (len(one), one))
    parts = []
    for term in terms:
        widths = tuple(width for _, width in term)
        part = np.full((len(names), math.prod(widths)), ANY)
        levels = np.indices(widths).reshape(len(widths), -1)
        for (name, _), own in zip(term, levels, strict=True):
            if name:
                part[names.index(name)] = own
        parts.append(part)
    labels = np.concatenate(parts, axis=1)
    labels.setflags(write=False)
    return labels


def _terms(layout: str) -> tuple[tuple[Factor, ...], ...]:
    """The terms of a layout; raises a `ConfigurationError` if it is none, before anything large is made."""
    terms: list[tuple[Factor, ...]] = []
    widths: dict[str, int] = {}
    entries = 0
    if len(layout) > LONGEST_LAYOUT:
        raise ConfigurationError("layout", f"{len(layout)} letters", f"at most {LONGEST_LAYOUT}")
    for part in layout.split("+"):
        repeated = _TIMES.fullmatch(part)
        times, text = (int(repeated[1]), repeated[2]) if repeated else (1, part)
        found = [_FACTOR.fullmatch(factor) for factor in text.split("*")]
        term = tuple((one[1], int(one[2])) for one in found if one is not None)
        named = [name for name, _ in term if name]
        one_width = all(widths.setdefault(name, width) == width for name, width in term if name)
        if len(term) < len(found) or len(set(named)) < len(named) or not one_width:
            raise ConfigurationError("layout", layout, _EXPECTED)
        entries += times * math.prod(width for _, width in term)
        if entries > MOST_ENTRIES:
            raise ConfigurationError("layout", layout, f"at most {MOST_ENTRIES} entries in all")
        terms += [term] * times
    return tuple(terms)


def _written(terms: Sequence[tuple[Factor, ...]]) -> str:
    """The one way to write terms: letters as they come, no factor of 1, none twice in a row."""
    letters: dict[str, str] = {}

    def short(term: tuple[Factor, ...]) -> str:
        joined: list[Factor] = []
        for name, width in term:
            if not name and joined and not joined[-1][0]:  # numbers side by side are one number
                joined[-1] = ("", joined[-1][1] * width)
            elif name or width > 1:
                joined.append((letters.setdefault(name, _letters(len(letters))) if name else "", width))
        return "*".join(f"{name}{width}" for name, width in joined) or "1"

    runs = [(text, len(list(same))) for text, same in groupby(map(short, terms))]
    return "+".join(text if times == 1 else f"{times}({text})" for text, times in runs)


def _letters(number: int) -> str:
    """From a to z, then aa, ab and so on."""
    text = ""
    while number >= 0:
        text, number = chr(ord("a") + number % 26) + text, number // 26 - 1
    return text

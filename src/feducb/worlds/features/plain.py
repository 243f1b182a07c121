"""Columns and terms of a recipe as files have them: plain data, in which defaults go without saying."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from feducb.errors import ConfigurationError
from feducb.formats import RECIPE
from feducb.worlds.features.columns import COLUMN_KINDS, Column

__all__ = [
    "FORMAT",
    "VERSION",
    "as_bound",
    "as_column",
    "as_flag",
    "as_list",
    "as_names",
    "as_term",
    "plain_column",
    "read_plain",
    "read_text",
]

FORMAT = "feducb-recipe"
VERSION = RECIPE.number
_UNSAID = {"unknown": "refuse", "missing": "refuse", "reserve": 0, "added": ()}


def as_column(plain: Mapping[str, Any]) -> Column:
    """A column from a mapping with its kind."""
    if not isinstance(plain, Mapping):
        raise ConfigurationError("column", plain, "an object with its kind and name")
    fields = dict(plain)
    kind, named = fields.pop("kind", None), fields.get("name")
    if not isinstance(named, str) or not named:
        raise ConfigurationError("name of a column", named, "a text")
    if not isinstance(kind, str) or kind not in COLUMN_KINDS:
        raise ConfigurationError(f"kind of column {named}", kind, f"one of {', '.join(COLUMN_KINDS)}")
    known = {one.name: one.default is MISSING for one in dataclass_fields(COLUMN_KINDS[kind])}
    unknown, needed = fields.keys() - known, {name for name, must in known.items() if must} - fields.keys()
    column = f"part of column {named}"
    if unknown:
        raise ConfigurationError(column, min(unknown), f"one of kind, {', '.join(known)}")
    if needed:
        raise ConfigurationError(column, sorted(fields), f"{min(needed)} too")
    for name, what in (("levels", f"levels of {named}"), ("added", f"added to {named}")):
        if fields.get(name) is not None:  # null is what `recipe init` leaves open
            fields[name] = as_names(fields[name], what)
    for name in ("low", "high"):
        if fields.get(name) is not None:
            fields[name] = as_bound(fields, name, None, of=named)
    made: Column = COLUMN_KINDS[kind](**fields)
    return made


def plain_column(column: Column) -> dict[str, Any]:
    """Back again; what is the default is left out."""
    said = {
        name: value for name, value in asdict(column).items() if name not in _UNSAID or value != _UNSAID[name]
    }
    return {"kind": column.kind, **said}


def as_term(term: str | Sequence[str]) -> tuple[str, ...]:
    """Names of columns, from a list of them or a text such as offer*age; 1 is the intercept."""
    if isinstance(term, str):
        return () if term.strip() == "1" else tuple(part.strip() for part in term.split("*"))
    if not isinstance(term, list | tuple) or not all(isinstance(name, str) for name in term):
        raise ConfigurationError("terms", term, 'names of columns, such as "offer*age" or ["offer", "age"]')
    return tuple(term)


def as_list(plain: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """A part that is a list; left out, an empty one."""
    given = plain.get(name, ())
    if not isinstance(given, list | tuple):
        raise ConfigurationError(name, given, "a list")
    return tuple(given)


def as_names(given: Any, what: str) -> tuple[Any, ...]:
    """A list of texts; numbers, true and false will do, as in a log."""
    if not isinstance(given, list | tuple):
        raise ConfigurationError(what, given, "a list")
    for name in given:
        finite = not isinstance(name, float) or math.isfinite(name)
        if not isinstance(name, str | int | float) or not finite:
            raise ConfigurationError(what, list(given), "names: texts or numbers, none of them null")
    return tuple(given)


def as_flag(plain: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """True or false, and no text that says so."""
    given = plain.get(name, default)
    if not isinstance(given, bool):
        raise ConfigurationError(name, given, "true or false, without quotation marks")
    return given


def as_bound(plain: Mapping[str, Any], name: str, default: float | None, *, of: str = "") -> Any:
    """A number, and no text that says so; None only where that is the default."""
    given = plain.get(name, default)
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if given is not default and (not number or abs(given) > sys.float_info.max):
        expected = "a finite number, without quotation marks"
        raise ConfigurationError(f"{name} of {of}" if of else name, given, expected)
    return given


def read_text(text: str) -> dict[str, Any]:
    """What a JSON file holds."""
    expected = "what `feducb recipe init` or `feducb evaluate --save-recipe` writes"
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError("recipe", f"{text[:40]}…", f"{expected} ({error})") from None
    if not isinstance(plain, dict) or "format" not in plain:
        raise ConfigurationError("recipe", f"{text[:40]}…", expected)
    return plain


def read_plain(path: Path) -> dict[str, Any]:
    """What a file holds: TOML if it ends so, else JSON."""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else read_text(text)
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigurationError("recipe", str(path), "a file; `feducb recipe init` writes one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError("recipe", str(path), f"a TOML or JSON file: {error}") from None

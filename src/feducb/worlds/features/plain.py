"""Columns and terms of a recipe as files have them: plain data, in which defaults go without saying."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from feducb.errors import ConfigurationError
from feducb.formats import RECIPE
from feducb.worlds.features.columns import COLUMN_KINDS, Column

__all__ = ["FORMAT", "VERSION", "as_column", "as_term", "plain_column", "read_plain", "read_text"]

FORMAT = "feducb-recipe"
VERSION = RECIPE.number
_UNSAID = {"unknown": "refuse", "missing": "refuse", "reserve": 0, "added": ()}


def as_column(plain: Mapping[str, Any]) -> Column:
    """A column from a mapping with its kind."""
    fields = dict(plain)
    kind = fields.pop("kind")
    if kind not in COLUMN_KINDS:
        raise ConfigurationError("kind of column", kind, f"one of {', '.join(COLUMN_KINDS)}")
    known = {one.name: one.default is MISSING for one in dataclass_fields(COLUMN_KINDS[kind])}
    unknown, needed = fields.keys() - known, {name for name, must in known.items() if must} - fields.keys()
    column = f"part of column {fields.get('name', '')}".rstrip()
    if unknown:
        raise ConfigurationError(column, min(unknown), f"one of kind, {', '.join(known)}")
    if needed:
        raise ConfigurationError(column, sorted(fields), f"{min(needed)} too")
    for name in ("levels", "added"):
        if isinstance(fields.get(name), list):
            fields[name] = tuple(fields[name])
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
    return tuple(term)


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

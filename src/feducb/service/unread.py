"""What cannot be read of a body, in words: where it is, and what was expected there."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from feducb.service.models import SEVERAL

__all__ = ["details_of", "first_of"]


def first_of(error: ValidationError) -> str:
    """The first place in words; without what was sent, which may tell of somebody."""
    first = details_of(error)[0]
    return f"{_path(first['where'])}: {first['what']}".removeprefix(": ")


def details_of(error: ValidationError) -> list[dict[str, Any]]:
    """Where a body is wrong, and how; once where something may be of several kinds, and is of none."""
    found: dict[tuple[str | int, ...], dict[str, Any]] = {}
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        where, what = list(one["loc"]), one["msg"]
        kind = next((place for place, part in enumerate(where) if part in SEVERAL), None)
        if kind is None or one["type"] == "extra_forbidden":
            found[tuple(where)] = {"where": where, "what": what}
            continue
        # Behind its name stands which kind was tried, and how far that went
        field, deeper = where[: kind + 1], [part for part in where[kind + 1 :] if isinstance(part, int)]
        known = found.setdefault(tuple(field), {"where": field, "what": SEVERAL[field[-1]]})
        known["where"] = max(
            known["where"], field + deeper, key=lambda tried: (len(tried), tried[kind + 1 :])
        )
    return list(found.values())[:20]


def _path(where: list[str | int]) -> str:
    """As one writes it: decisions[3].actions."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")

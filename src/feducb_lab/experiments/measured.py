"""Tables that a benchmark measured, as a JSON file that says by what."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feducb_lab.experiments.provenance import made_by

__all__ = ["Tables", "write_tables"]

Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Table, row, column: a number, or ``{"mean": …, "stderr": …}``."""


def write_tables(path: Path, tables: Tables, modules: Sequence[str]) -> None:
    """Write what a script measured: its tables, the command that was typed, and the code that they rest on.

    Tables that the file has and the script did not make, such as those of an older version, stay.

    Args:
        path: the file.
        tables: what was measured.
        modules: of feducb, that the script plays.
    """
    kept = json.loads(path.read_text(encoding="utf-8"))["tables"] if path.exists() else {}
    merged = {name: dict(rows) for name, rows in kept.items()}
    for name, rows in tables.items():
        merged[name] = {**merged.get(name, {}), **rows}
    command = " ".join(["python", *_from_root(sys.argv)])
    plain = {"made": made_by(command, modules), "tables": merged}
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def _from_root(typed: Sequence[str]) -> list[str]:
    """As one types it in the repository's folder: no path of this machine is kept."""
    script = Path(typed[0])
    rest = [_shown(one) for one in typed[1:]]
    return [f"{script.parent.name}/{script.name}", *rest]


def _shown(argument: str) -> str:
    path = Path(argument)
    return path.name.replace(".part.json", ".json") if path.is_absolute() else argument

"""Measured values in JSON files, by paths such as ``figures/1a-full > points > who=alone``.

Under a list a key chooses by equality, ``who=calibrated & M=10``, of an element or its label; ``a|b`` is
either. ``one path ÷ another`` is a ratio, ``one − another`` a difference run by run, ``how many PATH`` a
count; in it a key of a mapping may have stars.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from feducb.errors import ConfigurationError
from feducb_lab.experiments.plain_files import read_object

__all__ = ["Sources", "Value"]


@dataclass(frozen=True, slots=True)
class Value:
    """A mean, its error where it has one, and further numbers that a page says in the same place."""

    mean: float
    error: float | None = None
    also: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """The JSON files of a folder."""

    folder: Path

    def value(self, path: str) -> Value:
        """What is measured there."""
        if path.startswith("how many "):
            return Value(float(len(self._nodes(path.removeprefix("how many ")))))
        above, _, below = path.partition(" ÷ ")
        if below:
            return Value(_value(self.node(above), above).mean / _value(self.node(below), below).mean)
        more, _, less = path.partition(" − ")
        return _difference(self.node(more), self.node(less), path) if less else _value(self.node(more), more)

    def node(self, path: str) -> Any:
        """The only one there."""
        found = self._nodes(path)
        if len(found) != 1:
            raise ConfigurationError("source", path, f"one value, not {len(found)}")
        return found[0]

    def _nodes(self, path: str) -> list[Any]:
        name, *keys = (part.strip() for part in path.split(" > "))
        file = self.folder / f"{name}.json"
        if not file.exists():
            raise ConfigurationError("source", path, f"a file {file}")
        nodes = [_read(file, file.stat().st_mtime_ns)]
        for key in keys:
            nodes = [below for node in nodes for below in _below(node, key)]
        return nodes


@cache
def _read(file: Path, _changed: int) -> Any:
    return read_object(file, "measured results")


def _below(node: Any, key: str) -> list[Any]:
    if isinstance(node, Mapping):
        return (
            [node[key]]
            if key in node
            else [node[one] for one in node if "*" in key and fnmatchcase(one, key)]
        )
    if not isinstance(node, list):
        return []
    if key.isdigit():
        return node[int(key) : int(key) + 1]
    asked = [one.split("=", 1) for one in re.split(r" & (?=\w+=)", key)]
    return [one for one in node if all(_fits(one.get("label", one), *pair) for pair in asked)]


def _fits(label: Mapping[str, Any], name: str, values: str) -> bool:
    here = label.get(name.strip())
    text = f"{here:g}" if isinstance(here, float) else str(here)
    return text in values.strip().split("|")


def _difference(more: Any, less: Any, path: str) -> Value:
    if not (isinstance(more, Mapping) and isinstance(less, Mapping)):
        raise ConfigurationError("source", path, "two points with the regret of each run")
    runs = [one["result"]["finals"] for one in (more, less)]
    differences = [one - other for one, other in zip(*runs, strict=True)]
    return Value(fmean(differences), stdev(differences) / len(differences) ** 0.5)


def _value(node: Any, path: str) -> Value:
    if isinstance(node, Mapping):
        also = tuple(node.get("also", ()))
        node = node.get("result", node)
        node = node.get("per_agent_regret", node)
        if "mean" in node:
            return Value(node["mean"], node.get("stderr"), also)
        if "margin" in node:
            return Value(node["value"], node["margin"])
        if "low" in node:
            return Value(node["value"], (node["high"] - node["low"]) / 2)
    if isinstance(node, list) and node and all(isinstance(one, int | float) for one in node):
        return Value(node[0], None, tuple(node[1:]))
    if isinstance(node, int | float):
        return Value(float(node))
    raise ConfigurationError("source", path, "a number, or a mean with its error")

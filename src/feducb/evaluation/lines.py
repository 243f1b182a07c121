"""What agents export, line by line: each one checked, or left out for a reason that is counted.

A line is a decision as `feducb agent export` writes it. It may say whose it is (``agent``; else the file's
name does), the public bounds (``problem``) and what counts where no reward came (``default_reward``).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.formats import EXPORT
from feducb.system import counted
from feducb.types import Array
from feducb.worlds.features.bounds import problem_of
from feducb.worlds.features.encoder import Encoder

__all__ = ["ENDING", "Decided", "Lines"]

ENDING = ".jsonl"
_KEYS = ("number", "open", "index", "features", "propensity", "reward")
_SHOWN = 60  # characters of a line that is quoted


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision that can be learnt from and judged by."""

    agent: str
    candidates: Array  # (K, d)
    index: int  # of the one that was shown
    propensity: float  # the chance with which it was
    reward: float


@dataclass(slots=True)
class Lines:
    """Decisions in exports, in order; each reading takes a new object."""

    paths: Sequence[Path]  # those of one agent in the order in which they were written
    bounds: Mapping[str, Any]  # of `Problem`, instead of what the lines say
    encoder: Encoder | None = None  # makes vectors anew from context and actions, instead of the lines' own
    problem: Problem | None = None  # the public bounds, known from the first decision on
    stated: Any = None  # the bounds as the lines have them, if they say them
    read: int = 0  # lines so far
    defaulted: int = 0  # how many count with the default reward, since none came
    left_out: Counter[str] = field(default_factory=Counter)  # how many were of no use, by reason
    last: dict[str, int] = field(default_factory=dict)  # the number of each agent's last line

    def __iter__(self) -> Iterator[Decided]:
        for path in self.paths:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self.read += 1
                        place = f"{path} line {number}"
                        row = {"agent": path.name.removesuffix(ENDING), **_plain(line, place)}
                        decided = self._decided(row, place)
                        if decided is not None:
                            yield decided

    def _decided(self, row: Mapping[str, Any], place: str) -> Decided | None:
        """The decision of a line, or None if it is left out."""
        agent = row["agent"]
        if not isinstance(agent, str) or not agent:
            raise ConfigurationError(f"agent in {place}", agent, "a name")
        self._require_new(agent, row["number"], place)
        reasons = {
            # Open ones go whether a reward has come or not: those that came early would be too many.
            "still open": row["open"],
            "no features": row["features"] is None and self.encoder is None,
            "no context": self.encoder is not None and not isinstance(row.get("context"), dict),
            "no propensity": row["propensity"] is None,
            "no reward": row["reward"] is None and row.get("default_reward") is None,
        }
        for reason, holds in reasons.items():
            if holds:
                self.left_out[reason] += 1
                return None
        problem = self._require_problem(row, place)
        if self.encoder is None:
            candidates = _candidates(row["features"], problem, place)
        else:
            candidates = _made_anew(row, self.encoder, place)
        index = row["index"]
        if not _whole(index) or not 0 <= index < len(candidates):
            expected = f"that of one of {counted(len(candidates), 'candidate')}, from 0"
            raise ConfigurationError(f"index in {place}", index, expected)
        propensity = _number(row["propensity"])
        if not 0.0 < propensity <= 1.0:
            expected = "a number above 0 and at most 1"
            raise ConfigurationError(f"propensity in {place}", row["propensity"], expected)
        missing = row["reward"] is None
        worth = row["default_reward"] if missing else row["reward"]
        reward, (low, high) = _number(worth), problem.reward_range
        if not problem.pays(reward):
            raise ConfigurationError(f"reward in {place}", worth, f"a number from {low:g} to {high:g}")
        self.defaulted += missing
        return Decided(agent, candidates, index, propensity, reward)

    def _require_new(self, agent: str, number: Any, place: str) -> None:
        """Numbers of an agent ascend: no line counts twice, and one number per agent is all that is kept."""
        last = self.last.get(agent, 0)
        if not _whole(number) or number <= last:
            expected = "a whole number from 1"
            if last:
                expected = f"one above {last}: numbers of agent {agent} ascend, and none may come twice"
            raise ConfigurationError(f"number in {place}", number, expected)
        self.last[agent] = number

    def _require_problem(self, row: Mapping[str, Any], place: str) -> Problem:
        """The public bounds, which all lines share."""
        said = row.get("problem")
        if self.problem is not None and (said is None or said == self.stated):
            return self.problem
        if self.problem is not None:
            expected = "that of the lines before: agents that learn together share it"
            raise ConfigurationError(f"problem in {place}", said, expected)
        try:
            problem = Problem(dim=len(row["features"][0])) if said is None else Problem(**said)
        except (TypeError, LookupError, ConfigurationError) as error:
            if said is None:
                expected = "candidates of one number or more each"
                raise ConfigurationError(f"features in {place}", "no lists of numbers", expected) from None
            expected = f"the public bounds, as an agent writes them ({error})"
            raise ConfigurationError(f"problem in {place}", said, expected) from None
        problem = replace(problem, **self.bounds)
        if self.encoder is not None:
            problem = problem_of(self.encoder.recipe, problem.reward_range)
        self.stated, self.problem = said, problem
        return self.problem


def _plain(line: bytes, place: str) -> dict[str, Any]:
    expected = "a JSON object, as `feducb agent export` writes it"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ConfigurationError(place, line[:_SHOWN].decode(errors="replace").strip(), expected)
    EXPORT.require(row.get("format", 1), f"format in {place}")
    for key in _KEYS:
        if key not in row:
            raise ConfigurationError(place, f"without {key}", expected)
    if not isinstance(row["open"], bool):
        raise ConfigurationError(f"open in {place}", row["open"], "true or false")
    return row


def _candidates(features: Any, problem: Problem, place: str) -> Array:
    """(K, d) finite numbers, each row of length at most L."""
    try:
        given = np.asarray(features)
    except (ValueError, OverflowError):  # rows of different lengths
        given = np.empty(0)
    if given.ndim != 2 or given.shape[1] != problem.dim or not len(given) or given.dtype.kind not in "iuf":
        shape = "ragged or no numbers" if given.ndim != 2 else f"of shape {given.shape}"
        expected = f"candidates of {counted(problem.dim, 'number')} each"
        raise ConfigurationError(f"features in {place}", shape, expected)
    vectors = given.astype(np.float64)
    problem.require_short(vectors, "features", f" in {place}")
    return vectors


def _made_anew(row: Mapping[str, Any], encoder: Encoder, place: str) -> Array:
    """(K, d), what a recipe makes of the context and actions of a line."""
    try:
        return encoder.vectors(row["context"], row.get("actions"))
    except ConfigurationError as error:
        raise ConfigurationError(f"{error.setting} in {place}", error.value, error.expected) from None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> float:
    """As a float; what is none becomes NaN, which is in no range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf

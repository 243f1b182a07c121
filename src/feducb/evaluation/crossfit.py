"""Folds of the rows of a source, raw sums by fold and agent, and what folds do to errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError
from feducb.evaluation.sources import Rows
from feducb.evaluation.study import Study
from feducb.types import Array, Indices, Statistics

__all__ = ["Sums", "draw_folds", "instability"]

_MOST_BYTES = 4 * 2**30


@dataclass(slots=True)
class Sums:
    """Raw sums by repeat, fold and agent, and weighted rewards by repeat, fold and action that has a name."""

    gram: Array
    moment: Array
    squares: Array
    arm_reward: Array
    arm_weight: Array
    records: Indices  # by repeat, fold and agent

    @classmethod
    def empty(cls, repeats: int, folds: int, agents: int, arms: int, dim: int) -> Sums:
        """Sums of no records, if those to come fit into memory."""
        size = 8 * repeats * folds * agents * dim * dim
        if 3 * size > _MOST_BYTES:
            raise ConfigurationError(
                "repeats × folds × agents × d²",
                f"{repeats} × {folds} × {agents} × {dim}²",
                f"at most {_MOST_BYTES // 24:,}: fewer repeats, folds, agents or features",
            )
        shapes = (agents, dim, dim), (agents, dim), (agents,), (arms,), (arms,)
        gram, moment, squares, reward, weight = (np.zeros((repeats, folds, *shape)) for shape in shapes)
        records = np.zeros((repeats, folds, agents), dtype=np.int64)
        return cls(gram, moment, squares, reward, weight, records)

    def add(self, rows: Rows, folds: Indices) -> None:
        """Take in a block; ``folds`` is (repeats, n), negative for records that are left out."""
        repeats, _, agents = self.gram.shape[:3]
        vectors = rows.candidates[np.arange(len(rows.actions)), rows.actions]
        inverse = 1.0 / rows.propensities
        for repeat in range(repeats):
            (taught,) = np.nonzero(folds[repeat] >= 0)
            group = (folds[repeat] * agents + rows.agents)[taught]
            order = np.argsort(group, kind="stable")
            groups, starts = np.unique(group[order], return_index=True)
            order = taught[order]
            for one, some in zip(groups.tolist(), np.split(order, starts[1:]), strict=True):
                fold, agent = divmod(one, agents)
                own, worth = vectors[some], rows.scaled[some]
                self.gram[repeat, fold, agent] += own.T @ own
                self.moment[repeat, fold, agent] += worth @ own
                self.squares[repeat, fold, agent] += worth @ worth
                self.records[repeat, fold, agent] += len(some)
            if self.arm_reward.shape[-1]:
                place = (folds[repeat, taught], rows.actions[taught])
                np.add.at(self.arm_reward[repeat], place, (rows.rewards * inverse)[taught])
                np.add.at(self.arm_weight[repeat], place, inverse[taught])

    def without(self, repeat: int, fold: int) -> tuple[Statistics, Indices]:
        """Sums of each agent's records in the other folds, which count them all; and how many each has."""
        parts = (self.gram, self.moment, self.squares, self.records)
        gram, moment, squares, records = (_others(one[repeat], fold) for one in parts)
        counted = records.astype(np.int64)
        return Statistics(gram, moment, int(counted.sum()), squares), counted

    def best_action(self, repeat: int, fold: int) -> int | None:
        """The action of the highest mean reward in the other folds; None where actions have no names."""
        if not self.arm_reward.shape[-1]:
            return None
        reward, weight = (_others(one[repeat], fold) for one in (self.arm_reward, self.arm_weight))
        return int(np.argmax(np.where(weight > 0, reward / np.maximum(weight, 1e-300), -np.inf)))


def _others(by_fold: Array | Indices, fold: int) -> Array:
    """The sum over all folds but one."""
    return np.asarray(by_fold.sum(axis=0) - by_fold[fold])


def draw_folds(keys: NDArray[np.uint64], study: Study, repeats: int) -> Indices:
    """(repeats, n): the fold of each record or person, by a hash, the same at every reading."""
    folds = np.empty((repeats, len(keys)), dtype=np.int64)
    for repeat in range(repeats):
        mixed = hashed(keys, study.seed * 1_000_003 + repeat + 1)
        folds[repeat] = (mixed % np.uint64(study.folds)).astype(np.int64)
    return folds


def hashed(keys: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """Keys mixed (splitmix64), otherwise for each salt."""
    mixed = keys + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def instability(folds: int, *, repeated: bool) -> float:
    """v, by how much a cross-fitted mean varies more than its records say, where what is learnt is chance.

    Two folds teach each other, so that what they say goes together. Of a learner that takes the sign of a sum
    (docs/theory.md, 8): v = 1 + (K − 1)(2/π)/√(2K − 3), 1.96 for K = 5; averaged over many draws of the folds
    v = (2/π)(arcsin ρ + ρ/√(1 − ρ²)) with ρ = 1 − 1/K, 1.44 for K = 5. If all folds teach the same it is 1.
    """
    if not repeated:
        return 1.0 + (folds - 1) * (2.0 / math.pi) / math.sqrt(2.0 * folds - 3.0)
    shared = 1.0 - 1.0 / folds
    return (2.0 / math.pi) * (math.asin(shared) + shared / math.sqrt(1.0 - shared**2))

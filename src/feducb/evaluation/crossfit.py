"""The second and third reading of a log: rows with their vectors, folds, and raw sums by fold and agent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError
from feducb.evaluation.sources import Facts, Rows
from feducb.evaluation.study import Study
from feducb.evaluation.survey import Survey, numbers_of
from feducb.types import Statistics
from feducb.worlds.features import Category, problem_for
from feducb.worlds.logs import Log

__all__ = ["LogSource", "Sums", "draw_folds", "read_blocks"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_BLOCK = 2**22  # numbers in the vectors of a block of rows
_MOST_BYTES = 4 * 2**30


@dataclass(slots=True)
class Sums:
    """Raw sums by repeat, fold and agent, and weighted rewards by repeat, fold and action that has a name."""

    gram: Array
    moment: Array
    arm_reward: Array
    arm_weight: Array
    records: NDArray[np.int64]

    @classmethod
    def empty(cls, repeats: int, folds: int, agents: int, arms: int, dim: int) -> Sums:
        """Of no records."""
        size = 8 * repeats * folds * agents * dim * dim
        if 3 * size > _MOST_BYTES:
            raise ConfigurationError(
                "repeats × folds × agents × d²",
                f"{repeats} × {folds} × {agents} × {dim}²",
                f"at most {_MOST_BYTES // 24:,}: fewer repeats, folds, agents or features",
            )
        return cls(
            np.zeros((repeats, folds, agents, dim, dim)),
            np.zeros((repeats, folds, agents, dim)),
            np.zeros((repeats, folds, arms)),
            np.zeros((repeats, folds, arms)),
            np.zeros((repeats, folds), dtype=np.int64),
        )

    def add(self, rows: Rows, folds: Indices) -> None:
        """Take in a block; ``folds`` is (repeats, n)."""
        repeats, parts, agents = self.gram.shape[:3]
        vectors, inverse = rows.logged, 1.0 / rows.propensities
        for repeat in range(repeats):
            group = folds[repeat] * agents + rows.agents
            order = np.argsort(group, kind="stable")
            found, starts = np.unique(group[order], return_index=True)
            for one, some in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
                fold, agent = divmod(one, agents)
                own = vectors[some]
                self.gram[repeat, fold, agent] += own.T @ own
                self.moment[repeat, fold, agent] += rows.scaled[some] @ own
            if self.arm_reward.shape[-1]:
                place = (folds[repeat], rows.actions)
                np.add.at(self.arm_reward[repeat], place, rows.rewards * inverse)
                np.add.at(self.arm_weight[repeat], place, inverse)
            self.records[repeat] += np.bincount(folds[repeat], minlength=parts)

    def without(self, repeat: int, fold: int) -> Statistics:
        """Sums of each agent's records in the other folds."""
        count = int(self.records[repeat].sum() - self.records[repeat, fold])
        gram = self.gram[repeat].sum(axis=0) - self.gram[repeat, fold]
        moment = self.moment[repeat].sum(axis=0) - self.moment[repeat, fold]
        return Statistics(gram, moment, count)

    def best_action(self, repeat: int, fold: int) -> int | None:
        """The action of the highest mean reward in the other folds; None where actions have no names."""
        if not self.arm_reward.shape[-1]:
            return None
        reward = self.arm_reward[repeat].sum(axis=0) - self.arm_reward[repeat, fold]
        weight = self.arm_weight[repeat].sum(axis=0) - self.arm_weight[repeat, fold]
        return int(np.argmax(np.where(weight > 0, reward / np.maximum(weight, 1e-300), -np.inf)))


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log with columns, after its survey: what a comparison reads."""

    log: Log
    survey: Survey

    @property
    def facts(self) -> Facts:
        """From the survey; rewards are centred and get range 1."""
        found = self.survey
        return Facts(
            name=self.log.name,
            rows=found.rows,
            agents=found.agents,
            actions=found.actions,
            problem=problem_for(found.recipe),
            reward_range=(found.reward_low, found.reward_high),
            shift=(found.reward_low + found.reward_high) / 2,
            scale=found.reward_high - found.reward_low,
            least_propensity=found.least_propensity,
            notes=found.notes,
            settings={"recipe_is_public": found.recipe.public},
        )

    def blocks(self) -> Iterator[Rows]:
        """The log once more."""
        return read_blocks(self.log, self.survey)


def read_blocks(log: Log, found: Survey) -> Iterator[Rows]:
    """The log once more, with its vectors."""
    columns, recipe = found.columns, found.recipe
    at_once = max(1, _BLOCK // (len(found.actions) * recipe.dim))
    agents, actions = Category(columns.agent, found.agents), Category(columns.action, found.actions)
    middle, width = (found.reward_low + found.reward_high) / 2, found.reward_high - found.reward_low
    for chunk in log.chunks(columns):
        rewards, propensities = numbers_of(chunk, columns, found.reward_low, found.reward_high)
        agent = agents.index(chunk.columns[columns.agent], chunk.first_row)
        action = actions.index(chunk.columns[columns.action], chunk.first_row)
        keys = np.arange(chunk.first_row, chunk.first_row + chunk.rows, dtype=np.uint64)
        if columns.person is not None:
            keys = np.asarray(chunk.columns[columns.person], dtype=np.uint64)
        for start in range(0, chunk.rows, at_once):
            some = slice(start, start + at_once)
            context = {name: chunk.columns[name][some] for name in columns.context}
            vectors = recipe.candidates(
                context, found.actions, first_row=chunk.first_row + start, rows=len(agent[some])
            )
            yield Rows(
                agent[some],
                action[some],
                rewards[some],
                (rewards[some] - middle) / width,
                propensities[some],
                keys[some],
                vectors,
            )


def draw_folds(keys: NDArray[np.uint64], study: Study, repeats: int) -> Indices:
    """(repeats, n): the fold of each record or person, by a hash (splitmix64), the same at every reading."""
    made = np.empty((repeats, len(keys)), dtype=np.int64)
    for repeat in range(repeats):
        mixed = keys + np.uint64((study.seed * 1_000_003 + repeat + 1) * 0x9E3779B97F4A7C15 % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        made[repeat] = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(study.folds)).astype(np.int64)
    return made

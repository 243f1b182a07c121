"""What agents export is judged like a log with columns: the same numbers, bad lines named, nothing held."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from decided import world, write
from scipy import stats

from feducb.agent import Agent, AgentSettings
from feducb.agent.upkeep import export
from feducb.config import Budget
from feducb.evaluation import (
    Comparison,
    FrameLog,
    LogColumns,
    Study,
    compare_on_log,
    compare_source,
    open_exports,
    survey,
)
from feducb.evaluation.sources import Facts, Rows
from feducb.trust import CONTROLLER
from feducb.worlds.features import Category, Number, Recipe, problem_for

QUICK = Study(epsilons=(8.0,), trusts=(CONTROLLER,), folds=2, repeats=2)
OFFERS = ("book", "game", "film")
RECIPE = Recipe(
    context=(Number("age", 0, 100),),
    action=(Category("offer", OFFERS),),
    terms=(("offer",), ("offer", "age")),
)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def _agent_at_work(folder: Path, name: str, seed: int) -> list[dict[str, Any]]:
    """What an agent keeps that draws a third of its decisions, learns, and gets most of its rewards.

    Returns:
        What a columned log of the same decisions would hold.
    """
    clock, rng, ages = Clock(), np.random.default_rng(seed), []
    settings = AgentSettings(
        name=name,
        problem=problem_for(RECIPE),
        budget=Budget(epsilon=1e4, delta=1e-3),
        decisions=1_000_000,
        releases=4,
        schedule="periodic",
        policy="optimistic",
        season=40.0,
        window=1.0,
        start=clock.now,
        default_reward=-0.5,
        uniform_share=1 / 3,
        keep_events=1000.0,
    )
    with Agent.open(folder / f"{name}.db", settings, clock=clock) as agent:
        for _ in range(4):
            with agent.writing():
                for _ in range(200):
                    age = float(rng.uniform(0, 100))
                    decision = agent.decide(RECIPE.vectors({"age": age}, OFFERS))
                    if rng.random() < 0.9:
                        liked = (age / 100, 1 - age / 100, 0.1)[decision.index]
                        agent.reward(decision.id, float(rng.random() < liked) - 0.5)
                    ages.append(age)
            clock.now += 10.0
            agent.tick()
        rows = list(export(folder / f"{name}.db"))
    write(folder / f"{name}.jsonl", rows)
    return [
        {
            "shop": name,
            "age": age,
            "offer": OFFERS[row["index"]],
            "worth": -0.5 if row["reward"] is None else row["reward"],
            "p": row["propensity"],
        }
        for age, row in zip(ages, rows, strict=True)
    ]


def _flat(row: dict[str, Any], within: str = "") -> dict[str, Any]:
    """Its entries and those of what it holds, by path."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{within}{name}.") if isinstance(value, dict) else {f"{within}{name}": value}
    return flat


def test_exports_of_agents_say_what_a_log_with_the_same_vectors_says(tmp_path: Path) -> None:
    # Same bounds, same sums, same draws; sums are added in another order. Only the best single action is not
    # to be had, and what is held against it.
    shops = [_agent_at_work(tmp_path, name, seed) for seed, name in enumerate(("north", "south"))]
    frame = pd.DataFrame([row for shop in shops for row in shop])
    assert frame["p"].round(6).nunique() == 3  # before a sum came; then drawn, or followed
    columns = LogColumns(agent="shop", action="offer", reward="worth", propensity="p")
    log = FrameLog(frame)
    expected = compare_on_log(
        log, survey(log, columns, context=RECIPE, reward_range=(-0.5, 0.5)), study=QUICK
    )
    source = open_exports([tmp_path / "north.jsonl", tmp_path / "south.jsonl"])
    source = replace(source, facts=replace(source.facts, recipe=RECIPE))  # vectors do not tell their zeros
    found = compare_source(source, study=QUICK)
    assert found.source == "north.jsonl, south.jsonl"
    assert [row.name for row in expected.rows if row.name == "the best single action"] != []
    left = [row for row in expected.rows if row.name != "the best single action"]
    for row, other in zip(found.rows, left, strict=True):
        told, same = (_flat(replace(one, over_fixed=None).as_dict()) for one in (row, other))
        for name in [name for name in same if isinstance(same[name], float)]:
            assert told.pop(name) == pytest.approx(same.pop(name), rel=1e-9, nan_ok=True), name
        assert told == same
    assert (found.settings["agents"], found.settings["candidates"]) == (2, [3, 3])
    assert any("default reward" in note for note in found.notes)
    assert found.fixed == "the logged policy"
    assert any("compared by their vectors, names or not" in note for note in found.notes)


def _compare(folder: Path, lines: Iterable[dict[str, Any]], study: Study = QUICK) -> Comparison:
    return compare_source(open_exports([write(folder / "north.jsonl", lines)]), study=study)


def test_values_are_right_where_candidates_vary_in_number(tmp_path: Path) -> None:
    """Nine z-tests at 1e-6 each, on one seed; the last loses at most 0.005 since it has to learn."""
    made = world(6000)
    found = _compare(tmp_path, made.lines)
    for name, truth, less in (
        ("the logged policy", made.logged, 0.0),
        ("uniform", made.uniform, 0.0),
        ("federation without privacy", made.best, 0.005),
    ):
        details = found.row(name).details
        assert details is not None
        for one in (details.doubly_robust, details.snips, details.ips):
            assert abs(one.value - (truth - less / 2)) < less / 2 + stats.norm.isf(0.5e-6) * one.stderr
    assert found.reliable
    assert found.settings["candidates"] == [1, 6]


@dataclass(frozen=True)
class OneByOne:
    """Lines as a source made by hand: a block a decision."""

    lines: list[dict[str, Any]]
    facts: Facts

    def blocks(self) -> Iterator[Rows]:
        for line in self.lines:
            reward = np.array([line["reward"]])
            key, index = np.array([line["number"]], dtype=np.uint64), np.array([line["index"]])
            chance, vectors = np.array([line["propensity"]]), np.array([line["features"]])
            yield Rows(np.array([0]), index, reward, reward, chance, key, vectors)


@pytest.mark.parametrize("rows_at_once", [7, 20_000])
def test_blocks_by_number_of_candidates_are_the_decisions_one_by_one(
    tmp_path: Path, rows_at_once: int
) -> None:
    made = world(300)
    source = open_exports([write(tmp_path / "north.jsonl", made.lines)], rows_at_once=rows_at_once)
    seen = [key for block in source.blocks() for key in block.keys.tolist()]
    assert sorted(seen) == list(range(1, 301))
    found = compare_source(source, study=QUICK)
    expected = compare_source(OneByOne(made.lines, source.facts), study=QUICK)
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert row.details is not None
        assert other.details is not None
        for name in ("doubly_robust", "snips", "ips"):
            one, two = getattr(row.details, name), getattr(other.details, name)
            np.testing.assert_allclose([one.value, one.stderr], [two.value, two.stderr], rtol=1e-9)


def test_an_agent_that_never_draws_gets_no_answer(tmp_path: Path) -> None:
    lines = [line | {"propensity": 1.0} for line in world(400).lines if len(line["features"]) > 1]
    found = _compare(tmp_path, lines)
    assert any("where 1 is expected" in one and "uniform" in one for one in found.warnings)
    assert not found.federate
    assert found.verdict().startswith("Cannot tell")


def test_memory_does_not_grow_with_the_export(tmp_path: Path) -> None:
    # Blocks of 300 decisions. 8,000 more are 0.64 MB of vectors and several times that as lines; what Python
    # has not yet collected is 0.1 MB, more or less of it by chance.
    study = Study(epsilons=(8.0,), trusts=(CONTROLLER,), folds=2, repeats=1)
    peaks = []
    for rows in (1_000, 9_000):
        path = write(tmp_path / f"{rows}.jsonl", world(rows).lines)
        compare_source(open_exports([path]), study=study)  # what learners are made of is kept: not the export
        tracemalloc.start()
        compare_source(open_exports([path], rows_at_once=300), study=study)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 300_000

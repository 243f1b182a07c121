"""Learning from a part of each agent's records: how many teach, and that all judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from feducb.errors import ConfigurationError
from feducb.evaluation import FrameLog, LogColumns, Online, Study, evaluate, survey
from feducb.evaluation.online import compare_online
from feducb.evaluation.question import Reading
from feducb.evaluation.sources import silent
from feducb.evaluation.survey import parse_context
from feducb.evaluation.teaching import Teaching
from feducb.trust import CONTROLLER
from feducb.worlds.data import Known, data_set

AGENTS, ROWS, MOST = 4, 4000, 200
READ: Reading = {
    "agent_column": "shop",
    "action": "offer",
    "reward": "reward",
    "propensity": "chance",
    "context": "age:0:1",
}


def log() -> pandas.DataFrame:
    """Two offers of which the one that is better hangs on age."""
    rng = np.random.default_rng(0)
    age, offer = rng.random(ROWS), rng.integers(2, size=ROWS)
    reward = rng.random(ROWS) < np.where(offer == 1, age, 1.0 - age)
    shop = [f"shop {one}" for one in np.arange(ROWS) % AGENTS]
    columns = {"shop": shop, "offer": [("book", "game")[one] for one in offer], "reward": reward * 1.0}
    return pandas.DataFrame({**columns, "chance": 0.5, "age": age})


def test_about_so_many_records_of_each_agent_teach_without_a_fold_and_others_in_each_repeat() -> None:
    study, repeats = Study(records_per_agent=MOST), 20
    columns = LogColumns(agent="shop", action="offer", reward="reward", propensity="chance")
    source = survey(FrameLog(log()), columns, context=parse_context(["age:0:1"]))
    (rows,) = source.blocks()
    teaching = Teaching.of(source, study, silent)
    folds = teaching.folds(rows.keys, rows.agents, study, repeats)
    assert teaching.rows == AGENTS * MOST * 5 // 4
    for fold in range(study.folds):
        taught = (folds >= 0) & (folds != fold)
        per_agent = np.array([taught[:, rows.agents == one].sum(axis=1) for one in range(AGENTS)])
        # The mean of 80 binomials of variance 160: five standard errors are 7; false alarm 3e-6 over folds.
        assert abs(per_agent.mean() - MOST) < 7.1
    chosen = (folds >= 0).mean(axis=0)  # by record, over repeats: nobody always teaches
    assert chosen.max() < 0.95
    plain = Teaching(ROWS).folds(rows.keys, rows.agents, study, repeats)
    assert (plain >= 0).all()
    assert ((folds == plain) | (folds < 0)).all()


def test_as_many_as_there_are_is_all_and_few_teach_less() -> None:
    study = Study(epsilons=(8.0,), trusts=(CONTROLLER,), repeats=5)
    frame = log()
    found = {
        most: evaluate(frame, study=replace(study, records_per_agent=most), **READ)
        for most in (None, 4000, 10)
    }
    for one, other in zip(found[None].rows, found[4000].rows, strict=True):
        assert one.value == other.value
    assert found[10].settings["rounds_of_training"] == 10
    assert found[10].settings["rows"] == ROWS  # all judge
    alone = [found[most].row("each agent alone", "greedy").value.value for most in (10, None)]
    assert alone[0] < alone[1] - 0.01


def test_online_it_is_the_number_of_rounds() -> None:
    loaded = data_set("movielens").load(300)
    assert isinstance(loaded, Known)
    study = Study(epsilons=(8.0,), trusts=(CONTROLLER,), records_per_agent=3)
    found = compare_online(loaded, source="films", study=study, online=Online(runs=2))
    assert found.settings["horizon"] == 3
    assert found.settings["records_per_agent"] == 3


def test_none_at_all_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="records_per_agent is 0"):
        Study(records_per_agent=0)

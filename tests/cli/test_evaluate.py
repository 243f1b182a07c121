"""`feducb data` and `feducb evaluate` as a user meets them: real files, and a real process of each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from feducb.worlds.features import Recipe
from typed import typed

QUICK = ["--epsilon", "8", "--trust", "controller", "--folds", "2", "--repeats", "1"]
COLUMNS = ["--agent-column", "shop", "--action", "offer", "--reward", "bought", "--propensity", "p"]


def _process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "feducb", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture
def shops(tmp_path: Path) -> Path:
    """Two thousand decisions of 200 shops; the young take b, the old take a."""
    rng = np.random.default_rng(3)
    lines = ["shop,age,region,offer,bought,p"]
    for _ in range(2000):
        age, offer = rng.integers(18, 90), rng.choice(["a", "b"], p=[0.7, 0.3])
        chance = 0.1 + 0.8 * ((age > 50) == (offer == "a"))
        lines.append(
            f"{rng.integers(200)},{age},{rng.choice(['N', 'S'])},{offer},{int(rng.random() < chance)},"
            f"{0.7 if offer == 'a' else 0.3}"
        )
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_rows_say_that_it_is_own_play_and_who_stays_alone(shops: Path) -> None:
    done = typed(
        "evaluate", "log.csv", *COLUMNS, "--context", "age,region", *QUICK, "--play", "own",
        "--json", "out.json", cwd=shops,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "private ε=8, controller, own, greedy" in done.stdout
    assert "own: agents share first, close, and then act on their own records" in done.stdout
    assert "no privacy, greedy" in done.stdout  # it is compared with, and has no close
    found = json.loads((shops / "out.json").read_text())
    assert "Against each agent alone, greedy, under own play: private" in found["verdict"]
    plays = {row["policy"]: row.get("federation_play") for row in found["policies"]}
    assert plays["private federation, ε = 8, controller trusted"] == "own"
    assert {play for name, play in plays.items() if not name.startswith("private")} == {None}
    online = ("evaluate", "movielens", "--runs", "2", "--horizon", "20", "--delta", "1e-6")
    asked = ("--epsilon", "0.1", "--trust", "nobody", "--play", "own", "--json", "online.json")
    done = typed(*online, *asked, cwd=shops)
    assert done.returncode == 0, done.stderr
    assert "private ε=0.1, nobody, own, practical †" in done.stdout
    assert "† stays alone: nothing is worth its noise" in done.stdout
    assert "own: agents share first" not in done.stdout  # nobody does
    rows = json.loads((shops / "online.json").read_text())["policies"]
    assert {row["federation_play"] for row in rows if row["private"]} == {"stays alone"}


def test_a_log_gets_a_table_a_verdict_json_a_picture_and_a_recipe(shops: Path) -> None:
    done = _process(
        "evaluate", "log.csv", *COLUMNS, "--context", "age,region", *QUICK,
        "--json", "out.json", "--plot", "out.png", "--save-recipe", "recipe.json", cwd=shops,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for told in ("logged policy", "alone, greedy", "private ε=8, controller, greedy", "SNIPS", "replay"):
        assert told in done.stdout
    told = " ".join(done.stdout.split())
    assert "the range of age was read off the log: age:18:89" in told
    assert "before deploying, fix them in public" in " ".join(done.stderr.split())
    found = json.loads((shops / "out.json").read_text())
    assert found["verdict"] in told
    assert found["settings"]["rows"] == 2000
    assert {row["policy"] for row in found["policies"]} >= {"each agent alone", "federation without privacy"}
    assert found["federate"] is True  # ten records a shop: alone nobody learns
    assert (shops / "out.png").read_bytes().startswith(b"\x89PNG")
    recipe = Recipe.from_json((shops / "recipe.json").read_text())
    assert not recipe.public
    again = typed(
        "evaluate", "log.csv", *COLUMNS, "--recipe", "recipe.json", *QUICK, "--json", "-", cwd=shops
    )
    assert json.loads(again.stdout)["policies"] == found["policies"]


def test_public_ranges_are_not_complained_about(shops: Path) -> None:
    done = typed(
        "evaluate", "log.csv", *COLUMNS, "--context", "age:0:120", "--actions", "a,b", *QUICK, "--json", "-",
        cwd=shops,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["recipe_is_public"] is True
    assert "note:" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["log.csv", "--context", "age"], "--agent-column is None, expected the name of a column"),
        (["log.csv", *COLUMNS, "--context", "height"], "column is 'height', expected one of"),
        (["log.csv", *COLUMNS, "--actions", "a,c"], "offer in line"),
        (["log.csv", *COLUMNS, "--reward-range", "0:0.5"], "bought in line"),
        (["log.csv", *COLUMNS, "--terms", "offer*height"], "terms is 'height'"),
        (["log.csv", *COLUMNS, "--epsilon", "0"], "epsilon is 0.0"),
        (["log.csv", *COLUMNS, "--recipe", "none.json"], "none.json"),
        (["none.csv", *COLUMNS], "a file that exists, or the name of a data set"),
        (["actg175", "--context", "age"], "--context is 'age', expected nothing beside the data set"),
    ],
)
def test_bad_input_ends_with_status_2_and_one_sentence(shops: Path, arguments: list[str], named: str) -> None:
    done = typed("evaluate", *arguments, cwd=shops)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_bad_row_ends_with_its_line_as_an_editor_shows_it(shops: Path) -> None:
    lines = (shops / "log.csv").read_text().splitlines()
    lines[1500] = lines[1500].rpartition(",")[0] + ",0"
    (shops / "log.csv").write_text("\n".join(lines))
    done = typed("evaluate", "log.csv", *COLUMNS, cwd=shops)
    assert done.returncode == 2
    assert "p in line 1501 is 0.0, expected a number above 0 and at most 1" in done.stderr


def test_a_trial_and_a_labelled_set_by_name() -> None:
    trial = json.loads(typed("evaluate", "actg175", *QUICK, "--json", "-").stdout)
    assert trial["settings"]["agents"] == 10
    assert trial["verdict"].startswith(("Federate: ", "Do not federate"))
    rated = typed(
        "evaluate", "movielens", "--epsilon", "8", "--trust", "controller", "--runs", "2", "--horizon", "20",
        "--json", "-",
    )  # fmt: skip
    found = json.loads(rated.stdout)
    assert found["settings"]["runs"] == 2
    assert found["primary"] == "practical"


def test_data_sets_are_listed_and_shown(tmp_path: Path) -> None:
    listed = _process("data", "list").stdout
    for name in ("actg175", "star", "movielens", "letter"):
        assert name in listed
    done = _process("data", "show", "star", "--json", "star.json", "--recipe", "recipe.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "star.json").read_text())
    assert (found["records"], found["agents"]) == (5734, 78)
    assert Recipe.from_json((tmp_path / "recipe.json").read_text()).dim == found["dim"]
    assert "what was done" in done.stdout
    assert typed("data", "show", "iris").returncode == 2

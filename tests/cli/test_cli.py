"""The command line as a user meets it: real files, and a real process of each command."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms
from feducb.simulation.memory import free_memory
from feducb.storage import AgentStore, ControllerStore
from feducb.trust import CONTROLLER
from feducb.worlds.features import Category, Number, Recipe
from typed import typed

TINY = ["--agents", "3", "--dim", "2", "--arms", "4", "--horizon", "60", "--runs", "2"]


def _process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "feducb", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_simulate_writes_a_table_json_and_a_picture(tmp_path: Path) -> None:
    done = _process("simulate", *TINY, "--json", "out.json", "--plot", "out.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "per-agent regret" in done.stdout
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["config"]["agents"] == 3
    assert data["privacy"]["epsilon"] == 1.0
    assert (tmp_path / "out.png").stat().st_size > 5_000


def test_json_on_standard_output_is_json_alone() -> None:
    done = typed("simulate", *TINY, "--json", "-")
    assert json.loads(done.stdout)["releases"] > 0


def test_paper_mode_announces_itself() -> None:
    done = typed("simulate", *TINY, "--mode", "paper", "--delta", "0.1")
    assert done.returncode == 0, done.stderr
    assert "NOT private against an interactive adversary" in done.stderr
    assert "one record in 10" in done.stderr


def test_exploration_says_when_it_is_not_the_proven_bound() -> None:
    assert "NOT covered by the proven bound" in typed("simulate", *TINY, "--exploration", "0.3").stderr


def test_a_policy_says_that_no_bound_covers_it_and_is_played_by_the_reference() -> None:
    done = typed("simulate", *TINY, "--policy", "thompson:0.2", "--no-privacy", "--json", "-")
    assert "Thompson(scale=0.2) is NOT covered by the proven bound" in " ".join(done.stderr.split())
    config = json.loads(done.stdout)["config"]
    assert (config["policy"], config["backend"]) == ("Thompson(scale=0.2)", "reference")
    for wrong in (["--policy", "boldest"], ["--policy", "greedy", "--backend", "cpu"]):
        refused = typed("simulate", *TINY, *wrong)
        assert refused.returncode == 2
        assert "policy" in refused.stderr


@pytest.mark.parametrize("name", ["budgets.csv", "budgets.json"])
def test_budgets_come_from_a_file(tmp_path: Path, name: str) -> None:
    rows = [(0.5, 1e-6), (1.0, 1e-6), (2.0, 1e-5)]
    if name.endswith("csv"):
        text = "epsilon,delta\n" + "".join(f"{epsilon},{delta}\n" for epsilon, delta in rows)
    else:
        text = json.dumps([{"epsilon": epsilon, "delta": delta} for epsilon, delta in rows])
    (tmp_path / name).write_text(text)
    done = typed("simulate", *TINY, "--budgets", name, "--json", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["privacy"]["budgets"][2] == {"epsilon": 2.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["simulate", "--dim", "0"], "dim is 0, expected"),
        (["simulate", "--arms", "0"], "arms is 0, expected"),
        (["simulate", "--epsilon", "0"], "epsilon is 0.0, expected"),
        (["simulate", "--epsilon", "nan"], "epsilon is nan, expected"),
        (["simulate", "--delta", "1"], "delta is 1.0, expected"),
        (["simulate", "--releases", "50", "--horizon", "40"], "releases is 50, expected"),
        (["simulate", "--mode", "pape"], "mode is 'pape', expected"),
        (["simulate", "--schedule", "determinant"], "expected one that reads no private data"),
        (["simulate", "--alone", "--uniform"], "expected at most one of"),
        (["simulate", "--agents", "many"], "many"),
        (["simulate", "--json", "no/such/folder.json"], "expected a file in a folder that exists"),
        (["simulate", "--play", "alone"], "play is 'alone', expected released or own"),
        (["simulate", "--distance", "0.1"], "distance is 0.1, expected own play beside it"),
        (["simulate", "--play", "own", "--alone"], "expected no --epsilon"),
        (["simulate", "--play", "own", "--topology", "ring:6"], "its agents have no common close"),
        (["simulate", "--heterogeneity", "3"], "heterogeneity is 3.0, expected a number from 0 to 2"),
        (["simulate", "--heterogeneity", "0.1", "--world", "isotropic"], "only in the paper's world"),
        (["simulate", "--history", "-1"], "history is -1, expected"),
        (["simulate", "--history", "9", "--topology", "ring:6"], "history is 9, expected 0 on a graph"),
        (["simulate", "--budgets", "missing.csv"], "missing.csv"),
        (["simulate", "--wings", "2"], "--wings"),
        (["simulat"], "simulat"),
    ],
)
def test_bad_input_ends_with_status_2_and_one_sentence(arguments: list[str], named: str) -> None:
    done = typed(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_budgets_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("eps,delta\n1,0.1\n")
    done = typed("simulate", *TINY, "--budgets", "b.csv", cwd=tmp_path)
    assert (done.returncode, "columns epsilon,delta" in done.stderr) == (2, True)


def test_help_and_version() -> None:
    assert "simulate" in _process("--help").stdout
    assert "--first-release" in _process("simulate", "--help").stdout
    assert _process("--version").stdout.startswith("feducb ")
    assert _process().returncode == 0


def test_demo_compares_five_ways_and_writes_a_picture(tmp_path: Path) -> None:
    done = _process("demo", "--agents", "4", "--horizon", "60", "--out", "d.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    others = ("the paper's constants", "each agent alone", "no privacy")
    for label in ("feducb (calibrated)", "feducb (secure sums)", *others):
        assert label in done.stdout
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def _unframed(table: str) -> str:
    """The words of a table, whose lines may be broken anywhere."""
    return " ".join(table.replace("│", " ").split())


def test_own_play_says_until_when_it_shares_or_that_it_stays_alone(tmp_path: Path) -> None:
    own = ("simulate", *TINY, "--play", "own", "--json", "-")
    shares = ("--schedule", "explicit:4,9", "--heterogeneity", "0.2", "--distance", "0.2")
    done = typed(*own, *shares, "--plot", "own.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "shares until visitor 9 (2 releases), then acts on own records" in _unframed(done.stderr)
    assert (found["config"]["play"], found["config"]["distance"]) == ("own", 0.2)
    assert found["release_rounds"] == [4, 9]
    assert "NOT an agent's own visitors after the close" in found["privacy"]["adversary"]
    assert (tmp_path / "own.svg").exists()
    done = typed(*own, "--history", "200", "--epsilon", "8")  # more than all that is shared without it
    assert "200 records of each agent, in its first release" in _unframed(done.stderr)
    assert "shares its history (1 release), then" in _unframed(done.stderr)
    done = typed(*own, "--history", "30", "--epsilon", "0.01")
    found = json.loads(done.stdout)
    told = _unframed(done.stderr)
    assert "30 records of each agent play stays alone: no sum would be worth its noise" in told
    assert (found["privacy"]["epsilon"], found["releases"], found["release_rounds"]) == (0.0, 0, [])


def test_privacy_plan_tells_noise_regret_and_a_verdict() -> None:
    setting = "--releases 16 --dim 3 --agents 5 --visitors 200 --runs 3 --json -"
    done = _process("privacy", "plan", *setting.split())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.999 <= found["epsilon_reaccounted"] <= 1.001
    assert found["grid"]["epsilon_certified"] <= 1.0
    assert found["grid"]["noise_over_gaussian"] <= 1.08
    assert set(found) >= {"mu", "sigma", "mechanism", "worst_error", "pays_after"}
    assert found["regret"]["alone"] > 0
    assert found["regret"]["runs"] == 3
    assert found["verdict"].startswith(("Federating pays", "Stay alone", "Cannot tell"))
    assert found["verdict"] in " ".join(done.stderr.split())


def test_privacy_plan_goes_to_a_million_releases() -> None:
    done = typed("privacy", "plan", "--releases", "1000000", "--json", "-")
    found = json.loads(done.stdout)
    assert found["mechanism"] == "blt"
    assert found["worst_error"] < 6.0
    assert found["state_bytes"] < 1_000_000
    assert found["regret"] is None


def test_privacy_plan_takes_the_shape_of_visitors_from_a_recipe(tmp_path: Path) -> None:
    offers = Category("offer", ("book", "game", "film"))
    recipe = Recipe(context=(Number("age", 18, 90),), action=(offers,), terms=(("offer",), ("offer", "age")))
    (tmp_path / "recipe.json").write_text(recipe.to_json())
    common = ("privacy", "plan", "--recipe", "recipe.json")
    done = typed(*common, "--visitors", "60", "--epsilon", "8", "--json", "-", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["dim"], found["regret"]["arms"], found["visitors"]) == (6, 3, 60)
    for told, named in (("--dim", "nothing beside --recipe"), ("--arms", "the recipe lists its actions")):
        refused = typed(*common, told, "4", cwd=tmp_path)
        assert refused.returncode == 2
        assert named in refused.stderr


def test_per_person_and_trust_scale_the_noise() -> None:
    common = ("privacy", "plan", "--dim", "2", "--releases", "8", "--visitors", "50", "--runs", "2")
    one = json.loads(typed(*common, "--json", "-").stdout)
    three = json.loads(typed(*common, "--per-person", "3", "--json", "-").stdout)
    assert three["sigma"] == pytest.approx(3 * one["sigma"])
    assert three["epsilon_reaccounted"] == pytest.approx(1.0, abs=1e-3)


def test_spaced_records_need_less_noise_and_the_statement_says_how_they_are_spaced(tmp_path: Path) -> None:
    common = ("privacy", "plan", "--dim", "2", "--releases", "12", "--visitors", "50", "--runs", "2")
    asked = (*common, "--epsilon", "200", "--per-person", "2", "--spacing")
    anywhere, apart = (json.loads(typed(*asked, spacing, "--json", "-").stdout) for spacing in ("0", "4"))
    assert (anywhere["reach"], anywhere["spacing"], apart["spacing"]) == (2.0, 0, 4)
    assert apart["reach"] < 1.9
    # Planned releases follow from the noise, so that a record's share of it is compared.
    assert apart["sigma"] / apart["reach"] == pytest.approx(anywhere["sigma"] / 2.0)
    assert apart["epsilon_reaccounted"] == pytest.approx(200.0, rel=1e-3)
    assert re.search(r"noise for records 4 releases apart +│ 1\.\d+ times", typed(*asked, "4").stdout)
    given = ("--per-person", "2", "--spacing", "4", "--out", "-")
    page = typed("privacy", "statement", *given, cwd=tmp_path).stdout
    assert "at most one in any 4 consecutive releases" in page
    refused = typed(*common, "--spacing", "4")
    assert "spacing is 4, expected 0 where a person has one record" in refused.stderr


def test_a_plan_covers_a_person_at_all_agents_where_the_controller_is_trusted() -> None:
    common = ["privacy", "plan", "--dim", "2", "--releases", "8", "--visitors", "50", "--agents", "4"]
    common += ["--runs", "2", "--per-person", "2", "--json", "-"]
    apart = json.loads(typed(*common).stdout)
    pooled = json.loads(typed(*common, "--trust", "controller").stdout)
    once = json.loads(typed(*common, "--trust", "controller", "--agents-per-person", "1").stdout)
    assert (apart["agents_per_person"], pooled["agents_per_person"], once["agents_per_person"]) == (1, 4, 1)
    assert pooled["sigma"] == pytest.approx(4 * once["sigma"]) == pytest.approx(4 * apart["sigma"])
    for found in (apart, pooled, once):
        assert found["epsilon_reaccounted"] == pytest.approx(1.0, abs=1e-3)
    told = typed(*common, "--agents-per-person", "4")
    assert re.search(r"a person at 4 agents +│ ε = 2\.12\d+, each adds its own noise", told.stderr)
    assert json.loads(told.stdout)["epsilon_at_several_agents"] == pytest.approx(2.123, abs=2e-3)


def test_a_plan_says_what_keepers_cost_and_what_fewer_honest_shares_would() -> None:
    common = ["privacy", "plan", "--dim", "2", "--releases", "8", "--visitors", "50", "--agents", "100"]
    common += ["--runs", "2", "--trust", "keepers", "--away", "10", "--colluding", "20"]
    told = typed(*common, "--agents-per-person", "1", "--json", "-")
    found = json.loads(told.stdout)
    shared = found["shared_noise"]
    assert (found["trust"], shared["shares"]) == ("keepers:10:20", 70)
    assert shared["noise_over_controller"] == pytest.approx(1.195, abs=1e-3)
    assert shared["noise_if_none_away"] == pytest.approx(1.118, abs=1e-3)
    assert shared["noise_if_one_colludes"] == pytest.approx(1.060, abs=1e-3)
    by_shares = {one["shares"]: one["epsilon"] for one in shared["by_honest_shares"]}
    assert by_shares == pytest.approx({70: 1.0, 50: 1.20, 35: 1.45, 17: 2.16, 1: 10.9}, rel=5e-3)
    assert found["grid"]["noise_over_gaussian"] == pytest.approx(1.0, abs=1e-3)
    assert "10 may be away" in told.stderr
    nobody = json.loads(typed(*common[:-6], "--json", "-").stdout)
    assert "shared_noise" not in nobody
    assert nobody["sigma"] == found["sigma"]  # one noise, as one agent's alone would be
    assert found["regret"]["federated"] < nobody["regret"]["federated"]


def test_simulated_agents_may_be_away_where_rows_are_summed() -> None:
    common = ["simulate", "--agents", "6", "--dim", "2", "--arms", "4", "--horizon", "80", "--runs", "2"]
    done = typed(
        *common, "--trust", "keepers", "--away", "1", "--colluding", "1", "--absence", "0.2", "--json", "-"
    )
    found = json.loads(done.stdout)
    assert (found["config"]["trust"], found["config"]["absence"]) == ("keepers:1:1", 0.2)
    assert found["privacy"]["mu"] == pytest.approx(0.2367, abs=1e-4)  # that of (1, 1e-6)
    assert "an agent misses 20 % of rows" in done.stderr
    for asked, sentence in (
        (["--absence", "0.2"], "absence is 0.2, expected 0 unless the trust is keepers"),
        (
            ["--trust", "keepers", "--away", "3", "--colluding", "2"],
            "of 6 agents 3 may be away and 2 may collude",
        ),
    ):
        refused = typed(*common, *asked)
        assert refused.returncode == 2
        assert sentence in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_a_plan_for_very_many_records_of_a_person_stays_alone() -> None:
    done = typed(
        "privacy", "plan", "--dim", "2", "--visitors", "200", "--per-person", "100000", "--json", "-"
    )
    found = json.loads(done.stdout)
    assert (found["read_from"], found["pays_after"]) == (None, None)
    assert found["verdict"].startswith("Stay alone: nothing released is worth reading.")


def test_privacy_statement_writes_a_page_and_data(tmp_path: Path) -> None:
    done = _process(
        "privacy", "statement", "--epsilon", "2", "--per-person", "2", "--out", "page", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    page, data = (tmp_path / "page.md").read_text(), json.loads((tmp_path / "page.json").read_text())
    assert "(ε, δ) = (2, 1e-06)" in page
    assert "Signed:" in page
    assert set(data) >= {
        "unit", "neighbours", "adversary", "trust", "epsilon", "delta", "releases", "mechanism", "versions",
        "retention",
    }  # fmt: skip
    assert data["unit"] == "one person, with up to 2 interactions at one agent"
    assert "has √k times this μ: at 2 agents μ = " in page
    assert data["versions"]["opendp"][0].isdigit()
    assert "| **Estimators** | one: all records enter it |" in page


def test_a_statement_in_an_agents_folder_says_that_it_is_not_about_that_agent(tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        done = typed("privacy", "statement", "--out", "-", cwd=tmp_path)
        assert "note:" not in done.stdout
        said.append("note: this describes the options given" in done.stderr)
        (tmp_path / "agent.toml").touch()
    assert said == [False, True]


def test_a_statement_says_what_a_person_at_several_agents_pays(tmp_path: Path) -> None:
    common = ("privacy", "statement", "--per-person", "2", "--out", "-", "--trust", "controller")
    covered = typed(*common, "--agents-per-person", "3", cwd=tmp_path).stdout
    assert "one person, with up to 2 interactions at each of up to 3 agents" in covered
    assert "noise is for up to 2 interactions at each of up to 3 agents, 6 in all" in covered
    alone = typed(*common, "--agents-per-person", "1", cwd=tmp_path).stdout
    assert "states that people do not visit several agents, and nothing checks it" in alone
    unsaid = typed(*common, cwd=tmp_path)
    assert unsaid.returncode == 2
    assert "--agents-per-person is None, expected how many agents one person visits" in unsaid.stderr


def test_a_statement_counts_estimators_and_charges_nothing_for_them(tmp_path: Path) -> None:
    terms = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, groups=3)
    with AgentStore.open(tmp_path / "agent.db", terms) as store:
        store.release(1)
    for how in (["--groups", "3", "--releases", "4"], ["--store", "agent.db"]):
        done = typed("privacy", "statement", *how, "--out", "page", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        page, data = (tmp_path / "page.md").read_text(), json.loads((tmp_path / "page.json").read_text())
        assert (data["groups"], data["releases"]) == (3, 4)
        assert data["mu"] == pytest.approx(1 / 4.224679, rel=1e-4)  # that of (1, 1e-6), as for one
        assert "4 at most of each estimator" in page
        assert "3, over disjoint records: a record enters one of them, drawn by a private coin" in page
    assert "| 1 | 1 | 11 |" in page  # season 1: one made, eleven left


def test_privacy_audit_ends_with_0_on_the_shipped_code() -> None:
    # Unseeded, on purpose; false alarm at most 1e-6. Fewer trials and claims than by default: weaker, not
    # less rigorous; tests/audit has all.
    done = _process("privacy", "audit", "--epsilon", "8", "--trials", "300", "--no-self-test", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) >= {"epsilon_claimed", "epsilon_lower_bound_gaussian", "epsilon_lower_bound", "checks"}
    assert found["epsilon_lower_bound_gaussian"] <= found["epsilon_claimed"]
    assert all(check["passed"] for check in found["checks"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["plan", "--epsilon", "-1"], "epsilon is -1.0, expected"),
        (["plan", "--trust", "everyone"], "trust is 'everyone', expected nobody, controller or keepers"),
        (["audit", "--trials", "3"], "trials is 3, expected"),
        (["audit", "--epsilon", "1e-9"], "epsilon is 1e-09, expected"),
        (["plan", "--away", "1"], "away is 1, expected nothing under trust nobody: it is for keepers"),
        (["plan", "--trust", "keepers", "--agents", "2"], "expected at least 2 honest shares of noise a row"),
        (["plan", "--visitors", "0"], "visitors is 0, expected"),
        (["plan", "--play", "own", "--releases", "9"], "releases is 9, expected none under own play"),
        (["plan", "--play", "released", "--distance", "0"], "distance is 0.0, expected own play beside it"),
        (["plan", "--play", "paper"], "play is 'paper', expected released or own"),
        (["plan", "--history", "-1"], "history is -1, expected"),
        (["plan", "--runs", "1"], "runs is 1, expected"),
        (["plan", "--agents", "1"], "agents is 1, expected 2 or more: a federation of one is an agent alone"),
        (["statement", "--store", "missing.db"], "missing.db"),
        (["statement", "--per-person", "0"], "records_per_person is 0, expected"),
    ],
)
def test_bad_privacy_input_ends_with_status_2_and_one_sentence(arguments: list[str], named: str) -> None:
    done = typed("privacy", *arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_cannot_fit_into_memory_is_refused_at_once_with_the_numbers() -> None:
    if (free_memory() or 0) > 700e9:
        pytest.skip("two thousand million agents need 740 GB, which this machine may have")
    done = _process("simulate", "--agents", "2000000000", "--horizon", "10")
    assert done.returncode == 2
    assert "agents is 2000000000, expected fewer: they need at least 740 GB of memory where" in done.stderr
    assert done.stderr.count("\n") == 1


def test_one_of_a_thing_is_one_thing() -> None:
    said = typed("simulate", "--agents", "1", "--dim", "2", "--horizon", "20", "--runs", "1").stdout
    assert "1 agent, d = 2" in said
    assert "1 run, seed" in said
    planned = typed(
        "privacy", "plan", "--agents", "2", "--dim", "2", "--releases", "1", "--visitors", "20"
    ).stdout
    assert "over 1 release" in planned
    assert "1 releases" not in planned


@pytest.mark.parametrize(("flags", "curves"), [([], 3), (["--no-baselines"], 1), (["--alone"], 2)])
def test_a_plot_has_a_title_the_setting_and_what_to_beat(
    tmp_path: Path, flags: list[str], curves: int
) -> None:
    done = typed("simulate", *TINY, *flags, "--plot", "out.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    texts = re.findall(r"<!-- (.*?) -->", (tmp_path / "out.svg").read_text())
    named = ("feducb (calibrated)", "each agent alone", "uniform play")
    assert sum(any(text.startswith(f"{name}  ") for text in texts) for name in named) == curves
    assert any(text.startswith("each agent alone" if flags == ["--alone"] else "feducb") for text in texts)
    assert any(" agents, d = " in text and "seed" in text for text in texts)
    assert {"round", "regret of the average agent"} <= set(texts)


def test_a_statement_is_the_same_while_the_agent_or_the_controller_runs(tmp_path: Path) -> None:
    """How many records wait is private, and not on it."""
    terms = Terms(problem=Problem(dim=2), budget=Budget(epsilon=4.0, delta=1e-6), releases=4)
    raw = replace(terms, trust=CONTROLLER, agents_per_person=1)
    command = ["privacy", "statement", "--out", "page", "--store"]

    def stated(store: str) -> dict[str, Any]:
        done = typed(*command, store, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        page: dict[str, Any] = json.loads((tmp_path / "page.json").read_text())
        del page["written"]  # when
        return page

    with AgentStore.open(tmp_path / "a.db", terms) as agent:
        agent.record(np.eye(2), np.zeros(2))
        agent.release()
        agent.record(np.eye(2), np.zeros(2))
        running = stated("a.db")
    with ControllerStore.open(tmp_path / "c.db", raw) as controller:
        controller.release()
        controlled = stated("c.db")
    assert (running, controlled) == (stated("a.db"), stated("c.db"))
    for page in (running, controlled):
        (season,) = page["ledger"]["seasons"]
        assert (season["releases_made"], "pending" in season) == (1, False)


@pytest.mark.parametrize("tables", ["", "CREATE TABLE theirs (id INTEGER)"])
def test_a_statement_makes_no_store_of_a_file_that_is_none(tmp_path: Path, tables: str) -> None:
    """It wrote an agent's tables into whatever SQLite file it was given."""
    path = tmp_path / "theirs.db"
    path.touch()
    with closing(sqlite3.connect(path)) as db:
        db.execute(tables)
    before = path.read_bytes()
    done = typed("privacy", "statement", "--store", "theirs.db", "--out", "page", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("is not a store, or was never used")) == (2, 1)
    assert (path.read_bytes(), sorted(one.name for one in tmp_path.iterdir())) == (before, ["theirs.db"])


def test_a_statement_of_a_file_takes_nothing_from_options(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    terms = Terms(problem=Problem(dim=2), budget=Budget(epsilon=4.0, delta=1e-6), releases=4)
    AgentStore.open(store, terms).close()
    command = ["privacy", "statement", "--out", "-", "--store"]
    with Agent.open(tmp_path / "unused.db", AgentSettings(problem=terms.problem, budget=terms.budget)):
        pass
    assert "nothing has happened in season 1 yet" in typed(*command, str(tmp_path / "unused.db")).stderr
    assert "(ε, δ) = (4, 1e-06)" in typed(*command, str(store)).stdout
    done = typed(*command, str(store), "--epsilon", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--epsilon is 1.0, expected nothing beside --store" in done.stderr

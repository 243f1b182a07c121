"""Figures: settings, pictures, and texts that follow the results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.errors import ConfigurationError
from feducb.worlds.data import DATA_SETS, Trial
from feducb_lab.experiments import figures, sweep
from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import NAMES, TABLES, common, figure
from feducb_lab.experiments.figures.paying_cells import REAL
from feducb_lab.experiments.run import make_figure, to_plain

SIMULATED = [name for name in NAMES if name not in ("adversaries", "prior", *TABLES)]


def shrunk(made: Figure, keep: int | None = None) -> Figure:
    """The same figure in seconds: few rounds, runs, agents, arms."""

    def small(point: Point) -> Point:
        setting: dict[str, Any] = dict(point.setting)
        setting |= {
            "runs": 2,
            "dim": 3,
            "horizon": 30 if setting.get("schedule") == "every-round" else 60,
        }
        if "arms" in setting:
            setting["arms"] = 6
        if "agents" in setting:
            setting["agents"] = min(setting["agents"], 3)
        if "releases" in setting:
            setting["releases"] = min(setting["releases"], 8)
        return replace(point, setting=setting)

    return replace(made, points=lambda scale: [small(point) for point in made.points("quick")][:keep])


def imagined(
    name: str, regret: Callable[[Any], float], scale: Scale = "quick", stderr: float = 0.01
) -> Results:
    """Results as if the points had come to these regrets."""

    def outcome(point: Point) -> Outcome:
        mean, horizon = regret(point.label), point.setting["horizon"]
        curve = [
            {"round": horizon * k // 100, "mean": mean * k / 100, "stderr": stderr} for k in range(1, 101)
        ]
        result = {"per_agent_regret": {"mean": mean, "stderr": stderr}, "curve": curve, "releases": 64}
        return Outcome(point.label, point.setting, result | {"messages": 1000, "release_rounds": [1]})

    return Results(name, scale, [outcome(point) for point in figure(name).points(scale)])


def references(label: Any) -> float | None:
    return {"alone": 80.0, "uniform": 2000.0, "no privacy": 5.0}.get(label["who"])


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("name", SIMULATED)
def test_points_are_plain_and_different_and_have_references(name: str, scale: Scale) -> None:
    points = figure(name).points(scale)
    assert len({point.key for point in points}) == len(points)
    assert len({json.dumps(dict(point.label), sort_keys=True) for point in points}) == len(points)
    for point in points:
        assert json.loads(json.dumps(dict(point.setting))) == point.setting
        assert point.setting["runs"] >= 2  # else there is no error
    assert {"alone", "uniform", "no privacy", "calibrated"} <= {point.label["who"] for point in points}


@pytest.mark.parametrize("name", SIMULATED)
def test_a_figure_is_made_and_resumed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "figure", lambda asked: shrunk(figure(asked)))
    told: list[int] = []
    play = partial(sweep.play_here, backend="cpu", threads=1)
    results = make_figure(name, "quick", tmp_path, play, lambda done, total: told.append(done))
    assert told == list(range(1, len(results.outcomes) + 1))
    assert all(one.stderr >= 0 for one in results.outcomes)
    assert (tmp_path / f"{name}-quick.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / f"{name}-quick.svg").read_text(encoding="utf-8")
    page = (tmp_path / f"{name}-quick.md").read_text(encoding="utf-8")
    assert figure(name).text(results) in page
    assert page.count(" ± ") >= len(results.outcomes)
    assert f"feducb figure {name} --scale quick" in page
    written = json.loads((tmp_path / f"{name}-quick.json").read_text(encoding="utf-8"))
    again = Results.from_dict(written)
    assert figure(name).table(again) == figure(name).table(results)
    assert all(len(one.result["curve"]) <= 60 for one in again.outcomes)

    monkeypatch.setattr(sweep, "play_point", lambda *rest: pytest.fail("played twice"))
    assert make_figure(name, "quick", tmp_path, partial(play, at_once=2)).as_dict() == results.as_dict()


def test_points_at_the_same_time_come_to_the_same(tmp_path: Path) -> None:
    points = shrunk(figure("gap"), keep=4).points("quick")
    play = partial(sweep.play_here, backend="cpu", threads=1)
    one, two = (sweep.sweep(points, tmp_path / str(many), partial(play, at_once=many)) for many in (1, 2))
    assert [(o.mean, o.label) for o in one] == [(o.mean, o.label) for o in two]


@pytest.mark.parametrize("kept", ["", "{", "[1.0]", "\x00"])
def test_a_point_whose_file_is_broken_is_named(kept: str, tmp_path: Path) -> None:
    points = shrunk(figure("gap"), keep=2).points("quick")
    path = tmp_path / f"{points[1].key}.json"
    path.write_text(kept)
    with pytest.raises(ConfigurationError, match="delete the file, and the point is played again") as refused:
        sweep.sweep(points, tmp_path, lambda waiting, keep: pytest.fail("played before it was said"))
    assert str(path) in str(refused.value)


def test_long_curves_and_lists_of_rounds_are_thinned() -> None:
    results = imagined("1b", lambda label: 50.0)
    results.outcomes[0].result["release_rounds"] = list(range(1000))  # type: ignore[index]
    plain = to_plain(results)
    assert all(len(point["result"]["curve"]) == 60 for point in plain["points"])
    assert plain["points"][0]["result"]["curve"][-1] == results.outcomes[0].result["curve"][-1]
    assert "release_rounds" not in plain["points"][0]["result"]
    assert len(results.outcomes[0].result["curve"]) == 100


def test_text_1a_follows_the_results() -> None:
    def held(label: Any) -> float:
        printed = 2100.0 if label["who"] == "paper" else None
        return references(label) or printed or 60.0 / label["epsilon"] ** 0.5 / label["M"]

    def failed(label: Any) -> float:
        printed = 20.0 if label["who"] == "paper" else None
        return references(label) or printed or 200.0 * label["epsilon"] ** 0.1

    text = figure("1a").text(imagined("1a", held))
    assert "regret falls with ε" in text
    assert "do not learn: over all 4 points they lose 105 %" in text
    assert "less than doubles" in text
    text = figure("1a").text(imagined("1a", failed))
    assert "does not fall steadily with ε" in text
    assert "falls with ε" not in text
    assert "beats staying alone (80.0) nowhere" in text
    assert "The printed constants learn: over all 4 points they lose 1 %" in text
    assert "privacy costs more than a factor of two" in text
    assert "The schedule plans 64 releases per agent." in text


def test_text_1a_does_not_call_one_agent_a_federation() -> None:
    def regret(label: Any) -> float:
        printed = 2100.0 if label["who"] == "paper" else None
        return references(label) or printed or (20.0 if label["M"] == 1 else 200.0)

    text = figure("1a").text(imagined("1a", regret))
    assert "M = 1, an agent by itself under noise: regret" in text
    assert "beats staying alone (80.0) nowhere: in 0 of 10 points" in text


def test_text_1a_says_from_where_on_privacy_is_cheap_only_if_it_stays_so() -> None:
    def regret(label: Any) -> float:
        printed = 2100.0 if label["who"] == "paper" else None
        return references(label) or printed or (50.0 if label["epsilon"] == 1.0 else 6.0)

    assert "less than doubles regret from ε = 3 on" in figure("1a").text(imagined("1a", regret))


def test_text_1b_follows_the_results() -> None:
    order = {"O(M^1.5)": 3.0, "O(M log T)": 2.0, "O(M log T), fewer rounds": 2.0, "O(MT)": 0.5}
    order["planned"] = 1.0

    def regret(sign: int) -> Callable[[Any], float]:
        def found(label: Any) -> float:
            return references(label) or float(order[label["communication"]] ** sign)

        return found

    held, failed = (figure("1b").text(imagined("1b", regret(sign))) for sign in (1, -1))
    assert "calibrated: O(M log T) beats O(M^1.5)" in held
    assert "O(MT) beats O(M log T) over 1,000 rounds" in held
    assert "O(MT) does worse than O(M log T)" in failed
    assert "the planned schedule, 64 releases, beats O(M log T) over 5,000 rounds" in held
    assert "the planned schedule, 64 releases, does worse than O(M log T)" in failed
    assert "played for 1,000 rounds only" in held
    full = figure("1b").text(imagined("1b", regret(1), "full"))
    assert "played for 20,000 rounds only, where the others were played for 10,000,000" in full


def test_text_1c_follows_the_results() -> None:
    def regret(power: float) -> Callable[[Any], float]:
        return lambda label: references(label) or 0.1 * label["d"] ** power

    assert "power 2.00 ± 0.00. The dependence is essentially quadratic" in figure("1c").text(
        imagined("1c", regret(2))
    )
    assert "does not grow steadily with d" in figure("1c").text(imagined("1c", regret(-1)))
    assert "is less than quadratic" in figure("1c").text(imagined("1c", regret(1)))
    assert "is more than quadratic" in figure("1c").text(imagined("1c", regret(3)))


def test_text_gap_follows_the_results() -> None:
    def held(label: Any) -> float:
        if label["who"] == "no privacy":
            return float(1 / label["gap"])
        return references(label) or float(1 / label["gap"] + (1 - label["gap"]) * 30 / label["epsilon"])

    def failed(label: Any) -> float:
        if label["who"] == "no privacy":
            return float(label["gap"])
        return references(label) or float(label["gap"] * 100 / label["epsilon"])

    text = figure("gap").text(imagined("gap", held, stderr=0.001))
    assert text.count("falls as the gap grows") == 4
    assert "becomes more sensitive" in text  # the ratio grows here, though the difference shrinks
    text = figure("gap").text(imagined("gap", failed, stderr=0.001))
    assert text.count("does not fall as the gap grows") == 4
    assert "becomes not surely less sensitive" in text


def test_text_decentralised_follows_the_results() -> None:
    def regret(one: float, many: float) -> Callable[[Any], float]:
        def found(label: Any) -> float:
            if label["who"] in ("alone", "uniform") or label.get("graph") == "controller":
                return references(label) or 10.0
            power = one if label["estimators"] == "one" else many
            return float(40.0 * label["ttl"] ** power)

        return found

    text = figure("decentralised").text(imagined("decentralised", regret(-0.5, 0.5)))
    assert "with γ estimators it rises" in text
    assert "with one estimator it falls" in text
    text = figure("decentralised").text(imagined("decentralised", regret(0.5, -0.5)))
    assert "with γ estimators it falls" in text
    assert "with one estimator it rises" in text


def test_text_federation_follows_the_results() -> None:
    def regret(scale: float, own: float) -> Callable[[Any], float]:
        def found(label: Any) -> float:
            play = own if label.get("play") == "own" else 1.0
            return references(label) or play * scale / label["epsilon"] / label["M"] ** 0.5

        return found

    text = figure("federation").text(imagined("federation", regret(500.0, 1.0)))
    assert "the one that loses less, and elsewhere it costs at most 1.00 times" in text
    assert "ε = 4: 20 at 100, 5 at 400, 5 at 1,600" in text  # with 5 sites of 100 nothing is worth reading
    better = imagined("federation", regret(500.0, 0.5)), imagined("federation", regret(500.0, 2.0))
    for results in better:  # the rule is public: what came out cannot move it
        assert "elsewhere it costs at most 2.00 times" in figure("federation").text(results)
    text = figure("federation").text(imagined("federation", regret(1e6, 1.0)))
    assert text.count("federating pays in 0 of 24 places") == 3
    assert "nobody nowhere, keepers nowhere, controller nowhere" in text


def test_the_real_data_in_the_map_are_as_they_load() -> None:
    pytest.importorskip("pandas")
    assert REAL.keys() == DATA_SETS.keys()
    for name, (agents, records, dim) in REAL.items():
        file = DATA_SETS[name].file
        if file is not None and file.path() is None:
            continue  # scripts/data gets it
        loaded = DATA_SETS[name].load(None)
        if isinstance(loaded, Trial):
            counts = loaded.frame.groupby(loaded.agent).size().to_numpy()
            found = loaded.recipe.dim
        else:
            counts = np.array([len(some) for some in loaded.world.records])
            found = loaded.world.problem.dim
        assert (len(counts), float(np.median(counts)), found) == (agents, records, dim), name


def test_text_mechanisms_follows_the_results() -> None:
    def regret(tree: float) -> Callable[[Any], float]:
        return lambda label: references(label) or (tree if label.get("mechanism") == "tree" else 40.0)

    text = figure("mechanisms").text(imagined("mechanisms", regret(60.0)))
    assert "beats the paper's tree in 5 of 5 settings and does worse in 0; the tree costs 1.50 times" in text
    text = figure("mechanisms").text(imagined("mechanisms", regret(20.0)))
    assert "in 0 of 5 settings and does worse in 5; the tree costs 0.50 times" in text


def test_text_worlds_follows_the_results() -> None:
    def regret(label: Any) -> float:
        if label["who"] == "calibrated":
            worse = label["world"] == "one-hot" or label["trust"] == "nobody"
            return 120.0 if worse else 40.0
        return references(label) or 0.0

    text = figure("worlds").text(imagined("worlds", regret))
    assert text.count("nobody is trusted: 120.0 ± 0.0, surely more") == 4
    assert text.count("the controller is trusted: 40.0 ± 0.0, surely less") == 3
    assert "beats staying alone (80.0) in 3 of 8 points, by up to 2.00 times" in text
    assert "It does worse in 5" in text


def test_an_exponent_comes_with_its_error() -> None:
    outcomes = imagined("1c", lambda label: float(label["d"]), stderr=0.1).where(who="calibrated")
    exponent, error = common.slope([5, 10, 15, 20], outcomes)
    assert exponent == pytest.approx(1.0)
    assert 0.005 < error < 0.05


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "feducb", "figure", *arguments]
    return subprocess.run(asked, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("wrong", [["2z"], ["1a", "--scale", "huge"], ["1a", "--at-once", "0"]])
def test_the_command_refuses_what_cannot_be(wrong: list[str]) -> None:
    ended = command(*wrong)
    assert ended.returncode == 2
    assert wrong[-1] in ended.stderr


def test_the_command_writes_a_figure_of_points_that_were_played(tmp_path: Path) -> None:
    points = figure("federation").points("quick")
    results = imagined("federation", lambda label: references(label) or 500 / label["M"])
    (tmp_path / "points").mkdir()
    for point, outcome in zip(points, results.outcomes, strict=True):
        sweep.keep_point(tmp_path / "points", point, dict(outcome.result))
    ended = command("federation", "--out", str(tmp_path))
    assert ended.returncode == 0
    assert figure("federation").text(results) in ended.stdout
    endings = {path.suffix for path in tmp_path.glob("federation-quick.*")}
    assert endings == {".json", ".md", ".png", ".svg"}

"""One command makes everything anew, and nothing in its report is older than the code."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from feducb_lab.experiments import everything, figures, provenance, sweep
from feducb_lab.experiments.claims import claims, read_results
from feducb_lab.experiments.everything import Script, make_everything, needs_a_gpu
from feducb_lab.experiments.experiment import Figure, Point
from feducb_lab.experiments.figures import NAMES, TABLES, figure
from feducb_lab.experiments.measured import write_tables
from feducb_lab.experiments.provenance import fingerprint, is_fresh, made_by, modules_of
from feducb_lab.experiments.report import make_report
from typed import typed

RUNNER = "feducb.simulation.runner"


def test_a_fingerprint_covers_what_decides_a_result_and_nothing_else() -> None:
    modules = modules_of(RUNNER)
    assert {"feducb.models.ridge", "feducb.privacy.calibration", "feducb.worlds.synthetic"} <= modules
    assert "feducb.simulation.backends.gpu_kernels" in modules  # imported late, in a function
    assert not [name for name in modules if name.split(".")[1] in ("service", "storage", "cli", "agent")]


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ('"""Other words."""\n\n# why\nx = 1  # one\n\n\ndef f():\n    """Says."""\n    return x\n', True),
        ('"""Words."""\nx = 2\n\n\ndef f():\n    return x\n', False),
        ('"""Words."""\nx = 1\n\n\ndef f():\n    return "# x"\n', False),
    ],
)
def test_comments_and_docstrings_make_no_result_older(
    source: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_ROOTS", {"toy": tmp_path})
    found = []
    for text in ('"""Words."""\nx = 1\n\n\ndef f():\n    return x\n', source):
        (tmp_path / "a.py").write_text(text)
        for kept in (provenance._code, provenance._imported, provenance.modules_of):
            kept.cache_clear()
        found.append(fingerprint("toy.a"))
    assert (found[0] == found[1]) is same


def test_data_files_count_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_ROOTS", {"toy": tmp_path})
    (tmp_path / "reads.py").write_text('NAME = "table.json"\n')
    (tmp_path / "not.py").write_text("x = 1\n")
    found = []
    for text in ("1", "2"):
        (tmp_path / "table.json").write_text(text)
        found.append((fingerprint("toy.reads"), fingerprint("toy.not")))
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


def test_a_version_makes_no_result_older(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "feducb.version" in modules_of(RUNNER)
    before = fingerprint(RUNNER)
    code = provenance._code
    monkeypatch.setattr(provenance, "_code", lambda name: code(name) + "9" * (name == "feducb.version"))
    assert fingerprint(RUNNER) == before


def test_what_does_not_say_by_what_it_was_made_is_older() -> None:
    made = made_by("x", [RUNNER])
    assert set(made["versions"]) == {"python", "feducb", "numpy", "numba"}
    assert is_fresh(made)
    assert not is_fresh(made | {"modules": ["feducb.simulation.gone"]})
    assert not is_fresh(made | {"code": "0" * 16})
    assert is_fresh(made | {"older": 0})
    assert not is_fresh(made | {"older": 1})  # of its parts
    assert not is_fresh({"commit": made["commit"]})
    assert not is_fresh(None)


def test_points_of_other_code_are_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point({}, {"agents": 2})
    before = point.key
    monkeypatch.setattr("feducb_lab.experiments.experiment.fingerprint", lambda module: "other")
    assert point.key != before


def tiny(made: Figure, keep: int) -> Figure:
    def small(point: Point) -> Point:
        setting: dict[str, Any] = dict(point.setting) | {"runs": 2, "dim": 3, "arms": 6, "horizon": 60}
        setting["agents"] = min(3, setting.get("agents", 3))
        return replace(point, setting=setting)

    return replace(made, points=lambda scale: [small(point) for point in made.points(scale)[:keep]])


def test_everything_is_made_fresh_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bench.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        "from feducb_lab.experiments.measured import write_tables\n"
        "cell = {'mean': 1.5, 'stderr': 0.5}\n"
        f"write_tables(Path(sys.argv[-1]), {{'t': {{'r': {{'c': cell}}}}}}, ['{RUNNER}'])\n"
    )
    gone, broken = tmp_path / "gone.py", tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no luck')\n")
    scripts = {
        name: Script(name.title(), str(path), quick=(), full=())
        for name, path in (("bench", script), ("gone", gone), ("broken", broken))
    }
    monkeypatch.setattr(everything, "SCRIPTS", scripts)
    monkeypatch.setattr(everything, "NAMES", ["own"])
    monkeypatch.setattr(everything, "_demo", lambda scale, out: None)  # `feducb demo` has tests of its own
    monkeypatch.setattr(everything, "_real_data", lambda *rest: None)  # tests/lab/test_real_data.py
    monkeypatch.setattr(figures, "figure", lambda name: tiny(figure(name), 3))
    told: list[str] = []

    def watch(name: str) -> sweep.Progress:
        told.append(name)
        return lambda done, total: None

    out = tmp_path / "report"
    play = partial(sweep.play_here, backend="cpu", threads=1)
    page, left_out = make_everything("quick", out, play, watch)
    assert told == ["figure own", "bench", "gone", "broken", "real-data", "demo"]
    assert "no luck" in left_out["broken"]
    assert "gone.py" in left_out["gone"]
    text = page.read_text("utf-8")
    assert "All of it was made by the code that is here." in text
    assert "1.5000 ± 0.5000" in text
    assert "no luck" in text
    for path in out.glob("*-quick.json"):
        assert is_fresh(json.loads(path.read_text("utf-8"))["made"]), path.name
    script.write_text("raise SystemExit('run twice')\n")
    monkeypatch.setattr(sweep, "play_point", lambda *rest: pytest.fail("played twice"))
    assert "bench" not in make_everything("quick", out, play, watch)[1]

    old = out / "own-quick.json"
    plain = json.loads(old.read_text("utf-8"))
    plain["made"]["code"] = "0" * 16
    old.write_text(json.dumps(plain), "utf-8")
    text = make_report(out).read_text("utf-8")
    assert "OLDER THAN THE CODE" in text
    assert "Older than the code, or made by code that is not known" in text


def test_full_scale_says_what_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "missing_gpu", lambda: "there is none")
    assert not needs_a_gpu("quick")
    assert set(needs_a_gpu("full")) == {"1a", "1b", "1c", "gap", "federation"}
    assert "there is none" in needs_a_gpu("full")["1a"]
    monkeypatch.setattr(everything, "missing_gpu", lambda: None)
    assert not needs_a_gpu("full")


def test_tables_of_an_older_version_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for row in ("before", "now"):
        write_tables(path, {"t": {row: {"c": 1.0}}}, [RUNNER])
    plain = json.loads(path.read_text("utf-8"))
    assert set(plain["tables"]["t"]) == {"before", "now"}
    assert plain["made"]["code"] == fingerprint(RUNNER)


def test_claims_are_judged_by_the_results() -> None:
    results = read_results(Path(__file__).parents[2] / "docs" / "figures")
    found = {one.said: one for one in claims(results)}
    assert found["regret falls as ε grows"].verdict == "holds"
    line = results["1a"].along("epsilon", who="calibrated", M=100)
    line[-1].result["per_agent_regret"]["mean"] = 500.0
    again = {one.said: one for one in claims(results)}
    assert again["regret falls as ε grows"].verdict == "holds in part"
    assert "500.0 ± " in again["regret falls as ε grows"].found


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_a_table_has_one_point(name: str) -> None:
    assert name in NAMES
    for scale in ("quick", "full"):
        points = figure(name).points(scale)
        cells = {tuple(point.label[part] for part in ("table", "row", "column")) for point in points}
        assert len(cells) == len(points)
    recorded = json.loads((Path(__file__).parents[2] / f"docs/figures/{name}-full.json").read_text("utf-8"))
    labels = [one["label"] for one in recorded["points"]]
    assert all(dict(point.label) in labels for point in figure(name).points("full"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("report", "--everything"),
        ("report --everything --scale huge", "one of quick, full"),
        ("report --docs nowhere", "--docs is 'nowhere', expected the documentation's folder in a clone"),
        ("figure 1a --seed -1", "--seed is -1, expected a whole number of at least 0"),
        ("figure 1a --threads 0", "--threads is 0, expected a whole number of at least 1"),
    ],
)
def test_the_command_refuses_what_cannot_be(asked: str, expected: str, tmp_path: Path) -> None:
    ended = typed(*asked.split(), cwd=tmp_path)
    assert ended.returncode == 2
    (said,) = ended.stderr.splitlines()
    assert expected in said


@pytest.mark.parametrize("text", ["", "{", "[]", '{"made": 3}', '{"made": {"code": "a", "modules": [3]}}'])
def test_results_that_cannot_be_read_are_made_again(text: str, tmp_path: Path) -> None:
    path = tmp_path / "shop-quick.json"
    path.write_text(text)
    assert not everything._fresh(path)


def test_broken_results_of_the_documentation_are_named(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name, words in (
        ("page.md", "<!-- numbers: figures/a > b -->\n\nIt loses 1.0.\n"),
        ("experiments.md", "# Experiments\n"),
        ("claims.md", "# Claims\n"),
    ):
        (tmp_path / name).write_text(words)
    for name, text in (("a", "{"), ("1a-full", "[]"), ("1a-full", '{"figure": "1a"}')):
        path = tmp_path / f"figures/{name}.json"
        (tmp_path / "figures/a.json").write_text('{"b": 1.0}')
        path.write_text(text)
        ended = typed("report", "--docs", str(tmp_path))
        assert ended.returncode == 2, ended.stderr
        (said,) = ended.stderr.splitlines()
        assert f"{path} is 'unreadable'" in said


def test_the_command_writes_numbers_into_pages(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/a.json").write_text('{"b": {"mean": 2.0, "stderr": 0.5}}')
    for name, made in (("fresh", {}), ("changed", {"code": "0" * 16}), ("mixed", {"older": 3})):
        plain = {"made": made_by("x", [RUNNER]) | made}
        (tmp_path / f"figures/{name}.json").write_text(json.dumps(plain))
    (tmp_path / "page.md").write_text("<!-- numbers: figures/a > b -->\n\nIt loses 1.0 ± 0.1.\n")
    for name, words in (("experiments.md", "# Experiments\n"), ("claims.md", "# Claims\n")):
        (tmp_path / name).write_text(words)
    ended = typed("report", "--docs", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "page.md" in ended.stdout
    assert [line.rpartition(": ")[2] for line in ended.stderr.splitlines()] == [
        "figures/changed.json",
        "figures/mixed.json",
    ]
    assert "It loses 2.0 ± 0.5." in (tmp_path / "page.md").read_text("utf-8")

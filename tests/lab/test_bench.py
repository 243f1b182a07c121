"""The report's form, with plain numpy as the only peer; other libraries are checked by the benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from feducb_lab.bench import BACKENDS, PEERS, Report, draw_report, run_bench
from feducb_lab.bench.bench_run import Table
from feducb_lab.bench.measure import Effort, Row, Simulated, measure
from feducb_lab.bench.rivals import Feducb, Numpy, NumpyEinsum, NumpyTuned, Peer, available, check_learns

QUICK = Effort(arms=5, rounds=2, seconds=1e-4, ceiling_size=32)


class Absent(Numpy):
    name: ClassVar[str] = "absent"
    module: ClassVar[str] = "feducb_no_such_library"


class Stubborn(Numpy):
    name: ClassVar[str] = "stubborn"

    def decide(self, prepared: Any) -> int:
        return 0


def slow_backend(dim: int, arms: int, steps: int) -> float:
    return 1000.0


@pytest.fixture(scope="module")
def report() -> Report:
    peers = (Numpy, NumpyTuned, Absent, Stubborn)
    return run_bench(peers, [("ours", slow_backend)], dims=(3,), effort=QUICK, ours=False)


def test_report_as_json(report: Report, tmp_path: Path) -> None:
    found = json.loads(report.to_json(tmp_path / "report.json"))
    assert found == json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    keys = {"schema", "machine", "ceilings", "checks", "missing", "tables", "ours", "verdicts"}
    assert set(found) == keys
    assert found["schema"] == 2
    assert set(found["machine"]) == {"processor", "cores", "system", "python", "numpy"}
    assert len(found["ceilings"]) == 6
    assert all(value > 0.0 for value in found["ceilings"].values())
    (table,) = found["tables"]
    assert (table["dim"], table["arms"]) == (3, 5)
    assert [row["name"] for row in table["rows"]] == ["numpy, row sums", "numpy, einsum of two", "stubborn"]
    first = table["rows"][0]
    assert set(first) == {
        "name", "package", "version", "what", "sees_candidates", "reads_features", "prepare", "decide",
        "decide_range", "step", "step_range", "batched", "decide_ratio", "call_ratio", "step_ratio",
    }  # fmt: skip
    assert (first["package"], first["version"]) == ("numpy", np.__version__)
    assert (first["decide_ratio"], first["call_ratio"], first["step_ratio"]) == (1.0, 1.0, 1.0)
    assert first["decide_range"][0] <= first["decide"] <= first["decide_range"][1]
    assert first["decide"] > 0.0
    assert first["step"] > 0.0
    names = [entry["name"] for entry in table["simulated"]]
    assert names == ["ours", "environment alone", "numpy, row sums", "numpy, einsum of two", "stubborn"]
    assert table["simulated"][0] == {"name": "ours", "step": 1000.0, "ratio": 1.0}


def test_who_is_missing_and_who_does_not_learn(report: Report) -> None:
    assert list(report.missing) == ["absent"]
    assert report.missing["absent"].startswith("not installed: No module named 'feducb_no_such_library'")
    assert {check.name: check.learns for check in report.checks} == {
        "numpy, row sums": True,
        "numpy, einsum of two": True,
        "stubborn": False,
    }
    text = report.to_text()
    assert "not installed" in text
    assert "NO" in text


def test_picture(report: Report, tmp_path: Path) -> None:
    draw_report(report, tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_all_ways_of_numpy_choose_alike() -> None:
    rng = np.random.default_rng(0)
    players: list[Peer] = [Numpy(), NumpyTuned(), NumpyEinsum()]
    for player in players:
        player.start(4, 30)
    for _ in range(50):
        actions, reward = rng.normal(size=(30, 4)), rng.random()
        chosen = [player.decide(actions) for player in players]
        assert len(set(chosen)) == 1
        for player in players:
            player.learn(actions, chosen[0], reward)
    many = rng.normal(size=(6, 30, 4))
    np.testing.assert_array_equal(players[0].decide_many(many), [players[0].decide(one) for one in many])


def test_ours_learns_and_goes_first() -> None:
    regret, uniform = check_learns(Feducb)
    assert regret < 0.1 * uniform
    assert PEERS[0] is Feducb
    assert available(Feducb)[1] is None
    (row,), simulated = measure([Feducb], [], 2, Effort(arms=3, rounds=1, seconds=1e-4))
    assert row.batched is not None
    assert simulated == []


def test_our_simulations_can_be_timed() -> None:
    for name, run in BACKENDS:
        assert name.startswith("feducb")
        assert run(2, 4, 200) > 0.0


def test_promises_are_judged_by_what_was_measured() -> None:
    rows = [
        Row(
            name=name, package=package, version="1", what="", sees_candidates=True, reads_features=True,
            prepare=0.0, decide=1.0, decide_range=(1.0, 1.0), step=1.0, step_range=(1.0, 1.0), batched=None,
            decide_ratio=ratio, call_ratio=ratio, step_ratio=ratio,
        )
        for name, package, ratio in (("ours", "feducb", 1.0), ("np", "numpy", 2.4), ("lib", "river", 16.0))
    ]  # fmt: skip
    simulated = [
        Simulated(name="feducb reference", step=20.0, ratio=1.0),
        Simulated(name="feducb cpu, all arms drawn", step=2.0, ratio=0.1),
        Simulated(name="lib", step=100.0, ratio=5.0),
    ]
    table = Table(dim=10, arms=100, rows=rows, simulated=simulated)
    report = Report(machine={}, ceilings={}, checks=[], missing={}, tables=[table], ours={})
    assert [(one.found, one.holds) for one in report.verdicts] == [
        (2.4, False),
        (16.0, True),
        (10.0, True),
        (50.0, False),
    ]
    assert "MISSED" in report.to_text()

"""Sweeps on Ray: a real one with two workers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from feducb.errors import ConfigurationError, MissingExtraError
from feducb_lab.experiments.experiment import Outcome, Point
from feducb_lab.experiments.on_ray import play_on_ray
from feducb_lab.experiments.sweep import play_here, sweep

HERE = Path(__file__).parent
VOLATILE = ("seconds", "agent_steps_per_second")
ON_CPU = partial(play_here, backend="cpu")
TINY: dict[str, Any] = {"agents": 3, "dim": 2, "arms": 4, "horizon": 400, "runs": 2}


def _start(folder: Path, points: list[Point]) -> subprocess.Popen[str]:
    asked = folder.with_suffix(".points")
    asked.write_text(
        json.dumps([{"label": one.label, "setting": one.setting, "player": one.player} for one in points])
    )
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.Popen(
        [sys.executable, str(HERE / "ray_driver.py"), str(folder), str(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )


def _steady(outcomes: list[Outcome]) -> list[Any]:
    plain = [
        [one.label, one.setting, {k: v for k, v in one.result.items() if k not in VOLATILE}]
        for one in outcomes
    ]
    return list(json.loads(json.dumps(plain)))


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_killed_worker_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))  # the local sweep plays the same players
    pid_file = tmp_path / "pids"
    slow = {"pid_file": str(pid_file), "seed": 9, **TINY}
    points = [Point({"seed": seed}, {"seed": seed, **TINY}) for seed in range(6)]
    points.insert(1, Point({"seed": 9}, slow, "ray_driver:slow"))
    points.append(Point({"seed": "2, again"}, points[3].setting))

    sweep(points[:1], tmp_path / "ray", ON_CPU)  # a sweep that was stopped after a point
    before = (tmp_path / "ray" / f"{points[0].key}.json").stat().st_mtime_ns
    driver = _start(tmp_path / "ray", points)
    try:
        deadline = time.monotonic() + 300
        while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline, "the slow point never began"
            time.sleep(0.02)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        said, errors = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0, errors
    killed, second = map(int, pid_file.read_text().split())
    assert killed != second  # played again, by another
    assert not _alive(second)  # Ray is gone with the sweep

    found = [Outcome(*one) for one in json.loads(said.splitlines()[-1])]  # Ray tells of the dead above it
    assert _steady(found) == _steady(sweep(points, tmp_path / "local", ON_CPU))
    told = [line for line in errors.splitlines() if line.startswith("told")]
    assert told == [f"told {done} 8" for done in range(1, 9)]
    assert (tmp_path / "ray" / f"{points[0].key}.json").stat().st_mtime_ns == before

    again = sweep(points, tmp_path / "ray", ON_CPU)  # everything was kept: nothing is played
    assert [one.result for one in again] == [one.result for one in found]
    assert len(pid_file.read_text().split()) == 3  # twice on Ray, once in the local sweep


def test_a_point_that_cannot_be_is_refused_as_without_ray(tmp_path: Path) -> None:
    driver = _start(tmp_path / "ray", [Point({}, {}, "ray_driver:fails")])
    _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 1
    assert errors == "refused: epsilon is -1, expected a positive number\n"


def test_no_cluster_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def init(**given: Any) -> None:
        asked.update(given)
        raise ConnectionError("nobody there")

    ray, exceptions = ModuleType("ray"), ModuleType("ray.exceptions")
    vars(ray).update(init=init, is_initialized=lambda: False, shutdown=lambda: None, exceptions=exceptions)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    with pytest.raises(ConfigurationError, match=r"address is 'auto', .* that answers \(nobody there\)"):
        sweep([Point({}, TINY)], tmp_path, partial(play_on_ray, address="auto"))
    assert asked.pop("address") == "auto"
    assert "num_cpus" not in asked  # a cluster has its own
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    with pytest.raises(ConfigurationError, match="refused"):
        sweep([Point({}, TINY)], tmp_path, partial(play_on_ray, address=f"127.0.0.1:{port}"))
    assert "address" not in asked  # Ray was not even asked: it would try for many minutes


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"feducb\[ray\]"):
        sweep([Point({}, TINY)], tmp_path, play_on_ray)


def test_a_cluster_has_its_own_workers(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="workers is 2"):
        sweep([], tmp_path, partial(play_on_ray, address="auto", workers=2))


def test_nothing_to_play_needs_no_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    point = Point({"seed": 0}, {"seed": 0, **TINY})
    (played,) = sweep([point], tmp_path, ON_CPU)
    (read,) = sweep([point], tmp_path, play_on_ray)
    assert read.result == json.loads(json.dumps(played.result))

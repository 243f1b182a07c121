"""A long run that is killed goes on where it was, and ends as if nothing had happened."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.protocol.federation import Tuning
from feducb.simulation import checkpoint as module
from feducb.simulation.backends.gpu_kernels import missing_gpu

SCRIPT = """
import json, os, signal, sys
import feducb
from feducb.simulation import checkpoint
from feducb.simulation.backends import cpu, gpu
cpu.CpuKernels.work_at_once = 240_000
gpu.DeviceKernels.work_at_once = 120_000_000
kept, honest = int(sys.argv[3]), checkpoint.Checkpoint.save
checkpoint.EVERY = 0.0 if kept else 0.05  # who is to be killed saves whenever it can
def save(self, piece, state):
    global kept
    honest(self, piece, state)
    kept -= 1
    if kept == 0:
        os.kill(os.getpid(), signal.SIGKILL)  # got further than the one before: pull the plug
checkpoint.Checkpoint.save = save
setting = json.loads(sys.argv[1])
result = feducb.simulate(**setting, checkpoint=sys.argv[2], threads=1)
print(json.dumps(result.regret.tolist()))
"""

SETTING: dict[str, Any] = {"agents": 4, "dim": 3, "arms": 40, "runs": 2, "seed": 4}
CLOSED: dict[str, Any] = {"play": "own", "schedule": "explicit:20,40", "epsilon": 8.0, "heterogeneity": 0.2}
CASES: dict[str, dict[str, Any]] = {
    "reference": {"backend": "reference", "horizon": 6_000, "epsilon": 8.0},
    "reference, trigger": {"backend": "reference", "horizon": 3_000, "mode": "paper", "epsilon": 1e3},
    "cpu": {"backend": "cpu", "horizon": 300_000, "epsilon": 8.0},
    "cpu, own data": {"backend": "cpu", "horizon": 30_000, "baseline": "alone"},
    "reference, own play": {"backend": "reference", "horizon": 3_000} | CLOSED,
    "cpu, own play": {"backend": "cpu", "horizon": 30_000} | CLOSED,
    "cpu, trigger": {"backend": "cpu", "horizon": 10_000, "mode": "paper", "epsilon": 1e3},
}
if missing_gpu() is None:
    CASES |= {
        "gpu": {"backend": "gpu", "horizon": 30_000_000, "epsilon": 8.0},
        "gpu, own data": {"backend": "gpu", "horizon": 300_000, "baseline": "alone"},
        "gpu, trigger": {"backend": "gpu", "horizon": 300_000, "mode": "paper", "epsilon": 1e3},
    }


@pytest.mark.parametrize("case", CASES)
def test_killed_runs_end_as_if_nothing_had_happened(case: str, tmp_path: Path) -> None:
    setting = SETTING | CASES[case]
    expected = feducb.simulate(**setting, threads=1).regret
    command = [sys.executable, "-c", SCRIPT, json.dumps(setting), str(tmp_path / "kept")]
    ends = [
        subprocess.run([*command, saves], stdout=subprocess.PIPE, text=True, check=False)
        for saves in ("1", "5", "2", "0")  # killed after so many; the last is left alone
    ]
    assert ends[0].returncode == -signal.SIGKILL
    assert ends[-1].returncode == 0
    np.testing.assert_allclose(np.array(json.loads(ends[-1].stdout)), expected, rtol=1e-12)


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    small: dict[str, Any] = SETTING | {"horizon": 100, "arms": 5}
    first = feducb.simulate(**small, checkpoint=tmp_path / "kept")
    again = feducb.simulate(**small, checkpoint=tmp_path / "kept")  # done already: nothing is played
    np.testing.assert_array_equal(first.regret, again.regret)
    assert again.seconds > 0.0
    with pytest.raises(ConfigurationError, match="the same settings"):
        feducb.simulate(**(small | {"seed": 5}), checkpoint=tmp_path / "kept")
    with pytest.raises(ConfigurationError, match="the same settings"):
        feducb.simulate(**small, tuning=Tuning(weighted=False), checkpoint=tmp_path / "kept")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("do not touch")
    with pytest.raises(ConfigurationError, match="an empty folder"):
        feducb.simulate(**small, checkpoint=tmp_path / "other")


def test_what_a_crash_can_lose_is_under_a_minute() -> None:
    assert module.EVERY <= 30.0


def test_a_folder_in_use_or_damaged_is_refused(tmp_path: Path) -> None:
    small: dict[str, Any] = SETTING | {"horizon": 100, "arms": 5, "backend": "cpu"}
    first = feducb.simulate(**small, checkpoint=tmp_path / "kept")
    plain = json.loads((tmp_path / "kept" / "settings.json").read_text(encoding="utf-8"))
    held = module.Checkpoint(tmp_path / "kept", plain)
    with pytest.raises(ConfigurationError, match="no other simulation"):
        feducb.simulate(**small, checkpoint=tmp_path / "kept")
    held.close()
    (piece,) = (tmp_path / "kept").glob("*.pickle")
    piece.write_bytes(piece.read_bytes()[:40])
    with pytest.raises(ConfigurationError, match="delete it to play that piece again"):
        feducb.simulate(**small, checkpoint=tmp_path / "kept")
    piece.unlink()
    np.testing.assert_array_equal(feducb.simulate(**small, checkpoint=tmp_path / "kept").regret, first.regret)


def _draw(generator: np.random.Generator, agent: int, rounds: int) -> np.ndarray:
    return np.tile(np.eye(2), (rounds, 1, 1))


def _pay(generator: np.random.Generator, actions: np.ndarray, means: np.ndarray) -> np.ndarray:
    return means


def test_an_environment_that_cannot_be_kept_says_so_at_once(tmp_path: Path) -> None:
    theta = np.array([0.3, 0.4])
    own = feducb.OwnEnvironment(problem=feducb.Problem(dim=2), arms=2, theta=theta, draw=_draw, pay=_pay)
    setting: dict[str, Any] = {"agents": 2, "horizon": 40, "runs": 2}
    kept = feducb.simulate(environment=own, **setting, checkpoint=tmp_path / "kept")
    again = feducb.simulate(environment=own, **setting, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(kept.regret, again.regret)
    unkept = replace(own, pay=lambda generator, actions, means: means)
    with pytest.raises(ConfigurationError, match="not lambdas"):
        feducb.simulate(environment=unkept, **setting, checkpoint=tmp_path / "other")

"""What cannot fit is refused beforehand, and the estimate is near what is used."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.simulation import memory, runner

_MEASURE = """
import json, re, sys
import feducb
from feducb.simulation import memory, runner

def peak():  # of this process alone: getrusage remembers that of the one it was forked from
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

setting = json.loads(sys.argv[1])
told = []
play_bytes = memory.play_bytes
runner.play_bytes = lambda *given: told.append(play_bytes(*given)) or told[-1]
feducb.simulate(**setting | {"agents": 10})
before = peak()
feducb.simulate(**setting)
planned = memory.plan_bytes(setting["agents"], private="baseline" not in setting)
print(1024 * (peak() - before), planned + told[-1][0])
"""
_CPU = {"dim": 5, "arms": 10, "horizon": 10, "runs": 1, "backend": "cpu"}
_OWN = _CPU | {"horizon": 5, "play": "own", "schedule": "explicit:2,4"}


@pytest.mark.parametrize(
    "setting",
    [
        _CPU | {"agents": 100_000},
        _CPU | {"agents": 100_000, "horizon": 3, "baseline": "alone"},
        _CPU | {"agents": 5_000, "trust": "keepers", "absence": 0.05, "schedule": "every-round"},
        _CPU | {"agents": 30_000, "dim": 10, "horizon": 3, "runs": 2, "baseline": "alone"},
        _CPU | {"agents": 3_000, "arms": 100, "dim": 10, "backend": "reference"},
        _OWN | {"agents": 20_000},
        _OWN | {"agents": 5_000, "dim": 10, "runs": 2},
        _OWN | {"agents": 3_000, "dim": 10, "backend": "reference"},
    ],
)
def test_the_estimate_is_within_a_factor_of_two_of_what_is_used(setting: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, json.dumps(setting)], capture_output=True, text=True, check=True
    )
    used, told = (int(word) for word in done.stdout.split())
    assert used / 2.5 <= told <= 1.2 * used


def test_the_machine_says_how_much_is_free_and_it_is_enough_for_a_small_federation() -> None:
    free = memory.free_memory()
    assert free is None or free > memory.plan_bytes(1000, private=True)
    assert feducb.simulate(agents=20, dim=2, horizon=20, runs=1).mean >= 0


@pytest.mark.parametrize("baseline", [None, "alone", "uniform"])
def test_what_does_not_fit_is_refused_before_it_is_planned_or_played(
    monkeypatch: pytest.MonkeyPatch, baseline: str | None
) -> None:
    setting: dict[str, Any] = {"dim": 10, "horizon": 20, "runs": 1, "baseline": baseline}
    planned = memory.plan_bytes(100, private=baseline is None)
    refused = f"agents is 100, expected fewer: they need at least .* of memory where {planned - 1:,} bytes"
    monkeypatch.setattr(runner, "free_memory", lambda: planned - 1)
    monkeypatch.setattr(runner, "make_plan", None)
    with pytest.raises(ConfigurationError, match=refused):
        feducb.simulate(agents=100, **setting)
    monkeypatch.undo()
    monkeypatch.setattr(runner, "free_memory", lambda: planned)
    with pytest.raises(ConfigurationError, match=f"of memory where {planned:,} bytes are free"):
        feducb.simulate(agents=100, **setting)
    monkeypatch.setattr(runner, "free_memory", lambda: None)
    assert feducb.simulate(agents=100, **setting).mean >= 0

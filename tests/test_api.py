"""The public names, and what bad settings get."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

import feducb


def test_every_public_name_is_there_and_listed() -> None:
    assert feducb.__all__ == sorted(feducb.__all__)
    for name in feducb.__all__:
        assert hasattr(feducb, name)
    public = {name for name in vars(feducb) if not name.startswith("_")}
    modules = {name for name in public if type(vars(feducb)[name]).__name__ == "module"}
    assert public - modules - {"annotations"} == set(feducb.__all__) - {"__version__"}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"dim": 0}, "dim is 0"),
        ({"arms": 0}, "arms is 0"),
        ({"agents": 0}, "agents is 0"),
        ({"agents": 2.5}, "agents is 2.5"),
        ({"horizon": 0}, "horizon is 0"),
        ({"runs": 0}, "runs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": math.nan}, "delta is nan"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"exploration": -1.0}, "exploration is -1.0"),
        ({"gap": 2.0}, "gap is 2.0"),
        ({"releases": 101}, "releases is 101"),
        ({"first_release": 101}, "first_release is 101"),
        ({"mode": "papper"}, "mode is 'papper'"),
        ({"baseline": "lonely"}, "baseline is 'lonely'"),
        ({"schedule": "weekly"}, "schedule is 'weekly'"),
        ({"schedule": "determinant"}, "schedule is 'determinant'"),
        ({"mechanism": "bush"}, "mechanism is 'bush'"),
        ({"threads": 0}, "threads is 0"),
        ({"budgets": [feducb.Budget(epsilon=1, delta=0.1)]}, "budgets is '1 budgets'"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_value(setting: dict[str, Any], named: str) -> None:
    base: dict[str, Any] = {"agents": 2, "dim": 2, "horizon": 100, "runs": 1}
    with pytest.raises(feducb.ConfigurationError) as raised:
        feducb.simulate(**(base | setting))
    assert str(raised.value).startswith(named)
    assert ", expected " in str(raised.value)


def test_simulation_imports_without_the_libraries_of_deployment_and_drawing() -> None:
    code = (
        "import sys, feducb; "
        "heavy = {'dp_accounting', 'opendp', 'msgspec', 'matplotlib', 'typer', 'rich', 'numba', 'cupy'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

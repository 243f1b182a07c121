"""Results are the recorded ones, whatever was rearranged; `result_cases` has the list and records it anew."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import pytest
from result_cases import RESULTS, cases, without_time

# Exactly the recorded digits on the machine that recorded them (FEDUCB_EXACT=1); elsewhere a matrix product
# may round otherwise, by far less than any change of rule, noise or schedule would show.
_RELATIVE = 0.0 if os.environ.get("FEDUCB_EXACT") else 1e-9
_RECORDED = json.loads(RESULTS.read_text())


def _differences(found: Any, recorded: Any, place: str = "") -> list[str]:
    if isinstance(recorded, dict) and isinstance(found, dict):
        names = sorted({*found, *recorded})
        return [
            line
            for name in names
            for line in (
                _differences(found[name], recorded[name], f"{place}.{name}")
                if name in found and name in recorded
                else [f"{place}.{name} is only in the {'new' if name in found else 'recorded'} result"]
            )
        ]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        pairs = enumerate(zip(found, recorded, strict=True))
        return [line for at, (one, other) in pairs for line in _differences(one, other, f"{place}[{at}]")]
    if isinstance(recorded, float) and isinstance(found, float):
        same = found == recorded or math.isclose(found, recorded, rel_tol=_RELATIVE, abs_tol=_RELATIVE)
        return [] if same else [f"{place} is {found!r}, recorded {recorded!r}"]
    return [] if found == recorded else [f"{place} is {found!r}, recorded {recorded!r}"]


def test_every_case_is_recorded() -> None:
    assert set(cases()) == set(_RECORDED)
    assert len(_RECORDED) >= 40


@pytest.mark.parametrize("name", sorted(_RECORDED))
def test_result_is_the_recorded_one(name: str) -> None:
    found = json.loads(json.dumps(without_time(cases()[name]())))
    assert _differences(found, _RECORDED[name]) == []

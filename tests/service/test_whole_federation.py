"""Services, keepers, controller and broker, killed under load; at length: benchmarks/chaos_federation.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from chaos_federation import chaos


@pytest.mark.parametrize("trust", ["nobody", "keepers"])
def test_a_federation_over_nats_survives_kills_of_anybody(tmp_path: Path, trust: str) -> None:
    if shutil.which("nats-server") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nats-server is not installed, and CI=true: apt-get install nats-server")
        pytest.skip("nats-server is not installed, so nothing was sent over NATS")
    found = chaos(tmp_path, kills=6, seed=2, trust=trust)
    assert int(found["decisions acknowledged"]) > 100
    assert int(found["rewards acknowledged"]) > 50
    assert int(found["releases"]) >= 3

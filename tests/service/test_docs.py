"""The page of the service is run as it stands, in a folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), re.DOTALL)


@pytest.mark.xdist_group("port 8750")
def test_rank_and_reward_in_five_minutes(tmp_path: Path) -> None:
    (shell,) = [text for kind, text in BLOCKS if kind == "sh"]
    bins = Path(sys.executable).parent
    shell = shell.replace("scripts/setup service", "set -eu").replace(".venv/bin", str(bins))
    shell = shell.replace("cp examples", f"cp {ROOT}/examples").replace(
        "$KEY 12000", "$KEY 200"
    )  # two minutes
    process = subprocess.Popen(
        ["bash", "-c", f"{shell}\necho; echo DONE; wait"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if "DONE" in line:
                break
        assert '"id":"visit-17"' in said
        assert '{"outcomes":["recorded"]}' in said
        client, embedded, learnt = [text for kind, text in BLOCKS if kind == "python"]
        told = subprocess.run(
            [sys.executable, "-c", client], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "recorded" in told.stdout
        subprocess.run([sys.executable, "-c", embedded], cwd=tmp_path, check=True)
        told = subprocess.run(
            [sys.executable, "-c", learnt], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "loyalty_points shown" in told.stdout
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=120)
        process.stdout.close()

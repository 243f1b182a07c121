"""`feducb tour`: something moves, somebody is killed and comes back, nothing is left."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from feducb_lab.tour import AGENTS, Tour


def test_the_command_starts_everybody_and_ends_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "feducb", "tour", "--no-browser", "--seconds", "8"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert all(f"  {name}" in done.stdout for name in ("controller", *AGENTS))
    visitors = int(re.findall(r"(\d+) visitors", done.stdout)[-1])
    assert visitors > 10
    assert list(tmp_path.iterdir()) == []
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


@pytest.mark.parametrize("trust", ["nobody", "keepers"])
def test_a_killed_agent_comes_back_and_the_page_follows(tmp_path: Path, trust: str) -> None:
    said: list[str] = []
    tour = Tour(tmp_path, epsilon=1e4, trust=trust, say=said.append)

    async def whole() -> None:
        until = asyncio.Event()
        started = asyncio.Event()
        work = asyncio.ensure_future(tour.run(until, started.set))
        while not started.is_set():
            if work.done():
                work.result()
            await asyncio.sleep(0.1)
        address, _, key = tour.page.partition("/#key=")
        headers = {"authorization": f"Bearer {key}"}
        numbers: list[int] = []
        async with (
            httpx.AsyncClient(headers=headers, timeout=120) as http,
            http.stream("GET", f"{address}/v1/events") as stream,
        ):
            killed, begun = None, time.monotonic()
            async for line in stream.aiter_lines():
                found = re.search(r'"newest_sum":\{"season":1,"number":(\d+)', line)
                if found:
                    numbers.append(int(found[1]))
                if numbers and killed is None:
                    killed = asyncio.ensure_future(tour.kill("south"))
                if killed is not None and killed.done() and numbers[-1] >= numbers[0] + 2:
                    break
                assert time.monotonic() - begun < 600
        until.set()
        await work
        assert numbers == sorted(numbers)

    asyncio.run(whole())
    assert "south is dead" in said[0]
    assert "south is back" in said[1]
    assert all(agent.process is not None and agent.process.poll() == 0 for agent in tour.agents.values())


def test_a_trust_that_the_tour_does_not_show_is_said_in_a_sentence() -> None:
    command = [sys.executable, "-m", "feducb", "tour", "--no-browser", "--trust", "controller"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "trust is 'controller', expected nobody or keepers, on the tour" in done.stderr


def test_only_keepers_need_keys_and_what_makes_them() -> None:
    needless = ("cryptography", "nkeys", "nacl", "nats")
    run = "from feducb.cli import main; main(['tour', '--no-browser', '--seconds', '1', *sys.argv[1:]])"
    code = f"import sys; sys.modules |= dict.fromkeys({needless}); {run}"
    for trust, status, said in (
        ("nobody", 0, "ended, nothing is left"),
        ("keepers", 2, "feducb: making keys needs cryptography: pip install 'feducb[nats]'"),
    ):
        command = [sys.executable, "-c", code, "--trust", trust]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == status, done.stderr
        assert said in done.stdout + done.stderr

"""Killed at random, and traced: acknowledged means on disk. The long run is benchmarks/chaos_service.py."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from chaos_service import chaos
from harness import ACTIONS, Running, write_config

from feducb.service.client import Client


def test_killed_under_load_nothing_acknowledged_is_lost_or_counted_twice(tmp_path: Path) -> None:
    found = chaos(tmp_path, kills=4, seed=1, longest=0.8)
    assert found["kills"] == 4
    assert found["kills with requests under way"] >= 2
    assert found["decisions acknowledged"] > 100
    assert found["rewards acknowledged"] > 50
    assert found["releases"] >= 1


def test_the_log_is_synced_before_every_answer(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed, so the order of fsync and answers was not looked at")
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"strace cannot trace here (ptrace is not allowed): {probe.stderr.strip()}")
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,write,pwrite64,sendto,writev,sendmsg,recvfrom,read"
    tracer = ["strace", "-f", "-y", "-s", "200", "-e", calls, "-o", str(trace)]
    service = Running(write_config(tmp_path), wrapper=tracer)
    try:
        with Client(service.url, key=service.application, timeout=120.0) as agent:
            for number in range(30):
                agent.reward(agent.decide(ACTIONS).id, number / 30)
    finally:
        subprocess.run(["pkill", "-TERM", "-P", str(service.process.pid)], check=False)
        assert service.process.wait(timeout=120) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    log = str(tmp_path / "agent.db-wal")
    written = synced = answers = 0
    for line in trace.read_text(errors="replace").splitlines():
        if "<unfinished" in line and "sync(" in line:
            continue  # it counts when it has ended
        if re.search(r"pwrite64\(\d+<" + re.escape(log), line):
            written += 1
        elif re.search(r"fdatasync\(\d+<" + re.escape(log), line) or "fdatasync resumed" in line:
            assert line.endswith("= 0")
            synced = written
        elif "HTTP/1.1 200 OK" in line and re.search(r"\b(write|sendto|writev|sendmsg)\(", line):
            answers += 1
            assert written > 0, f"answer {answers} with nothing written"
            assert synced == written, f"answer {answers} before its commit was on disk"
            written = synced = 0
    assert answers == 60

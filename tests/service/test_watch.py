"""`feducb watch`, as it is typed: an agent by its file or its service, and a simulation."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Running

from feducb.service.client import Client
from feducb.simulation.checkpoint import look

FEDUCB = [sys.executable, "-m", "feducb"]
WIDE = os.environ | {"COLUMNS": "140"}


def _watch(*arguments: str, status: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [*FEDUCB, "watch", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=WIDE | environment,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


def test_a_running_agent_by_its_file_and_by_its_service(running: Running) -> None:
    with Client(running.url, key=running.application, timeout=120.0) as agent:
        agent.reward(agent.decide([[0.1, 0.2, 0.3]]).id, 1.0)
    for said in (
        _watch("--config", str(running.config), "--once"),
        _watch("--url", running.url, "--once", FEDUCB_KEY=running.operator),
    ):
        for word in ("agent north, season 1", "ε = 1, δ = 1e-06", "64 left", "next release", "runs out"):
            assert word in said
        assert "decisions" in said
    for key, why in (
        (running.application, "this key has the role application; this needs an operator's or a viewer's"),
        ("nobody's", "does not know this key"),
    ):
        assert why in _watch("--url", running.url, "--key", key, "--once", status=2)


def test_what_cannot_be_watched_is_said_in_a_sentence(tmp_path: Path) -> None:
    assert "a running feducb service" in _watch(
        "--url", "http://127.0.0.1:9", "--key", "k", "--once", status=2
    )
    assert "one of --config, --url" in _watch("--url", "http://x", "--checkpoint", "y", "--once", status=2)
    assert "FEDUCB_KEY" in _watch("--url", "http://127.0.0.1:9", "--once", status=2)
    assert "a folder of a simulation" in _watch("--checkpoint", str(tmp_path), "--once", status=2)
    assert "feducb agent init" in _watch("--config", str(tmp_path / "none.toml"), "--once", status=2)
    (tmp_path / "controller.toml").write_text("[controller]\n")
    assert "this is a controller's" in _watch(
        "--config", str(tmp_path / "controller.toml"), "--once", status=2
    )


def test_a_simulation_while_it_runs_and_when_it_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    settings = ["--agents", "2", "--dim", "2", "--arms", "3", "--runs", "2"]
    command = [*FEDUCB, "simulate", *settings, "--horizon", "300000", "--checkpoint", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        seen = set[int]()
        while process.poll() is None:
            if (folder / "progress.json").exists():
                seen.add(look(folder)["done"])
            time.sleep(0.05)
    assert process.returncode == 0
    told = look(folder)
    assert told["done"] == told["total"] == 2 * 2 * 300_000
    assert len(seen) >= 2  # it moved
    said = _watch("--checkpoint", str(folder), "--once")
    assert "1,200,000 of 1,200,000" in said
    assert "nothing: it is done" in said


def _in_terminal(config: Path, handling: signal.Handlers) -> tuple[subprocess.Popen[bytes], int]:
    """One that watches, and our side of its terminal.

    Whether Ctrl-C ends a program is handed on to those it starts: a shell's job in the background ignores it.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FEDUCB, "watch", "--config", str(config), "--every", "0.1"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=WIDE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handling),  # noqa: PLW1509
    )
    os.close(theirs)
    return process, ours


def _shown(terminal: int, frames: int) -> bytes:
    """So many more updates, and whatever comes with them."""
    said = b""
    while said.count(b"agent north") < frames:
        said += os.read(terminal, 65536)
    return said


def test_it_goes_on_until_ctrl_c_and_leaves_the_terminal_as_it_was(running: Running) -> None:
    process, ours = _in_terminal(running.config, signal.SIG_DFL)
    with process:
        said = _shown(ours, 3)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 65536):
                said += more
        except OSError:  # Linux says so when the other side has closed
            pass
        assert process.wait(timeout=120) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(ours)
    assert said.rstrip().endswith((b"\x1b[?1049l\x1b[?25h", b"\x1b[?25h\x1b[?1049l", b"\x1b[?25h"))


def test_ctrl_c_that_is_meant_for_others_does_not_end_it(running: Running) -> None:
    """In the background of a shell, where it is ignored: it ends with SIGTERM, as any job there."""
    process, ours = _in_terminal(running.config, signal.SIG_IGN)
    with process:
        _shown(ours, 1)
        process.send_signal(signal.SIGINT)
        _shown(ours, 3)
        process.terminate()
        assert process.wait(timeout=120) == -signal.SIGTERM
    os.close(ours)


def test_sparklines_span_their_range() -> None:
    """In a process of its own, as all that touches the command line."""
    code = (
        "from feducb.cli.watch_frames import sparkline as s;"
        "print(s([0, None, 0.5, 1], 0, 1), s([2, 2], 2, 2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "▁ ▅█ ▁▁\n"

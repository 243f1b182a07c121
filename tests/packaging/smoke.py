"""What an installed wheel must do, with the extras that are named: `python smoke.py base`, or `client,nats`.

Run by `scripts/wheel` and by test_wheel.py in a clean environment, with nothing but what is installed there.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

BIN = Path(sys.executable).parent
# What each extra brings, as a module to import; a command, where feducb has one that needs the extra.
MODULES = {
    "client": ["httpx", "feducb.service.client"],
    "data": ["pandas", "pyarrow", "lifelines", "feducb.worlds.data", "feducb.evaluation"],
    "deploy": ["opendp.prelude"],
    "docs": ["mkdocs", "material", "mkdocstrings"],
    "flower": ["flwr", "feducb.carriers.flower.client_app", "feducb.carriers.flower.server_app"],
    "gpu": ["cupy"],
    "keepers": ["nacl", "cryptography", "feducb.protocol.pads", "feducb.storage.keeper_book"],
    "nats": ["nats", "nkeys", "cryptography"],
    "ray": ["ray"],
    "service": ["fastapi", "uvicorn", "uvloop", "feducb.service.app"],
}
COMMANDS = {
    "data": [["data", "list"]],
    "deploy": [["privacy", "audit", "--help"]],
}


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _imports(module: str) -> None:
    _run(sys.executable, "-W", "ignore", "-c", f"import {module}")


def _serves(feducb: str) -> None:
    """An agent is made, starts, answers, and ends when it is asked to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _run(feducb, "agent", "init", "--dim", "3", "--port", str(port))
    service = subprocess.Popen([feducb, "agent", "serve"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(3000):  # a busy machine takes its time
            try:
                with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit("feducb agent serve: not ready after five minutes")
    except BaseException:
        service.kill()
        raise
    service.terminate()
    ended = service.wait(timeout=600)
    if ended:
        sys.exit(f"feducb agent serve: status {ended} when it was asked to end")


def main(extras: str) -> None:
    """Run the checks in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        feducb = str(BIN / "feducb")
        assert "simulate" in _run(feducb, "--help")
        said = _run(
            feducb, "simulate", "--agents", "5", "--dim", "2", "--arms", "4", "--horizon", "50",
            "--runs", "1", "--releases", "8", "--plot", "curve.png",
        )  # fmt: skip
        assert "regret" in said, said
        assert Path("curve.png").stat().st_size > 1000
        names = [] if extras == "base" else extras.split(",")
        if (
            not names and find_spec("opendp") is None
        ):  # what is missing is named, with the extra that brings it
            done = subprocess.run([feducb, "privacy", "audit"], capture_output=True, text=True, check=False)
            assert done.returncode == 2, done
            assert "feducb[deploy]" in done.stderr, done.stderr
        for name in names:
            for module in MODULES.get(name, []):
                _imports(module)
            for command in COMMANDS.get(name, []):
                _run(feducb, *command)
            if name == "service":
                _serves(feducb)
        os.chdir("/")
    print("works:", extras)


if __name__ == "__main__":
    main(sys.argv[1])

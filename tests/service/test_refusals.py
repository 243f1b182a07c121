"""A service that cannot start says why in one sentence; one that cannot write says so and goes on later."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ACTIONS, Running, write_config

from feducb.agent.view import look
from feducb.service.api_keys import add_key
from feducb.service.client import Client, ServiceError


def _serve(config: Path) -> tuple[int, str]:
    """Try to start it; how it ended, and what it said."""
    if not (config.parent / "agent.keys").exists():
        add_key(config.parent / "agent.keys", "any")
    command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stderr


def test_a_second_writer_is_refused(running: Running) -> None:
    status, said = _serve(running.config)
    assert status == 2
    assert "open elsewhere; one opener at a time" in said
    with Client(running.url, key=running.application, timeout=120.0) as agent:
        agent.decide(ACTIONS)  # the first goes on


def test_a_corrupt_a_foreign_and_a_newer_file_are_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    store = tmp_path / "agent.db"
    store.write_bytes(b"not a database at all" * 100)
    status, said = _serve(config)
    assert (status, "is not a store" in said) == (2, True)
    store.unlink()
    with Running(config):
        pass
    whole = store.read_bytes()
    store.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    status, said = _serve(config)
    assert status == 2
    assert "Traceback" not in said
    assert said.count("\n") == 1
    store.write_bytes(whole)
    with sqlite3.connect(store) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    status, said = _serve(config)
    assert (status, "update it" in said) == (2, True)


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    status, said = _serve(write_config(tmp_path))
    assert (status, "noise of old releases" in said) == (2, True)


def test_a_changed_promise_waits_for_the_next_season(tmp_path: Path) -> None:
    with Running(write_config(tmp_path)) as running, running.http(running.application) as http:
        assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 200
    with Running(write_config(tmp_path, window="61s")) as running:
        assert "window is 61.0, expected 60.0 until a new season opens" in running.log.read_text()


def test_without_a_key_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "agent.keys").write_text('{"version": 1, "keys": []}')
    status, said = _serve(write_config(tmp_path))
    assert (status, "agent key add" in said) == (2, True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MB; where none can be mounted, a limit on the size of files does the same."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount") or "mount"
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    yield disk
    if made.returncode == 0:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    config = write_config(small_disk, keep="1h", window="1h")
    mounted = os.path.ismount(small_disk)
    wrapper = [] if mounted else ["prlimit", f"--fsize={2 * 2**20}"]
    with Running(config, wrapper=wrapper) as service:
        acknowledged, refused = 0, list[ServiceError]()
        with Client(service.url, key=service.application, timeout=120.0, attempts=1) as agent:
            for _ in range(20_000):
                try:
                    agent.decide(ACTIONS)
                    acknowledged += 1
                except ServiceError as error:
                    refused.append(error)
                    if len(refused) >= 20:
                        break
            assert len(refused) == 20
            assert {(error.status, str(error)) for error in refused} == {
                (503, "POST /v1/decisions: answered 503: could not be put on disk; send it again")
            }
            assert acknowledged > 100
            with service.http() as http:
                assert http.get("/healthz").status_code == 200
                assert http.get("/readyz").status_code == 503
            if mounted:  # room again: it goes on by itself
                subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
                for _ in range(1200):
                    try:
                        agent.decide(ACTIONS)
                        acknowledged += 1
                        break
                    except ServiceError:
                        time.sleep(0.1)
                else:
                    raise AssertionError("it did not go on")
    counted = look(small_disk / "agent.db")["counts"]["decisions"]
    assert acknowledged <= counted <= acknowledged + 2  # a commit that failed after it was done may count

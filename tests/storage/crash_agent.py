"""The agent that `test_crash` kills: it records, releases and sends as fast as it can.

    python crash_agent.py lives STORE FD PHASE [careless]    # one life for each line on stdin
    python crash_agent.py send STORE PORT RELEASES           # so many releases over TCP, then the end

A life is a fork of a process that has imported everything, so that killing hundreds of them is quick. The
line says at which point of its life it is killed: points are the lines of the store, the privatizer and this
file as they are run, and moments within statements of SQLite. 0 leaves the killing to somebody else. What
leaves is a frame: season, group, number, size, payload, in one write.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import sys
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from feducb import storage as stores
from feducb.config import Budget, Problem
from feducb.privacy import deployed
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage import AgentStore

FRAME = struct.Struct("<IIIH")
TERMS = Terms(problem=Problem(dim=10), budget=Budget(epsilon=1.0, delta=1e-6), releases=8, groups=3)
PHASES = ("start", "resend", "record", "release", "send", "mark", "season")
MANY = replace(TERMS, releases=4096, groups=1)
TRACED = {__file__, deployed.__file__, *map(str, Path(stores.__file__).parent.glob("*.py"))}
STATEMENT_STEPS = 25  # of SQLite's machine from one point within a statement to the next
UNANSWERED = 2  # so many releases are on their way before the first is reported to have arrived
ACTIONS, REWARDS = np.full((4, 10), 0.3), np.full(4, 0.5)

Send = Callable[[int, int, int, bytes], None]
Enter = Callable[[str], None]


def frame(season: int, group: int, number: int, payload: bytes) -> bytes:
    return FRAME.pack(season, group, number, len(payload)) + payload


class Fate:
    """Kill -9 at the point with this number, however long it takes to get there; 0 is none."""

    def __init__(self, point: int, last_words: Callable[[FrameType], None] | None = None) -> None:
        self._left = iter(range(point - 1)) if point else count()
        self._last_words = last_words  # hears where it dies

    def pass_point(self) -> int:
        if next(self._left, None) is None:
            sys.settrace(None)
            if self._last_words is not None:
                self._last_words(sys._getframe())
            os.kill(os.getpid(), signal.SIGKILL)
        return 0  # SQLite is to go on

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in TRACED or code is Fate.pass_point.__code__:
            return None
        if event == "line":
            self.pass_point()
        return self.trace


def live(store: AgentStore, send: Send, enter: Enter, releases: int | None = None) -> None:
    """Send what the last life may not have sent, then go on; for ever, unless told how many releases."""
    enter("resend")
    for one in store.outbox():
        send(*one.name, one.body)
        store.mark_sent(one.season, one.number, group=one.group)
    made, underway = 0, deque[messages.GridSum]()
    while releases is None or made < releases:
        if store.releases_left == 0:
            enter("season")
            store.new_season()
        group = max(range(store.terms.groups), key=store.releases_left_in)  # in turn
        enter("record")
        store.record(ACTIONS, REWARDS, group=group)
        enter("release")
        payload = store.release(group)
        enter("send")
        told = messages.decode(payload)
        send(told.season, told.group, told.number, payload)
        underway.append(told)
        if len(underway) > UNANSWERED:
            enter("mark")
            oldest = underway.popleft()
            store.mark_sent(oldest.season, oldest.number, group=oldest.group)
        made += 1


def live_carelessly(path: Path, send: Send, enter: Enter) -> None:
    """How not to do it: the state is stored after the release is sent."""
    privatizer = DeployedPrivatizer(MANY)
    if path.exists():
        privatizer.load(path.read_bytes())
    while True:
        enter("release")
        made = privatizer.release()
        send(1, 0, made.number, messages.encode(made, season=1))
        enter("mark")
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(privatizer.dump())
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)


def serve_lives(path: Path, channel: int, phases: Path, *, careless: bool) -> None:
    """Fork a life for each line on stdin; say its process id on stdout, then how it ended."""
    with phases.open("r+b") as file:
        phase = mmap.mmap(file.fileno(), 1)
    for terms in (TERMS, MANY):
        DeployedPrivatizer(terms).release()  # loads libraries and caches the mechanism

    def enter(name: str) -> None:
        phase[0] = PHASES.index(name)

    def send(season: int, group: int, number: int, payload: bytes) -> None:
        os.write(channel, frame(season, group, number, payload))  # less than PIPE_BUF: whole, or not at all

    for line in sys.stdin:
        enter("start")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # idle BLAS threads do not survive a fork
            child = os.fork()
        if child == 0:
            fate = Fate(int(line))
            sys.settrace(fate.trace)
            try:
                if careless:
                    live_carelessly(path, send, enter)
                else:
                    with AgentStore.open(path, TERMS) as store:
                        store.database.set_progress_handler(fate.pass_point, STATEMENT_STEPS)
                        live(store, send, enter)
            finally:
                os._exit(1)  # nobody is meant to get here: a life ends by SIGKILL
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def send_over_tcp(path: Path, port: int, releases: int) -> None:
    """A whole life, over a socket."""
    with socket.create_connection(("127.0.0.1", port)) as link, AgentStore.open(path, TERMS) as store:
        live(store, lambda *parts: link.sendall(frame(*parts)), lambda _: None, releases)


if __name__ == "__main__":
    if sys.argv[1] == "lives":
        serve_lives(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), careless=len(sys.argv) > 5)
    else:
        send_over_tcp(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

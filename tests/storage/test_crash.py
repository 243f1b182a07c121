"""Kill -9 at chosen points, and a trace of system calls: what leaves is on disk first, and never changes."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest
from crash_agent import FRAME, PHASES, TERMS

from feducb.privacy.grid import GridNoise
from feducb.protocol import messages
from feducb.storage import AgentStore

AGENT = Path(__file__).with_name("crash_agent.py")
KILLS, IN_RELEASE = 240, 40  # so many, at least so many of them there
FEW = 30  # are enough for a careless one to be caught
LONGEST = (
    1800  # points of a life: opening the file takes about 350 of them, a release and what is around it 300
)
CUTS = (20, 33, 40, 47)  # so many writes and syncs into a life; it opens its file with about 10
PATIENCE = 120.0  # seconds that nothing here needs: only a hang takes so long


@dataclass
class Seen:
    """What an observer on the wire has seen, and where the agent was when it was killed."""

    frames: dict[tuple[int, int, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    phases: Counter[str] = field(default_factory=Counter)

    def changed(self) -> list[tuple[int, int, int]]:
        """Releases that left with two different byte strings."""
        return [name for name, payloads in list(self.frames.items()) if len(set(payloads)) > 1]

    def resent(self) -> int:
        """How often a release left once more."""
        return sum(len(payloads) - 1 for payloads in list(self.frames.values()))


def _listen(channel: int, seen: Seen) -> None:
    """Read frames until every writer is gone; a frame cut short would be an error."""
    with os.fdopen(channel, "rb") as stream:
        while head := stream.read(FRAME.size):
            season, group, number, size = FRAME.unpack(head)
            payload = stream.read(size)
            assert len(payload) == size
            seen.frames[season, group, number].append(payload)


def _kill_often(store: Path, fates: Iterable[int], *options: str, tracer: Sequence[str] = ()) -> Seen:
    """Let the agent live and be killed, again and again, each time at the point that its fate says."""
    seen = Seen()
    phase = store.with_suffix(".phase")
    phase.write_bytes(b"\0")
    reading, writing = os.pipe()
    listener = threading.Thread(target=_listen, args=(reading, seen))
    listener.start()
    command = [*tracer, sys.executable, str(AGENT), "lives", str(store), str(writing), str(phase), *options]
    agent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[writing]
    )
    os.close(writing)
    assert agent.stdin
    assert agent.stdout
    with agent.stdin, agent.stdout:  # without them the agent ends: nothing is left running
        for fate in fates:
            agent.stdin.write(f"{fate}\n")
            agent.stdin.flush()
            assert int(agent.stdout.readline()) == -signal.SIGKILL, "the agent died before it was killed"
            seen.phases[PHASES[phase.read_bytes()[0]]] += 1
    assert agent.wait(timeout=PATIENCE) == 0
    listener.join(timeout=PATIENCE)
    assert not listener.is_alive()
    return seen


def _fates(count: int) -> list[int]:
    rng = random.Random(20201)
    return [rng.randint(1, LONGEST) for _ in range(count)]


def _assert_whole(seen: Seen, path: Path) -> None:
    """Nothing left with two byte strings, what left is in the ledger, and nothing is missing there."""
    print(
        f"\n{seen.phases.total()} kills in {dict(seen.phases)}; {len(seen.frames)} releases, "
        f"{seen.resent()} resent"
    )
    assert seen.changed() == []
    with AgentStore.open(path, TERMS) as store:
        entries = [entry for account in store.ledger().accounts for entry in account.entries]
        made = {(entry.season, entry.group, entry.number): entry.sha256 for entry in entries}
        for (season, group, number), payloads in seen.frames.items():
            assert sha256(payloads[0]).hexdigest() == made[season, group, number]
            assert store.replay(season, number, group=group) == payloads[0]
        unseen = made.keys() - seen.frames.keys()
        assert unseen <= {one.name for one in store.outbox()}
        assert len(unseen) <= 1  # made, killed before the write; every life sends that first
        assert len(made) == sum(account.releases_made for account in store.ledger().accounts)
        for account in store.ledger().accounts:  # numbers without gaps, and never more than the budget covers
            for group in range(TERMS.groups):
                numbers = [entry.number for entry in account.entries if entry.group == group]
                assert numbers == list(range(1, len(numbers) + 1))
                assert account.releases_left_in(group) == TERMS.releases - len(numbers) >= 0


def test_killed_at_any_point_no_release_leaves_with_two_byte_strings(tmp_path: Path) -> None:
    seen = _kill_often(tmp_path / "agent.db", _fates(KILLS))
    _assert_whole(seen, tmp_path / "agent.db")
    assert seen.phases["release"] >= IN_RELEASE
    assert seen.resent() > 0


def test_the_first_of_these_kills_catch_an_agent_that_stores_after_it_sends(tmp_path: Path) -> None:
    seen = _kill_often(tmp_path / "state", _fates(FEW), "careless")
    assert seen.changed() != []


_WRITES = "pwrite64,fdatasync,fsync,ftruncate"  # whatever changes the file or its log


@pytest.mark.parametrize("cut", CUTS)
def test_killed_before_any_write_to_the_disk_no_release_leaves_with_two_byte_strings(
    tmp_path: Path, cut: int
) -> None:
    """Within a commit, where no line of ours is run; the life ends where it would write or sync next."""
    _require_strace()
    kill = f"inject={_WRITES}:signal=SIGKILL:when={cut}"
    tracer = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={_WRITES}", "-e", kill]
    AgentStore.open(tmp_path / "agent.db", TERMS).close()
    seen = _kill_often(tmp_path / "agent.db", [0] * 8, tracer=tracer)
    _assert_whole(seen, tmp_path / "agent.db")
    assert seen.phases["release"] > 0


def test_forks_of_one_process_draw_different_noise() -> None:
    # Lives are forks, so that equal bytes could also come from an inherited generator. They do not: two draws
    # of 65 numbers with a deviation above 1e7 agree with probability below 1e-400.
    noise = GridNoise(TERMS.certificate())
    drawn = [noise.draw(65).tobytes()]
    for _ in range(3):
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # BLAS threads do not survive a fork; not used
            child = os.fork()
        if child == 0:
            try:
                os.write(writing, noise.draw(65).tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        drawn.append(os.read(reading, 4096))
        os.close(reading)
    assert [len(one) for one in drawn] == [520] * 4
    assert len(set(drawn)) == 4


def _traced(store: Path, releases: int, trace: Path) -> int:
    """Run the agent under strace; returns how many bytes arrived."""
    calls = "trace=fsync,fdatasync,write,pwrite64,pwritev,writev,ftruncate,sendto,sendmsg"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        port = str(server.getsockname()[1])
        agent = [sys.executable, str(AGENT), "send", str(store), port, str(releases)]
        tracer = ["strace", "-f", "-y", "-x", "-s", "5000", "-e", calls, "-o", str(trace)]
        process = subprocess.Popen([*tracer, *agent])
        link, _ = server.accept()
        with link:
            arrived = sum(iter(lambda: len(link.recv(1 << 16)), 0))
        assert process.wait(timeout=PATIENCE) == 0
    return arrived


def _calls(trace: Path) -> Iterator[tuple[str, str, str, int]]:
    """Name, file, other arguments and result of each system call, in the order of their ends."""
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        process, text = line.split(maxsplit=1)
        if text.endswith("<unfinished ...>"):
            begun[process] = text.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", text):
            text = begun.pop(process) + text[resumed.end() :]
        if call := re.match(r"(\w+)\(\d+<(.*?)>([,)].*)= (-?\d+)", text):
            yield call[1], call[2], call[3], int(call[4])


def _require_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed, so the order of writes, syncs and sends was not looked at")
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"strace cannot trace here (ptrace is not allowed): {probe.stderr.strip()}")


def test_the_log_is_synced_before_every_send(tmp_path: Path) -> None:
    _require_strace()
    releases = TERMS.groups * TERMS.releases + 6  # one season and a bit of the next
    arrived = _traced(tmp_path / "agent.db", releases, tmp_path / "trace")
    size = messages.message_size(TERMS.problem.dim)
    assert arrived == releases * (FRAME.size + size)
    log = str(tmp_path / "agent.db-wal")
    waiting: list[str] = []  # written to the log, not synced
    durable: list[str] = []  # synced
    sends = 0
    for name, file, arguments, result in _calls(tmp_path / "trace"):
        if file == log and "write" in name:
            waiting.append(arguments)
        elif file == log and name in {"fsync", "fdatasync"}:
            assert result == 0
            durable, waiting = durable + waiting, []
        elif name in {"sendto", "sendmsg"} and file.startswith(("socket:", "TCP:")):
            sends += 1
            payload = "".join(re.findall(r"\\x[0-9a-f]{2}", arguments)[FRAME.size :])
            assert len(payload) == 4 * size
            assert any(payload in page for page in durable), f"send {sends} was not on disk before"
            assert not waiting, f"send {sends} before the log was synced"
            durable = []
    assert sends == releases

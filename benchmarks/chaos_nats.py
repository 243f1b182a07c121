"""Kill agents, controller and broker with SIGKILL at random under load, and see whether anything comes apart.

    python benchmarks/chaos_nats.py --kills 100 [--mode controller|graph] [--seed 1] [--json FILE]

Agents release on a public clock, catching up when they were away; what they send, and what the controller
publishes, is watched on the wire. At the end everybody is left alone until all agree, and these must hold: no
release number and no sum was seen with two contents; what was seen is what the files hold; all agents have
the same last sum. Needs nats-server and the nats extra.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from feducb.carriers import nats_keys as keys
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.controller_process import JsonLog, serve
from feducb.carriers.local import StoreMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsEngine, make_streams
from feducb.config import Budget, Problem
from feducb.controller.controller_file import ControllerSettings
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages, sums
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.graphs import parse_topology
from feducb.protocol.roster import SIGNATURE_SIZE
from feducb.storage import AgentStore, PeerBook
from feducb_lab.experiments.provenance import made_by

NAMES = ("a", "b", "c", "d")
TERMS = Terms(problem=Problem(dim=5), budget=Budget(epsilon=1.0, delta=1e-6), releases=4096)
PERIOD = 0.1  # seconds between releases
LONGEST_LIFE = 0.6  # seconds until the next kill
PATIENCE = 300.0  # seconds until all agree at the end


def settings_of(folder: Path, role: str) -> NatsSettings:
    seeds = {"controller": "controller/controller.seed", "admin": "admin/admin.seed"}
    agent = role if role in NAMES else None
    return NatsSettings(
        servers=(f"tls://127.0.0.1:{(folder / 'port').read_text()}",),
        federation="chaos",
        roster=folder / "keys" / "federation.json",
        seed=folder / "keys" / seeds.get(role, f"agents/{role}/agent.seed"),
        ca=folder / "keys" / "ca.pem",
        agent=agent,
        state=folder / f"{role}.peers.db",
        timeout=1.0,
        retry=0.05,
        refresh=0.5,
    )


async def live_as_agent(folder: Path, name: str) -> None:
    """Release on the clock until told where to stop; write down the newest sum."""
    with AgentStore.open(folder / f"{name}.db", TERMS) as store:
        mailbox = StoreMailbox(store)
        engine = NatsEngine(settings_of(folder, name), TERMS)
        work = asyncio.create_task(engine.run(mailbox))
        began, written = float((folder / "began").read_text()), b""
        while not work.done():
            due = int((time.time() - began) / PERIOD)
            if (folder / "last").exists():
                due = int((folder / "last").read_text())
            made = TERMS.releases - store.releases_left
            if made < due:
                store.record(np.full((2, 5), 0.3), np.full(2, 0.5))
                store.release()
                mailbox.notify()
            if mailbox.newest.get(0, b"") != written:
                written = mailbox.newest[0]
                _note(folder / f"{name}.newest", written)
            if engine.refusals.total or engine.status.refused:
                refused = {"mine": dict(engine.status.refused), "others": engine.refusals.as_dict()}
                _note(folder / f"{name}.refused", json.dumps(refused).encode())
            await asyncio.sleep(0 if made + 1 < due else 0.01)
        work.result()


def _note(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new" + path.suffix)
    fresh.write_bytes(content)
    fresh.replace(path)


def live_as_controller(folder: Path) -> None:
    settings = ControllerSettings(
        state=folder / "controller.db",
        terms=dict.fromkeys(NAMES, TERMS),
        engine=settings_of(folder, "controller"),
        quorum=3,
        deadline=1.0,
    )
    with (folder / "controller.log").open("a") as log:
        serve(settings, log=JsonLog(log))


def serve_lives(folder: Path, role: str) -> None:
    """Fork a life for each line on stdin: imports are done once, so that a life begins at once."""
    DeployedPrivatizer(TERMS).release()
    for _ in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # idle BLAS threads do not survive a fork
            child = os.fork()
        if child == 0:
            try:
                with (folder / f"{role}.err").open("a") as errors:
                    os.dup2(errors.fileno(), 2)
                if role == "controller":
                    live_as_controller(folder)
                else:
                    asyncio.run(live_as_agent(folder, role))
            finally:
                os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("over", flush=True)


@dataclass
class Role:
    """Somebody who is killed and started again."""

    folder: Path
    name: str
    process: subprocess.Popen[Any] | None = None
    child: int = 0

    def start(self) -> None:
        """Begin a life."""
        if self.name == "broker":
            with (self.folder / "broker.log").open("ab") as log:
                command = ["nats-server", "-c", "nats-server.conf"]
                where = self.folder / "keys" / "server"
                self.process = subprocess.Popen(command, cwd=where, stdout=log, stderr=log)
            return
        if self.process is None:
            command = [sys.executable, __file__, "--life", self.name, "--folder", str(self.folder)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.child = int(self.process.stdout.readline())

    def kill(self) -> None:
        """With SIGKILL."""
        assert self.process is not None
        if self.name == "broker":
            self.process.kill()
            self.process.wait()
            return
        assert self.process.stdout
        os.kill(self.child, signal.SIGKILL)
        assert self.process.stdout.readline() == "over\n"

    def end(self) -> None:
        """For good."""
        if self.process is None:
            return
        with suppress(OSError):
            self.kill()
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        if self.process.stdout:
            self.process.stdout.close()


@dataclass
class Seen:
    """Contents seen on the wire: of releases by (agent, season, number), of sums by (season, number)."""

    releases: dict[tuple[str, int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    sums: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    async def watch(self, folder: Path) -> None:
        """With the controller's key, which may hear everything."""

        async def on_release(message: Any) -> None:
            payload = message.data[:-SIGNATURE_SIZE]
            release = messages.decode(payload)
            name = message.subject.split(".")[-1]
            self.releases[name, release.season, release.number].add(hashlib.sha256(payload).hexdigest())

        async def session(client: Any) -> None:
            await client.subscribe(subjects.topic("chaos", "release", "*"), cb=on_release)
            await asyncio.Event().wait()

        await Link(settings_of(folder, "controller"), subjects.CONTROLLER, EngineStatus()).keep(session)


async def hear_sums(folder: Path, seen: Seen) -> None:
    """With an agent's key: only agents may hear sums."""

    async def on_sum(message: Any) -> None:
        named = sums.decode(message.data[:-SIGNATURE_SIZE])
        told = named.total
        seen.sums[told.season, told.number].add(hashlib.sha256(sums.encode(named)).hexdigest())

    async def session(client: Any) -> None:
        await client.subscribe(subjects.topic("chaos", "sum"), cb=on_sum)
        await asyncio.Event().wait()

    await Link(settings_of(folder, "a"), "a", EngineStatus()).keep(session)


async def run(folder: Path, *, mode: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill, restart, and at the end look."""
    draws = random.Random(seed)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (folder / "port").write_text(str(port))
    topology = parse_topology("ring:4", ttl=2) if mode == "graph" else None
    keys.init(folder / "keys", NAMES, federation="chaos", topology=topology, server=keys.Server(port=port))
    names = ["broker", *NAMES] + (["controller"] if mode == "controller" else [])
    roles = {name: Role(folder, name) for name in names}
    seen, killed = Seen(), Counter[str]()
    watchers = []
    try:
        roles["broker"].start()
        await asyncio.sleep(0.5)
        if mode == "graph":
            await make_streams(settings_of(folder, "admin"))
        else:
            watchers = [asyncio.create_task(work) for work in (seen.watch(folder), hear_sums(folder, seen))]
        (folder / "began").write_text(str(time.time()))
        for name in names[1:]:
            await asyncio.to_thread(roles[name].start)
        began = time.monotonic()
        for _ in range(kills):
            await asyncio.sleep(draws.uniform(0.05, LONGEST_LIFE))
            victim = draws.choice(names)
            roles[victim].kill()
            killed[victim] += 1
            await asyncio.sleep(draws.uniform(0.0, 0.2))
            await asyncio.to_thread(roles[victim].start)
        under_fire = time.monotonic() - began
        last = int((time.time() - float((folder / "began").read_text())) / PERIOD) + 5
        (folder / "last").write_text(str(last))
        agreed = await _agree(folder, last)
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        for role in roles.values():
            role.end()
    return {
        "mode": mode,
        "kills": dict(killed),
        "killed": killed.total(),
        "seconds": round(under_fire, 1),
        "last_number": last,
        "seconds_until_all_agreed": agreed,
        **_look(folder, seen, mode),
    }


async def _agree(folder: Path, last: int) -> float | None:
    """Seconds until all agents had the same sum of the last number; None if they never had."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        newest = {
            (folder / f"{name}.newest").read_bytes() for name in NAMES if (folder / f"{name}.newest").exists()
        }
        if len(newest) == 1 and messages.decode(next(iter(newest))).number == last:
            return round(time.monotonic() - began, 2)
        await asyncio.sleep(0.05)
    return None


def _look(folder: Path, seen: Seen, mode: str) -> dict[str, Any]:
    """Compare what was seen with what the files hold."""
    two = [name for name, contents in seen.releases.items() if len(contents) > 1]
    differing, made = 0, 0
    stored: dict[str, dict[tuple[int, int], bytes]] = {}
    for name in NAMES:
        with AgentStore.open(folder / f"{name}.db", TERMS) as store:
            entries = [entry for account in store.ledger().accounts for entry in account.entries]
            numbers = [entry.number for entry in entries]
            assert numbers == list(range(1, len(numbers) + 1)), "numbers have gaps"
            made += len(entries)
            stored[name] = {(e.season, e.number): store.replay(e.season, e.number) for e in entries}
            for entry in entries:
                hashes = seen.releases.get((name, entry.season, entry.number), {entry.sha256})
                differing += hashes != {entry.sha256}
    if mode == "graph":
        for name in NAMES:
            with PeerBook(folder / f"{name}.peers.db") as book:
                for (origin, _), kept in book.load().items():
                    for one in kept:
                        differing += one.payload[:-SIGNATURE_SIZE] != stored[NAMES[origin]][one.version]
    refused = [json.loads(path.read_text()) for path in folder.glob("*.refused")]
    report: dict[str, Any] = {
        "releases_made": made,
        "releases_that_differ_from_the_file": differing,
        "refusals": refused,  # "replay" among them would be a number with two contents
    }
    if mode == "controller":  # on a graph nobody may listen to others' links
        report |= {
            "releases_seen": len(seen.releases),
            "sums_seen": len(seen.sums),
            "release_numbers_with_two_contents": len(two),
            "sum_numbers_with_two_contents": sum(len(contents) > 1 for contents in seen.sums.values()),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--mode", choices=("controller", "graph"), default="controller")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--life", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.life:
        serve_lives(given.folder, given.life)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        result = asyncio.run(run(folder, mode=given.mode, kills=given.kills, seed=given.seed))
    text = json.dumps(result, indent=1)
    print(text)
    if given.json:
        command = (
            f"python benchmarks/chaos_nats.py --kills {given.kills} --mode {given.mode} --seed {given.seed}"
        )
        made = made_by(command, ["feducb.carriers.nats", "feducb.controller"])
        given.json.write_text(json.dumps({"made": made, **result}, indent=1) + "\n", "utf-8")
    broken = (
        result.get("release_numbers_with_two_contents", 0)
        or result.get("sum_numbers_with_two_contents", 0)
        or result["releases_that_differ_from_the_file"]
        or result["refusals"]
        or result["seconds_until_all_agreed"] is None
    )
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()

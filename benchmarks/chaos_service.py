"""Kill -9 a decision service at random points under load, and look for anything lost or counted twice.

    python benchmarks/chaos_service.py --kills 100 [--json docs/figures/chaos-service.json]    # five minutes

Seasons are short and roll by the clock, so that there may be any number of kills. Every answer that a client
saw is compared with the agent's file at the end; every release that anybody saw with the bytes that are
there. The kills are drawn from a seed; where they hit is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.agent.ids import key_of, numbers_of
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.service.api_keys import add_key
from feducb_lab.experiments.measured import write_tables

CONFIG = """
version = 1
[agent]
store = "agent.db"
[problem]
dim = 3
[privacy]
epsilon = 1.0
delta = 1e-6
mechanism = "toeplitz"
[releases]
releases = 20
season = "60s"
[rewards]
window = "2s"
default_reward = 0.25
[retention]
keep_events = "1d"
[service]
port = 0
keys = "agent.keys"
"""
CALLERS = 8
ANSWERS = 40  # decisions of a life that are answered before it ends
PATIENCE = 300.0  # seconds; reached only where something is broken


@dataclass
class Seen:
    """What clients and observers saw.

    Attributes:
        decisions: index by id, of acknowledged decisions.
        rewards: value by id, of rewards acknowledged as recorded.
        releases: SHA-256 by (kind, season, group, number), all that were ever told.
        kills: how many.
        under_way: of those, how many hit while requests were waiting for an answer.
    """

    decisions: dict[str, int] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    releases: dict[tuple[str, int, int, int], set[str]] = field(default_factory=dict)
    kills: int = 0
    under_way: int = 0


class Chaos:
    """A service that dies, its callers, and who kills it."""

    def __init__(self, folder: Path, seed: int, config: str = CONFIG) -> None:
        self.folder, self.seen, self._rng = folder, Seen(), random.Random(seed)
        (folder / "agent.toml").write_text(config)
        file = read_agent_file(folder / "agent.toml")
        Agent.open(file.store, file.agent).close()
        self._key = add_key(folder / "agent.keys", "chaos", "operator")
        self._port, self._waiting, self._over = 0, 0, False

    def start(self) -> subprocess.Popen[bytes]:
        """Start the service and wait until it listens."""
        command = [sys.executable, "-m", "feducb", "agent", "serve", "--config"]
        process, line = start([*command, str(self.folder / "agent.toml")], self.folder / "log", '"listening"')
        self._port = int(json.loads(line)["port"])
        return process

    async def run(self, kills: int, longest: float) -> None:
        """Kill so often; each life lasts up to ``longest`` seconds after some calls were answered."""
        loop = asyncio.get_running_loop()
        process = await loop.run_in_executor(None, self.start)
        callers = self.call(CALLERS)
        for _ in range(kills):
            enough = len(self.seen.decisions) + ANSWERS
            while (
                len(self.seen.decisions) < enough or not self._waiting
            ):  # on a busy machine that takes longer
                await asyncio.sleep(0.001)
            await asyncio.sleep(self._rng.uniform(0.0, longest))
            self.seen.under_way += self._waiting > 0
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            self.seen.kills += 1
            process = await loop.run_in_executor(None, self.start)
        await asyncio.sleep(1.0)
        self.hang_up()
        await asyncio.gather(*callers)
        await settled(self.folder / "agent.db")
        process.terminate()
        process.wait(timeout=PATIENCE)

    def call(self, callers: int, *, rest: float = 0.0) -> list[asyncio.Task[None]]:
        """Start so many callers, who rest so many seconds between calls; they go on until `hang_up`."""
        return [asyncio.create_task(self._call(random.Random(100 + one), rest)) for one in range(callers)]

    def hang_up(self) -> None:
        """No more calls."""
        self._over = True

    async def _call(self, rng: random.Random, rest: float) -> None:
        """Decide, reward some of it, look at the ledger now and then; what got no answer is sent again."""
        mine: list[str] = []
        turn = 0
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {self._key}"}, timeout=60) as http:
            while not self._over:
                await asyncio.sleep(rest)
                turn += 1
                if turn % 40 == 0:
                    await self._look(http)
                asked: dict[str, Any] = {
                    "actions": [[rng.uniform(-0.5, 0.5) for _ in range(3)] for _ in range(4)]
                }
                if rng.random() < 0.5:
                    asked["id"] = f"own {rng.getrandbits(64):x}"
                decision = await self._send(http, "/v1/decisions", asked)
                if decision is not None:
                    known = self.seen.decisions.setdefault(decision["id"], decision["index"])
                    assert known == decision["index"], "a repeated decision changed"
                    mine.append(decision["id"])
                if len(mine) > 5:
                    some = [(mine.pop(rng.randrange(len(mine))), round(rng.random(), 6)) for _ in range(3)]
                    rewards = {"rewards": [{"id": name, "value": value} for name, value in some]}
                    answer = await self._send(http, "/v1/rewards", rewards)
                    for (name, value), outcome in zip(
                        some, answer["outcomes"] if answer else [], strict=False
                    ):
                        if outcome == "recorded":
                            self.seen.rewards[name] = value

    async def _send(self, http: httpx.AsyncClient, path: str, asked: dict[str, Any]) -> Any:
        for _ in range(2 if "id" in asked else 1):  # an own id may be sent again; what has none is lost to us
            self._waiting += 1
            try:
                response = await http.post(f"http://127.0.0.1:{self._port}{path}", json=asked)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            finally:
                self._waiting -= 1
            assert response.status_code == 200, response.text
            return response.json()
        return None

    async def _look(self, http: httpx.AsyncClient) -> None:
        with suppress(httpx.TransportError):
            ledger = (await http.get(f"http://127.0.0.1:{self._port}/v1/privacy")).json()
            for season in ledger["seasons"]:
                for entry in season["entries"]:
                    name = (entry["kind"], entry["season"], entry["group"], entry["number"])
                    self.seen.releases.setdefault(name, set()).add(entry["sha256"])


def start(
    command: list[str], log_path: Path, said: str, *, cwd: Path | None = None
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a process and wait until a line of its log has these words; the process, and that line."""
    with log_path.open("ab") as log:
        begun = log.tell()
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=cwd)
    while process.poll() is None:
        lines = log_path.read_bytes()[begun:].decode(errors="replace").splitlines(keepends=True)
        for line in lines:
            if said in line and line.endswith("\n"):
                return process, line
        time.sleep(0.02)
    raise SystemExit(f"it did not come back: {log_path.read_text(errors='replace')[-2000:]}")


async def settled(store: Path) -> None:
    """Until all windows have closed."""
    query = "SELECT (SELECT count(*) FROM decisions WHERE state = 0), coalesce(max(number), 0) FROM outgoing"
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
            still_open, released = db.execute(query).fetchone()
        if not still_open and released:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{still_open} decisions are still open, {released} releases were made")


def check(folder: Path, seen: Seen) -> dict[str, int]:
    """Compare what was seen with the file; raises AssertionError at the first difference."""
    db = sqlite3.connect(folder / "agent.db")
    rows = db.execute(
        "SELECT number, tag, id, state, chosen, reward, batch, action, season, closes_at FROM decisions"
    ).fetchall()
    (season,) = db.execute("SELECT season FROM open_season").fetchone()
    counters = dict(db.execute("SELECT name, value FROM counters"))
    outgoing = db.execute('SELECT kind, season, "group", number, sha256, payload FROM outgoing').fetchall()
    db.close()
    assert sorted(row[0] for row in rows) == list(range(1, len(rows) + 1)), "numbers without gaps or repeats"
    assert counters["decisions"] == len(rows) == counters["settled"]
    with Agent.open(folder / "agent.db") as agent:
        tagged = {(row[0], row[1]): row for row in rows}
        made_up = {
            name: tagged[one]
            for name in seen.decisions
            for one in numbers_of(agent._state.id_key, name)
            if one in tagged
        }
        own = {key_of(agent._state.id_key, name): name for name in seen.decisions if name.startswith("own ")}
        known = made_up | {own[row[2]]: row for row in rows if row[2] in own}
        lost = [name for name in seen.decisions if name not in known]
        assert not lost, f"{len(lost)} acknowledged decisions lost"
        for name, index in seen.decisions.items():
            assert known[name][4] == index
        for name, value in seen.rewards.items():
            assert known[name][5] == value, "an acknowledged reward was lost"
        assert counters.get("rewards", 0) == sum(row[5] is not None for row in rows)
        if not agent.settings.trust.padded:  # a row waits until the one before it is over
            _check_cuts(agent, rows, {(of, number) for _, of, _, number, _, _ in outgoing})
        open_now = [row for row in rows if row[8] == season]
        made = {number for _, of, _, number, _, _ in outgoing if of == season}
        waiting = _check_batches(agent, open_now, made)
    contents = {tuple(name): digest for *name, digest, _ in outgoing}
    for release, digests in seen.releases.items():
        assert digests == {contents[release]}, f"release {release} has two contents"
    assert all(sha256(payload).hexdigest() == digest for *_, digest, payload in outgoing)
    return {
        "kills": seen.kills,
        "kills with requests under way": seen.under_way,
        "decisions acknowledged": len(seen.decisions),
        "decisions in the file": len(rows),
        "rewards acknowledged": len(seen.rewards),
        "releases": len(outgoing),
        "seasons": season - min((of for _, of, *_ in outgoing), default=season) + 1,
        "records in the last batch": waiting,
    }


def _check_cuts(agent: Agent, rows: list[tuple[Any, ...]], made: set[tuple[int, int]]) -> None:
    """Each record is in the first release that was due after its window had closed, of whichever season.

    An agent that was away for a whole season, killed again and again as it started, makes up for none of it,
    nor for what it still owed of the one before: then what waited is in the first release after that.
    """
    times, length = agent.settings.release_times, agent.settings.season
    begun = agent.started_at - (agent.store.season - 1) * length
    opened = [account.season for account in agent.store.ledger().accounts]
    for row in rows:
        number, season, closed = row[6], row[8], row[9] / 1000.0
        assert number is not None, "a record that is in no batch"
        start = begun + (season - 1) * length
        due = start + (times[number - 1] if number <= len(times) else length + times[0])
        assert closed <= due + 0.002, f"a record entered release {number} of season {season} too early"
        if number > 1:
            before = start + times[min(number, len(times) + 1) - 2]
        else:
            last = max((one for one in opened if one < season), default=season - 1)
            newest = len(times) if last == season - 1 else max((n for of, n in made if of == last), default=0)
            before = begun + (last - 1) * length + (times[newest - 1] if newest else 0.0)
        said = f"a record entered release {number} of season {season} {before - closed:.3f} s too late"
        assert closed > before - 0.002, f"{said}; seasons opened {opened}, releases made {sorted(made)[-25:]}"


def _check_batches(agent: Agent, rows: list[tuple[Any, ...]], made: set[int]) -> int:
    """Make all batches again of the records that say they are in them: they must be the same to the last bit.

    Args:
        agent: with its file.
        rows: decisions, as `check` reads them.
        made: numbers of releases, or of rows that this agent built; a batch whose row was skipped waits on.

    Returns:
        How many records wait for the next release.
    """
    kept, again = agent.store._privatizers[0], DeployedPrivatizer(agent.settings.terms)
    batches: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        if row[6] is not None:  # after the last release there is none
            batches.setdefault(row[6], []).append(row)
    for number in range(1, kept.released + 2):
        if some := batches.pop(number, []):
            rewards = np.array([0.25 if row[5] is None else row[5] for row in some])
            again.record(np.stack([np.frombuffer(row[7]) for row in some]), rewards)
        if number in made:
            _ = again.row() if agent.settings.trust.padded else again.release()
        elif number <= kept.released:
            again.skip()
    assert not batches, "records of a batch that is still to come"
    assert again._encoder.dump() == kept._encoder.dump(), "a release has other records than say so"
    assert [int(one) for one in again._batch] == [int(one) for one in kept._batch]
    assert again.pending == kept.pending
    return kept.pending


def chaos(folder: Path, *, kills: int, seed: int = 0, longest: float = 1.0) -> dict[str, int]:
    """Run and check."""
    made = Chaos(folder, seed)
    asyncio.run(made.run(kills, longest))
    return check(folder, made.seen)


def main(report: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = chaos(Path(folder), kills=arguments.kills, seed=arguments.seed)
    for name, value in found.items():
        report(f"{name:32} {value}")
    report("nothing lost, nothing counted twice, no release with two contents")
    if arguments.json:
        write_tables(arguments.json, {"killed": {"found": found}}, ["feducb.agent", "feducb.service.app"])


if __name__ == "__main__":
    main()

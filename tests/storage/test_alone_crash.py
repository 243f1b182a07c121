"""Kill -9 an agent that is alone (trust self): what it learnt follows from its file, and nothing left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from closing_agent import ALONE

from feducb.agent.upkeep import export
from feducb.storage import agent_tables, own_sums

AGENT = Path(__file__).with_name("closing_agent.py")
KILLS, VISITORS = 100, 90
LONGEST = 6000  # points of a life: enough to open the file and serve a few visitors
PATIENCE = 120.0  # seconds that nothing here needs: only a hang takes so long


def _lives(store: Path, plan: Callable[[Callable[[int, int], bool]], None]) -> None:
    """Let an agent live by ``plan``, which is given: point and visitors in, whether it was killed out."""
    (store.parent / "others").touch()
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    agent = subprocess.Popen(
        [sys.executable, str(AGENT), str(store), str(store.parent / "others"), "self"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert agent.stdin
    assert agent.stdout
    with agent.stdin as told, agent.stdout as answers:  # without them the agent ends

        def live(point: int, visitors: int) -> bool:
            told.write(f"{point} {visitors}\n")
            told.flush()
            code = int(answers.readline().split()[0])
            assert code in ((-signal.SIGKILL, 0) if point else (0,))
            return code != 0

        plan(live)
    assert agent.wait(timeout=PATIENCE) == 0


def _look(path: Path) -> dict[str, Any]:
    with closing(agent_tables.look_into(path)) as db:
        counts = agent_tables.read_counts(db)
        own = {part: own_sums.read(db, part) for part in ("shared", "kept", "read")}
        left = db.execute("SELECT count(*) FROM outgoing").fetchone()[0]
        since = own_sums.closed_at(db)
    for asked_again in ("repeated_rewards", "late_rewards"):
        counts.pop(asked_again, None)
    sums = {part: None if one is None else (one.records, list(one.values)) for part, one in own.items()}
    return {"counts": counts, "own": sums, "left": left, "since": since}


def _whole_life(live: Callable[[int, int], bool]) -> None:
    live(0, VISITORS)


def test_killed_at_any_point_it_has_learnt_what_a_twin_did_and_nothing_has_left(tmp_path: Path) -> None:
    draws, reading = random.Random(21), list[bool]()

    def until_killed_often(live: Callable[[int, int], bool]) -> None:
        while len(reading) < KILLS:
            until = min(VISITORS, 1 + VISITORS * (len(reading) + 1) // KILLS)
            if not live(draws.randint(1, LONGEST), until):
                continue
            if not (tmp_path / "killed.db").exists():
                continue
            stands = _look(tmp_path / "killed.db")
            kept = stands["own"]["kept"]
            assert (0 if kept is None else kept[0]) == stands["counts"].get(
                "settled", 0
            )  # none lost or twice
            assert stands["left"] == 0
            assert stands["own"]["shared"] is None
            reading.append(stands["own"]["read"] is not None)
        live(0, VISITORS)

    _lives(tmp_path / "killed.db", until_killed_often)
    _lives(tmp_path / "twin.db", _whole_life)
    expected = _look(tmp_path / "twin.db")
    assert _look(tmp_path / "killed.db") == expected
    assert 0 < sum(reading) < KILLS  # killed before it read own records, and after
    assert expected["own"]["read"][0] >= ALONE.waits_alone
    assert list(export(tmp_path / "killed.db")) == list(export(tmp_path / "twin.db"))

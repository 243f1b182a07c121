"""What leaves a deployed agent under own play is a function of shared-phase records: exactly, byte for byte.

Two agents that differ only in what comes after the seal of their last batch let the same bytes out at the
same times, and decide alike until all have closed. Noise is drawn from a seed here, as coins are, each
visitor's by itself: nothing else differs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from feducb.agent import Agent
from feducb.agent.upkeep import warm_start
from feducb.privacy import grid
from feducb.protocol import messages
from feducb.storage import AgentStore
from own_sites import CLOSE, START, THETA, WINDOW, settings_of

SEAL, HEARD, END = int(CLOSE["last_release"]), 95, 125
DOWN = range(SEAL, SEAL + 4)  # nobody looks after the agent: its last release is made late
OPEN = range(SEAL - int(WINDOW) + 1, SEAL)  # whose windows are open at the seal


@dataclass(frozen=True)
class Later:
    """What is other than usual after the seal, or of decisions that were open then."""

    rewards: float = 1.0  # times the usual ones, of those that come after the seal
    rewarded: bool = True
    visitors: bool = True  # whether anybody comes
    returning: bool = False  # people of the shared phase
    candidates: int = 0  # other ones
    discards: bool = False
    hears: bool = True  # the last sum
    loads: bool = False  # an own log
    restarts: bool = False


@dataclass
class Told:
    left: dict[int, tuple[float, bytes]] = field(default_factory=dict)  # by number, when first, and what
    decided: list[int] = field(default_factory=list)
    closed: bool = False


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.random.Generator]:
    """Noise from a seed that `_live` sets anew."""
    source = {"draws": np.random.default_rng(0)}
    monkeypatch.setattr(
        grid.GridNoise, "draw", lambda self, count: source["draws"].integers(-(10**5), 10**5, count)
    )
    return source


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[list[messages.GridSum]]:
    """What b and c release: once, with true noise."""
    folder, made = tmp_path_factory.mktemp("others"), []
    for name in "bc":
        with AgentStore.open(folder / f"{name}.db", settings_of(name, records_per_person=2).terms) as store:
            store.record(np.eye(2), THETA, persons=["x", "y"])
            made.append([messages.decode(store.release()) for _ in range(CLOSE["releases"])])
    return made


def _live(
    folder: Path,
    others: list[list[messages.GridSum]],
    seeded: dict[str, np.random.Generator],
    later: Later,
    *,
    early_reward: float = 1.0,
) -> Told:
    """A season; ``early_reward`` is that of the third visitor."""
    seeded["draws"], told, clock = np.random.default_rng(11), Told(), [START]
    settings, ids = settings_of("a", records_per_person=2), dict[int, str]()
    agent = Agent.open(folder / "a.db", settings, clock=lambda: clock[0])
    for second in range(END):
        clock[0], after = START + second, second >= SEAL
        if later.restarts and after and second % 5 == 0:
            agent.close()
            agent = Agent.open(folder / "a.db", settings, clock=lambda: clock[0])
        agent.store.database.execute("PRAGMA synchronous = OFF")
        if second not in DOWN:
            agent.tick(alone=False)
        for item in agent.outbox():
            assert told.left.setdefault(item.number, (clock[0], item.body))[1] == item.body
            last = item.number == CLOSE["releases"]
            if not last or (later.hears and second >= HEARD):
                parts = [one[item.number - 1] for one in others]
                agent.absorb(messages.combine([messages.decode(item.released()), *parts]))
                agent.mark_sent(item)
        if later.visitors or not after:
            agent._state.coins = random.Random(second)
            draws = np.random.default_rng(second + 1000 * later.candidates * after)
            candidates = draws.uniform(-0.7, 0.7, (4, 2))
            person = second % 30 if later.returning and after else second // 2
            decision = agent.decide(candidates, id=str(second), person=f"p{person}")
            told.decided.append(decision.index)
            ids[second] = decision.id
        # rewards come three seconds after decisions: those of OPEN after the seal
        if (visitor := second - 3) in ids:
            worth = 0.7 * (-1.0) ** visitor * (early_reward if visitor == 2 else 1.0)
            if visitor < OPEN.start or not after:
                agent.reward(ids[visitor], worth)
            elif later.discards:
                agent.discard(ids[visitor])
            elif later.rewarded:
                agent.reward(ids[visitor], later.rewards * worth)
        if later.loads and second == SEAL + 6:
            warm_start(
                agent, np.full((9, 2), 0.5), np.full(9, -1.0), [f"q{n}" for n in range(9)], policy="fixed"
            )
    told.closed = agent.closed
    agent.close()
    return told


LATER = {
    "other rewards": Later(rewards=-1.0),
    "no rewards": Later(rewarded=False),
    "nobody comes": Later(visitors=False),
    "people return": Later(returning=True),
    "other candidates": Later(candidates=1),
    "taken back": Later(discards=True),
    "the last sum never comes": Later(hears=False),
    "an own log": Later(loads=True),
    "restarts": Later(restarts=True),
    "all of it": Later(rewards=-0.5, returning=True, candidates=2, loads=True, restarts=True),
}


@pytest.mark.parametrize("name", LATER)
def test_the_same_bytes_leave_whatever_comes_after_the_seal(
    tmp_path: Path, others: list[list[messages.GridSum]], seeded: dict[str, np.random.Generator], name: str
) -> None:
    (tmp_path / "plain").mkdir()
    plain = _live(tmp_path / "plain", others, seeded, Later())
    other = _live(tmp_path, others, seeded, LATER[name])
    assert len(plain.left) == CLOSE["releases"]
    assert plain.left == other.left
    assert plain.left[2][0] == START + DOWN.stop  # made late, of what was due
    assert plain.closed
    assert other.closed == LATER[name].hears
    if (
        not LATER[name].candidates and LATER[name].visitors
    ):  # until all have closed, decisions are the same too
        assert plain.decided[:HEARD] == other.decided[:HEARD]
    if name in ("other rewards", "no rewards", "an own log", "the last sum never comes"):
        assert plain.decided != other.decided  # a test of the test: raw records do show after the close


def test_what_leaves_does_follow_from_what_was_shared(
    tmp_path: Path, others: list[list[messages.GridSum]], seeded: dict[str, np.random.Generator]
) -> None:
    """A test of the tests above: a reward of the shared phase is in both releases."""
    (tmp_path / "plain").mkdir()
    plain = _live(tmp_path / "plain", others, seeded, Later())
    other = _live(tmp_path, others, seeded, Later(), early_reward=-1.0)
    for number, (when, what) in plain.left.items():
        assert other.left[number][0] == when
        assert other.left[number][1] != what

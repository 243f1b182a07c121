"""The agent under own play that `test_closing_crash` kills, again and again, around its close.

    python closing_agent.py STORE OTHERS [self]    # one life for each line on stdin: POINT VISITORS

A life ends at a point (`crash_agent`), or, where that is 0, after so many visitors. The answer is how it
ended, and in which functions of the agent. What leaves is appended to STORE.left whenever it is handed over:
its number, the hash of its bytes, and whether the agent had closed.

Visitor k comes at second k, with candidates, coins and a reward of its own: a life that begins where the last
one was killed asks for the same decision again, so that killed or not the agent must do the same. There is no
noise here, which would differ. The others' releases are bytes of a file; their last sum is `LATE` seconds
late. With ``self`` the agent is alone, and nothing leaves it.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import crash_agent
import numpy as np
from crash_agent import STATEMENT_STEPS, Fate

from feducb import agent as agents
from feducb.agent import Agent, AgentSettings
from feducb.privacy import grid
from feducb.protocol import messages
from feducb.trust import SELF
from own_sites import CLOSE, START, THETA, settings_of

LATE = 12
ALONE = AgentSettings(
    problem=settings_of("a").problem, trust=SELF, decisions=400, window=3.0, keep_events=1e6, start=START
)
SETTINGS = ALONE if sys.argv[3:] == ["self"] else settings_of("a")
crash_agent.TRACED.update({__file__, *map(str, Path(agents.__file__).parent.glob("*.py"))})


def no_noise() -> None:
    grid.GridNoise.draw = lambda self, count: np.zeros(count, dtype=np.int64)  # type: ignore[method-assign]


def hand_over(agent: Agent, number: int, body: bytes) -> None:
    with Path(f"{agent.store.path}.left").open("a") as left:
        left.write(f"{number} {sha256(body).hexdigest()} {agent.closed}\n")


def serve_visitor(agent: Agent, number: int, clock: list[float], others: list[bytes]) -> None:
    """Whatever happens in second ``number``; a second time changes nothing."""
    clock[0] = START + number
    agent._state.coins = random.Random(number)
    draws = np.random.default_rng(number)
    candidates = draws.uniform(-0.7, 0.7, (4, 2))
    decision = agent.decide(candidates, id=f"visitor {number}")
    agent.reward(decision.id, float(candidates[decision.index] @ THETA))
    agent.tick(alone=False)
    for item in agent.outbox():
        hand_over(agent, item.number, item.body)
        own = messages.decode(item.released())
        last = own.number == CLOSE["releases"]
        if not last or number >= CLOSE["last_release"] + LATE:
            theirs = [messages.decode(one) for one in others if messages.decode(one).number == own.number]
            agent.absorb(messages.combine([own, *theirs]))
            agent.mark_sent(item)


def live(agent: Agent, clock: list[float], others: list[bytes], visitors: int) -> None:
    """From the newest visitor on, who may not have been served to the end."""
    for number in range(max(0, agent.snapshot()["counts"]["decisions"] - 1), visitors):
        serve_visitor(agent, number, clock, others)


def serve_lives(path: Path, others: list[bytes]) -> None:
    clock = [START]
    with TemporaryDirectory() as folder:  # a first life, which loads and compiles everything, and plans once
        for visitors in (100, 101):
            agent = Agent.open(Path(folder) / "a.db", SETTINGS, clock=lambda: clock[0])
            live(agent, clock, others, visitors)
            agent.close()
    for line in sys.stdin:
        read, write = os.pipe()

        def last_words(frame: FrameType | None, to: int = write) -> None:
            """The agent's functions that were underway, the outermost first."""
            underway = []
            while frame is not None:
                if Path(frame.f_code.co_filename).parent.name == "agent":
                    underway.append(frame.f_code.co_name)
                frame = frame.f_back
            os.write(to, ",".join(reversed(underway)).encode())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # idle BLAS threads do not survive a fork
            child = os.fork()
        if child == 0:
            point, visitors = map(int, line.split())
            fate, code = Fate(point, last_words), 1
            try:
                if point:
                    sys.settrace(fate.trace)
                agent = Agent.open(path, SETTINGS, clock=lambda: clock[0])
                agent.store.database.set_progress_handler(fate.pass_point, STATEMENT_STEPS)
                live(agent, clock, others, visitors)
                agent.close()
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        with os.fdopen(read) as told:
            where = told.read()  # ends with the child
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), where or "-", flush=True)


if __name__ == "__main__":
    no_noise()
    size = messages.message_size(2)
    body = Path(sys.argv[2]).read_bytes()
    serve_lives(Path(sys.argv[1]), [body[place : place + size] for place in range(0, len(body), size)])

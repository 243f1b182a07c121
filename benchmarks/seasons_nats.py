"""What it is worth to remember earlier seasons, for three agents over NATS whose seasons roll by the clock.

    python benchmarks/seasons_nats.py [--runs 12] [--json docs/figures/seasons-nats.json]

A nats-server with TLS and nkeys, a controller whom nobody trusts, and three durable agents on a clock that
the visitors drive: one a second at each agent. Nobody is restarted. Beside it the same with
``remember = "none"``. Needs nats-server and the nats extra.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from over_nats import World
from seasons import ARMS, DIM, SEASONS, VISITORS, WAYS, print_seasons, tables

from feducb.agent import Agent, AgentSettings
from feducb.carriers.local import AgentMailbox
from feducb.carriers.nats import NatsController, NatsEngine
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb_lab.experiments.measured import write_tables

NAMES, START = ("north", "south", "west"), 1_800_000_000.0
SETTINGS = AgentSettings(
    problem=Problem(dim=DIM, reward_bound=0.5, reward_centre=0.0, parameter_bound=0.5),
    budget=Budget(epsilon=4.0, delta=1e-6),
    agents=len(NAMES),
    agents_per_person=1,
    decisions=VISITORS,
    season=float(VISITORS),
    window=0.5,
    start=START,
)


class Federation:
    """Everybody, at work over one broker, for one run."""

    def __init__(self, world: World, folder: Path, remember: str, seed: int) -> None:
        self.now, self.draws = START, np.random.default_rng(seed)
        theta = self.draws.standard_normal(DIM)
        self.theta = theta * 0.45 / np.linalg.norm(theta)
        settings = replace(SETTINGS, remember=remember)  # type: ignore[arg-type]
        self.files = ExitStack()
        self.agents = {
            name: self.files.enter_context(
                Agent.open(folder / f"{name}.db", replace(settings, name=name), clock=lambda: self.now)
            )
            for name in NAMES
        }
        for place, agent in enumerate(self.agents.values()):
            agent._state.coins = random.Random(f"{seed} {place}")
            agent.store.database.execute("PRAGMA synchronous = OFF")  # surviving a crash is not measured here
        collector = open_collector(
            folder / "controller.db", dict.fromkeys(NAMES, settings.terms), calendar=settings.common_calendar
        )
        self.files.callback(collector.close)
        own = replace(world.settings(None), retry=0.02, refresh=0.5)
        works = [NatsController(own, collector, clock=lambda: self.now).run()]
        for name, agent in self.agents.items():
            mine = replace(world.settings(name), retry=0.02, refresh=0.5)
            works.append(NatsEngine(mine, settings.terms).run(AgentMailbox(agent)))
        self.works = [asyncio.ensure_future(work) for work in works]

    async def until(self, reached: Callable[[Agent], bool]) -> None:
        """Let messages travel until everybody is there."""
        while True:
            for agent in self.agents.values():
                agent.tick(alone=False)
            if all(reached(agent) for agent in self.agents.values()):
                return
            ended = [work for work in self.works if work.done()]
            assert not ended, ended
            await asyncio.sleep(0.005)

    def visit(self) -> float:
        """A visitor at each agent, of whom they learn whether it buys; what was shown is worth."""
        worth = []
        for agent in self.agents.values():
            candidates = self.draws.standard_normal((ARMS, DIM))
            candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
            means = 0.5 + candidates @ self.theta
            made = agent.decide(candidates)
            agent.reward(made.id, float(self.draws.random() < means[made.index]) - 0.5)
            worth.append(means[made.index])
        return float(np.mean(worth))

    async def play(self) -> np.ndarray:
        """(seasons, visitors), the mean reward over agents."""
        worth, due = np.empty((SEASONS, VISITORS)), np.array(SETTINGS.release_times)
        for season in range(SEASONS):
            began = START + season * VISITORS
            for visitor in range(VISITORS):
                self.now = began + visitor + 0.25
                number = int(np.sum(due <= self.now - began))
                if number > int(np.sum(due <= self.now - began - 1.0)):  # a release came due
                    await self.until(lambda agent, number=number: agent._state.inbox.number(0) >= number)  # type: ignore[misc]
                worth[season, visitor] = self.visit()
            self.now = began + VISITORS
            await self.until(lambda agent, number=season + 2: agent.store.season == number)  # type: ignore[misc]
        return worth

    async def close(self) -> None:
        """Everybody stops."""
        for work in self.works:
            work.cancel()
        await asyncio.gather(*self.works, return_exceptions=True)
        self.files.close()


async def run(world: World, remember: str, seed: int) -> np.ndarray:
    """Three seasons of a new federation."""
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(world, Path(folder), remember, seed)
        try:
            return await federation.play()
        finally:
            await federation.close()


def main() -> None:
    """Both readings, on the same visitors: printed, and written if asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    ways: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "keys", list(NAMES))
        try:
            for way, remember in WAYS.items():
                ways[way] = np.array([asyncio.run(run(world, remember, seed)) for seed in range(asked.runs)])
                print_seasons(f"{way}, three agents over NATS, {asked.runs} runs", ways[way])
        finally:
            world.close()
    if asked.json:
        played = ["feducb.agent", "feducb.carriers.nats", "feducb.controller.collector"]
        write_tables(asked.json, tables("over NATS", ways), played)


if __name__ == "__main__":
    main()

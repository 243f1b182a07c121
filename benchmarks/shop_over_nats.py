"""Several agents of `shop_visitors` and their controller over a real nats-server, by the visitors' clock."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from over_nats import World, run
from shop_visitors import COUNT, STEP, Visits

import feducb
from feducb.carriers.local import AgentMailbox
from feducb.carriers.nats import NatsController, NatsEngine
from feducb.controller.collector import open_collector
from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel

PATIENCE = 60.0  # seconds for a sum to come round; reached only where something is broken


class Box(AgentMailbox):
    """Knows the newest sum's number, and is told of releases."""

    def __init__(self, agent: feducb.Agent) -> None:
        super().__init__(agent)
        self.heard, self.news = 0, asyncio.Event()

    async def outbox(self) -> list[Parcel]:
        """What waits to be sent."""
        self.news.clear()
        return await super().outbox()

    async def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Take a sum in."""
        new = await super().absorb(total, agents=agents, sealed=sealed)
        self.heard = max(self.heard, total.number)
        return new

    async def wait(self) -> None:
        """Until there was a release."""
        await self.news.wait()


def federate(chosen: feducb.AgentSettings, visits: Visits) -> None:
    """Visitors go to the agents in turn; each sum is everywhere before the next visitors come."""
    names = [f"shop-{number}" for number in range(chosen.agents)]
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        world = World(Path(scratch) / "keys", names)
        stack.callback(world.close)
        agents = [
            stack.enter_context(
                feducb.Agent.open(
                    Path(scratch) / f"{name}.db", replace(chosen, name=name), clock=visits.clock
                )
            )
            for name in names
        ]
        collector = open_collector(Path(scratch) / "controller.db", dict.fromkeys(names, chosen.terms))
        stack.callback(collector.close)
        works = [NatsController(world.settings(None), collector).run()]
        boxes = [Box(agent) for agent in agents]
        for name, box in zip(names, boxes, strict=True):
            works.append(NatsEngine(world.settings(name), chosen.terms).run(box))
        run(_season(works, boxes, visits))


async def _season(works: list[Any], boxes: list[Box], visits: Visits) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    made = 0
    for _ in range(COUNT // STEP):
        visits.step([box.agent for box in boxes])
        for box in boxes:
            released = box.agent.tick(alone=False)
            box.news.set()
        made += released  # as many everywhere, by one clock
        async with asyncio.timeout(PATIENCE):
            while any(box.heard < made for box in boxes):
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

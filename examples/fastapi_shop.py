"""A shop that asks an agent what to offer: `feducb.Agent` inside a FastAPI application, in one file.

    uvicorn --app-dir examples fastapi_shop:app      # serves the shop; its agent lives in shop.db
    python examples/fastapi_shop.py                  # plays a season of visitors, and says what was learnt

Needs the extra ``service``. Endpoints are ``async``, so that all run in the one thread that an agent may be
used by. A call takes about as long as one durable commit; where that is too slow for a web server's loop, run
`feducb agent serve` beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel

import feducb
from feducb.protocol.messages import decode

OFFERS = ("book", "game", "film")
SEASON = 30 * 86400.0
SETTINGS = feducb.AgentSettings(
    name="shop",
    problem=feducb.Problem(dim=2 * len(OFFERS)),
    budget=feducb.Budget(epsilon=8.0, delta=1e-6),
    decisions=20_000,  # expected in a season, roughly: says from which release on sums are worth reading
    season=SEASON,
    schedule="periodic",
    releases=16,
    window=3600.0,
)


def candidates(age: float) -> list[list[float]]:
    """One vector an offer: which one it is, and how old the visitor is, from −1 to 1; at most 1 long.

    Rewards are ⟨x, θ*⟩ plus noise, and ‖θ*‖ must not exceed ``parameter_bound`` (1): mind that in scaling.
    """
    scaled = min(max((age - 54.0) / 36.0, -1.0), 1.0)
    rows = []
    for place in range(len(OFFERS)):
        row = [0.0] * (2 * len(OFFERS))
        row[place], row[len(OFFERS) + place] = 0.7, 0.7 * scaled
        rows.append(row)
    return rows


def taste(offer: str, age: float) -> float:
    """How likely a simulated visitor buys: the old like books, the young games."""
    scaled = (age - 54.0) / 36.0
    return {"book": 0.35 + 0.25 * scaled, "game": 0.35 - 0.25 * scaled, "film": 0.3}[offer]


class Offer(BaseModel):
    """What to show, and the name under which to report what came of it."""

    visit: str
    offer: str


async def the_agent(request: Request) -> feducb.Agent:
    """The agent that opened with the application."""
    agent: feducb.Agent = request.app.state.agent
    return agent


OurAgent = Annotated[feducb.Agent, Depends(the_agent)]


def make_app(path: Path, *, clock: Callable[[], float] = time.time, every: float = 1.0) -> FastAPI:
    """The shop; its agent opens with it and closes with it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with feducb.Agent.open(path, SETTINGS, clock=clock) as agent:
            app.state.agent = agent
            upkeep = asyncio.create_task(_keep_up(agent, every))
            try:
                yield
            finally:
                upkeep.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await upkeep

    app = FastAPI(title="A shop with an agent", lifespan=lifespan)

    @app.get("/offer")
    async def offer(age: float, agent: OurAgent) -> Offer:
        """What to show this visitor. The visitor's age is in the vectors and nowhere else."""
        decision = agent.decide(candidates(age))
        return Offer(visit=decision.id, offer=OFFERS[decision.index])

    @app.post("/bought/{visit}")
    async def bought(visit: str, agent: OurAgent) -> str:
        """The visitor bought it. Nothing needs to be said if not: after an hour the visit counts 0."""
        return agent.reward(visit, 1.0)

    @app.get("/learnt")
    async def learnt(agent: OurAgent) -> dict[str, float | int | list[str]]:
        """How the agent stands."""
        return {
            name: agent.snapshot()[name] for name in ("model", "releases_left", "epsilon", "open_decisions")
        }

    return app


async def _keep_up(agent: feducb.Agent, every: float) -> None:
    """Close reward windows and release when that is due."""
    while True:
        keep_up(agent)
        await asyncio.sleep(every)


def keep_up(agent: feducb.Agent) -> None:
    """What is due; a shop by itself acts on its own releases, a federated one hands them to an engine."""
    agent.tick()
    for item in agent.outbox():
        agent.absorb(decode(item.body))
        agent.mark_sent(item)


async def a_season(visitors: int, folder: Path) -> list[int]:
    """Visitors against the shop, its clock made to run fast."""
    import httpx

    coins, now, sold = random.Random(1), [1_700_000_000.0], [0, 0]
    shop = make_app(folder / "shop.db", clock=lambda: now[0], every=0.0)
    transport = httpx.ASGITransport(app=shop)
    async with (
        shop.router.lifespan_context(shop),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as browser,
    ):
        for visit in range(visitors):
            now[0] += 0.99 * SEASON / visitors
            await asyncio.sleep(0)  # the upkeep's turn
            age = coins.uniform(18, 90)
            shown = (await browser.get("/offer", params={"age": age})).raise_for_status().json()
            if coins.random() < taste(shown["offer"], age):
                (await browser.post(f"/bought/{shown['visit']}")).raise_for_status()
                sold[2 * visit >= visitors] += 1
        print("learnt:", (await browser.get("/learnt")).json())
    return sold


def main(visitors: int) -> None:
    """Say what the first and the second half of the season's visitors bought."""
    with tempfile.TemporaryDirectory() as folder:
        early, late = asyncio.run(a_season(visitors, Path(folder)))
    print(f"sold to {early} of the first {visitors // 2} visitors and to {late} of the others")
    print(
        f"at random about {visitors // 2 / 3:.0f} each, with the best offers about {0.475 * visitors / 2:.0f}"
    )


app = make_app(Path("shop.db"))

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--visitors", type=int, default=4000)
    main(**vars(arguments.parse_args()))

"""20,000 visitors of a taste that the agent does not know: which share of the best choice's value it reaches.

    python benchmarks/shop_visitors.py              # one agent, ε = 1, 8, 50, five seeds each; some minutes
    python benchmarks/shop_visitors.py --agents 3   # as many visitors at three agents, over a nats-server
    python benchmarks/shop_visitors.py --vectors    # vectors of the shop's own, d = 24, bounds as they come

The shop of examples/shop: six offers, five columns. ``--vectors`` needs nothing that came with recipes, and
runs under versions from before them too (PYTHONPATH=…/src of a checkout). Visitors, and whether they would
buy, follow from the seed; the agents' noise does not, since no deployed noise does. A clock of its own lets a
season pass in seconds. ``--agents`` needs nats-server and the nats extra (`shop_over_nats`).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import feducb

SHOP = Path(__file__).parents[1] / "examples" / "shop"
COUNT, STEP = 20_000, 20  # visitors in all; of which so many are on disk together
START = 1.0e9  # when the first of them comes, by the agents' clock
LATE = 2_000  # the last so many are the plateau


def shop() -> Any:
    """The visitors of the example, and what they would buy."""
    sys.path.insert(0, str(SHOP))
    import visitors

    return visitors


def own_vectors(visitor: dict[str, Any], offers: int) -> list[list[float]]:
    """What a shop wrote before there were recipes: each offer's own level, and age, returning and basket."""
    age = (min(max(visitor.get("age", 54), 18), 90) - 54) / 36
    basket = (min(visitor.get("basket", 100.0), 200.0) - 100) / 100
    returning = (1.0 if visitor["returning"] else -1.0) if "returning" in visitor else 0.0
    features = [0.5, 0.5 * age, 0.5 * returning, 0.5 * basket]
    return [[0.0] * 4 * place + features + [0.0] * 4 * (offers - 1 - place) for place in range(offers)]


def settings(epsilon: float, agents: int, *, vectors: bool, **changes: Any) -> feducb.AgentSettings:
    """One agent's, as `feducb agent init` has them; or without a recipe, all but d left as they are."""
    usual: dict[str, Any] = {
        "budget": feducb.Budget(epsilon=epsilon, delta=1e-6),
        **{"decisions": COUNT // agents, "season": float(COUNT), "window": 1.0},
        **({"agents": agents, "agents_per_person": 1, "start": START} if agents > 1 else {}),
    }
    if vectors:
        return feducb.AgentSettings(problem=feducb.Problem(dim=24), **(usual | changes))
    from feducb.cli.agent_text import PRACTICAL
    from feducb.worlds.features import Recipe

    return feducb.AgentSettings(recipe=Recipe.read(SHOP / "recipe.json"), **(usual | PRACTICAL | changes))


class Visits:
    """Visitors of one seed: whom they meet, and how likely a sale was with what was shown and at best.

    Args:
        seed: of visitors, and of what they would buy.
        vectors: whether agents are asked by vectors.
    """

    def __init__(self, seed: int, *, vectors: bool) -> None:
        self._shop, self._coins, self._vectors = shop(), random.Random(seed + 1), vectors
        self._shop._COINS.seed(seed)
        self._come = self._shop.arrive(COUNT, per_second=math.inf)
        self.now, self.shown, self.best = START, [], []  # type: float, list[float], list[float]

    def clock(self) -> float:
        """A visitor a second."""
        return self.now

    def step(self, agents: Sequence[feducb.Agent]) -> None:
        """The next few, who go to the agents in turn."""
        with ExitStack() as stack:
            for agent in agents:
                stack.enter_context(agent.writing())
            for number in range(STEP):
                visitor, self.now = next(self._come), self.now + 1.0
                self._meet(agents[number % len(agents)], visitor)

    def _meet(self, agent: feducb.Agent, visitor: dict[str, Any]) -> None:
        chances = [self._shop.chance(visitor, offer) for offer in self._shop.OFFERS]
        if self._vectors:
            decision = agent.decide(own_vectors(visitor, len(chances)))
        else:
            decision = agent.decide(context=visitor)
        agent.reward(decision.id, float(self._coins.random() < chances[decision.index]))
        self.shown.append(chances[decision.index])
        self.best.append(max(chances))


def play(chosen: feducb.AgentSettings, visits: Visits) -> None:
    """One agent alone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        feducb.Agent.open(Path(folder) / "shop.db", chosen, clock=visits.clock) as agent,
    ):
        for _ in range(COUNT // STEP):
            visits.step([agent])
            agent.tick()


def arrived(shown: list[float], plateau: float, least: float) -> int:
    """After how many visitors, in thousands, it is there: nine tenths of the way to its plateau."""
    for start in range(0, COUNT, 1_000):
        if statistics.fmean(shown[start : start + 1_000]) >= least + 0.9 * (plateau - least):
            return start
    return COUNT


def main(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """A line per ε: means over the seeds, and their standard errors; the same as a row of a table."""
    row: dict[str, Any] = {}
    for epsilon in given.epsilon or ([8.0] if given.agents > 1 else [1.0, 8.0, 50.0]):
        chosen = settings(epsilon, given.agents, vectors=given.vectors, **given.settings)
        shares, plateaus, optima, after, whole = [], [], [], [], []
        began = time.perf_counter()
        for seed in range(given.first, given.first + given.seeds):
            visits = Visits(seed, vectors=given.vectors)
            if given.agents > 1:
                from shop_over_nats import federate

                federate(chosen, visits)
            else:
                play(chosen, visits)
            shown, best = visits.shown, visits.best
            plateaus.append(statistics.fmean(shown[-LATE:]))
            optima.append(statistics.fmean(best[-LATE:]))
            shares.append(plateaus[-1] / optima[-1])
            whole.append(sum(shown) / sum(best))
            after.append(arrived(shown, plateaus[-1], statistics.fmean(shown[:200])))
        error = statistics.stdev(shares) / math.sqrt(given.seeds) if given.seeds > 1 else math.nan
        print(
            f"ε = {epsilon:g}, d = {chosen.problem.dim}: {statistics.fmean(plateaus):.3f} of "
            f"{statistics.fmean(optima):.3f} in the last {LATE:,}, a share of "
            f"{statistics.fmean(shares):.3f} ± {error:.3f}, reached after {statistics.fmean(after):,.0f} "
            f"visitors; of all {COUNT:,} {statistics.fmean(whole):.3f} "
            f"({given.seeds} seeds, {time.perf_counter() - began:.0f} s)",
            flush=True,
        )
        mean, after_all = statistics.fmean(shares), round(statistics.fmean(after))
        row[f"ε = {epsilon:g}"] = {"mean": mean, "stderr": error, "also": [after_all]}
    return {_row(given): row}


def _row(given: argparse.Namespace) -> str:
    played = "vectors" if given.vectors else "recipe"
    if given.agents > 1:
        played += f", {given.agents} over NATS"
    explored = given.settings.get("exploration")
    if explored is None:
        return played if not given.settings else f"{played}, {json.dumps(given.settings)}"
    return f"{played}, {'proven bonus' if explored == 1.0 else f'{explored:g} of the bonus'}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--agents", type=int, default=1, help="more than one: over NATS, at ε = 8")
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--settings", type=json.loads, default={}, help="other settings, as JSON")
    parser.add_argument("--json", type=Path, help="add the row to the tables of this file")
    given = parser.parse_args()
    rows = main(given)
    if given.json:
        from feducb_lab.experiments.measured import write_tables

        write_tables(given.json, {"share of the optimum": rows}, ["feducb.agent", "feducb.cli.agent_text"])

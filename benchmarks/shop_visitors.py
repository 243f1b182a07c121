"""20,000 visitors of a taste that the agent does not know: which share of the best choice's value it reaches.

    python benchmarks/shop_visitors.py              # one agent, ε = 1, 8, 50, five seeds each; some minutes
    python benchmarks/shop_visitors.py --vectors    # vectors of the shop's own, d = 24, bounds as they come

The shop of examples/shop: six offers, five columns. ``--vectors`` needs nothing that came with recipes, and
runs under versions from before them too. Visitors, and whether they would buy, follow from the seed; the
agent's noise does not, since no deployed noise does. A clock of its own lets a season pass in seconds.
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
from pathlib import Path
from typing import Any

import feducb

SHOP = Path(__file__).parents[1] / "examples" / "shop"
COUNT, STEP = 20_000, 20  # visitors; of which so many are on disk together
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


def settings(epsilon: float, *, vectors: bool, **changes: Any) -> feducb.AgentSettings:
    """One agent's, as `feducb agent init` has them; or without a recipe, all but d left as they are."""
    usual: dict[str, Any] = {
        "budget": feducb.Budget(epsilon=epsilon, delta=1e-6),
        **{"decisions": COUNT, "season": float(COUNT), "window": 1.0},
    }
    if vectors:
        return feducb.AgentSettings(problem=feducb.Problem(dim=24), **(usual | changes))
    from feducb.cli.agent_init import PRACTICAL
    from feducb.worlds.features import Recipe

    return feducb.AgentSettings(recipe=Recipe.read(SHOP / "recipe.json"), **(usual | PRACTICAL | changes))


def play(chosen: feducb.AgentSettings, seed: int, *, vectors: bool) -> tuple[list[float], list[float]]:
    """By visitor: how likely a sale was with what was shown, and with the best offer."""
    visitors, coins, now = shop(), random.Random(seed + 1), [1.0e9]
    visitors._COINS.seed(seed)
    shown, best = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        feducb.Agent.open(Path(folder) / "shop.db", chosen, clock=lambda: now[0]) as agent,
    ):
        come = visitors.arrive(COUNT, per_second=math.inf)
        for _ in range(COUNT // STEP):
            with agent.writing():
                for _ in range(STEP):
                    visitor, now[0] = next(come), now[0] + 1.0
                    chances = [visitors.chance(visitor, offer) for offer in visitors.OFFERS]
                    if vectors:
                        decision = agent.decide(own_vectors(visitor, len(chances)))
                    else:
                        decision = agent.decide(context=visitor)
                    agent.reward(decision.id, float(coins.random() < chances[decision.index]))
                    shown.append(chances[decision.index])
                    best.append(max(chances))
            agent.tick()
    return shown, best


def arrived(shown: list[float], plateau: float, least: float) -> int:
    """After how many visitors, in thousands, it is there: nine tenths of the way to its plateau."""
    for start in range(0, COUNT, 1_000):
        if statistics.fmean(shown[start : start + 1_000]) >= least + 0.9 * (plateau - least):
            return start
    return COUNT


def main(epsilons: list[float], seeds: int, changes: dict[str, Any], *, vectors: bool) -> None:
    """A line per ε: means over the seeds, and their standard errors."""
    for epsilon in epsilons:
        chosen = settings(epsilon, vectors=vectors, **changes)
        shares, plateaus, optima, after, whole = [], [], [], [], []
        began = time.perf_counter()
        for seed in range(100, 100 + seeds):
            shown, best = play(chosen, seed, vectors=vectors)
            plateaus.append(statistics.fmean(shown[-LATE:]))
            optima.append(statistics.fmean(best[-LATE:]))
            shares.append(plateaus[-1] / optima[-1])
            whole.append(sum(shown) / sum(best))
            after.append(arrived(shown, plateaus[-1], statistics.fmean(shown[:200])))
        error = statistics.stdev(shares) / math.sqrt(seeds) if seeds > 1 else math.nan
        print(
            f"ε = {epsilon:g}, d = {chosen.problem.dim}: {statistics.fmean(plateaus):.3f} of "
            f"{statistics.fmean(optima):.3f} in the last {LATE:,}, a share of "
            f"{statistics.fmean(shares):.3f} ± {error:.3f}, reached after {statistics.fmean(after):,.0f} "
            f"visitors; of all {COUNT:,} {statistics.fmean(whole):.3f} "
            f"({seeds} seeds, {time.perf_counter() - began:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--settings", type=json.loads, default={}, help="other settings, as JSON")
    given = parser.parse_args()
    main(given.epsilon or [1.0, 8.0, 50.0], given.seeds, given.settings, vectors=given.vectors)

"""Agents on a ring, without a controller: who works with whom, what it costs in messages, what it brings.

Each agent talks to its two neighbours, and a message lives for γ hops; agents that reach each other within γ
hops form a clique and share what they release. The paper keeps γ estimators per agent; one is enough where
release rounds are public (docs/decentralised.md).

    python examples/decentralised_ring.py
"""

from __future__ import annotations

import argparse
from typing import Any

import feducb
from feducb.protocol.graphs import parse_topology


def main(agents: int, ttl: int, horizon: int, runs: int) -> None:
    """Show the cliques, then play the ring in three ways."""
    ring = parse_topology(f"ring:{agents}", ttl=ttl)
    for clique in ring.cliques:
        print("clique:", " ".join(str(agent) for agent in clique))
    setting: dict[str, Any] = {"dim": 5, "arms": 20, "horizon": horizon, "runs": runs}
    graph: dict[str, Any] = {"topology": f"ring:{agents}", "ttl": ttl, "baseline": "no-privacy"}
    results = {
        "each alone": feducb.simulate(**setting, agents=agents, baseline="alone"),
        f"ring, {ttl} estimators": feducb.simulate(**setting, **graph),
        "ring, one estimator": feducb.simulate(**setting, **graph, estimators="one"),
    }
    print(f"\n{'':>20}  regret  messages")
    for name, result in results.items():
        print(f"{name:>20}  {result.mean:6.1f}  {result.messages:8,.0f}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--agents", type=int, default=16)
    arguments.add_argument("--ttl", type=int, default=4)
    arguments.add_argument("--horizon", type=int, default=3000)
    arguments.add_argument("--runs", type=int, default=2)
    main(**vars(arguments.parse_args()))

"""What γ, the cliques and the number of estimators do to regret and messages, without privacy.

    python benchmarks/topologies.py                  the table of docs/decentralised.md
    python benchmarks/topologies.py --horizon 1000   a quick look

16 agents, d = 10, K = 100. An estimator learns from |C| agents, in one round of γ; γ/|C| averages over all
agents to γ·cliques/agents.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import feducb
from feducb_lab.experiments.measured import write_tables

SETTINGS: list[dict[str, Any]] = [
    {"topology": "complete:16", "ttl": 1},
    {"topology": "line:16", "ttl": 1},
    {"topology": "ring:16", "ttl": 1},
    {"topology": "ring:16", "ttl": 2},
    {"topology": "ring:16", "ttl": 4},
    {"topology": "ring:16", "ttl": 8},
    {"topology": "grid:4x4", "ttl": 2},
    {"topology": "ring:16", "ttl": 2, "estimators": "one"},
    {"topology": "ring:16", "ttl": 4, "estimators": "one"},
    {"topology": "ring:16", "ttl": 8, "estimators": "one"},
    {"topology": "grid:4x4", "ttl": 2, "estimators": "one"},
]


def _row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def _measured(result: feducb.SimulationResult) -> dict[str, Any]:
    regret = {"mean": result.mean, "stderr": result.stderr}
    counts = {"releases per agent": result.releases, "messages, one per hop": result.messages}
    return {"per-agent regret": regret, **counts}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    common: dict[str, Any] = {"dim": 10, "arms": 100, "horizon": options.horizon, "runs": options.runs}
    _row(["graph", "γ", "estimators", "cliques", "γ/|C|", "per-agent regret", "releases", "messages"])
    _row(["---"] * 8)
    for setting in SETTINGS:
        result = feducb.simulate(**common, **setting, baseline="no-privacy")
        graph = result.topology
        assert graph is not None
        used = 1 if setting.get("estimators") == "one" else graph.ttl
        kept = setting.get("estimators", str(used))
        name = graph.name.removesuffix(":16").replace("grid:4x4", "grid 4×4")
        rows[f"{name}, {graph.ttl}, {kept}"] = _measured(result)
        sizes = sorted({len(clique) for clique in graph.cliques}, reverse=True)
        _row(
            [
                graph.name,
                str(graph.ttl),
                str(used),
                f"{len(graph.cliques)} of {' and '.join(map(str, sizes))}",
                f"{used * len(graph.cliques) / graph.agents:.3g}",
                f"{result.mean:.1f} ± {result.stderr or 0.0:.1f}",
                f"{result.releases:g}",
                f"{result.messages:,.0f}",
            ]
        )
    alone = feducb.simulate(**common, agents=16, baseline="alone")
    _row(["each agent alone", "–", "1", "–", "1", f"{alone.mean:.1f} ± {alone.stderr or 0.0:.1f}", "0", "0"])
    rows["each agent alone, , 1"] = _measured(alone)
    if options.json:
        write_tables(options.json, {"graphs": rows}, ["feducb.simulation.runner"])


if __name__ == "__main__":
    main()

"""`feducb topology`: a graph, its cliques and what they promise, as a table and a picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from feducb.cli.options import option
from feducb.cli.output import counted, errors_to, facts_table, require_writable

if TYPE_CHECKING:
    from feducb.protocol.graphs import Topology

__all__ = ["draw_topology", "topology", "topology_table"]

_LISTED = 5  # sizes of cliques at most that are listed one by one
_NUMBERED = 100  # agents at most whose numbers are drawn
_GOLDEN = 0.618034  # steps of it around the colour circle keep neighbouring cliques apart


def topology(
    name: Annotated[
        str,
        typer.Argument(
            help="complete:8, ring:16, line:16, star:9, grid:4x4, tree:2:4, erdos:64:0.1, "
            "smallworld:64:4:0.1, or an edge-list file."
        ),
    ],
    ttl: int = option(1, "γ, how many hops a message travels; at most the diameter."),
    plot: Path | None = option(None, "Draw the graph and its cliques to this file."),
    seed: int = option(0, "Seed for random graphs."),
) -> None:
    """Show a graph of agents and the cliques that work together on it."""
    from feducb.protocol.graphs import parse_topology

    require_writable("--plot", plot, picture=True)
    topology = parse_topology(name, ttl=ttl, seed=seed)
    Console(markup=False).print(topology_table(topology))
    if plot is not None:
        draw_topology(topology, plot)
        errors_to.print(f"wrote {plot}", highlight=False)


def topology_table(topology: Topology) -> Table:
    """Agents, diameter, cliques, and γ/|C|: below 1 an agent learns from more than it gives up."""
    sizes = Counter(len(clique) for clique in topology.cliques)
    order, mean = sorted(sizes, reverse=True), topology.agents / len(topology.cliques)
    if len(order) <= _LISTED:
        listed = ", ".join(f"{sizes[size]} × {size}" for size in order)
        ratios = ", ".join(f"{topology.ttl / size:.3g}" for size in order)
    else:
        listed = f"{order[-1]} to {order[0]}, {mean:.3g} on average"
        ratios = f"{topology.ttl / order[0]:.3g} to {topology.ttl / order[-1]:.3g}"
    rows = [
        ("agents", f"{topology.agents:,}"),
        ("diameter", f"{topology.diameter}"),
        ("time-to-live γ", f"{topology.ttl}"),
        ("cliques", f"{len(topology.cliques):,}"),
        ("  of agents |C|", listed),
        ("γ/|C|", ratios),
        ("  over all, γ·cliques/agents", f"{topology.ttl / mean:.3g}"),
        (
            "messages per release",
            f"{sum(topology.flood_sizes()) / topology.agents:,.1f} on average, one per hop",
        ),
    ]
    return facts_table(f"{topology.name}, ttl {topology.ttl}", rows)


def draw_topology(topology: Topology, path: Path) -> None:
    """Draw the graph, one colour per clique; links inside a clique carry it too."""
    import networkx as nx  # type: ignore[import-untyped]
    from matplotlib.collections import LineCollection
    from matplotlib.colors import hsv_to_rgb
    from matplotlib.figure import Figure

    graph = nx.Graph([(one, other) for one, near in enumerate(topology.neighbours) for other in near])
    graph.add_nodes_from(range(topology.agents))
    small = topology.agents <= _NUMBERED
    place = nx.kamada_kawai_layout(graph) if small else nx.spring_layout(graph, seed=0)
    shades = [tuple(hsv_to_rgb((_GOLDEN * i % 1.0, 0.55, 0.85))) for i in range(len(topology.cliques))]
    colours = [shades[index] for index in topology.clique_of]
    inside = {edge: topology.clique_of[edge[0]] == topology.clique_of[edge[1]] for edge in graph.edges}

    figure = Figure(figsize=(8.0, 8.0), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_aspect("equal")
    lines = LineCollection(
        [[place[one], place[other]] for one, other in inside],
        colors=[colours[edge[0]] if same else (0.8, 0.8, 0.8) for edge, same in inside.items()],
        linewidths=[(4.0 if small else 1.2) if same else 0.8 for same in inside.values()],
        zorder=1,
    )
    axes.add_collection(lines)
    across, up = zip(*(place[agent] for agent in range(topology.agents)), strict=True)
    axes.scatter(across, up, s=260 if small else 18, c=colours, edgecolors="white", linewidths=1.0, zorder=2)
    if small:
        for agent, label in enumerate(topology.labels):
            axes.annotate(label, place[agent], ha="center", va="center", fontsize=8)
    cliques = counted(len(topology.cliques), "clique", "d")
    axes.set_title(f"{topology.name}, γ = {topology.ttl}: {cliques}", loc="left")
    figure.savefig(path, dpi=120)

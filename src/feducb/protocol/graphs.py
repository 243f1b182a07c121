"""Who can talk to whom, and who works together: a graph, its power graph G_γ, and cliques that cover it.

    ring:16 ──▶ neighbours ──▶ distances ──▶ G_γ: joined if at most ttl hops apart ──▶ cliques

Agents of one clique reach each other within ttl hops (γ) and share their releases; the others only forward.
The paper does not say which cliques. Here: a greedy cover of G_γ, computed once, the same wherever it is
computed, so that every agent can do it alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_integer
from feducb.errors import ConfigurationError

__all__ = ["MOST_AGENTS", "Topology", "build_topology", "cover_by_cliques", "parse_topology"]

Edge = tuple[int, int]
Clique = tuple[int, ...]

MOST_AGENTS = 5_000  # all pairs of them are held in memory
_DRAWS = 100  # of a random graph, until one is connected
_IMPROVEMENTS = 150


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """A connected graph of agents 0..M-1 and the cliques of its power graph G_γ.

    Attributes:
        name: as it was given.
        agents: M.
        labels: what a file calls the agents; otherwise their numbers.
        neighbours: of each agent, rising.
        distances: (M, M), hops between each two agents.
        diameter: the largest distance.
        ttl: γ, hops that a message lives.
        cliques: a partition of the agents; any two of a clique are at most ttl hops apart.
        clique_of: for each agent, the index of its clique.
    """

    name: str
    agents: int
    labels: tuple[str, ...]
    neighbours: tuple[tuple[int, ...], ...]
    distances: NDArray[np.int32] = field(repr=False, compare=False)
    diameter: int
    ttl: int
    cliques: tuple[Clique, ...]
    clique_of: tuple[int, ...]

    def members(self, agent: int) -> Clique:
        """The clique of an agent, itself included, rising."""
        return self.cliques[self.clique_of[agent]]

    def flood_sizes(self) -> tuple[int, ...]:
        """Messages, counted per hop, that one flood from each agent takes when every link takes one round.

        The origin tells all neighbours; whoever hears of it less than ttl hops away tells all but the one
        who said it. (`peers` sends exactly these.)
        """
        degrees = np.array([len(near) for near in self.neighbours])
        inside = (self.distances > 0) & (self.distances < self.ttl)
        return tuple(int(count) for count in degrees + inside @ (degrees - 1))

    def as_dict(self) -> dict[str, Any]:
        """What a result says about the graph; ``cliques`` is their number."""
        return {
            "agents": self.agents,
            "diameter": self.diameter,
            "ttl": self.ttl,
            "cliques": len(self.cliques),
            "clique_sizes": [len(clique) for clique in self.cliques],
            "members": [[self.labels[agent] for agent in clique] for clique in self.cliques],
        }


def parse_topology(text: str, *, ttl: int = 1, seed: int = 0) -> Topology:
    """Read a graph as the command line writes it.

    Args:
        text: ``complete:8``, ``ring:16``, ``line:16``, ``star:9`` (nine agents, 0 in the middle),
            ``grid:4x4``, ``tree:2:4`` (branching, height), ``erdos:64:0.1`` (agents, probability of an edge),
            ``smallworld:64:4:0.1`` (agents, neighbours, probability of rewiring), or an edge-list file: two
            names a line, ``#`` starts a comment.
        ttl: γ, from 1 to the diameter.
        seed: of a random graph, which is drawn again until it is connected, 100 times at most.
    """
    kind, _, rest = text.partition(":")
    if kind in _KINDS:
        labels, edges = _generate(text, kind, rest, seed)
    elif Path(text).is_file():
        labels, edges = _read_edges(Path(text))
    else:
        forms = ", ".join(known.form for known in _KINDS.values())
        raise ConfigurationError("topology", text, f"{forms}, or an edge-list file")
    return build_topology(text, labels, edges, ttl=ttl)


def build_topology(name: str, labels: Sequence[str], edges: Iterable[Edge], *, ttl: int) -> Topology:
    """Measure a graph and cover its power graph by cliques.

    Args:
        name: for messages and results.
        labels: of the agents, in their order.
        edges: pairs of agents by number; undirected, so (1, 2) is (2, 1).
        ttl: γ, from 1 to the diameter (1 for an agent alone).
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    count = len(labels)
    near: list[set[int]] = [set() for _ in labels]
    for one, other in edges:
        if one == other:
            raise ConfigurationError("topology", name, f"no edge from agent {labels[one]!r} to itself")
        near[one].add(other)
        near[other].add(one)
    neighbours = tuple(tuple(sorted(some)) for some in near)
    starts = np.cumsum([0, *map(len, neighbours)])
    columns = np.array([other for some in neighbours for other in some], dtype=np.int32)
    links = csr_array((np.ones(len(columns)), columns, starts), shape=(count, count))
    hops = shortest_path(links, unweighted=True)
    if not np.isfinite(hops[0]).all():
        cut_off = labels[int(np.isinf(hops[0]).argmax())]
        expected = f"a connected graph: no path leads from {labels[0]!r} to {cut_off!r}"
        raise ConfigurationError("topology", name, expected)
    distances = hops.astype(np.int32)
    distances.flags.writeable = False
    diameter = int(distances.max())
    if require_integer("ttl", ttl, at_least=1) > max(diameter, 1):
        raise ConfigurationError("ttl", ttl, f"at most {max(diameter, 1)}, the diameter of {name}")
    cliques = cover_by_cliques(distances, ttl)
    clique_of = {agent: index for index, clique in enumerate(cliques) for agent in clique}
    return Topology(
        name=name,
        agents=count,
        labels=tuple(labels),
        neighbours=neighbours,
        distances=distances,
        diameter=diameter,
        ttl=ttl,
        cliques=cliques,
        clique_of=tuple(clique_of[agent] for agent in range(count)),
    )


def cover_by_cliques(distances: NDArray[np.int32], ttl: int) -> tuple[Clique, ...]:
    """A small partition of the agents into cliques of the power graph.

    A clique cover of G_γ is a colouring of its complement. Several orders are coloured greedily, among them
    that of the agents and the one of largest degree first, so the cover is at least as good as either. Then
    the best is recoloured clique by clique, which can only merge cliques (Culberson's iterated greedy).
    Last, agents move from larger cliques to smaller ones that they fit: an agent left alone gains nothing.
    ``distances`` are (M, M), in hops.
    """
    close = distances <= ttl
    best = min((_cover_in_order(close, order) for order in _orders(distances, close)), key=_worth)
    shuffled = random.Random(0)  # only .random(): its numbers are the same in every version of Python
    for turn in range(_IMPROVEMENTS):
        ranks = [(-len(clique) if turn % 3 == 1 else 0, shuffled.random()) for clique in best]
        regrouped = sorted(range(len(best)), key=ranks.__getitem__) if turn else range(len(best))[::-1]
        again = _cover_in_order(close, [agent for index in regrouped for agent in best[index]])
        best = min(best, again, key=_worth)
    return tuple(sorted(tuple(sorted(clique)) for clique in _balanced(close, best)))


def _balanced(close: NDArray[np.bool_], cliques: list[list[int]]) -> list[list[int]]:
    """Move agents one by one to a clique smaller by two or more where they are close to all."""
    cliques = [sorted(clique) for clique in cliques]
    moved = True
    while moved:
        moved = False
        for small in sorted(cliques, key=lambda clique: (len(clique), clique)):
            fits = np.logical_and.reduce(close[small], axis=0)
            larger = [clique for clique in cliques if len(clique) >= len(small) + 2 and fits[clique].any()]
            if larger:
                largest = max(larger, key=lambda clique: (len(clique), clique))
                agent = next(agent for agent in largest if fits[agent])
                largest.remove(agent)
                small.append(agent)
                moved = True
    return cliques


def _worth(cliques: list[list[int]]) -> tuple[int, int]:
    return len(cliques), -sum(len(clique) ** 2 for clique in cliques)


def _orders(distances: NDArray[np.int32], close: NDArray[np.bool_]) -> Iterator[Sequence[int]]:
    """Of the agents; a few that do well on some kind of graph each."""
    count = len(close)
    degrees = close.sum(axis=1)
    edge_of_graph = int(distances.max(axis=1).argmax())
    yield range(count)
    yield range(count)[::-1]
    yield np.argsort(degrees, kind="stable").tolist()  # largest first, in the complement
    yield np.argsort(distances[edge_of_graph], kind="stable").tolist()  # sweep from one end to the other
    remaining, last = degrees.astype(np.int64), []  # smallest last, in the complement
    for _ in range(count):
        last.append(int(remaining.argmax()))
        remaining -= close[last[-1]]
        remaining[last[-1]] = -count
    yield last[::-1]


def _cover_in_order(close: NDArray[np.bool_], order: Iterable[int]) -> list[list[int]]:
    """Put each agent into the first clique where it is close to all."""
    cliques: list[list[int]] = []
    common = np.ones_like(close)  # row c: who is close to all of clique c
    for agent in order:
        fits = common[: len(cliques), agent]
        index = int(fits.argmax()) if fits.any() else len(cliques)
        if index == len(cliques):
            cliques.append([])
        cliques[index].append(agent)
        common[index] &= close[agent]
    return cliques


def _first(count: int, *_: float) -> int:
    return count


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind of graph is written, which numbers it takes, and how many agents they make."""

    form: str
    types: tuple[type[int] | type[float], ...]
    allowed: Callable[..., bool]
    agents: Callable[..., int] = _first


_KINDS = {
    "complete": _Kind("complete:AGENTS", (int,), lambda n: n >= 1),
    "ring": _Kind("ring:AGENTS (3 or more)", (int,), lambda n: n >= 3),
    "line": _Kind("line:AGENTS", (int,), lambda n: n >= 1),
    "star": _Kind("star:AGENTS (2 or more)", (int,), lambda n: n >= 2),
    "grid": _Kind("grid:ROWSxCOLUMNS", (int, int), lambda r, c: min(r, c) >= 1, lambda r, c: r * c),
    "tree": _Kind(
        "tree:BRANCHING:HEIGHT",
        (int, int),
        lambda b, h: 1 <= b <= MOST_AGENTS and h >= 0,
        lambda b, h: sum(b**level for level in range(min(h, MOST_AGENTS) + 1)),
    ),
    "erdos": _Kind("erdos:AGENTS:PROBABILITY", (int, float), lambda n, p: n >= 1 and 0 <= p <= 1),
    "smallworld": _Kind(
        "smallworld:AGENTS:NEIGHBOURS:PROBABILITY (an even number of neighbours below that of agents)",
        (int, int, float),
        lambda n, k, p: 2 <= k < n and k % 2 == 0 and 0 <= p <= 1,
    ),
}


def _generate(text: str, kind: str, rest: str, seed: int) -> tuple[list[str], list[Edge]]:
    """Numbers as names, and edges between them."""
    known = _KINDS[kind]
    parts = rest.split("x" if kind == "grid" else ":")
    try:
        numbers = [read(part) for read, part in zip(known.types, parts, strict=True)]
    except ValueError:
        raise ConfigurationError("topology", text, known.form) from None
    if not known.allowed(*numbers):
        raise ConfigurationError("topology", text, known.form)
    count = known.agents(*numbers)
    if count > MOST_AGENTS:
        raise ConfigurationError("topology", text, f"at most {MOST_AGENTS} agents")
    draws = random.Random(require_integer("seed", seed, at_least=0))
    return [str(agent) for agent in range(count)], _edges(text, kind, numbers, draws)


def _edges(text: str, kind: str, numbers: Sequence[Any], draws: random.Random) -> list[Edge]:
    import networkx as nx  # type: ignore[import-untyped]

    fixed: dict[str, Callable[..., Any]] = {
        "complete": nx.complete_graph,
        "ring": nx.cycle_graph,
        "line": nx.path_graph,
        "star": lambda count: nx.star_graph(count - 1),
        "grid": nx.grid_2d_graph,
        "tree": nx.balanced_tree,
    }
    if kind in fixed:
        graph = nx.convert_node_labels_to_integers(fixed[kind](*numbers))
        return list(graph.edges)
    draw = {"erdos": nx.gnp_random_graph, "smallworld": nx.watts_strogatz_graph}[kind]
    for _ in range(_DRAWS):
        graph = draw(*numbers, seed=draws)
        if nx.is_connected(graph):
            return list(graph.edges)
    raise ConfigurationError("topology", text, f"more edges: {_DRAWS} draws gave no connected graph")


def _read_edges(path: Path) -> tuple[list[str], list[Edge]]:
    """Names in their order (as numbers, if all are) and edges between them by position."""
    pairs = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigurationError("topology", str(path), "a text file with two agents a line") from None
    for number, line in enumerate(lines, start=1):
        names = line.partition("#")[0].replace(",", " ").split()
        if names and len(names) != 2:
            raise ConfigurationError(f"line {number} of {path}", line, "two agents")
        if names:
            pairs.append((names[0], names[1]))
    named = {name for pair in pairs for name in pair}
    if not 0 < len(named) <= MOST_AGENTS:
        raise ConfigurationError("topology", str(path), f"edges between 2 to {MOST_AGENTS} agents")
    whole = all(name.isascii() and name.isdecimal() for name in named)
    labels = sorted(named, key=lambda name: (int(name) if whole else 0, name))
    position = {name: index for index, name in enumerate(labels)}
    return labels, [(position[one], position[other]) for one, other in pairs]

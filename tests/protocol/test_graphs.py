"""Graphs are what was asked for, and cliques are cliques, few, and the same everywhere."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest

from feducb.errors import ConfigurationError
from feducb.protocol.graphs import Topology, build_topology, parse_topology

STRATEGIES = ("largest_first", "smallest_last", "independent_set", "connected_sequential_bfs", "DSATUR")


def _graph(topology: Topology) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(topology.agents))
    graph.add_edges_from((one, other) for one, near in enumerate(topology.neighbours) for other in near)
    return graph


@pytest.mark.parametrize(
    ("name", "agents", "edges", "diameter"),
    [
        ("complete:8", 8, 28, 1),
        ("complete:1", 1, 0, 0),
        ("ring:16", 16, 16, 8),
        ("line:16", 16, 15, 15),
        ("star:9", 9, 8, 2),
        ("grid:4x4", 16, 24, 6),
        ("grid:2x5", 10, 13, 5),
        ("tree:2:4", 31, 30, 8),
        ("smallworld:64:4:0", 64, 128, 16),
        ("erdos:12:1", 12, 66, 1),
    ],
)
def test_graphs_by_name(name: str, agents: int, edges: int, diameter: int) -> None:
    topology = parse_topology(name)
    assert (topology.agents, topology.diameter) == (agents, diameter)
    assert sum(map(len, topology.neighbours)) == 2 * edges
    assert topology.labels == tuple(str(agent) for agent in range(agents))


@pytest.mark.parametrize("name", ["erdos:64:0.1", "smallworld:64:4:0.1"])
def test_random_graphs_are_connected_and_follow_their_seed(name: str) -> None:
    first, again, other = (parse_topology(name, ttl=2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.neighbours != other.neighbours
    assert nx.is_connected(_graph(first))


def test_cliques_of_known_graphs() -> None:
    assert parse_topology("complete:8").cliques == (tuple(range(8)),)
    assert parse_topology("star:9", ttl=2).cliques == (tuple(range(9)),)
    assert len(parse_topology("star:9").cliques) == 8  # one leaf with the middle, the others alone
    for ttl in range(1, 6):  # ttl + 1 in a row: no cover is smaller
        assert len(parse_topology("ring:16", ttl=ttl).cliques) == -(-16 // (ttl + 1))
        assert len(parse_topology("line:16", ttl=ttl).cliques) == -(-16 // (ttl + 1))
    told = parse_topology("ring:16", ttl=2).as_dict()
    assert told.pop("members")[0] == ["0", "1", "2"]
    # balanced: nobody is left alone where a larger clique can spare a neighbour
    assert told == {"agents": 16, "diameter": 8, "ttl": 2, "cliques": 6, "clique_sizes": [3, 3, 3, 3, 2, 2]}


def test_covers_are_cliques_and_no_worse_than_greedy_colourings_of_the_complement() -> None:
    draws = random.Random(4)
    for _ in range(40):
        agents = draws.randint(8, 40)
        name = draws.choice([f"erdos:{agents}:{draws.uniform(0.12, 0.4):.3f}", f"smallworld:{agents}:4:0.2"])
        diameter = parse_topology(name, seed=7).diameter
        topology = parse_topology(name, ttl=draws.randint(1, diameter), seed=7)
        power = nx.power(_graph(topology), topology.ttl)
        assert sorted(itertools.chain(*topology.cliques)) == list(range(topology.agents))
        for index, clique in enumerate(topology.cliques):
            assert all(power.has_edge(*pair) for pair in itertools.combinations(clique, 2))
            assert all(topology.clique_of[agent] == index for agent in clique)
        complement = nx.complement(power)
        for strategy in STRATEGIES:
            colours = nx.greedy_color(complement, strategy)
            assert len(topology.cliques) <= len(set(colours.values())), (name, topology.ttl, strategy)


def test_distances_are_those_of_networkx() -> None:
    topology = parse_topology("smallworld:50:4:0.1", ttl=2, seed=3)
    lengths = dict(nx.all_pairs_shortest_path_length(_graph(topology)))
    expected = [[lengths[one][other] for other in range(50)] for one in range(50)]
    np.testing.assert_array_equal(topology.distances, expected)
    assert topology.diameter == nx.diameter(_graph(topology))
    with pytest.raises(ValueError, match="read-only"):
        topology.distances[0, 0] = 1


def test_a_thousand_agents_are_covered_by_few_cliques() -> None:
    topology = parse_topology("smallworld:1000:6:0.1", ttl=3)
    assert len(topology.cliques) < 110  # 102


def test_an_edge_list_names_its_agents(tmp_path: Path) -> None:
    path = tmp_path / "hospitals.txt"
    path.write_text("# who calls whom\nbonn aachen\naachen,celle  # both ways\n\nbonn celle\naachen bonn\n")
    topology = parse_topology(str(path))
    assert topology.labels == ("aachen", "bonn", "celle")
    assert topology.neighbours == ((1, 2), (0, 2), (0, 1))
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("10 2\n2 1\n")
    assert parse_topology(str(numbers)).labels == ("1", "2", "10")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ring", "ring:AGENTS"),
        ("ring:2", "3 or more"),
        ("ring:x", "ring:AGENTS"),
        ("ring:3:4", "ring:AGENTS"),
        ("line:0", "line:AGENTS"),
        ("grid:4", "grid:ROWSxCOLUMNS"),
        ("grid:0x4", "grid:ROWSxCOLUMNS"),
        ("tree:2", "tree:BRANCHING:HEIGHT"),
        ("tree:9:99", "at most 5000 agents"),
        ("complete:5001", "at most 5000 agents"),
        ("erdos:8:1.5", "erdos:AGENTS:PROBABILITY"),
        ("erdos:8:nan", "erdos:AGENTS:PROBABILITY"),
        ("erdos:64:0.001", "100 draws gave no connected graph"),
        ("smallworld:8:3:0.1", "an even number of neighbours"),
        ("smallworld:8:8:0.1", "an even number of neighbours"),
        ("torus:4", "or an edge-list file"),
        ("", "or an edge-list file"),
    ],
)
def test_impossible_names_say_what_is_expected(name: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        parse_topology(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\nc d\n", "connected graph: no path leads from 'a' to 'c'"),
        ("a b\nb b\n", "no edge from agent 'b' to itself"),
        ("a b\na b 3\n", "line 2 of .* is 'a b 3', expected two agents"),
        ("# nothing\n", "edges between 2 to 5000 agents"),
    ],
)
def test_impossible_files_say_what_is_expected(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=expected):
        parse_topology(str(path))


@pytest.mark.parametrize(("name", "ttl"), [("ring:16", 9), ("ring:16", 0), ("complete:8", 2), ("line:1", 2)])
def test_messages_live_from_one_hop_to_the_diameter(name: str, ttl: int) -> None:
    with pytest.raises(ConfigurationError, match=f"ttl is {ttl}, expected"):
        parse_topology(name, ttl=ttl)


def test_cliques_do_not_depend_on_the_order_of_edges() -> None:
    topology = parse_topology("erdos:30:0.15", ttl=2, seed=5)
    edges = list(_graph(topology).edges)
    random.Random(0).shuffle(edges)
    swapped = build_topology(topology.name, topology.labels, [edge[::-1] for edge in edges], ttl=2)
    assert swapped == topology


def test_importing_feducb_leaves_networkx_alone() -> None:
    code = "import sys, feducb, feducb.protocol.peers, feducb.cli.topology; print('networkx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _command(*arguments: str) -> str:
    code = "import typer; from feducb.cli.topology import topology; typer.run(topology)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "ttl"), [("ring:16", "2"), ("smallworld:120:4:0.1", "3"), ("line:1", "1")])
def test_the_command_prints_a_table_and_draws_a_picture(tmp_path: Path, name: str, ttl: str) -> None:
    picture = tmp_path / "graph.png"
    table = _command(name, "--ttl", ttl, "--plot", str(picture))
    assert picture.stat().st_size > 5_000
    if name == "ring:16":
        assert "4 × 3, 2 × 2" in table
        assert "0.667, 1" in table

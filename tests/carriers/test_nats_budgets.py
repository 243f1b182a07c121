"""Agents with budgets of their own, from their files on, over a real NATS server."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats_world import Broker, running, until
from typer.testing import CliRunner

from feducb.agent import Agent
from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.carriers.engine_choice import engine_of
from feducb.carriers.local import StoreMailbox
from feducb.carriers.nats import NatsController, make_streams
from feducb.cli.program import app
from feducb.controller.controller_file import ControllerSettings
from feducb.errors import ConfigurationError
from feducb.privacy.grid import entry_variance
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.graphs import parse_topology

NAMES, RELEASES = ("a", "b", "c"), 12
BUDGETS = """
[budgets.a]
epsilon = 0.5
delta = 1e-6
[budgets.b]
epsilon = 2
delta = 1e-7
[budgets.c]
epsilon = 8.0
delta = 1e-6
"""
ENGINE = """
[engine]
kind = "nats"
servers = ["{url}"]
federation = "tests"
roster = "{keys}/federation.json"
seed = "{keys}/{seed}"
ca = "{keys}/ca.pem"
timeout = 2.0
retry = 0.05
"""
CONTROLLER = """
[controller]
state = "controller.db"
"""


def _feducb(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def _make_agents(folder: Path, broker: Broker) -> dict[str, AgentFile]:
    """As an operator makes them: one public file of budgets, `feducb agent init`, the table of the engine."""
    (folder / "budgets.toml").write_text(BUDGETS)
    found, start = {}, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())  # the same for all
    for name in NAMES:
        config = folder / name / "agent.toml"
        config.parent.mkdir()
        settings = {
            "dim": 3,
            "agents": 3,
            "decisions": 400,
            "schedule": "periodic",
            "releases": RELEASES,
            "season": "12m",
            "window": "1m",
            "start": start,
        }
        options = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        _feducb(
            "agent", "init", str(config), "--name", name, "--budgets", str(folder / "budgets.toml"), *options
        )
        engine = ENGINE.format(url=broker.url, keys=broker.folder, seed=f"agents/{name}/agent.seed")
        with config.open("a") as out:
            out.write(engine + f'state = "{folder}/{name}/peers.db"\n')
        found[name] = read_agent_file(config)
    return found


def _release_all(told: AgentFile) -> Agent:
    """A whole season of releases, waiting to be sent."""
    agent = Agent.open(told.store, told.agent)
    for _ in range(RELEASES):
        agent.store.release()
    return agent


def _variance(terms: Terms, number: int) -> float:
    return entry_variance(terms.certificate(), terms.factors, number)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES)
    one.start()
    yield one
    one.stop()


def test_three_agents_with_budgets_of_their_own_and_a_controller(broker: Broker, tmp_path: Path) -> None:
    told = _make_agents(tmp_path, broker)
    tables = {_feducb("agent", "terms", "--config", str(one.path)) for one in told.values()}
    assert len(tables) == 1  # whoever is asked
    path = tmp_path / "controller.toml"
    engine = ENGINE.format(url=broker.url, keys=broker.folder, seed="controller/controller.seed")
    path.write_text(CONTROLLER + engine + tables.pop())
    settings = ControllerSettings.read(path)
    own = {name: one.agent.terms for name, one in told.items()}
    assert settings.terms == own
    assert own["a"].quiet > 0
    assert len({_variance(terms, RELEASES) for terms in own.values()}) == 3
    agents = {name: _release_all(one) for name, one in told.items()}
    boxes = {name: StoreMailbox(agent.store, keep_all=True) for name, agent in agents.items()}

    async def run() -> None:
        collector = settings.open()
        controller = NatsController(settings.engine, collector)
        engines = {name: engine_of(one) for name, one in told.items()}
        works = [engine(boxes[name]) for name, (engine, _) in engines.items() if engine is not None]
        async with running(controller.run(), *works):
            await until(
                lambda: (
                    controller.refusals.total > 0
                    or all((1, 0, RELEASES) in box.history for box in boxes.values())
                )
            )
        assert controller.refusals.as_dict() == {}
        assert [status.as_dict()["refused"] for _, status in engines.values() if status is not None] == [
            {},
            {},
            {},
        ]
        assert collector.progress() == dict.fromkeys(NAMES, RELEASES)
        collector.close()

    asyncio.run(run())
    for name, agent in agents.items():
        for (_, _, number), payload in sorted(boxes[name].history.items()):
            total = messages.decode(payload)
            expected = math.fsum(_variance(terms, number) for terms in own.values())
            assert total.agents == 3
            assert total.variance == pytest.approx(expected, rel=1e-12)
            assert agent.absorb(total)
        assert agent.snapshot()["learning"] == [0]  # read, not merely kept
        agent.close()


def test_three_agents_with_budgets_of_their_own_on_a_graph(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "keys", NAMES, topology=parse_topology("complete:3"))
    broker.start()
    try:
        asyncio.run(make_streams(broker.admin_settings()))
        told = _make_agents(tmp_path, broker)
        assert {one.agent.clique for one in told.values()} == {NAMES}
        agents = {name: _release_all(one) for name, one in told.items()}
        boxes = {name: StoreMailbox(agent.store) for name, agent in agents.items()}

        async def run() -> None:
            engines = {name: engine_of(one) for name, one in told.items()}
            works = [engine(boxes[name]) for name, (engine, _) in engines.items() if engine is not None]
            states = [status for _, status in engines.values() if status is not None]
            async with running(*works):
                await until(
                    lambda: (
                        any(one.as_dict()["refused"] or one.as_dict()["refusing"] for one in states)
                        or all(_number(box) == RELEASES for box in boxes.values())
                    )
                )
            assert [one.as_dict()["refused_neighbours"] for one in states] == [{}, {}, {}]

        asyncio.run(run())
        expected = math.fsum(_variance(one.agent.terms, RELEASES) for one in told.values())
        for name, agent in agents.items():
            assert messages.decode(boxes[name].newest[0]).variance == pytest.approx(expected, rel=1e-12)
            assert agent.absorb(messages.decode(boxes[name].newest[0]))
            agent.close()
    finally:
        broker.stop()


def _number(box: StoreMailbox) -> int:
    return messages.decode(box.newest[0]).number if box.newest else 0


def test_files_that_disagree_are_refused_at_the_start(broker: Broker, tmp_path: Path) -> None:
    told = _make_agents(tmp_path, broker)["a"]
    usual = told.path.read_text()
    for before, after, complaint in (
        ("[budgets.c]", "[budgets.d]", "budgets is 'a, b, d', expected a, b, c as in the roster"),
        ("epsilon = 8.0\ndelta = 1e-06", "epsilon = 8.0", r"budgets\.c\.delta is None, expected a value"),
        ("[budgets.c]\nepsilon = 8.0\ndelta = 1e-06", "", "budgets is 'a, b', expected a, b, c as in the"),
        ("[budgets.a]\nepsilon = 0.5", "[budgets.a]\nepsilon = 0.4", r"as in \[privacy\]"),
        ("delta = 1e-06\nrecords", "delta = 1e-07\nrecords", r"as in \[privacy\]"),
        ('kind = "nats"', 'kind = "nats"\nagent = "b"', "this one as b"),
    ):
        assert before in usual
        told.path.write_text(usual.replace(before, after))
        with pytest.raises(ConfigurationError, match=complaint):
            read_agent_file(told.path)
    path = tmp_path / "controller.toml"
    engine = ENGINE.format(url=broker.url, keys=broker.folder, seed="controller/controller.seed")
    alone = 'mechanism = "dense"\ndim = 3\nreleases = 12\n'
    for terms, complaint in (
        # as an agent writes them that was not given the others' budgets
        (f"[terms]\n{alone}quiet = 3\nepsilon = 1.0\ndelta = 1e-6\n[budgets.a]\nepsilon = 2\ndelta = 1e-6\n",
         "budgets is 'a', expected one for each of a, b, c, in every agent's file too"),
        (f"[terms]\n{alone}quiet = 3\n[budgets.a]\nepsilon = 2\ndelta = 1e-6\n",
         "budgets is 'a', expected one for each of a, b, c"),
        (f"[terms]\n{alone}quiet = 3\n", r"terms\.epsilon is None, expected a value"),
    ):  # fmt: skip
        path.write_text(CONTROLLER + engine + terms)
        with pytest.raises(ConfigurationError, match=complaint):
            ControllerSettings.read(path)

"""The keywords of `simulate`, and what they stand for: a federation, a world, and how long they last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from feducb.config import Budget, Mode, Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.policies import Policy, parse_policy
from feducb.protocol.federation import Baseline, EstimatorsKept, Federation, Play, Tuning
from feducb.protocol.graphs import Topology, parse_topology
from feducb.protocol.schedules import Determinant, Planned, PublicSchedule, parse_schedule
from feducb.simulation.backends.backend import Backend
from feducb.simulation.backends.choose import BackendName
from feducb.simulation.reference import Observer
from feducb.trust import Trust
from feducb.worlds.drifting import parse_drift
from feducb.worlds.family import named_world
from feducb.worlds.synthetic import differing, paper_world
from feducb.worlds.world import Environment

__all__ = ["LASTS", "Lasting", "RunOptions", "Shortcuts", "spell_out"]

LASTS = {"horizon": 10_000, "runs": 5, "seed": 0}
"""How long a simulation lasts, how often it is repeated and its seed, where nothing else is said."""


class RunOptions(TypedDict, total=False):
    """On what a simulation is computed, and who is told: nothing here changes the result.

    Attributes:
        backend: ``auto`` (if not given) takes the fastest that can: gpu, cpu, or the readable reference.
        threads: worker threads; as many as there are processors if not given.
        progress: called with (agent-steps done, agent-steps in all), from any thread.
        observer: shown every `Step`, by the reference on one thread.
        checkpoint: a folder to keep what is done in; the same call goes on from there.
        note: told in a line if another backend plays than was asked for.
    """

    backend: BackendName | Backend
    threads: int | None
    progress: Callable[[int, int], None] | None
    observer: Observer | None
    checkpoint: str | Path | None
    note: Callable[[str], None]


class Lasting(RunOptions, total=False):
    """Keywords beside a federation and a world: `simulate` explains each."""

    horizon: int
    runs: int
    seed: int
    absence: float
    history: int
    seasons: int
    remember: str | int
    discount: float
    half_life: float | None


class Shortcuts(Lasting, total=False):
    """All keywords of `simulate`; those that `Federation` has too mean what they mean there."""

    agents: int | None
    dim: int
    arms: int | None
    mode: Mode
    baseline: Baseline | None
    epsilon: float
    delta: float
    budgets: Sequence[Budget] | None
    alpha: float
    schedule: str | PublicSchedule | Planned | Determinant | None
    releases: int | None
    first_release: int | None
    gap: float
    heterogeneity: float
    policy: str | Policy | None
    exploration: float
    regularizer: float
    mechanism: str
    trust: Trust | str
    records_per_person: int
    topology: str | Topology | None
    ttl: int | None
    estimators: EstimatorsKept
    tuning: Tuning
    environment: Environment | str | None
    drift: str | None
    play: Play
    distance: float | None


def spell_out(
    federation: Federation | None, world: Environment | None, settings: Mapping[str, Any]
) -> tuple[Federation, Environment, dict[str, Any]]:
    """Who plays and where, as a call of `simulate` asks for it.

    And settings as they were written, where objects were made of them; for the result.

    Raises:
        ConfigurationError: a setting cannot be.
        TypeError: a keyword is not known, or is a part of the federation that was given.
    """
    lasting, all_names = Lasting.__annotations__, Shortcuts.__annotations__
    for name in settings:
        if name not in all_names:
            raise TypeError(f"simulate() got an unexpected keyword argument {name!r}")
        if federation is not None and name not in lasting:
            raise TypeError(f"simulate() takes no {name!r} beside a federation: it is described there")
    if federation is not None:
        return federation, world or paper_world(federation.problem), {}
    if world is not None:
        raise TypeError("simulate() takes a world after a federation; beside keywords it is environment=…")
    given = {name: value for name, value in settings.items() if name not in lasting}
    seed, horizon = (settings.get(name, LASTS[name]) for name in ("seed", "horizon"))
    return _from_keywords(given, seed, horizon)


def _from_keywords(
    given: dict[str, Any], seed: int, horizon: int
) -> tuple[Federation, Environment, dict[str, Any]]:
    """From what describes the federation and its world; it is used up."""
    gap, arms, dim = given.pop("gap", None), given.pop("arms", None), given.pop("dim", 10)
    world: Environment | str = given.pop("environment", None) or "paper"
    differ = given.pop("heterogeneity", 0.0)
    if isinstance(world, str):
        world = named_world(world, Problem(dim=dim), arms, gap)
    if differ:
        world = differing(world, differ)
    if (drift := given.pop("drift", None)) is not None:
        world = parse_drift(drift, world)
    schedule, words = _schedule(given)
    words |= {} if drift is None else {"drift": drift}
    graph = _graph(given.pop("topology", None), given.pop("ttl", None), seed)
    agents = given.pop("agents", None)
    if agents is None:
        agents = 10 if graph is None else graph.agents
    require_integer("agents", agents, at_least=1)
    budgets = given.pop("budgets", None)
    each = {name: given.pop(name, usual) for name, usual in (("epsilon", 1.0), ("delta", 1e-6))}
    policy, exploration = given.pop("policy", None), given.pop("exploration", 1.0)
    if policy is not None or exploration != 1.0:  # exploration is the optimistic policy's
        given["policy"] = parse_policy(policy or "optimistic", exploration=exploration)
    federation = Federation(
        problem=world.problem,
        agents=agents,
        budget=Budget(**each) if budgets is None else budgets,
        schedule=schedule,
        topology=graph,
        **given,  # the rest is the federation's own, by the same names
    )
    releases = words["releases"]
    if releases is not None and releases > horizon:
        raise ConfigurationError("releases", releases, f"at most the horizon, {horizon}")
    return federation, world, words


def _schedule(given: dict[str, Any]) -> tuple[PublicSchedule | Planned | Determinant, dict[str, Any]]:
    """Takes what is said of releases out of the keywords; the schedule, and how it was written."""
    schedule, releases = given.pop("schedule", None), given.pop("releases", None)
    first_release = given.pop("first_release", None)
    if schedule is None:
        schedule = "planned" if releases is first_release is None else "geometric"
        if given.get("mode") == "paper" and given.get("baseline") is None:
            schedule = "determinant"
    words = {"releases": releases, "first_release": first_release}
    if not isinstance(schedule, str):
        return schedule, words
    words["schedule"] = schedule
    return parse_schedule(schedule, releases=releases, first_release=first_release), words


def _graph(topology: str | Topology | None, ttl: int | None, seed: int) -> Topology | None:
    if topology is None:
        if ttl is not None:
            raise ConfigurationError("ttl", ttl, "a topology beside it")
        return None
    if isinstance(topology, str):
        return parse_topology(topology, ttl=1 if ttl is None else ttl, seed=seed)
    if ttl is not None and ttl != topology.ttl:
        raise ConfigurationError("ttl", ttl, f"{topology.ttl}, as the topology has it, or nothing")
    return topology

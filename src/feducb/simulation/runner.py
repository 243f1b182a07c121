"""`simulate`: settings in, result out."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.config import Budget, Mode, Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.policies import Optimistic, Policy
from feducb.privacy.mechanisms import MECHANISMS
from feducb.protocol.estimators import EVERYTHING, Tuning
from feducb.protocol.graphs import Topology, parse_topology
from feducb.protocol.messages import message_size
from feducb.protocol.peers import envelope_size
from feducb.protocol.schedules import Determinant, PublicSchedule, parse_schedule
from feducb.simulation.backends.base import Backend
from feducb.simulation.backends.choose import BackendName, choose_backend
from feducb.simulation.backends.reference import ReferenceBackend
from feducb.simulation.checkpoint import Checkpoint
from feducb.simulation.memory import (
    free_device_memory,
    free_memory,
    plan_bytes,
    play_bytes,
    require_memory,
)
from feducb.simulation.plan import Baseline, EstimatorsKept, Plan, make_plan
from feducb.simulation.reference import BlockResult, Observer, checkpoints
from feducb.simulation.results import SimulationResult
from feducb.simulation.statement import describe_privacy, describe_theory
from feducb.trust import NOBODY, Trust, require_trust
from feducb.version import __version__
from feducb.worlds.synthetic import PaperEnvironment, bands_for_gap
from feducb.worlds.world import Environment

__all__ = ["run_plan", "simulate", "summarise"]

_RAW_RELEASES = 256  # without privacy more releases cost messages alone; with it, noise

Progress = Callable[[int, int], None]


def simulate(
    *,
    agents: int | None = None,
    dim: int = 10,
    arms: int | None = None,
    horizon: int = 10_000,
    runs: int = 5,
    seed: int = 0,
    mode: Mode = "calibrated",
    baseline: Baseline | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    budgets: Sequence[Budget] | None = None,
    alpha: float = 0.1,
    schedule: str | PublicSchedule | Determinant | None = None,
    releases: int | None = None,
    first_release: int = 8,
    gap: float = 0.1,
    policy: str | Policy = "optimistic",
    exploration: float = 1.0,
    regularizer: float = 1.0,
    mechanism: str = "auto",
    trust: Trust | str = NOBODY,
    records_per_person: int = 1,
    topology: str | Topology | None = None,
    ttl: int | None = None,
    estimators: EstimatorsKept = "paper",
    tuning: Tuning = EVERYTHING,
    environment: Environment | None = None,
    backend: BackendName | Backend = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
    checkpoint: str | Path | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> SimulationResult:
    """Simulate a federation, or something to compare it with.

    Args:
        agents: M; 10, or as many as the topology has.
        dim: d, length of an action vector (taken from ``environment`` if that is given).
        arms: K, candidates a visitor; d² if not given.
        horizon: T, rounds.
        runs: independent repetitions.
        seed: of everything random; the same seed gives the same result on any number of threads.
        mode: ``calibrated``, private and proven, or ``paper``, printed constants, for comparison only.
        baseline: instead of the private federation: ``no-privacy``, ``alone`` or ``uniform``.
        epsilon: ε of every agent.
        delta: δ of every agent.
        budgets: instead, a budget for each agent.
        alpha: α, the chance that the confidence bound fails anywhere.
        schedule: when to release, as an object or as text (`parse_schedule`). Default: geometric, or the
            determinant trigger in ``paper`` mode.
        releases: how many releases a geometric or periodic schedule spreads (64, without privacy 256, or as
            many as fit).
        first_release: first round of a geometric schedule.
        gap: distance between the bands of mean rewards of the best and the other arms.
        policy: how agents choose, as an object or as text (`parse_policy`); compiled backends know only
            ``optimistic``.
        exploration: scales the bonus of the optimistic policy; 1 is the proven bound.
        regularizer: ρ.
        mechanism: ``auto`` (dense up to 256 releases, then blt) or one of `MECHANISMS` by name; ``paper``
            mode always takes the tree.
        trust: ``nobody``, every agent adds noise, or ``controller``, which sees raw sums and adds noise once.
        records_per_person: how many records one person may have: at an agent, or, where the controller is
            trusted, at all agents together. Noise is so many times larger, and planned for.
        topology: a graph of agents in place of a controller, as an object or as text (`parse_topology`).
        ttl: γ, hops that a message lives (1); at most the graph's diameter.
        estimators: on a graph: ``paper``, γ an agent, used in turn, or ``one``.
        tuning: which improvements of the noise and of the bound are on; for measuring each one's gain.
        environment: a world of your own in place of the paper's.
        backend: ``auto`` takes the fastest that can: gpu, cpu, or the readable reference.
        threads: worker threads; as many as there are processors if not given.
        progress: called with (agent-steps done, agent-steps in all), from any thread.
        observer: shown every `Step`, by the reference on one thread.
        checkpoint: a folder to keep what is done in; the same call goes on from there.
        note: told in a line if another backend plays than was asked for.

    Raises:
        ConfigurationError: a setting cannot be.
    """
    if environment is None:
        problem = Problem(dim=dim)
        best, others = bands_for_gap(gap)
        environment = PaperEnvironment(
            problem=problem, arms=dim * dim if arms is None else arms, best=best, others=others
        )
    if schedule is None:
        schedule = "determinant" if mode == "paper" and baseline is None else "geometric"
        if baseline == "no-privacy" and releases is None:
            releases = max(1, min(_RAW_RELEASES, horizon - first_release + 1))
    if isinstance(schedule, str):
        schedule_text = schedule
        schedule = parse_schedule(schedule, releases=releases, first_release=first_release)
    else:
        schedule_text = repr(schedule)
    graph = _graph(topology, ttl, seed)
    if agents is None:
        agents = 10 if graph is None else graph.agents
    require_integer("agents", agents, at_least=1)
    require_memory(agents, plan_bytes(agents, private=baseline is None), free_memory())
    if budgets is None:
        budgets = [Budget(epsilon=epsilon, delta=delta)] * agents
    if mode == "paper" and baseline is not None:
        raise ConfigurationError("mode", mode, f"calibrated, since the baseline {baseline} has no paper mode")
    if mode == "paper" and mechanism not in ("auto", "tree"):
        raise ConfigurationError("mechanism", mechanism, "tree (or auto) in paper mode")
    if mechanism != "auto" and mechanism not in MECHANISMS:
        raise ConfigurationError("mechanism", mechanism, f"one of auto, {', '.join(sorted(MECHANISMS))}")
    if releases is not None and releases > horizon:
        raise ConfigurationError("releases", releases, f"at most the horizon, {horizon}")
    trust = require_trust(trust)
    plan = make_plan(
        environment,
        agents=agents,
        horizon=horizon,
        runs=runs,
        seed=seed,
        mode=mode,
        baseline=baseline,
        budgets=budgets,
        alpha=alpha,
        exploration=exploration,
        policy=policy,
        regularizer=regularizer,
        schedule=schedule,
        mechanism=mechanism,
        trust=trust,
        topology=graph,
        estimators=estimators,
        tuning=tuning,
        records_per_person=records_per_person,
    )
    config = {
        "agents": agents,
        "dim": environment.problem.dim,
        "arms": environment.arms,
        "horizon": horizon,
        "runs": runs,
        "seed": seed,
        "mode": mode,
        "baseline": baseline,
        "alpha": alpha,
        "schedule": schedule_text,
        "gap": gap if isinstance(environment, PaperEnvironment) else None,
        **_describe_policy(plan.policy),
        "proven_bound": _proven(plan.policy) and not (mode == "paper" and baseline is None),
        "regularizer": regularizer,
        "trust": trust.name,
        "records_per_person": records_per_person,
        "topology": None if graph is None else graph.name,
        "ttl": None if graph is None else graph.ttl,
        "estimators": None if graph is None else estimators,
        "epsilon": [budget.epsilon for budget in budgets] if len(set(budgets)) > 1 else budgets[0].epsilon,
        "delta": [budget.delta for budget in budgets] if len(set(budgets)) > 1 else budgets[0].delta,
        "releases": releases,
        "first_release": first_release,
        "mechanism": mechanism,
        "environment": type(environment).__name__,
    }
    return run_plan(
        plan,
        config,
        backend=backend,
        threads=threads,
        progress=progress,
        observer=observer,
        checkpoint=checkpoint,
        note=note,
    )


def _describe_policy(policy: Policy) -> dict[str, Any]:
    """The optimistic policy, which went without saying before there were others, by its exploration alone."""
    if type(policy) is Optimistic:
        return {"exploration": policy.exploration}
    return {"exploration": None, "policy": repr(policy)}


def _proven(policy: Policy) -> bool:
    return type(policy) is Optimistic and policy.exploration >= 1.0


def run_plan(
    plan: Plan,
    config: dict[str, Any],
    *,
    backend: BackendName | Backend = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
    checkpoint: str | Path | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> SimulationResult:
    """Run a plan.

    Args:
        plan: what to run.
        config: the settings, for the result.
        backend: which; an observer needs the reference.
        threads: worker threads; as many as there are processors if not given.
        progress: called with (agent-steps done, agent-steps in all), from any thread.
        observer: shown every `Step`.
        checkpoint: a folder to keep what is done in; the same call goes on from there.
        note: told in a line if another backend plays than was asked for.
    """
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    require_integer("threads", threads, at_least=1)
    player = _player(backend, plan, observer, note)
    needed, on_device = play_bytes(plan, player.name, threads)
    require_memory(plan.agents, needed, free_memory())
    if on_device:
        require_memory(plan.agents, on_device, free_device_memory(), of="device memory")
    config = config | {"backend": player.name}
    kept = None
    if checkpoint is not None:  # what a name does not tell: bands, edges, improvements that are off
        kept = Checkpoint(checkpoint, config | {"version": __version__, "plan": _fingerprint(plan)})
    all_steps, done, lock = plan.runs * plan.agents * plan.horizon, 0, threading.Lock()

    def tell(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            if progress is not None:
                progress(done, all_steps)
            if kept is not None:
                kept.tell(done, all_steps)

    started = time.perf_counter()
    try:
        teams = player.play(plan, threads=threads, progress=tell, checkpoint=kept)
    finally:
        if kept is not None:
            kept.close()
    seconds = time.perf_counter() - started
    return summarise(plan, config, teams, seconds if kept is None else seconds + kept.seconds_before)


def _fingerprint(plan: Plan) -> str:
    """Changes with whatever changes the result; functions count by their names."""
    told = repr((plan.environment, plan.topology, plan.teams))
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", told).encode()).hexdigest()


def _player(
    backend: BackendName | Backend, plan: Plan, observer: Observer | None, note: Callable[[str], None]
) -> Backend:
    if observer is not None:
        if backend not in ("auto", "reference"):
            raise ConfigurationError("backend", backend, "reference: only it shows every step to an observer")
        return ReferenceBackend(observer)
    if not isinstance(backend, str):
        return backend
    player, told = choose_backend(backend, plan)
    if told is not None:
        note(told)
    return player


def summarise(
    plan: Plan, config: dict[str, Any], teams: Sequence[BlockResult], seconds: float
) -> SimulationResult:
    """The result of all runs, from what they came to for each team.

    Args:
        plan: what was run.
        config: the settings.
        teams: all runs of each team, in the plan's order.
        seconds: how long it took.
    """
    sizes = np.array([len(team.agents) for team in plan.teams])
    by_team = np.cumsum([team.regret for team in teams], axis=2)  # (teams, runs, points)
    regret = np.einsum("t,trp->rp", sizes / plan.agents, by_team)
    counts = np.array([[len(rounds) for rounds in team.release_rounds] for team in teams])  # (teams, runs)
    per_agent = (sizes @ counts) / plan.agents
    messages, sent = _traffic(plan, teams, counts.sum(axis=1))
    return SimulationResult(
        rounds=checkpoints(plan.horizon),
        regret=regret,
        clique_regret=by_team[:, :, -1] if plan.topology and plan.estimators[0].privatizer else None,
        release_rounds=tuple(
            tuple(sorted(set().union(*(team.release_rounds[run] for team in teams))))
            for run in range(plan.runs)
        ),
        releases=float(per_agent.mean()),
        messages=messages / plan.runs,
        bytes=sent / plan.runs,
        seconds=seconds,
        agent_steps_per_second=plan.runs * plan.agents * plan.horizon / seconds,
        config=config,
        privacy=describe_privacy(plan),
        theory=describe_theory(
            plan, releases=per_agent.tolist(), per_agent_regret=float(regret[:, -1].mean())
        ),
        topology=plan.topology,
    )


def _traffic(plan: Plan, teams: Sequence[BlockResult], releases: NDArray[np.int64]) -> tuple[int, int]:
    """Messages and bytes of all runs; on a graph each hop of a flood counts."""
    release_size = message_size(plan.problem.dim)
    if plan.topology is None:
        messages = 2 * plan.agents * int(releases.sum())
        return messages, messages * release_size
    floods = plan.topology.flood_sizes()
    announced = sum(
        int(count) * sum(floods[agent] for agent in team.agents)
        for count, team in zip(releases, plan.teams, strict=True)
    )
    asked = sum(floods[agent] for team in teams for agent in team.requests)
    return announced + asked, announced * (envelope_size() + release_size) + asked * envelope_size()


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

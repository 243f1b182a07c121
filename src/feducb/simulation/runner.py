"""`simulate`: settings in, result out."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.protocol.federation import Federation
from feducb.protocol.messages import message_size
from feducb.protocol.peers import envelope_size
from feducb.protocol.recall import Seasons
from feducb.simulation.backends.backend import Backend
from feducb.simulation.backends.choose import choose_backend
from feducb.simulation.backends.reference_backend import ReferenceBackend
from feducb.simulation.checkpoint import Checkpoint
from feducb.simulation.memory import free_device_memory, free_memory, plan_bytes, play_bytes, require_memory
from feducb.simulation.plan import Plan, make_plan
from feducb.simulation.promises import describe_privacy, describe_theory
from feducb.simulation.reference import BlockResult, checkpoints
from feducb.simulation.results import SimulationResult
from feducb.simulation.shortcuts import LASTS, RunOptions, Shortcuts, spell_out
from feducb.version import __version__
from feducb.worlds.synthetic import PaperEnvironment
from feducb.worlds.world import Environment

__all__ = ["run_plan", "simulate", "summarise"]


def simulate(
    federation: Federation | None = None, world: Environment | None = None, /, **settings: Unpack[Shortcuts]
) -> SimulationResult:
    """Simulate a federation in a world: ``simulate(federation, world, horizon=…)``; or all by keywords.

    Beside a federation, keywords are ``horizon``, ``runs``, ``seed``, ``absence``, ``history``, ``seasons``,
    ``remember``, ``discount``, ``half_life`` and those of `RunOptions` (``backend``, ``threads``,
    ``progress``, ``observer``, ``checkpoint``, ``note``). Without one, the others describe it: ``mode``,
    ``baseline``, ``alpha``, ``policy``, ``regularizer``, ``mechanism``, ``trust``, ``records_per_person``,
    ``estimators``, ``play``, ``distance`` and ``tuning`` are those of `Federation`.

    Args:
        federation: who plays, and how.
        world: where; the paper's, with d² candidates per visitor, if not given.
        settings: the keywords below.

    Keyword Args:
        horizon: T, rounds (10,000).
        runs: independent repetitions (5).
        seed: of everything random (0); the same seed gives the same result on any number of threads.
        absence: under the trust ``keepers``, the chance that an agent misses a row (0).
        seasons: how many seasons the horizon has, each with a budget and noise of its own (1). Agents with a
            budget play as deployed ones do: what is remembered is read beside the new season's sums.
        remember: earlier seasons whose last sums are read: ``all``, ``none`` or how many (all).
        discount: what these count less with each season (1).
        half_life: in how many rounds what was learnt counts half (it does not fade).
        drift: a θ* that moves: ``turn:DEGREES`` in 1,000 rounds, or ``jump:ROUND``, by 90 degrees.
        history: records of each agent from before the first round, drawn uniformly (0): they enter the first
            release in one go, and cost no regret. Agents alone have them, too. Under own play and a planned
            schedule all close after that release, which is of round 0.
        agents: M; 10, or as many as the topology has.
        dim: d, length of an action vector (10; taken from ``environment`` if that is given).
        arms: K, candidates per visitor; d² if not given.
        gap: in the paper's world, distance between the bands of mean rewards of the best and the other arms
            (0.1).
        heterogeneity: in the paper's world, how far each agent's θ* is from one that they have in common (0).
        environment: a world by its name (``paper``, ``isotropic``, ``one-hot`` or ``correlated``), or one of
            your own.
        epsilon: ε of every agent (1).
        delta: δ of every agent (1e-6).
        budgets: instead, a budget for each agent.
        schedule: when to release, as an object or as text (`parse_schedule`). Default: planned (few releases,
            from the first that is worth reading on; often where no noise is paid for it), or the determinant
            trigger in ``paper`` mode; geometric if one of the next two is given.
        releases: how many releases a geometric or periodic schedule spreads (64, or as many as fit).
        first_release: first round of a geometric schedule (8).
        exploration: scales the bonus of the optimistic policy (1, the proven bound), which it asks for.
        topology: a graph of agents in place of a controller, as an object or as text (`parse_topology`).
        ttl: γ, hops that a message lives (1); at most the graph's diameter.

    Raises:
        ConfigurationError: a setting cannot be.
    """
    given: dict[str, Any] = dict(settings)
    federation, world, words = spell_out(federation, world, given)
    agents, private = federation.agents, federation.baseline is None
    require_memory(agents, plan_bytes(agents, private=private), free_memory())
    lasts = {name: given.get(name, usual) for name, usual in LASTS.items()}
    lasts |= {name: given[name] for name in ("absence", "history") if given.get(name)}
    kept = {
        name: given[name] for name in ("remember", "discount", "half_life") if given.get(name) is not None
    }
    seasons = Seasons(count=given.get("seasons", 1), **kept)
    plan = make_plan(federation, world, **lasts, seasons=seasons)
    if not seasons.plain:
        words = words | {"seasons": seasons.count} | kept
    gap = None  # between the bands of the paper's world; other worlds have none
    if isinstance(world, PaperEnvironment):
        gap = round(world.best[0] - world.others[1], 12)
    if isinstance(world, PaperEnvironment) and world.heterogeneity:
        words |= {"heterogeneity": world.heterogeneity}
    named = {"gap": gap, "environment": type(world).__name__}
    config = federation.as_dict() | {"arms": world.arms} | lasts | named | words
    options: Any = {name: given[name] for name in RunOptions.__annotations__ if name in given}
    return run_plan(plan, config, options)


def run_plan(plan: Plan, config: dict[str, Any], options: RunOptions | None = None) -> SimulationResult:
    """Run a plan, on what the options say; the result repeats ``config``. An observer needs the reference."""
    options = options or RunOptions()
    threads, progress = options.get("threads"), options.get("progress")
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    require_integer("threads", threads, at_least=1)
    player = _player(plan, options)
    needed, on_device = play_bytes(plan, player.name, threads)
    require_memory(plan.agents, needed, free_memory())
    if on_device:
        require_memory(plan.agents, on_device, free_device_memory(), of="device memory")
    config = config | {"backend": player.name}
    kept = None
    if (folder := options.get("checkpoint")) is not None:
        # What a name does not tell: bands, edges, improvements that are off.
        kept = Checkpoint(folder, config | {"version": __version__, "plan": _fingerprint(plan)})
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
    text = repr((plan.environment, plan.topology, plan.teams))
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode()).hexdigest()


def _player(plan: Plan, options: RunOptions) -> Backend:
    backend, observer = options.get("backend", "auto"), options.get("observer")
    if observer is not None:
        if backend not in ("auto", "reference"):
            raise ConfigurationError("backend", backend, "reference: only it shows every step to an observer")
        return ReferenceBackend(observer)
    if not isinstance(backend, str):
        return backend
    player, remark = choose_backend(backend, plan)
    if remark is not None and "note" in options:
        options["note"](remark)
    return player


def summarise(
    plan: Plan, config: dict[str, Any], teams: Sequence[BlockResult], seconds: float
) -> SimulationResult:
    """The result of all runs, from what they came to for each team, in the plan's order."""
    sizes = np.array([len(team.agents) for team in plan.teams])
    points, counts_from = checkpoints(plan.horizon, plan.history), 1 if plan.history else 0
    by_team = np.cumsum([team.regret[:, counts_from:] for team in teams], axis=2)  # (teams, runs, points)
    regret = np.einsum("t,trp->rp", sizes / plan.agents, by_team)
    counts = np.array([[len(rounds) for rounds in team.release_rounds] for team in teams])  # (teams, runs)
    per_agent = (sizes @ counts) / plan.agents
    messages, sent = _traffic(plan, teams, counts.sum(axis=1))
    return SimulationResult(
        rounds=points[counts_from:] - plan.history,
        regret=regret,
        clique_regret=by_team[:, :, -1] if plan.topology and plan.estimators[0].privatizer else None,
        release_rounds=tuple(
            tuple(sorted({at - plan.history for team in teams for at in team.release_rounds[run]}))
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
    release_size = message_size(plan.problem.dim, plan.federation.model)
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

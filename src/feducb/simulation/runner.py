"""`simulate`: settings in, result out."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from feducb.config import Budget, Mode, Problem, require_integer
from feducb.environments.base import Environment
from feducb.environments.synthetic import PaperEnvironment, bands_for_gap
from feducb.errors import ConfigurationError
from feducb.privacy.accounting import Trust
from feducb.privacy.mechanisms import MECHANISMS
from feducb.protocol.messages import message_size
from feducb.protocol.schedules import Determinant, PublicSchedule, parse_schedule
from feducb.simulation.plan import EVERYTHING, Baseline, Plan, Tuning, make_plan
from feducb.simulation.reference import BlockResult, Observer, checkpoints, run_block
from feducb.simulation.results import SimulationResult
from feducb.simulation.statement import describe_privacy, describe_theory

__all__ = ["run_plan", "simulate"]

_AGENTS_AT_ONCE = 32  # enough agents in one numpy call to hide its overhead; never a matter of threads

Progress = Callable[[int, int], None]


def simulate(
    *,
    agents: int = 10,
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
    exploration: float = 1.0,
    regularizer: float = 1.0,
    mechanism: str = "auto",
    trust: Trust = "nobody",
    tuning: Tuning = EVERYTHING,
    environment: Environment | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> SimulationResult:
    """Simulate a federation, or something to compare it with.

    Args:
        agents: M.
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
        releases: how many releases a geometric or periodic schedule spreads (64, or as many as fit).
        first_release: first round of a geometric schedule.
        gap: distance between the bands of mean rewards of the best and the other arms.
        exploration: scales the bonus; 1 is the proven bound.
        regularizer: ρ.
        mechanism: ``auto`` (dense up to 256 releases, then blt) or one of `MECHANISMS` by name; ``paper``
            mode always takes the tree.
        trust: ``nobody``, every agent adds noise, or ``controller``, which sees raw sums and adds noise once.
        tuning: which improvements of the noise and of the bound are on; for measuring each one's gain.
        environment: a world of your own in place of the paper's.
        threads: worker threads; as many as there are processors if not given.
        progress: called with (agent-steps done, agent-steps in all), from any thread.
        observer: shown every `Step`; then one thread is used.

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
    if isinstance(schedule, str):
        schedule_text = schedule
        schedule = parse_schedule(schedule, releases=releases, first_release=first_release)
    else:
        schedule_text = repr(schedule)
    require_integer("agents", agents, at_least=1)
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
        regularizer=regularizer,
        schedule=schedule,
        mechanism=mechanism,
        trust=trust,
        tuning=tuning,
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
        "exploration": exploration,
        "proven_bound": exploration >= 1.0 and not (mode == "paper" and baseline is None),
        "regularizer": regularizer,
        "trust": trust,
        "epsilon": [budget.epsilon for budget in budgets] if len(set(budgets)) > 1 else budgets[0].epsilon,
        "delta": [budget.delta for budget in budgets] if len(set(budgets)) > 1 else budgets[0].delta,
        "releases": releases,
        "first_release": first_release,
        "mechanism": mechanism,
        "environment": type(environment).__name__,
        "backend": "reference",
    }
    return run_plan(plan, config, threads=threads, progress=progress, observer=observer)


def run_plan(
    plan: Plan,
    config: dict[str, Any],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> SimulationResult:
    """Run a plan on the reference backend, blocks of runs spread over threads."""
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    require_integer("threads", threads, at_least=1)
    size = 1 if plan.determinant else max(1, _AGENTS_AT_ONCE // plan.agents)
    blocks = [range(first, min(first + size, plan.runs)) for first in range(0, plan.runs, size)]
    all_steps, done, lock = plan.runs * plan.agents * plan.horizon, 0, threading.Lock()

    def tell(steps: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done += steps
                progress(done, all_steps)

    def work(block: range) -> BlockResult:
        return run_block(plan, block, progress=tell, observer=observer)

    started = time.perf_counter()
    with _single_threaded_blas():
        if observer is not None or threads == 1 or len(blocks) == 1:
            results = [work(block) for block in blocks]
        else:
            with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
                results = list(pool.map(work, blocks))
    seconds = time.perf_counter() - started

    regret = np.cumsum(np.concatenate([result.regret for result in results]), axis=1)
    release_rounds = tuple(rounds for result in results for rounds in result.release_rounds)
    counts = [len(rounds) for rounds in release_rounds]
    messages = 2 * plan.agents * sum(counts) / plan.runs
    return SimulationResult(
        rounds=checkpoints(plan.horizon),
        regret=regret,
        release_rounds=release_rounds,
        messages=messages,
        bytes=messages * message_size(plan.problem.dim),
        seconds=seconds,
        agent_steps_per_second=all_steps / seconds,
        config=config,
        privacy=describe_privacy(plan),
        theory=describe_theory(plan, releases=counts, per_agent_regret=float(regret[:, -1].mean())),
    )


def _single_threaded_blas() -> Any:
    """One BLAS thread a worker: small matrices gain nothing from more, and sums keep their order."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # only tidies up: results depend on it neither way at these sizes
        return contextlib.nullcontext()
    return threadpool_limits(limits=1, user_api="blas")

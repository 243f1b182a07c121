"""From settings to a plan: everything a backend needs to know, resolved and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from feducb.agent import OwnDataPlay, ReleasedPlay, Rule, Trigger, UniformPlay
from feducb.config import (
    Budget,
    Mode,
    Problem,
    require_finite,
    require_integer,
    require_probability,
)
from feducb.core.confidence import CalibratedBound, OwnDataBound, PaperBound
from feducb.core.theory import default_threshold
from feducb.environments.base import Environment
from feducb.errors import ConfigurationError
from feducb.privacy.accounting import Trust, require_trust
from feducb.privacy.calibration import noise_scale, to_mu
from feducb.privacy.mechanisms import BinaryTree, choose_mechanism
from feducb.privacy.printed import PrintedConstants, printed_constants
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.schedules import Determinant, PublicSchedule, require_public

__all__ = ["Baseline", "Plan", "make_plan"]

Baseline = Literal["no-privacy", "alone", "uniform"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One simulation, resolved.

    Attributes:
        environment: the world.
        agents: M.
        horizon: T.
        runs: independent repetitions.
        seed: of all random streams.
        mode: ``calibrated`` or ``paper``.
        baseline: what is run instead of the private federation, if anything.
        alpha: α.
        exploration: scales the bonus.
        budgets: one an agent; empty where nothing private leaves.
        rule: how agents play.
        privatizer: the way out; None where nothing leaves an agent.
        release_rounds: the public rounds; empty under the determinant trigger and where nothing leaves.
        trust: who adds the noise.
        printed: the paper's constants, one an agent (``paper`` only).
        threshold: D (``paper`` only).
    """

    environment: Environment
    agents: int
    horizon: int
    runs: int
    seed: int
    mode: Mode
    baseline: Baseline | None
    alpha: float
    exploration: float
    budgets: tuple[Budget, ...]
    rule: Rule
    privatizer: Privatizer | None
    release_rounds: tuple[int, ...]
    trust: Trust = "nobody"
    printed: tuple[PrintedConstants, ...] = ()
    threshold: float | None = None

    @property
    def determinant(self) -> bool:
        """Whether private data decide when to synchronise."""
        return isinstance(self.rule, OwnDataPlay) and self.rule.trigger is not None

    @property
    def problem(self) -> Problem:
        """The public bounds."""
        return self.environment.problem


def make_plan(
    environment: Environment,
    *,
    agents: int,
    horizon: int,
    runs: int,
    seed: int,
    mode: Mode,
    baseline: Baseline | None,
    budgets: Sequence[Budget],
    alpha: float,
    exploration: float,
    regularizer: float,
    schedule: PublicSchedule | Determinant,
    mechanism: str,
    trust: Trust = "nobody",
) -> Plan:
    """Check the settings against each other and derive noise, bounds and release rounds."""
    require_integer("agents", agents, at_least=1)
    require_integer("horizon", horizon, at_least=1)
    require_integer("runs", runs, at_least=1)
    require_integer("seed", seed, at_least=0)
    require_probability("alpha", alpha)
    require_finite("exploration", exploration, at_least=0)
    require_finite("regularizer", regularizer, above=0)
    if mode not in get_args(Mode):
        raise ConfigurationError("mode", mode, "calibrated or paper")
    if baseline is not None and baseline not in get_args(Baseline):
        raise ConfigurationError("baseline", baseline, "no-privacy, alone, uniform or nothing")
    if len(budgets) != agents:
        raise ConfigurationError("budgets", f"{len(budgets)} budgets", f"one for each of {agents} agents")
    if require_trust(trust) == "controller" and mode == "paper":
        raise ConfigurationError("trust", trust, "nobody in paper mode: there every agent privatises")
    problem = environment.problem
    rounds: tuple[int, ...] = ()
    privatizer: Privatizer | None = None
    printed: tuple[PrintedConstants, ...] = ()
    threshold: float | None = None
    rule: Rule

    if baseline == "uniform":
        rule = UniformPlay()
    elif baseline == "alone":
        own = OwnDataBound(problem=problem, alpha=alpha, regularizer=regularizer)
        rule = OwnDataPlay(bound=own, prior=regularizer)
    elif baseline is None and mode == "paper":
        if isinstance(schedule, Determinant):
            releases = horizon  # §4.3, "Strategyproof Analysis": any round may ask for a synchronisation
        else:
            rounds = schedule.rounds(horizon)
            releases = len(rounds)
        printed = tuple(
            printed_constants(problem, budget, agents=agents, releases=releases, alpha=alpha)
            for budget in budgets
        )
        rule, threshold = _paper_rule(
            problem, horizon, schedule, printed, agents=agents, releases=releases, alpha=alpha
        )
        tree = BinaryTree(releases)
        privatizer = Privatizer(
            problem=problem,
            mechanism=tree,
            # σ_N at every node: the tree's own scaling is taken out again
            noise_scale=np.array([one.noise_scale for one in printed]) / np.sqrt(tree.touched),
            shift=np.array([one.shift for one in printed]),
        )
    else:
        rounds = require_public(schedule).rounds(horizon)
        private = baseline is None
        calibrated = CalibratedBound(
            problem=problem,
            alpha=alpha,
            releases=len(rounds),
            regularizer=regularizer,
            private=private,
        )
        rule = ReleasedPlay(calibrated)
        mus = {budget: to_mu(budget) for budget in set(budgets)} if private else {}
        scales = [noise_scale(problem, mus[budget]) if private else 0.0 for budget in budgets]
        if trust == "controller":  # one mechanism for all, at the least of the budgets
            scales = [max(scales)]
        privatizer = Privatizer(
            problem=problem,
            mechanism=choose_mechanism(mechanism, len(rounds)),
            noise_scale=np.array(scales),
        )
    return Plan(
        environment=environment,
        agents=agents,
        horizon=horizon,
        runs=runs,
        seed=seed,
        mode=mode,
        baseline=baseline,
        alpha=alpha,
        exploration=exploration,
        budgets=tuple(budgets) if baseline is None else (),
        rule=rule,
        privatizer=privatizer,
        release_rounds=rounds,
        trust=trust if baseline is None else "nobody",
        printed=printed,
        threshold=threshold,
    )


def _paper_rule(
    problem: Problem,
    horizon: int,
    schedule: PublicSchedule | Determinant,
    printed: Sequence[PrintedConstants],
    *,
    agents: int,
    releases: int,
    alpha: float,
) -> tuple[OwnDataPlay, float]:
    """The printed radius, prior Mρ_min and, if the schedule is the printed one, the trigger."""
    rho_min = np.array([one.rho_min for one in printed])
    rho_max = np.array([one.rho_max for one in printed])
    bound = PaperBound(
        problem=problem,
        alpha=alpha,
        agents=agents,
        releases=releases,
        rho_min=float(rho_min.sum()),
        root_rho_max=float(np.sqrt(rho_max).sum()),
        kappa=sum(one.kappa for one in printed),
    )
    threshold = default_threshold(
        problem, horizon, rho_min=float(rho_min.mean()), rho_max=float(rho_max.mean())
    )
    trigger = None
    if isinstance(schedule, Determinant):
        threshold = schedule.threshold or threshold
        trigger = Trigger(threshold=threshold, offset=float((rho_max - rho_min).sum()))
    return OwnDataPlay(bound=bound, prior=float(rho_min.sum()), trigger=trigger), threshold

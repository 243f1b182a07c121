"""The printed rule of Dubey & Pentland 2020 with exact noise: what its leaks are worth, one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from feducb.audit.invariance import ReplacedRecord, check_decisions, check_release_times
from feducb.config import Problem
from feducb.models import LINEAR
from feducb.models.confidence import PaperBound
from feducb.models.play import OwnDataPlay, Trigger
from feducb.models.theory import Spread, default_threshold
from feducb.privacy.calibration import noise_scale, to_mu
from feducb.privacy.mechanisms import BinaryTree
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation
from feducb.simulation.backends.reference_backend import ReferenceBackend
from feducb.simulation.plan import Plan, Team, make_plan
from feducb.simulation.reference import Step
from feducb.simulation.runner import run_plan
from feducb.simulation.shortcuts import LASTS, RunOptions, spell_out
from feducb.worlds.world import Environment, OwnEnvironment
from feducb_lab.experiments.prior.batches import PLAIN

__all__ = ["WaitingPlay", "printed_play"]

Array = NDArray[np.float64]
Play = Literal["trigger", "own data", "released"]


class WaitingPlay(OwnDataPlay):
    """The same bound and prior, but own records wait for their release."""

    acts_on_own_data = False


def printed_play(*, play: Play, backend: str = "reference", **setting: Any) -> dict[str, Any]:
    """The printed rule of Dubey & Pentland 2020 with exact noise, its leaks closed one by one.

    ``trigger``: as printed. ``own data``: the rounds are public. ``released``: and own records wait for their
    release. The tree, the exact noise and the form of the bound are the same in all three.

    Args:
        play: which.
        backend: not used: the readable reference plays them.
        setting: of `feducb.simulate`; ε for the noise on a fixed stream, the schedule for public rounds.

    Returns:
        The result with ``check``, what the audit saw of the rule, and ``moved``, how far replacing one record
        moved its batch, in units of what the noise is made for (public rounds only).
    """
    del backend
    federation, world, _ = spell_out(None, None, {"schedule": "geometric", "policy": "optimistic"} | setting)
    lasts = {name: setting.get(name, usual) for name, usual in LASTS.items()}
    config = {"agents": federation.agents, "dim": federation.problem.dim, "arms": world.arms} | lasts
    said = federation.as_dict()
    config |= {"play": play, "epsilon": said["epsilon"], "delta": said["delta"], "mode": "exact noise"}
    options: Any = {name: setting[name] for name in RunOptions.__annotations__ if name in setting}
    options["backend"] = ReferenceBackend()
    played = run_plan(_printed_plan(federation, world, lasts, play), config, options)
    held = play == "released"
    adversary = "interactive" if held else "a fixed stream only, NOT private against an interactive adversary"
    played = replace(played, privacy=played.privacy | {"holds": held, "adversary": adversary})
    result = played.as_dict() | {"finals": played.regret[:, -1].tolist(), "check": _audited(play)}
    if play != "trigger":
        result["moved"] = _move(federation, world.arms, lasts, play)
    return result


def _audited(play: Play) -> str:
    """What the audit's checks of the shipped rule, or of the printed one, come to."""
    if play == "trigger":
        return check_release_times({"mode": "paper", "schedule": "determinant:30", "epsilon": 1e6}).detail
    if play == "own data":
        return check_decisions({"mode": "paper", "schedule": "explicit:40,60", "epsilon": 1e6}).detail
    return check_decisions({"epsilon": 20.0, "releases": 8, "first_release": 4}).detail


def _printed_plan(asked: Federation, world: Environment, lasts: dict[str, Any], play: Play) -> Plan:
    """A plan whose only team plays the printed rule under exact noise.

    The noise of all agents' sum is at most Λ in operator norm, but for a chance α/2, so that the shift 2Λ
    leaves it between Λ and 3Λ; ‖h‖_{H⁻¹} ≤ ‖h‖/√Λ.
    """
    federation = replace(asked, mechanism="tree", tuning=PLAIN)
    plain = make_plan(federation, world, **lasts)
    problem, agents, alpha = federation.problem, federation.agents, federation.alpha
    rounds = () if play == "trigger" else plain.estimators[0].release_rounds
    tree = BinaryTree(len(rounds) or plain.horizon)
    own = noise_scale(LINEAR.radius(problem), to_mu(federation.budgets[0]))
    entry = math.sqrt(agents) * own * tree.worst_error()
    union = math.log(4.0 * tree.releases / alpha)
    least = entry * (2.0 * math.sqrt(problem.dim) + 2.0 * math.sqrt(union))
    bound = PaperBound(
        problem=problem,
        alpha=alpha,
        agents=agents,
        releases=tree.releases,
        rho_min=least,
        root_rho_max=math.sqrt(3.0 * least),
        kappa=entry * (math.sqrt(problem.dim) + math.sqrt(2.0 * union)) / math.sqrt(least),
    )
    trigger = None
    if play == "trigger":
        spread = Spread(least / agents, 3.0 * least / agents)
        trigger = Trigger(threshold=default_threshold(problem, plain.horizon, spread), offset=2.0 * least)
    rule = (WaitingPlay if play == "released" else OwnDataPlay)(bound=bound, prior=least, trigger=trigger)
    privatizer = Privatizer(
        problem=problem,
        mechanism=tree,
        noise_scale=np.full(agents, own),
        shift=np.full(agents, 2.0 * least / agents),
    )
    estimator = Estimator(rule=rule, privatizer=privatizer, release_rounds=rounds)
    return replace(plain, teams=(Team(tuple(range(agents)), (estimator,)),))


def _move(asked: Federation, arms: int, lasts: dict[str, Any], play: Play) -> float:
    """‖Δ batch‖_F/(√2 R²) where the first record of the first batch is replaced: 1 is what the noise hides.

    Two agents, one run; same coins, same noise, same visitors; the batch is compared up to its release.
    """
    problem = asked.problem
    world, other = _willing_world(problem, arms), np.zeros(problem.dim)
    other[0] = -problem.action_bound
    change = ReplacedRecord(world, 0, 1, other, problem.reward_bound)
    two, once = replace(asked, agents=2), lasts | {"runs": 1}
    before, after = (_first_batch(_printed_plan(two, one, once, play)) for one in (world, change))
    return float(np.linalg.norm(after - before)) / (math.sqrt(2.0) * LINEAR.radius(problem))


def _first_batch(plan: Plan) -> Array:
    """(d² + d,): Gram and √2 times the moment of the first batch of agent 0, without noise."""
    first = plan.estimators[0].release_rounds[0]
    dim = plan.problem.dim
    total = np.zeros(dim * dim + dim)

    def look(step: Step) -> None:
        kept = max(0, first - step.first_round + 1)
        actions, rewards = step.chosen.actions[0, 0, :kept], step.rewards[0, 0, :kept]
        gram, moment = actions.T @ actions, actions.T @ rewards
        total[:] += np.concatenate([gram.ravel(), math.sqrt(2.0) * moment])

    short = replace(plan, horizon=min(plan.horizon, first + 1))
    run_plan(short, {}, RunOptions(backend=ReferenceBackend(look), threads=1))
    return total


def _willing_world(problem: Problem, arms: int) -> OwnEnvironment:
    """Visitors in league with an adversary: all are offered ±x, and praise whatever they get."""
    candidates = np.zeros((arms, problem.dim))
    candidates[:, 0] = problem.action_bound * (-1.0) ** np.arange(arms)
    return OwnEnvironment(
        problem=problem,
        arms=arms,
        theta=np.zeros(problem.dim),
        draw=lambda generator, agent, rounds: np.tile(candidates, (rounds, 1, 1)),
        pay=lambda generator, actions, means: np.full(len(means), problem.reward_bound),
    )

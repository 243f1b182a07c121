"""A compiled backend plays what it was written for, and refuses the rest by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.models.play import Knowledge, ReleasedPlay
from feducb.policies import Greedy, Optimistic, Tempered
from feducb.privacy.mechanisms import Dense
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Determinant, Geometric
from feducb.simulation.backends.cpu import CpuBackend
from feducb.simulation.backends.gpu import GpuBackend
from feducb.simulation.plan import Plan, make_plan
from feducb.simulation.runner import run_plan
from feducb.simulation.shortcuts import RunOptions, spell_out
from feducb.worlds.synthetic import PaperEnvironment
from feducb_lab.experiments.printed_play import WaitingPlay, _printed_plan

BUDGET = feducb.Budget(epsilon=20.0, delta=1e-6)


def _plan(**changes: Any) -> Plan:
    lasts = {name: changes.pop(name, usual) for name, usual in (("horizon", 60), ("runs", 4), ("seed", 0))}
    settings: dict[str, Any] = {"agents": 3, "budget": BUDGET, "schedule": Geometric(releases=8)}
    world = PaperEnvironment(problem=Problem(dim=2), arms=4)
    return make_plan(Federation(problem=world.problem, **(settings | changes)), world, **lasts)


PLANS: dict[str, Callable[[], Plan]] = {
    "released": lambda: _plan(policy=Optimistic()),
    "tempered": lambda: _plan(policy=Tempered(0.3)),
    "no privacy": lambda: _plan(baseline="no-privacy"),
    "alone": lambda: _plan(baseline="alone"),
    "uniform": lambda: _plan(baseline="uniform"),
    "paper": lambda: _plan(mode="paper", schedule=Determinant()),
}  # fmt: skip


def _like(one: Any) -> Any:
    """The same values in a subclass that changes nothing yet: kernels cannot know that it does not."""
    kind = type(f"Other{type(one).__name__}", (type(one),), {})
    return kind(**{field.name: getattr(one, field.name) for field in fields(one) if field.init})


def _changed(plan: Plan, change: Callable[[Estimator], Estimator]) -> Plan:
    return replace(
        plan,
        teams=tuple(replace(team, estimators=tuple(map(change, team.estimators))) for team in plan.teams),
    )


def _other_rule(plan: Plan) -> Plan:
    return _changed(plan, lambda one: replace(one, rule=_like(one.rule)))


def _other_in_rule(name: str) -> Callable[[Plan], Plan]:
    def change(one: Estimator) -> Estimator:
        rule: Any = one.rule
        return replace(one, rule=replace(rule, **{name: _like(getattr(rule, name))}))

    return lambda plan: _changed(plan, change)


def _other_privatizer(plan: Plan) -> Plan:
    return _changed(plan, lambda one: replace(one, privatizer=_like(one.privatizer)))


class LazyDense(Dense):
    """A mechanism that is not ours."""


def _other_mechanism(plan: Plan) -> Plan:
    def change(one: Estimator) -> Estimator:
        assert one.privatizer is not None
        held = one.privatizer.mechanism
        assert isinstance(held, Dense)
        mechanism = LazyDense(held.releases, held.quiet, held.decay)
        return replace(one, privatizer=replace(one.privatizer, mechanism=mechanism))

    return _changed(plan, change)


def _other_policy(plan: Plan) -> Plan:
    return replace(plan, federation=replace(plan.federation, policy=_like(plan.federation.policy)))


def _greedy(plan: Plan) -> Plan:
    return replace(plan, federation=replace(plan.federation, policy=Greedy()))


def _tempered(plan: Plan) -> Plan:
    return replace(plan, federation=replace(plan.federation, policy=Tempered()))


def _other_world(plan: Plan) -> Plan:
    return replace(plan, environment=_like(plan.environment))


def _other_problem(plan: Plan) -> Plan:
    return replace(plan, environment=replace(plan.environment, problem=_like(plan.problem)))  # type: ignore[type-var]


def _fixed_arms(plan: Plan) -> Plan:
    world = feducb.FixedArms(problem=plan.problem, actions=np.eye(2), theta=np.array([0.3, 0.4]))
    return replace(plan, environment=world)


def _own_world(plan: Plan) -> Plan:
    world = feducb.OwnEnvironment(
        problem=plan.problem,
        arms=2,
        theta=np.array([0.3, 0.4]),
        draw=lambda generator, agent, rounds: np.tile(np.eye(2), (rounds, 1, 1)),
        pay=lambda generator, actions, means: means,
    )
    return replace(plan, environment=world)


bound, trigger = _other_in_rule("bound"), _other_in_rule("trigger")
FOREIGN: dict[str, tuple[str, Callable[[Plan], Plan]]] = {
    "OtherReleasedPlay": ("released", _other_rule),
    "OtherAlonePlay": ("alone", _other_rule),
    "OtherOwnDataPlay": ("paper", _other_rule),
    "OtherUniformPlay": ("uniform", _other_rule),
    "OtherPaperBound": ("paper", bound),
    "OtherTrigger": ("paper", trigger),
    "OtherPrivatizer": ("released", _other_privatizer),
    "OtherOptimistic": ("released", _other_policy),
    "OtherTempered": ("tempered", _other_policy),
    "Tempered": ("paper", _tempered),
    "Greedy": ("no privacy", _greedy),
    "OtherPaperEnvironment": ("released", _other_world),
    "OtherProblem": ("released", _other_problem),
    "FixedArms": ("uniform", _fixed_arms),
    "OwnEnvironment": ("uniform", _own_world),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_what_kernels_were_not_written_for_is_refused_by_name(name: str) -> None:
    base, change = FOREIGN[name]
    plain = PLANS[base]()
    plan = change(plain)
    for backend in (CpuBackend(), GpuBackend()):
        reason = backend.refusal(plan)
        assert reason is not None
        assert name in reason
    asked_for: tuple[Any, ...] = ("cpu", "gpu", CpuBackend())
    for asked in asked_for:
        with pytest.raises(ConfigurationError, match=rf"\b{name}\b") as raised:
            run_plan(plan, {}, RunOptions(backend=asked))
        assert "\n" not in str(raised.value)
    left_to_us, reference = (run_plan(plan, {}, RunOptions(backend=asked)) for asked in ("auto", "reference"))
    assert left_to_us.config["backend"] == "reference"
    np.testing.assert_array_equal(left_to_us.regret, reference.regret)


@pytest.mark.parametrize("name", PLANS)
def test_what_kernels_were_written_for_is_not(name: str) -> None:
    assert CpuBackend().refusal(PLANS[name]()) is None


@pytest.mark.parametrize("name", ["released", "alone"])
def test_any_bound_on_sums_will_do(name: str) -> None:
    plain = PLANS[name]()
    ours, theirs = (run_plan(plan, {}, RunOptions(backend="cpu")) for plan in (bound(plain), plain))
    np.testing.assert_array_equal(ours.regret, theirs.regret)


def test_any_mechanism_will_do() -> None:
    plain = PLANS["released"]()
    assert plain.estimators[0].privatizer is not None
    assert type(plain.estimators[0].privatizer.mechanism) is Dense
    ours, theirs = (
        run_plan(plan, {}, RunOptions(backend="cpu")) for plan in (_other_mechanism(plain), plain)
    )
    np.testing.assert_array_equal(ours.regret, theirs.regret)


def test_one_foreign_team_among_others_is_enough() -> None:
    from feducb.protocol.graphs import parse_topology

    plan = _plan(agents=4, topology=parse_topology("line:4", ttl=1))
    first, *others, last = plan.teams
    (estimator,) = last.estimators
    last = replace(last, estimators=(replace(estimator, rule=_like(estimator.rule)),))
    assert CpuBackend().refusal(plan) is None
    assert "OtherReleasedPlay" in str(CpuBackend().refusal(replace(plan, teams=(first, *others, last))))


class Restless(ReleasedPlay):
    """Learns nothing, and forgets what it knew after every round."""

    acts_on_own_data = True

    def observe(self, knowledge: Knowledge, action: Any, reward: Any) -> Knowledge:
        """Back to nothing."""
        return Knowledge()


def test_a_rule_of_ones_own_is_played_as_it_is_written() -> None:
    plain = _plan(baseline="no-privacy", horizon=200)
    plan = _changed(plain, lambda one: replace(one, rule=Restless(one.rule.bound)))  # type: ignore[attr-defined]
    forgetful, learning = run_plan(plan, {}).mean, run_plan(plain, {}).mean
    assert forgetful > 2.0 * learning


def test_own_records_that_wait_for_their_release_wait_on_every_backend() -> None:
    shape: dict[str, Any] = {"agents": 3, "dim": 2, "arms": 4, "horizon": 60, "runs": 4, "releases": 8}
    promised = {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta}
    federation, world, _ = spell_out(None, None, shape | promised | {"policy": "optimistic"})
    lasts = {"horizon": 60, "runs": 4, "seed": 0}
    plan = _printed_plan(federation, world, lasts, "released")
    assert type(plan.estimators[0].rule) is WaitingPlay
    expected = run_plan(plan, {}, RunOptions(backend="reference"))
    np.testing.assert_array_equal(run_plan(plan, {}, RunOptions(backend="auto")).regret, expected.regret)
    with pytest.raises(ConfigurationError, match="WaitingPlay"):
        run_plan(plan, {}, RunOptions(backend="cpu"))
    at_once = _printed_plan(federation, world, lasts, "own data")
    assert run_plan(at_once, {}, RunOptions(backend="cpu")).config["backend"] == "cpu"

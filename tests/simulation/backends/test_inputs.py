"""What compiled kernels are given, and what becomes of their sums, is what the plan says: digit for digit.

Records are taken as kernels return them; noise, bound, widths, exploration and the chance of the whole bonus
are worked out again from the plan, the budgets' noise through the mechanism's matrix. No statistics: an input
that is 1e-6 off fails.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import feducb
from devices import needs_gpu
from feducb.models import LINEAR
from feducb.models.play import AlonePlay, OwnDataPlay, ReleasedPlay
from feducb.models.ridge import factorise
from feducb.policies import Optimistic, Tempered
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.federation import Federation, Tuning
from feducb.protocol.schedules import parse_schedule
from feducb.simulation.backends import epochs as cpu_epochs
from feducb.simulation.backends import gpu_kernels
from feducb.simulation.backends import own_data as cpu_own_data
from feducb.simulation.backends.backend import OwnDataSettings, Stretch
from feducb.simulation.backends.cpu import CpuBackend
from feducb.simulation.backends.gpu import GpuBackend
from feducb.simulation.plan import Plan, make_plan
from feducb.types import Belief
from feducb.worlds.streams import Purpose, Streams

Array = NDArray[np.float64]

DIM, AGENTS = 3, 4
BACKENDS = pytest.mark.parametrize(
    "backend", [CpuBackend(), pytest.param(GpuBackend(), marks=needs_gpu)], ids=["cpu", "gpu"]
)


def _plan(**changes: Any) -> Plan:
    lasts = {name: changes.pop(name, usual) for name, usual in (("horizon", 120), ("runs", 2), ("seed", 3))}
    settings: dict[str, Any] = {
        "agents": AGENTS,
        "budget": [feducb.Budget(epsilon=epsilon, delta=1e-5) for epsilon in (20.0, 30.0, 40.0, 60.0)],
        "policy": Optimistic(0.7), "regularizer": 1.5, "schedule": parse_schedule("explicit:20,21,45,80,110"),
        "tuning": Tuning(patience=0.0),
    }  # fmt: skip
    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=DIM), arms=6)
    return make_plan(Federation(problem=world.problem, **(settings | changes)), world, **lasts)


def _play(backend: CpuBackend | GpuBackend, plan: Plan) -> None:
    backend.play(plan, threads=1, progress=lambda steps: None, checkpoint=None)


class Noise:
    """All noise of a team's releases, from the budgets' own scales by one matrix product."""

    def __init__(self, plan: Plan, runs: range) -> None:
        privatizer = plan.estimators[0].privatizer
        assert isinstance(privatizer, Privatizer)
        self.weight, self.shift = privatizer.reward_weight, float(np.sum(privatizer.shift))
        scale = math.sqrt(float(np.sum(np.square(privatizer.noise_scale))))
        self._rows = scale * privatizer.mechanism.decoder()
        mechanism, count = privatizer.mechanism, LINEAR.coordinates(DIM)
        streams = [Streams(plan.seed).pooled(run, 0, Purpose.NOISE) for run in runs]
        self._fresh = np.array(
            [
                np.concatenate(
                    [
                        one.standard_normal((mechanism.rows(number), count))
                        for number in range(1, mechanism.releases + 1)
                    ]
                )
                for one in streams
            ]
        )

    def add(self, number: int, gram: Array, moment: Array) -> tuple[Array, Array, Array]:
        """(runs, d, d) and (runs, d) under the noise of a release, and its variance (runs,)."""
        row = self._rows[number - 1]
        own, other = LINEAR.read(row @ self._fresh, dim=DIM, weight=self.weight, unit=math.sqrt(2.0))
        variance = np.full(len(gram), float(row @ row))
        return gram + own + self.shift * np.eye(DIM), moment + other, variance


# Agents that act on released sums.


@dataclass
class Epoch:
    """One call of a kernel: rounds, the belief it got (theta, inverse, β and b by run), sums over agents."""

    last: int
    full: float
    belief: tuple[Array, Array, Array, Array] | None
    gram: Array
    moment: Array


def _spy_on_epochs(monkeypatch: pytest.MonkeyPatch) -> list[Epoch]:
    """Every call of either backend's kernel, whichever plays; on processors sums are taken from the trace."""
    epochs: list[Epoch] = []
    on_cpu, on_gpu = cpu_epochs.fixed_epoch, gpu_kernels.GpuKernels.fixed_epoch

    def note(
        belief: Belief | None, stretch: Stretch, rounds: int, full: float, gram: Array, moment: Array
    ) -> None:
        parts = None if belief is None else astuple(belief)
        epochs.append(Epoch(stretch.first_round + rounds - 1, full, parts, gram, moment))

    def cpu(world: Any, belief: Belief | None, stretch: Stretch, rounds: int, **given: Any) -> Any:
        result = on_cpu(world, belief, stretch, rounds, **(given | {"traced": True}))
        assert result.trace is not None
        rewards, actions = result.trace[..., 2], result.trace[..., 3:]
        gram = np.einsum("ratd,rate->rde", actions, actions)
        note(belief, stretch, rounds, given["full"], gram, np.einsum("rat,ratd->rd", rewards, actions))
        return result

    def gpu(kernels: Any, belief: Belief | None, stretch: Stretch, rounds: int, **given: Any) -> Any:
        result = on_gpu(kernels, belief, stretch, rounds, **given)
        note(belief, stretch, rounds, given["full"], result.gram, result.moment)
        return result

    monkeypatch.setattr(cpu_epochs, "fixed_epoch", cpu)
    monkeypatch.setattr(gpu_kernels.GpuKernels, "fixed_epoch", gpu)
    return epochs


RELEASED: dict[str, dict[str, Any]] = {
    "budgets of their own": {},
    "tree": {"mechanism": "tree"},
    "trusted controller": {"trust": "controller"},
    "no privacy": {"baseline": "no-privacy"},
    "tempered": {"policy": Tempered(0.3)},
}


@BACKENDS
@pytest.mark.parametrize("case", RELEASED)
def test_beliefs_are_those_of_the_bound_on_sums_under_the_budgets_noise(
    case: str, backend: CpuBackend | GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(**RELEASED[case])
    epochs = _spy_on_epochs(monkeypatch)
    _play(backend, plan)
    estimator = plan.estimators[0]
    rule, rounds = estimator.rule, estimator.release_rounds
    assert isinstance(rule, ReleasedPlay)
    noise = Noise(plan, range(plan.runs))
    gram, moment = np.zeros((plan.runs, DIM, DIM)), np.zeros((plan.runs, DIM))
    expected: Belief | None = None
    read = 0
    exploration, full = (1.0, 0.3) if case == "tempered" else (0.7, 1.0)
    for epoch in epochs:
        assert epoch.full == full
        assert (epoch.belief is None) == (expected is None)
        if expected is not None and epoch.belief is not None:
            parts = (
                expected.centre(exploration),
                expected.inverse,
                exploration * expected.ellipsoid_width,
                exploration * expected.euclidean_width,
            )
            for ours, theirs in zip(epoch.belief[:4], parts, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
        gram, moment = gram + epoch.gram, moment + epoch.moment
        if epoch.last in rounds:
            number = rounds.index(epoch.last) + 1
            if number >= rule.first:
                expected = rule.bound.belief(*noise.add(number, gram, moment))
                read += 1
    assert read >= 3


@BACKENDS
def test_alone_beliefs_are_those_of_the_bound_on_own_sums(
    backend: CpuBackend | GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(baseline="alone", horizon=400)
    epochs = _spy_on_epochs(monkeypatch)
    _play(backend, plan)
    rule, players = plan.estimators[0].rule, plan.runs * AGENTS
    assert isinstance(rule, AlonePlay)
    gram, moment, expected = np.zeros((players, DIM, DIM)), np.zeros((players, DIM)), None
    for epoch in epochs:
        assert (epoch.belief is None) == (expected is None)
        if expected is not None and epoch.belief is not None:
            widths = 0.7 * expected.ellipsoid_width, 0.7 * expected.euclidean_width
            parts = expected.centre(0.7), expected.inverse, *widths
            for ours, theirs in zip(epoch.belief[:4], parts, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
        gram, moment = gram + epoch.gram, moment + epoch.moment
        if rule.reads_at(epoch.last):
            expected = rule.bound.belief(gram, moment, np.zeros(players))
    assert expected is not None


# Agents that act on their own data.


@dataclass
class OwnData:
    """What the kernels of one run got: S each time it was replaced, records before it; widths, trigger."""

    bases: list[tuple[Array, Array]] = field(default_factory=list)
    batches: list[tuple[Array, Array]] = field(default_factory=list)
    widths: set[tuple[float, float, float, float]] = field(default_factory=set)
    trigger: set[tuple[float, float]] = field(default_factory=set)

    def note(self, settings: OwnDataSettings) -> None:
        scale = settings.exploration
        widths = scale * settings.constant, scale * settings.euclidean
        self.widths.add((scale * settings.noise_scale, settings.logarithm, *widths))
        self.trigger.add((settings.threshold, settings.offset))


def _spy_on_own_data(monkeypatch: pytest.MonkeyPatch) -> OwnData:
    seen = OwnData()
    start, step = cpu_own_data.own_data, cpu_own_data.own_data_steps
    runs = gpu_kernels.OwnDataRuns
    prepare, restart, pending = runs.__init__, runs.restart, runs.pending

    def cpu_start(settings: OwnDataSettings, gram: Array, moment: Array) -> Any:
        assert np.all(gram == gram[:1])
        assert np.all(moment == moment[:1])
        seen.bases.append((gram[0].copy(), moment[0].copy()))
        seen.batches.append((np.zeros((DIM, DIM)), np.zeros(DIM)))
        return start(settings, gram, moment)

    def cpu_step(world: Any, state: Any, stretch: Stretch, rounds: int, **given: Any) -> Any:
        result = step(world, state, stretch, rounds, **(given | {"traced": True}))
        rewards, actions = result.trace[0, :, :, 2], result.trace[0, :, :, 3:]
        gram, moment = seen.batches[-1]
        gram += np.einsum("atd,ate->de", actions, actions)
        moment += np.einsum("at,atd->d", rewards, actions)
        seen.note(state.settings)
        return result

    def gpu_start(self: Any, kernels: Any, rule: OwnDataPlay, stretch: Stretch, **given: Any) -> None:
        prepare(self, kernels, rule, stretch, **given)
        sigma, logarithm, constant, euclidean, threshold, offset = kernels.cupy.asnumpy(
            self._numbers
        ).tolist()
        seen.widths.add((sigma, logarithm, constant, euclidean))
        seen.trigger.add((threshold, offset) if self.watched else (math.inf, 0.0))

    def gpu_restart(self: Any, places: Any, gram: Array, moment: Array) -> None:
        if seen.bases:
            pending_gram, pending_moment = pending(self, places)
            seen.batches.append((pending_gram[0].sum(axis=0), pending_moment[0].sum(axis=0)))
        seen.bases.append((gram[0].copy(), moment[0].copy()))
        restart(self, places, gram, moment)

    monkeypatch.setattr(cpu_own_data, "own_data", cpu_start)
    monkeypatch.setattr(cpu_own_data, "own_data_steps", cpu_step)
    monkeypatch.setattr(runs, "__init__", gpu_start)
    monkeypatch.setattr(runs, "restart", gpu_restart)
    return seen


def _printed(schedule: str) -> dict[str, Any]:
    budgets = [feducb.Budget(epsilon=epsilon, delta=1e-5) for epsilon in (1e5, 2e5, 3e5, 5e5)]
    return {"mode": "paper", "schedule": parse_schedule(schedule), "budget": budgets}


OWN: dict[str, dict[str, Any]] = {
    "printed, public rounds": _printed("explicit:20,21,45,80,110"),
    "printed, trigger": _printed("determinant:20"),
}


@BACKENDS
@pytest.mark.parametrize("case", OWN)
def test_own_data_is_played_on_sums_under_the_budgets_noise_with_the_bounds_widths(
    case: str, backend: CpuBackend | GpuBackend, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    plan = _plan(runs=1, **OWN[case])
    seen = _spy_on_own_data(monkeypatch)
    _play(backend, plan)
    rule = plan.estimators[0].rule
    assert isinstance(rule, OwnDataPlay)

    ((sigma, logarithm, constant, euclidean),) = seen.widths
    for size in (5, 50, 500):
        factor = rng.standard_normal((DIM, size))
        ridge = factorise(factor @ factor.T + rule.prior * np.eye(DIM), rng.standard_normal(DIM))
        belief = rule.bound.belief(ridge)
        width = sigma * math.sqrt(max(logarithm + float(ridge.log_det), 0.0)) + constant
        assert width == pytest.approx(plan.exploration * float(belief.ellipsoid_width), rel=1e-12)
        assert euclidean == pytest.approx(plan.exploration * float(belief.euclidean_width), rel=1e-12)
    asked_at = (math.inf, 0.0) if rule.trigger is None else (rule.trigger.threshold, rule.trigger.offset)
    assert seen.trigger == {asked_at}

    np.testing.assert_allclose(seen.bases[0][0], rule.prior * np.eye(DIM), rtol=1e-12)
    np.testing.assert_array_equal(seen.bases[0][1], np.zeros(DIM))
    assert len(seen.bases) >= 4
    noise, gram, moment = Noise(plan, range(1)), np.zeros((1, DIM, DIM)), np.zeros((1, DIM))
    for number, (base, batch) in enumerate(zip(seen.bases[1:], seen.batches, strict=False), start=1):
        gram, moment = gram + batch[0], moment + batch[1]
        expected_gram, expected_moment, _ = noise.add(number, gram, moment)
        np.testing.assert_allclose(base[0], expected_gram[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(base[1], expected_moment[0], rtol=1e-6, atol=1e-6)

"""Earlier private algorithms beside ours, at one and the same privacy: what is played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from feducb_lab.experiments.experiment import SIMULATE, Figure, Point, Scale
from feducb_lab.experiments.figures import prior_words
from feducb_lab.experiments.figures.prior_words import (
    ALONE,
    AMPLIFIED,
    AMPLIFIED_SILOS,
    CLIENTS,
    CONTROLLER,
    CORE_CENTRAL,
    CORE_SHUFFLED,
    CORE_SILOS,
    CORRELATED,
    DELTA,
    EPSILON,
    FIXED,
    FRESH,
    KEEPERS,
    NO_PRIVACY,
    NOBODY,
    PEOPLE,
    PROVEN,
    SIFTING,
    SILOS,
    SINGLE,
    TUNED,
    UNIFORM,
    VECTOR_SUM,
    VECTOR_SUM_SILOS,
    WEIGHTED_JOINT,
    WEIGHTED_SILOS,
)

__all__ = ["FIGURE"]

_PRIOR = "feducb_lab.experiments.prior."
_OURS = {NOBODY: "nobody", KEEPERS: "keepers", CONTROLLER: "controller"}
_REFERENCES = {ALONE: "alone", NO_PRIVACY: "no-privacy", UNIFORM: "uniform"}
Lengths = tuple[int, ...]
_FEW, _MANY = 4, 40  # runs


class _Sheet:
    """Points of one world."""

    def __init__(self, world: str, **setting: Any) -> None:
        self._world = world
        self._setting = setting | {"seed": 7, "epsilon": EPSILON, "delta": DELTA}

    def point(self, who: str, player: str = SIMULATE, **more: Any) -> Point:
        """One point; what is tuned is told in the label."""
        tuned = {name: more[name] for name in TUNED if name in more}
        words = ", ".join(_BOUNDS.get(value) or f"{name} {value:g}" for name, value in tuned.items())
        label = {"world": self._world, "T": self._setting["horizon"], "who": who, "tuned": words}
        return Point(label, self._setting | more, player if player == SIMULATE else _PRIOR + player)

    def each(self, who: str, player: str, grid: dict[str, tuple[Any, ...]], **more: Any) -> Iterator[Point]:
        """One point for each way to tune it."""
        ways: list[dict[str, Any]] = [{}]
        for name, values in grid.items():
            ways = [way | {name: value} for way in ways for value in values]
        return (self.point(who, player, **more, **way) for way in ways)


_BOUNDS = {"closed form": "its own bound", "ours": "our bound"}


def _fresh(horizon: int, scale: Scale) -> Iterator[Point]:
    """The paper's world: fresh contexts; batches are tuned in rounds for each T."""
    runs, large = (_FEW if scale == "quick" else _MANY), horizon > 10_000
    sheet = _Sheet(FRESH, agents=100, dim=10, arms=100, horizon=horizon, runs=runs)
    for who, trust in _OURS.items():
        yield sheet.point(who, trust=trust)
    for who, baseline in _REFERENCES.items():
        lone: dict[str, Any] = {
            "agents": 2 if large else 5,
            "runs": _MANY,
        }  # agents of a run are as good as runs
        yield sheet.point(who, baseline=baseline, **(lone if who == ALONE else {}))
    batched, shuffled = "zhou_chowdhury:fixed_batch", "chowdhury_zhou:shuffled_batch"

    def tuned(who: str, player: str, ours: Lengths, own: Lengths, **more: Any) -> Iterator[Point]:
        """Batches of such lengths in 10,000 rounds: by our bound, and fewer by its own."""
        lengths = tuple(length * horizon // 10_000 for length in ours)
        yield from sheet.each(who, player, {"batch": lengths, "bound": ("ours",)}, **more)
        if not large:  # that is slow to play there, and loses several times as much here
            yield from sheet.each(who, player, {"batch": own, "bound": ("closed form",)}, **more)

    yield from tuned(SILOS, batched, (60, 100, 200, 300, 1000), (100, 300, 1000))
    yield from tuned(AMPLIFIED_SILOS, batched, (60, 100, 200, 300), (1000,), protocol="amplified")
    summed = (10, 15, 20, 30, 60, 100)
    yield from tuned(VECTOR_SUM_SILOS, batched, summed, (20, 60, 100), protocol="vector sum")
    if not large:  # it hardly learns, and that is slow to play
        wide = (300, 500, 1000, 2000)
        yield from tuned(AMPLIFIED, shuffled, wide, (1000, 2000), protocol="amplified")
    yield from tuned(VECTOR_SUM, shuffled, summed, (20, 60, 100), protocol="vector sum")
    yield from tuned(SINGLE, "shariff_sheffet:single_agent", (300, 1000, 1500, 2000, 3000), (1000, 3000))


def _correlated(scale: Scale) -> Iterator[Point]:
    """Contexts that are long in few directions, where weights should tell."""
    quick = scale == "quick"
    setting: dict[str, Any] = {"agents": 100, "dim": 10, "arms": 20, "horizon": 500 if quick else 1000}
    sheet = _Sheet(CORRELATED, **setting, environment="correlated", runs=_FEW if quick else _MANY)
    for who, trust in _OURS.items():
        yield sheet.point(who, trust=trust)
    for who, baseline in _REFERENCES.items():
        lone: dict[str, Any] = {"agents": 10} if who == ALONE else {}
        yield sheet.point(who, baseline=baseline, **lone)
    epochs = "reweighted:reweighted_epochs"
    joint = {"first": (10, 20, 40), "ridge": (1.0, 3.0, 10.0)}
    silos = {"first": (50, 80, 120), "ridge": (3.0, 10.0, 30.0)}
    yield from sheet.each(WEIGHTED_JOINT, epochs, joint, trust="controller")
    yield from sheet.each(WEIGHTED_SILOS, epochs, silos, trust="nobody")


def _fixed(scale: Scale) -> Iterator[Point]:
    """Fixed actions: one reward is protected, or ten of a person."""
    quick = scale == "quick"
    setting = {"agents": 50, "dim": 5, "arms": 30, "horizon": 2000, "runs": _FEW if quick else _MANY}
    one, people = _Sheet(FIXED, **setting), _Sheet(PEOPLE, **setting)
    ours = "fixed_set:ours_on_a_fixed_set"
    for who, baseline in _REFERENCES.items():
        yield one.point(who, ours, baseline=baseline)
    for who, trust in _OURS.items():
        yield one.point(who, ours, trust=trust)
        yield one.point(who + SIFTING, ours, trust=trust, policy="sifting")
    phases: dict[str, tuple[Any, ...]] = {"growth": (1.7,), "boldness": (PROVEN, 2.0, 4.0, 8.0, 16.0)}
    short, long = {"first": (5, 10, 20, 40)}, {"first": (10, 20, 40, 80)}
    yield from one.each(CORE_CENTRAL, "hanna:core_set", short | phases, trust="controller")
    yield from one.each(CORE_SHUFFLED, "hanna:core_set", short | phases, trust="shuffler")
    yield from one.each(CORE_SILOS, "hanna:core_set", long | phases, trust="nobody")
    tens = {"records_per_person": 10}
    for who in (CONTROLLER, KEEPERS):
        yield people.point(who, ours, trust=_OURS[who], **tens)
        yield people.point(who + SIFTING, ours, trust=_OURS[who], policy="sifting", **tens)
    doubling = long | phases | {"growth": (1.7, 2.0)}
    yield from people.each(
        CLIENTS, "li_zhou_ji:distributed_elimination", doubling, trust="controller", **tens
    )


def _points(scale: Scale) -> list[Point]:
    points = list(_fresh(10_000, scale))
    if scale == "full":
        points += _fresh(100_000, scale)
    return [*points, *_correlated(scale), *_fixed(scale)]


FIGURE = Figure(
    name="prior",
    title="Earlier private algorithms at equal privacy",
    question=(
        "At one and the same (1, 1e-6) for the whole stream, the same neighbours and the same trust: what do "
        "earlier private algorithms lose, each where it applies and at its best, and what does ours?"
    ),
    points=_points,
    draw=prior_words.draw,
    text=prior_words.text,
    table=prior_words.table,
)

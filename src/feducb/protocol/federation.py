"""`Federation`: who learns together, under which promise, how and when; frozen and validated once.

Everything that plays (simulation, deployed agents, evaluation) takes it whole. What is not in it is not the
federation's: the world, how long it lasts, and on what it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from feducb.config import Budget, Mode, Problem, require_finite, require_integer, require_probability
from feducb.errors import ConfigurationError
from feducb.interfaces import Contexts
from feducb.models import LINEAR, Model, require_model, with_contexts
from feducb.policies import Optimistic, Policy, Tempered, parse_policy
from feducb.privacy.mechanisms import MECHANISMS, Mechanism, person_reach
from feducb.protocol.graphs import Topology
from feducb.protocol.schedules import Determinant, Planned, PublicSchedule, require_public
from feducb.trust import NOBODY, Trust, require_trust

__all__ = ["EVERYTHING", "Baseline", "EstimatorsKept", "Federation", "Play", "Tuning"]

Baseline = Literal["no-privacy", "alone", "uniform"]
EstimatorsKept = Literal["paper", "one"]
Play = Literal["released", "own"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """Which improvements are on, to measure each (the defaults are all)."""

    simulated: bool = True  # the threshold from the simulated joint law of noise; else a union over releases
    weighted: bool = True  # noise split by `Model.weight`; else equal
    # A sum is read once the confidence set that records spread evenly would leave has half-axes of S/patience
    # or less; 0 reads all.
    patience: float = 1.2
    quiet: bool = True  # give the releases that nobody reads next to no budget (`Dense.quiet`)
    by_use: bool = True  # spread noise over releases by how long each is acted on (`Dense.decay`)
    shares: tuple[float, float] = (0.95, 0.05)  # of α for noise of rewards and privacy, and for the Gram


EVERYTHING = Tuning()
_BUDGET = Budget(epsilon=1.0, delta=1e-6)
_SCHEDULE = Planned()


@dataclass(frozen=True, kw_only=True, slots=True)
class Federation:
    """A federation, or a baseline to compare it with.

    Attributes:
        problem: the public bounds of the linear bandit.
        agents: M.
        budget: of every agent, or a budget for each; equal budgets are kept as one.
        records_per_person: how many records one person may have: at an agent, or, where the controller is
            trusted, at each of ``agents_per_person``. Noise is so many times larger, and planned for.
        agents_per_person: how many agents one person visits, where one noise covers all of them.
        spacing: any two records of a person at an agent are in releases at least so many apart; 0: anywhere.
            Noise is less then (`reach`). Simulated people come once: what it costs in records is not seen.
        trust: who adds the noise (`feducb.trust`); its name will do.
        mechanism: ``auto`` (dense up to 256 releases, then blt) or one of `MECHANISMS` by name; ``paper``
            mode always takes the tree.
        schedule: when agents release.
        topology: a graph of agents in place of a controller.
        estimators: on a graph: ``paper``, γ per agent, used in turn, or ``one``.
        mode: ``calibrated``, private and proven, or ``paper``, printed constants, for comparison only.
        baseline: instead of the private federation: ``no-privacy``, ``alone`` or ``uniform``.
        alpha: α, the chance that the confidence bound fails anywhere.
        policy: how agents choose (`feducb.policies`); text will do (`parse_policy`). If not given
            tempered, or in ``paper`` mode optimistic, as printed. Compiled backends play these two alone.
        regularizer: ρ/L², how many records of each direction the confidence set begins with.
        tuning: which improvements of the noise and of the bound are on; for measuring each one's gain.
        model: what is learnt (`feducb.models`); its name will do. Compiled backends play the linear one.
        play: ``released``, decisions look at released sums alone, to the end; or ``own``, until all have made
            their last release, and from then on at own raw records and the others' sum: more is learnt, and
            an agent's own visitors are protected against all but each other.
        distance: under ``own``, by how much θ* of two sites may differ, over S: 0, all are alike; None, not
            known (`closing`).
        contexts: ``public`` protects rewards alone: actions and contexts are known to everybody.

    Guarantees:
        A schedule that reads private data is refused, but in ``paper`` mode, which promises nothing.
    """

    problem: Problem
    agents: int
    budget: Budget | Sequence[Budget] = _BUDGET
    records_per_person: int = 1
    agents_per_person: int = 1
    spacing: int = 0
    trust: Trust = NOBODY
    mechanism: str = "auto"
    schedule: PublicSchedule | Planned | Determinant = _SCHEDULE
    topology: Topology | None = None
    estimators: EstimatorsKept = "paper"
    mode: Mode = "calibrated"
    baseline: Baseline | None = None
    alpha: float = 0.1
    policy: Policy = None  # type: ignore[assignment]  # there is one once it is made
    regularizer: float = 20.0
    tuning: Tuning = EVERYTHING
    model: Model = LINEAR
    contexts: Contexts = "private"
    play: Play = "released"
    distance: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise ConfigurationError("problem", self.problem, "a Problem")
        require_integer("agents", self.agents, at_least=1)
        require_probability("alpha", self.alpha)
        require_finite("regularizer", self.regularizer, above=0)
        require_integer("records_per_person", self.records_per_person, at_least=1)
        require_integer("agents_per_person", self.agents_per_person, at_least=1)
        if require_integer("spacing", self.spacing, at_least=0) and self.records_per_person == 1:
            raise ConfigurationError("spacing", self.spacing, "0 where a person has one record")
        object.__setattr__(self, "trust", require_trust(self.trust))
        if not self.trust.leaves:
            expected = "one under which agents share; the baseline alone is what agents are without"
            raise ConfigurationError("trust", self.trust.name, expected)
        if self.baseline is None:  # on a graph each clique has its own numbers
            central = self.topology is None
            trust = self.trust.among(self.agents) if central else self.trust.on_graph()
            object.__setattr__(self, "trust", trust)
        object.__setattr__(self, "model", with_contexts(require_model(self.model), self.contexts))
        object.__setattr__(self, "contexts", self.model.contexts)
        self.model.coordinates(self.problem.dim)  # or it is none for this d
        if self.mode not in get_args(Mode):
            raise ConfigurationError("mode", self.mode, "calibrated or paper")
        usual = "optimistic" if self.mode == "paper" else "tempered"
        object.__setattr__(self, "policy", parse_policy(usual if self.policy is None else self.policy))
        if self.baseline is not None and self.baseline not in get_args(Baseline):
            raise ConfigurationError("baseline", self.baseline, "no-privacy, alone, uniform or nothing")
        if self.mechanism != "auto" and self.mechanism not in MECHANISMS:
            expected = f"one of auto, {', '.join(sorted(MECHANISMS))}"
            raise ConfigurationError("mechanism", self.mechanism, expected)
        if self.estimators not in get_args(EstimatorsKept):
            raise ConfigurationError("estimators", self.estimators, "paper or one")
        self._require_budgets()
        self._require_graph()
        self._require_play()
        if self.mode == "paper":
            self._require_printed()
        elif self.baseline in (None, "no-privacy"):
            require_public(self.schedule)

    def _require_budgets(self) -> None:
        if isinstance(self.budget, Budget):
            return
        budgets = tuple(self.budget)
        if len(budgets) != self.agents:
            expected = f"one for each of {self.agents} agents"
            raise ConfigurationError("budgets", f"{len(budgets)} budgets", expected)
        wrong = next((one for one in budgets if not isinstance(one, Budget)), None)
        if wrong is not None:
            raise ConfigurationError("budgets", wrong, "a Budget for each agent")
        object.__setattr__(self, "budget", budgets[0] if len(set(budgets)) == 1 else budgets)

    def _require_graph(self) -> None:
        graph = self.topology
        if graph is None:
            if self.estimators == "one":
                raise ConfigurationError("estimators", self.estimators, "a topology beside it")
            return
        if graph.agents != self.agents:
            expected = f"nothing, or {graph.agents} as in the topology {graph.name}"
            raise ConfigurationError("agents", self.agents, expected)
        self.trust.refuse("topology", "trust", self.trust.name)

    def _require_play(self) -> None:
        """Own records may be looked at only after a close that is the same for all."""
        if self.play not in get_args(Play):
            raise ConfigurationError("play", self.play, "released or own")
        if self.distance is not None:
            if self.play == "released":
                raise ConfigurationError("distance", self.distance, "own play beside it")
            if require_finite("distance", self.distance, at_least=0) > 2.0:
                raise ConfigurationError("distance", self.distance, "at most 2: no two θ* are further apart")
        if self.play == "own" and self.topology is not None:
            raise ConfigurationError(
                "play", self.play, "released on a graph: its agents have no common close"
            )
        if self.play == "own" and self.mode == "paper":
            raise ConfigurationError(
                "play", self.play, "released in paper mode, which acts on own data anyway"
            )

    def _require_printed(self) -> None:
        """What the printed constants were not printed for."""
        if self.baseline is not None:
            expected = f"calibrated, since the baseline {self.baseline} has no paper mode"
            raise ConfigurationError("mode", self.mode, expected)
        if self.mechanism not in ("auto", "tree"):
            raise ConfigurationError("mechanism", self.mechanism, "tree (or auto) in paper mode")
        self.trust.refuse("paper mode", "trust", self.trust.name)
        if self.records_per_person > 1:
            expected = "1 in paper mode: its noise is printed for one record"
            raise ConfigurationError("records_per_person", self.records_per_person, expected)
        if self.estimators == "one":
            expected = "paper in paper mode: one is for calibrated mode"
            raise ConfigurationError("estimators", self.estimators, expected)

    @property
    def prior(self) -> float:
        """ρ."""
        return self.regularizer * self.problem.action_bound**2

    def reach(self, mechanism: Mechanism | None) -> float:
        """How far a person's records move the stream, in moves of one: as `Terms.reach`.

        Before there is a mechanism, as far as they could if they were anywhere.
        """
        if mechanism is None:
            return float(self.trust.records_covered(self.records_per_person, self.agents_per_person))
        agents = self.trust.records_covered(1, self.agents_per_person)
        return agents * person_reach(mechanism, self.records_per_person, self.spacing)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """A budget for each agent."""
        return (self.budget,) * self.agents if isinstance(self.budget, Budget) else tuple(self.budget)

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """Who adds up releases with whom: everybody, or a clique each."""
        return (tuple(range(self.agents)),) if self.topology is None else self.topology.cliques

    @property
    def groups(self) -> int:
        """How many estimators an agent keeps and uses in turn."""
        return 1 if self.topology is None or self.estimators == "one" else self.topology.ttl

    def as_dict(self) -> dict[str, Any]:
        """As plain data, as results state it."""
        graph, budget, policy = self.topology, self.budget, self.policy
        # The optimistic policy went without saying before there were others: its exploration names it.
        exploration = policy.exploration if type(policy) is Optimistic else None
        one, planned = isinstance(budget, Budget), isinstance(self.schedule, Planned)
        return {
            "agents": self.agents,
            "dim": self.problem.dim,
            "mode": self.mode,
            "baseline": self.baseline,
            "alpha": self.alpha,
            "schedule": repr(self.schedule),
            "exploration": exploration,
            **({} if exploration is not None else {"policy": repr(policy)}),
            "proven_bound": self.mode == "calibrated"
            and (type(policy) is Tempered or (exploration or 0.0) >= 1.0),
            "regularizer": self.regularizer,
            "trust": self.trust.name,
            "records_per_person": self.records_per_person,
            **({} if self.agents_per_person == 1 else {"agents_per_person": self.agents_per_person}),
            **({"spacing": self.spacing} if self.spacing else {}),
            "topology": None if graph is None else graph.name,
            "ttl": None if graph is None else graph.ttl,
            "estimators": None if graph is None else self.estimators,
            "epsilon": budget.epsilon if one else [each.epsilon for each in self.budgets],  # type: ignore[union-attr]
            "delta": budget.delta if one else [each.delta for each in self.budgets],  # type: ignore[union-attr]
            "releases": None if planned else getattr(self.schedule, "releases", None),
            "first_release": getattr(self.schedule, "first", None),
            "mechanism": self.mechanism,
            **({} if self.play == "released" else {"play": self.play, "distance": self.distance}),
            **({} if self.model == LINEAR else {"model": self.model.name}),
        }

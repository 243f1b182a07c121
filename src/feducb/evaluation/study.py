"""How policies are compared: budgets, trust, folds, repeats, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from feducb.config import Budget, Problem, require_finite, require_integer, require_probability
from feducb.errors import ConfigurationError
from feducb.models import LINEAR, KnownZeros, Model
from feducb.policies import Policy, parse_policy
from feducb.protocol.federation import Federation, Play
from feducb.protocol.schedules import Geometric, Planned, PublicSchedule, require_public
from feducb.trust import CONTROLLER, NOBODY, Trust, require_trust
from feducb.worlds.data.data_set import Spread

__all__ = ["Online", "Study", "describe_model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """How to compare.

    Attributes:
        epsilons: of the private federations.
        delta: theirs.
        trusts: who adds the noise, one federation each; names will do.
        releases: how often agents release while they learn; None: 8 on a log, as planned online.
        folds: parts of the log.
        repeats: how often folds and noise are drawn; None: 20, or 1 from 200,000 rows on.
        records_per_agent: learn from about so many records of each agent, drawn anew in each repeat, and
            value on all; online, play so many rounds at most. None: from all.
        alpha: α of the confidence bounds.
        policy: how agents choose in ``played`` rows, as an object or as text (`parse_policy`).
        level: of the intervals.
        spread: intervals from the spread over records, or over agents where records of one agent are alike;
            None: as is usual for the source, else over records.
        seed: of folds, noise and replay's coins.
        play: what private federations look at, ``released`` sums alone or, once all have made their last
            release, ``own`` records as well (`Federation.play`).
        distance: as `Federation.distance`.
        federation: compare this one instead of those of ``epsilons``, ``delta``, ``trusts``, ``alpha``,
            ``policy``, ``play`` and ``distance``; unless ``releases`` are given, when it releases is also its
            own.
    """

    epsilons: tuple[float, ...] = (1.0, 8.0)
    delta: float = 1e-6
    trusts: tuple[Trust, ...] = (NOBODY, CONTROLLER)
    releases: int | None = None
    folds: int = 5
    repeats: int | None = None
    records_per_agent: int | None = None
    alpha: float = 0.1
    level: float = 0.95
    spread: Spread | None = None
    seed: int = 0
    policy: str | Policy = "tempered"
    play: Play = "released"
    distance: float | None = None
    federation: Federation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "trusts", tuple(require_trust(trust) for trust in self.trusts))
        require_integer("folds", self.folds, at_least=2)
        require_integer("seed", self.seed, at_least=0)
        for name in ("releases", "repeats", "records_per_agent"):
            if getattr(self, name) is not None:
                require_integer(name, getattr(self, name), at_least=1)
        require_probability("alpha", self.alpha)
        require_probability("level", self.level)
        for epsilon in self.epsilons:
            Budget(epsilon=epsilon, delta=self.delta)
        parse_policy(self.policy)
        if self.federation is not None:
            self._take_from(self.federation)
        if self.spread is not None and self.spread not in get_args(Spread):
            raise ConfigurationError("spread", self.spread, "records or agents")

    def _take_from(self, federation: Federation) -> None:
        """What the federation says counts; it must be one that can be learnt from a log."""
        if federation.baseline is not None:
            expected = "nothing: baselines are compared anyway"
            raise ConfigurationError("baseline", federation.baseline, expected)
        if federation.mode != "calibrated":
            expected = "calibrated: the printed constants promise nothing"
            raise ConfigurationError("mode", federation.mode, expected)
        if federation.topology is not None:
            expected = "none: sums here are of all agents"
            raise ConfigurationError("topology", federation.topology.name, expected)
        if federation.model != LINEAR and not isinstance(federation.model, KnownZeros):
            raise ConfigurationError("model", federation.model.name, "linear: sums here are for no other")
        taken = {
            "epsilons": tuple(sorted({budget.epsilon for budget in federation.budgets})),
            "delta": max(budget.delta for budget in federation.budgets),
            "trusts": (federation.trust,),
            "alpha": federation.alpha,
            "policy": federation.policy,
            "play": federation.play,
            "distance": federation.distance,
        }
        for name, value in taken.items():
            object.__setattr__(self, name, value)

    def describe_records(self) -> dict[str, Any]:
        """For the settings in a result; all goes unsaid."""
        most = self.records_per_agent
        return {} if most is None else {"records_per_agent": most}

    def describe_play(self) -> dict[str, Any]:
        """For the settings in a result."""
        own = {} if self.play == "released" else {"play": self.play, "distance": self.distance}
        return {"policy": repr(parse_policy(self.policy)), **own}

    @property
    def schedule(self) -> PublicSchedule | Planned:
        """When agents release where they are played online."""
        if self.releases is not None:
            return Geometric(releases=self.releases)
        return Planned() if self.federation is None else require_public(self.federation.schedule)

    def federations(
        self, problem: Problem, agents: int, *, model: Model = LINEAR
    ) -> tuple[Federation, list[Federation]]:
        """One without privacy, and the private ones, for the problem and the agents of a source.

        Args:
            problem: the source's public bounds.
            agents: how many it has.
            model: what its recipe's agents learn (`features.model_of`), a given federation's too: known zeros
                are not released.

        Raises:
            ConfigurationError: the federation to compare is of another problem, of other agents, or of
                zeros that the source's vectors do not have.
        """
        if self.federation is None:
            schedule, policy = self.schedule, parse_policy(self.policy)
            usual = Federation(
                problem=problem,
                agents=agents,
                model=model,
                alpha=self.alpha,
                schedule=schedule,
                policy=policy,
                play=self.play,
                distance=self.distance,
            )
            private = [
                replace(usual, budget=Budget(epsilon=epsilon, delta=self.delta), trust=trust)
                for epsilon in self.epsilons
                for trust in self.trusts
            ]
            return replace(usual, baseline="no-privacy"), private
        if self.federation.problem != problem:
            raise ConfigurationError("problem", self.federation.problem, f"{problem}, as in the source")
        if self.federation.agents != agents:
            raise ConfigurationError("agents", self.federation.agents, f"{agents}, as in the source")
        if self.federation.model not in (LINEAR, model):
            known = "linear" if model == LINEAR else f"linear or {model.name}, as in the source"
            raise ConfigurationError("model", self.federation.model.name, known)
        asked = replace(self.federation, schedule=self.schedule, model=model)
        return replace(asked, baseline="no-privacy", trust=NOBODY), [asked]


@dataclass(frozen=True, kw_only=True, slots=True)
class Online:
    """How data are played whose rewards are all known.

    Attributes:
        runs: orders of the records, and draws of the noise.
        horizon: rounds; as many as every agent has records for if not given.
        exploration: the part of the proven bonus in ``practical`` play; ``played`` is by the study's policy.
    """

    runs: int = 10
    horizon: int | None = None
    exploration: float = 0.1

    def __post_init__(self) -> None:
        require_integer("runs", self.runs, at_least=2)
        if self.horizon is not None:
            require_integer("horizon", self.horizon, at_least=1)
        require_finite("exploration", self.exploration, at_least=0)


def describe_model(private: Sequence[Model], dim: int) -> dict[str, Any]:
    """For the settings in a result: what private federations learn, and how many numbers a release has."""
    return {"model": private[0].name, "numbers": private[0].coordinates(dim)} if private else {}

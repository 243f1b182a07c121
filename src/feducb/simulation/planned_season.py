"""What is planned: who would federate, under which promise, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from feducb.config import Budget, require_integer
from feducb.errors import ConfigurationError
from feducb.interfaces import Model
from feducb.privacy.mechanisms import Dense, Mechanism
from feducb.privacy.terms import Terms, require_agents_per_person
from feducb.protocol.federation import Federation, Play
from feducb.protocol.schedules import Geometric, Planned
from feducb.trust import NOBODY, Trust, require_trust
from feducb.worlds.features import model_of
from feducb.worlds.from_recipe import RecipeWorld
from feducb.worlds.world import Environment

__all__ = ["Season"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Season:
    """What is planned: who would federate, under which promise, and for how long.

    Attributes:
        world: what visitors might be like, and the public bounds.
        agents: M, two or more.
        visitors: of each agent, over the whole season.
        budget: (ε, δ) of a person.
        releases: how many, in geometric progression; None: planned, as `Planned` does.
        trust: who adds the noise; its name will do.
        records_per_person: p, how many records of one person may enter at an agent.
        agents_per_person: how many agents one person visits at most.
        spacing: by how many releases records of one person at an agent are apart at least.
        play: as in `Federation`; None: both are compared.
        distance: under own play, as in `Federation`.
        history: records of each agent that enter the first release (`simulate`).
    """

    world: Environment
    agents: int
    visitors: int = 2000
    budget: Budget = field(default_factory=lambda: Budget(epsilon=1.0, delta=1e-6))
    releases: int | None = None
    trust: Trust = NOBODY
    records_per_person: int = 1
    agents_per_person: int = 1
    spacing: int = 0
    play: Play | None = None
    distance: float | None = None
    history: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "trust", require_trust(self.trust))
        if require_integer("agents", self.agents, at_least=1) == 1:
            expected = "2 or more: a federation of one is an agent alone under noise, and can only lose"
            raise ConfigurationError("agents", 1, expected)
        require_integer("visitors", self.visitors, at_least=1)
        require_integer("history", self.history, at_least=0)
        if self.play == "own" and self.releases is not None:
            expected = "none under own play: spread over the whole season they would leave it no own phase"
            raise ConfigurationError("releases", self.releases, expected)
        if self.play == "released" and self.distance is not None:
            raise ConfigurationError("distance", self.distance, "own play beside it")
        require_agents_per_person("agents_per_person", self.agents_per_person, self.agents)

    @property
    def federation(self) -> Federation:
        """Who would play."""
        schedule = Planned() if self.releases is None else Geometric(releases=self.releases)
        return Federation(
            problem=self.world.problem,
            model=self.model,
            agents=self.agents,
            budget=self.budget,
            trust=self.trust,
            records_per_person=self.records_per_person,
            agents_per_person=self.agents_per_person,
            spacing=self.spacing,
            schedule=schedule,
            play=self.play or "released",
            distance=self.distance if self.play == "own" else None,
        )

    @property
    def model(self) -> Model:
        """What agents would learn: of a recipe, without what it knows to be zero."""
        recipe = self.world.recipe if isinstance(self.world, RecipeWorld) else None
        return model_of(recipe, spaced=self.spacing > 0)

    @property
    def plays(self) -> dict[Play, Federation]:
        """The federation under each play that is compared."""
        plays: tuple[Play, ...] = ("released", "own") if self.play is None else (self.play,)
        if self.releases is not None:
            plays = ("released",)
        return {play: replace(self, play=play).federation for play in plays}

    def terms(self, mechanism: Mechanism) -> Terms:
        """What would be promised."""
        dense = mechanism if isinstance(mechanism, Dense) else Dense(1)
        return Terms(
            problem=self.world.problem,
            budget=self.budget,
            releases=mechanism.releases,
            mechanism=mechanism.name,
            quiet=dense.quiet,
            decay=dense.decay,
            records_per_person=self.records_per_person,
            agents_per_person=self.agents_per_person,
            spacing=self.spacing,
            trust=self.trust,
            agents=self.agents,
            model=self.model,
        )

"""What an agent's settings promise: the federation that it is one of, and the terms of its releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feducb.agent.release_plan import schedule_of
from feducb.models import Model
from feducb.privacy.mechanisms import Dense
from feducb.privacy.terms import Terms
from feducb.protocol.federation import Federation, Tuning
from feducb.trust import NOBODY
from feducb.worlds.features import model_of
from feducb.worlds.features.season import fixed_part

if TYPE_CHECKING:
    from feducb.agent.settings import AgentSettings

__all__ = ["federation_of", "terms_of"]


def federation_of(settings: AgentSettings) -> Federation:
    """The federation, as far as an agent of it knows it (`AgentSettings.federation`)."""
    each = tuple(settings.budgets[name] for name in sorted(settings.budgets))
    return Federation(
        problem=settings.problem,
        agents=settings.agents,
        budget=each or settings.budget,
        records_per_person=settings.records_per_person,
        agents_per_person=settings.agents_visited,
        spacing=settings.spacing,
        trust=settings.trust if settings.trust.leaves else NOBODY,
        baseline=None if settings.trust.leaves else "alone",
        model=_model(settings),
        contexts=settings.contexts,
        mechanism=settings.mechanism,
        schedule=schedule_of(settings, settings.decisions),
        alpha=settings.alpha,
        play=settings.play,
        distance=settings.distance,
        policy=settings.chooses if settings.uniform_share else settings.chooses.policy,
        tuning=Tuning(simulated=settings.sets_of_agents == 1),
    )


def _model(settings: AgentSettings) -> Model:
    """What is learnt: the recipe says which entries of a Gram are always zero, and do not leave.

    In an open season it stays as it was promised.
    """
    promised = settings.promised
    if promised is not None and (promised.problem, promised.contexts) == (
        settings.problem,
        settings.contexts,
    ):
        return promised.model
    return model_of(settings.recipe, spaced=settings.spacing > 0)


def _recipe_digest(settings: AgentSettings) -> str:
    """Of what a season keeps of the recipe; in an open season as promised: files had none before."""
    if settings.promised is not None:
        return settings.promised.recipe
    return "" if settings.recipe is None else fixed_part(settings.recipe).fingerprint


def terms_of(settings: AgentSettings) -> Terms:
    """What is promised about releases."""
    if not settings.trust.leaves:
        return Terms(
            problem=settings.problem,
            budget=settings.budget,
            releases=1,
            mechanism=Dense(1).name,
            trust=settings.trust,
            model=settings.federation.model,
        )
    assert settings.estimator.privatizer is not None
    mechanism = settings.estimator.privatizer.mechanism
    quiet, decay = (mechanism.quiet, mechanism.decay) if isinstance(mechanism, Dense) else (0, None)
    return Terms(
        problem=settings.problem,
        budget=settings.budget,
        releases=settings.releases,
        mechanism=mechanism.name,
        quiet=quiet,
        decay=decay,
        records_per_person=settings.records_per_person,
        spacing=settings.spacing,
        agents_per_person=settings.agents_visited,
        trust=settings.trust,
        agents=len(settings.clique) or settings.agents,
        groups=settings.groups,
        model=settings.estimator.privatizer.model,
        recipe=_recipe_digest(settings),
    )

"""The public bounds of a deployed agent that follow from its recipe, each with a sentence why.

A mean reward less its centre lies within B. What S must cover is the length of the parameter that says so:

- Where the only term is a one-hot of w entries, each entry is a mean reward less the centre, so that
  ‖θ*‖ ≤ √w·B/L whatever they are.
- Else it is an assumption: the level that all rewards share may be anywhere in the range, and the effects of
  the columns together may be as large again. A level of B is a parameter of length √(mk)·B/L, where k entries
  share what is constant (1 with an intercept), an effect of size B in one term one of length √m·B/L, and
  S = √(m(k + 1))·B/L has room for both. The agent warns when released sums speak against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.worlds.features.recipe import Recipe

__all__ = ["Derived", "derive_bounds", "problem_for", "problem_of", "require_agreeing"]

_ZERO_TO_ONE = (0.0, 1.0)
_SAME = 1e-9  # two bounds that differ by less are the same, written in another way


@dataclass(frozen=True, slots=True)
class Derived:
    """Bounds that follow from a recipe and the range of rewards, and why they are what they are.

    Attributes:
        problem: the bounds.
        why: by the name of a bound, a sentence.
    """

    problem: Problem
    why: dict[str, str]


def derive_bounds(recipe: Recipe, reward_range: tuple[float, float] = _ZERO_TO_ONE) -> Derived:
    """The bounds of an agent whose rewards have a public range: centred, if all vectors share a constant."""
    low, high = reward_range
    if not -math.inf < low < high < math.inf:
        raise ConfigurationError("reward_range", [low, high], "two finite numbers, the lower one first")
    half, centred = (high - low) / 2.0, recipe.has_constant
    bound, centre = (half, (low + high) / 2.0) if centred else (max(abs(low), abs(high)), 0.0)
    length, why = _parameter_bound(recipe, bound)
    problem = Problem(
        dim=recipe.dim,
        action_bound=recipe.action_bound,
        reward_bound=bound,
        reward_centre=centre,
        parameter_bound=length,
        noise_scale=half,
    )
    return Derived(problem, _sentences(recipe, problem, reward_range) | {"parameter_bound": why})


def problem_of(recipe: Recipe, reward_range: tuple[float, float] = _ZERO_TO_ONE) -> Problem:
    """The bounds alone (`derive_bounds`)."""
    return derive_bounds(recipe, reward_range).problem


def problem_for(recipe: Recipe, *, reward_bound: float = 0.5, reward_centre: float = 0.0) -> Problem:
    """The public bounds for rewards of range 1: ‖x‖ ≤ L, |y − c| ≤ B, σ = ½, S = √m B/L.

    S is an assumption, as everywhere: a parameter that puts a reward of size B into one of the m terms is
    that long. A recipe may state it; deployed agents derive it with more room (`derive_bounds`).

    Raises:
        ConfigurationError: rewards are to be centred, and no term is constant.
    """
    if reward_centre and not recipe.has_constant:
        raise ConfigurationError(
            "reward_centre", reward_centre, "0 with terms of which none is the intercept or of one-hots alone"
        )
    bound = recipe.parameter_bound
    if bound is None:
        bound = math.sqrt(len(recipe.terms)) * reward_bound / recipe.action_bound
    return Problem(
        dim=recipe.dim,
        action_bound=recipe.action_bound,
        reward_bound=reward_bound,
        parameter_bound=bound,
        noise_scale=0.5,
        reward_centre=reward_centre,
    )


def require_agreeing(problem: Problem, recipe: Recipe) -> None:
    """Raise unless bounds are those that follow from a recipe, for the same range of rewards."""
    derived = derive_bounds(recipe, problem.reward_range).problem
    for name in ("dim", "action_bound", "reward_bound", "reward_centre", "parameter_bound"):
        given, follows = getattr(problem, name), getattr(derived, name)
        if not math.isclose(given, follows, rel_tol=_SAME, abs_tol=_SAME):
            why = " (no term of it is constant)" if name.startswith("reward") else ""
            raise ConfigurationError(name, given, f"{follows!r}, which follows from the recipe{why}")


def _parameter_bound(recipe: Recipe, bound: float) -> tuple[float, str]:
    """S, and why."""
    terms, entries = len(recipe.terms), recipe.constant_width
    if recipe.parameter_bound is not None:
        return recipe.parameter_bound, "the recipe states it"
    if terms == 1 and entries is not None:
        length = math.sqrt(entries) * bound / recipe.action_bound
        return length, (
            f"√{entries}·B/L: the {entries} entries are mean rewards less their centre, none further from 0 "
            "than B, so that this holds whatever they are"
        )
    shared = 1 if entries is None else entries
    length = math.sqrt(terms * (shared + 1)) * bound / recipe.action_bound
    return length, (
        f"√({terms}·({shared} + 1))·B/L, an assumption: room for a level that all rewards share anywhere in "
        f"their range ({'the intercept' if shared == 1 else f'spread over {shared} entries'}), and for "
        f"effects that are together as large again, in {terms} terms. If effects are larger still, the agent "
        "warns: state parameter_bound in the recipe, for a new season"
    )


def _sentences(recipe: Recipe, problem: Problem, reward_range: tuple[float, float]) -> dict[str, str]:
    low, high = reward_range
    centred = (
        f"half of the range of rewards, {low:g} to {high:g}: each is taken less the middle, "
        f"{problem.reward_centre:g}, which a constant in all vectors makes up for; noise is made for B"
        if recipe.has_constant
        else f"the largest reward from {low:g} to {high:g}, without a sign: no term is constant, so that "
        "rewards cannot be taken less their middle; with the term 1 noise would be about a third less"
    )
    length = "of length at most 1 each: a number is scaled, all others are one-hots or tags of length 1"
    return {
        "dim": f"the entries of {len(recipe.terms)} terms",
        "action_bound": f"each of the terms is L/√{len(recipe.terms)} times a product of blocks {length}. So "
        "no visitor makes a longer vector",
        "reward_bound": centred,
    }

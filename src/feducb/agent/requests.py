"""What an application may ask for: checked before anything is touched, with a reason if it is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.agent.ids import is_made_up
from feducb.agent.settings import AgentSettings
from feducb.config import Problem, require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.interfaces import Model
from feducb.storage.agent_store import is_text

__all__ = [
    "LONGEST_ID",
    "MOST_CANDIDATES",
    "MOST_NAMED",
    "fitting",
    "require_candidates",
    "require_explainable",
    "require_fitting",
    "require_follow",
    "require_id",
    "require_reward",
]

Array = NDArray[np.float64]

MOST_CANDIDATES = 10_000
MOST_NAMED = 1_000  # candidates in words
LONGEST_ID = 128


def require_candidates(actions: ArrayLike, problem: Problem) -> Array:
    """(K, d) finite numbers, each row of length at most L."""
    try:
        given = np.asarray(actions, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError("actions", "ragged or no numbers", f"K rows of {problem.dim}") from None
    if given.ndim != 2 or given.shape[1] != problem.dim or not 1 <= len(given) <= MOST_CANDIDATES:
        raise ConfigurationError(
            "actions", f"of shape {given.shape}", f"(K, {problem.dim}) with K from 1 to {MOST_CANDIDATES}"
        )
    problem.require_short(given, "actions")
    return given


def fitting(vectors: Array, model: Model) -> NDArray[np.bool_]:
    """Which rows (K, d) are zero where the model knows it; of the others only a part would be learnt."""
    nearest = model.nearest(vectors)
    return np.ones(len(vectors), np.bool_) if nearest is vectors else np.all(nearest == vectors, axis=1)


def require_fitting(vectors: Array, model: Model) -> None:
    """(K, d) vectors must be such as the agent's recipe makes; an error names the first that is not."""
    fits = fitting(vectors, model)
    if not fits.all():
        place = int(np.argmin(fits))
        expected = f"a vector such as the recipe makes, zero where {model.name} knows it to be"
        raise ConfigurationError(f"actions[{place}]", "of two levels at once", expected)


def require_reward(value: float, problem: Problem) -> float:
    """A number from c − B to c + B."""
    try:
        worth = require_finite("reward", value)
    except OverflowError:
        worth = math.inf
    if not problem.pays(worth):
        low, high = problem.reward_range
        raise ConfigurationError("reward", worth, f"from {low:g} to {high:g}")
    return worth


def require_id(name: str, *, new: bool = False) -> str:
    """Text that is not too long; a new one must not look like those that are made up here."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_ID:
        raise ConfigurationError("id", type(name).__name__, f"text of 1 to {LONGEST_ID} characters")
    if not is_text(name):
        raise ConfigurationError("id", "half a character", "text")
    if new and is_made_up(name):
        expected = "another one: digits, a dash and 16 hexadecimal digits are taken"
        raise ConfigurationError("id", name, expected)
    return name


def require_explainable(names: Sequence[str] | None) -> None:
    """Terms of a recipe explain what it made, and no vectors that an application brings along."""
    if names is None:
        expected = "nothing beside vectors: a context and named actions, by the agent's recipe, are explained"
        raise ConfigurationError("explain", True, expected)


def require_follow(
    settings: AgentSettings, follow: int | str | None, propensity: float | None, names: Sequence[str] | int
) -> int | None:
    """The index of the application's own choice: in shadow mode, and only there.

    Args:
        settings: the agent's.
        follow: an index, or a name where candidates have some.
        propensity: the chance with which it chose so, if known.
        names: of the candidates; or how many there are.
    """
    if not settings.shadow:
        if follow is not None or propensity is not None:
            raise ConfigurationError("follow", follow, "nothing: this agent is not in shadow mode")
        return None
    if follow is None:
        raise ConfigurationError("follow", None, "the application's own choice: the agent is in shadow mode")
    candidates = names if isinstance(names, int) else len(names)
    if isinstance(follow, str):
        if isinstance(names, int) or follow not in names:
            listed = (
                "its index: vectors have no names"
                if isinstance(names, int)
                else ", ".join(filter(None, names))
            )
            raise ConfigurationError("follow", follow, f"one of the actions: {listed}")
        follow = names.index(follow)
    if require_integer("follow", follow, at_least=0) >= candidates:
        raise ConfigurationError("follow", follow, f"less than the number of candidates, {candidates}")
    if propensity is not None and not 0.0 < require_finite("follow_propensity", propensity) <= 1.0:
        raise ConfigurationError("follow_propensity", propensity, "above 0 and at most 1")
    return follow

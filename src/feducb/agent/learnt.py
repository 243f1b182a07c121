"""What an agent has learnt, in its recipe's words: estimates of actions and coefficients, with intervals.

Guarantees:
    All of it is a function of released sums and public settings, hence covered by what they promise: showing
    it costs no privacy. Under own play that ends with the close; from then on estimates and coefficients rest
    on raw records, and the answer says so (``from``). Shares and ``history`` are of released sums always.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from feducb.agent.settings import AgentSettings
from feducb.types import Array, Belief, ReleasedSum
from feducb.worlds.features import Recipe
from feducb.worlds.features.explain import meaning
from feducb.worlds.features.wording import (
    Counting,
    Entry,
    counting_places,
    entries_of,
    entry_scale,
    typical_actions,
    typical_visitor,
)

__all__ = ["MOST_POINTS", "OWN", "RELEASED", "Learnt", "told_at", "wording"]

RELEASED: Final = "released sums"
OWN: Final = "own records"
MOST_POINTS = 200  # of the past, that are kept
_SAYS = {
    RELEASED: "Made of released sums and public settings alone: showing it costs no privacy.",
    OWN: "Rests on this agent's raw records since its close, which no noise hides: for its own people alone. "
    "Shares and history are of released sums.",
    None: "Nothing was learnt yet: no sum has come that is worth reading.",
}
_NORMAL = 1.96  # standard deviations, for shares: 95 %


class Wording(NamedTuple):
    """What follows from a recipe alone."""

    entries: tuple[Entry, ...]
    terms: dict[str, str]  # what each is for
    scale: float
    actions: tuple[str, ...]
    vectors: Array  # (K, d), of the actions
    counting: Counting | None
    visitor: dict[str, str]


@lru_cache(maxsize=4)
def wording(recipe: Recipe | None, dim: int) -> Wording:
    """The words for d entries; without a recipe, their numbers."""
    if recipe is None:
        entries = tuple(Entry("vector", f"entry {place + 1}", f"entry {place + 1}") for place in range(dim))
        terms = {"vector": "the application's own vectors"}
        return Wording(entries, terms, 1.0, (), np.zeros((0, dim)), None, {})
    return Wording(
        entries_of(recipe),
        {"*".join(term) or "1": meaning(recipe, term) for term in recipe.terms},
        entry_scale(recipe),
        recipe.declared,
        typical_actions(recipe),
        counting_places(recipe),
        typical_visitor(recipe),
    )


class Learnt(NamedTuple):
    """What is known for a group of visitors.

    Attributes:
        settings: the agent's.
        belief: what it goes by; None before anything was learnt.
        total: the newest sum; None if none has come.
        own: whether the belief rests on raw records.
    """

    settings: AgentSettings
    belief: Belief | None
    total: ReleasedSum | None
    own: bool = False

    def as_dict(self) -> dict[str, Any]:
        """All of it, but for the past."""
        words = wording(self.settings.recipe, self.settings.problem.dim)
        source = None if self.belief is None else OWN if self.own else RELEASED
        return {
            "from": source,
            "says": _SAYS[source],
            "agents": 0 if self.total is None else self.total.agents,
            "confidence": 1.0 - self.settings.alpha,
            "reward_range": self.settings.problem.reward_range,
            "visitor": words.visitor,
            "actions": [one | {"retired": one["id"] in self._retired} for one in self.actions()],
            "terms": self._terms(words),
        }

    @property
    def _retired(self) -> tuple[str, ...]:
        return () if self.settings.recipe is None else self.settings.recipe.retired

    def actions(self) -> list[dict[str, Any]]:
        """By declared action: how often it is shown, and what is expected of it for a typical visitor."""
        words = wording(self.settings.recipe, self.settings.problem.dim)
        shares = _shares(words, self.total)
        rewards = self._rewards(words.vectors)
        return [
            {"id": name, **share, **reward}
            for name, share, reward in zip(words.actions, shares, rewards, strict=True)
        ]

    def _rewards(self, vectors: Array) -> list[dict[str, float | None]]:
        """The mean reward of actions (K, d), within the public range."""
        if self.belief is None:
            return [{"estimate": None, "low": None, "high": None}] * len(vectors)
        problem = self.settings.problem
        middle, widths = vectors @ self.belief.theta, _widths(self.belief, vectors)
        values = np.stack([vectors @ self.belief.guess, middle - widths, middle + widths], axis=1)
        return _named(np.clip(problem.reward_centre + values, *problem.reward_range))

    def _terms(self, words: Wording) -> list[dict[str, Any]]:
        """By term, its coefficients in units of rewards, each with the interval that its set has there."""
        if self.belief is None:
            return []
        belief, dim = self.belief, len(words.entries)
        widths = belief.ellipsoid_width * np.sqrt(np.maximum(belief.inverse.diagonal(), 0.0))
        widths += belief.euclidean_width * np.linalg.norm(belief.inverse, axis=1)
        longest = self.settings.problem.parameter_bound  # no entry of θ* is beyond it
        ends = np.clip([belief.theta - widths, belief.theta + widths], -longest, longest)
        values = words.scale * np.stack([belief.guess, *ends], axis=1)
        coefficients: dict[str, list[dict[str, Any]]] = {term: [] for term in words.terms}
        for entry, numbers in zip(words.entries, _named(values.reshape(dim, 3)), strict=True):
            coefficients[entry.term].append({"words": entry.words, **numbers})
        return [
            {"term": term, "says": says, "coefficients": coefficients[term]}
            for term, says in words.terms.items()
        ]

    def point(self) -> str:
        """What is kept of it, for the past."""
        return json.dumps(self.actions())


def told_at(number: int, read_at: float, body: str) -> dict[str, Any]:
    """What was kept of a sum that was read (`Learnt.point`)."""
    return {"number": number, "at": read_at, "actions": json.loads(body)}


def _named(values: Array) -> list[dict[str, float | None]]:
    return [dict(zip(("estimate", "low", "high"), row, strict=True)) for row in values.tolist()]


def _widths(belief: Belief, vectors: Array) -> Array:
    """(K,), how far the mean reward of each vector can be from the set's middle."""
    directions = vectors @ belief.inverse
    squares = np.maximum(np.einsum("kd,kd->k", directions, vectors), 0.0)
    lengths = np.linalg.norm(directions, axis=1)
    return np.asarray(belief.ellipsoid_width * np.sqrt(squares) + belief.euclidean_width * lengths)


def _shares(words: Wording, total: ReleasedSum | None) -> list[dict[str, float | None]]:
    """How often each action is in a sum, by its Gram's diagonal, whose entries have the variance 2w."""
    nothing: dict[str, float | None] = {"share": None, "share_low": None, "share_high": None}
    if total is None or words.counting is None:
        return [nothing] * len(words.actions)
    diagonal = total.gram.diagonal() / words.scale**2
    noise = 2.0 * float(total.variance) / words.scale**4
    whole = float(diagonal[words.counting.everything].sum())
    entries = len(words.counting.everything)
    if whole < 1.0 or whole < _NORMAL * math.sqrt(noise * entries):  # no record stands out of the noise
        return [nothing] * len(words.actions)
    made: list[dict[str, float | None]] = []
    for places in words.counting.places:
        share = float(diagonal[places].sum()) / whole
        own, others = len(places), entries - len(places)
        reach = _NORMAL * math.sqrt(noise * (own * (1.0 - share) ** 2 + others * share**2)) / whole
        ends = (min(max(one, 0.0), 1.0) for one in (share, share - reach, share + reach))
        made.append(dict(zip(nothing, ends, strict=True)))
    return made

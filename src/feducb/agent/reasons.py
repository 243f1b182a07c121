"""Why this action for this visitor: what each term of the recipe adds to its estimate, and to its bound.

An estimate is linear in the vector, so that terms add up. So do their parts of the bonus, by Euler's rule:
β√(xᵀV⁻¹x) and b‖V⁻¹x‖ grow in proportion to x, hence are x times their gradient. A part may be negative:
there the term makes up for what others leave open.

Guarantees:
    A function of the belief that was decided by and of the visitor's own candidates, like the decision.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypedDict

import numpy as np

from feducb.agent.learnt import Wording
from feducb.config import Problem
from feducb.policies.decider import Decider
from feducb.types import Array

__all__ = ["Account", "Contribution", "Explanation", "Question", "explain"]


class Contribution(TypedDict):
    """What a term adds, in units of rewards."""

    term: str
    words: str
    estimate: float
    bonus: float


class Account(TypedDict):
    """Of one action: level and terms add up to the estimate, with bonus to the bound; both are then cut."""

    action: str
    estimate: float
    bound: float
    level: float
    terms: list[Contribution]
    cut_estimate: float
    cut_bound: float


Explanation = TypedDict("Explanation", {"from": str, "says": str, "chosen": Account, "rival": Account | None})


class Question(NamedTuple):
    """What is to be explained: a decision among named candidates (K, d)."""

    candidates: Array
    names: tuple[str, ...]
    chosen: int
    propensity: float | None
    followed: bool
    alone: bool = False  # the others are not known any more


def explain(asked: Question, decider: Decider, problem: Problem, words: Wording, source: str) -> Explanation:
    """The chosen action, and of the others the one with the highest bound."""
    scores = decider.score(asked.candidates)
    others = [place for place in np.argsort(-scores, kind="stable").tolist() if place != asked.chosen]
    rival = others[0] if others else None

    def account(place: int) -> Account:
        return _account(asked.names[place], asked.candidates[place], decider, problem, words)

    return {
        "from": source,
        "says": _sentence(asked, rival, scores),
        "chosen": account(asked.chosen),
        "rival": None if rival is None else account(rival),
    }


def _sentence(asked: Question, rival: int | None, scores: Array) -> str:
    if asked.alone:
        return "What else there was is not known any more: actions were added or retired since."
    if rival is None:
        return "There was no other."
    ahead = scores[asked.chosen] >= scores[rival]
    bounds = "It has the highest bound" if ahead else f"{asked.names[rival]} has a higher bound"
    if asked.followed:
        return f"The application chose it. {bounds}."
    if asked.propensity is not None and asked.propensity < 1.0:
        return f"It was drawn, with a chance of {asked.propensity:.3g}. {bounds}."
    return f"{bounds}."


def _account(name: str, action: Array, decider: Decider, problem: Problem, words: Wording) -> Account:
    belief, scale = decider.belief, decider.exploration
    by_entry = action * belief.guess
    bonus = action * (belief.centre(scale) - belief.guess + scale * _gradient(decider, action))
    terms: list[Contribution] = []
    for term in words.terms:
        places = [place for place, entry in enumerate(words.entries) if entry.term == term]
        said = ", ".join(words.entries[place].name for place in places if action[place])
        terms.append(
            {
                "term": term,
                "words": said or "counts as nothing here",
                "estimate": math.fsum(by_entry[places]),
                "bonus": math.fsum(bonus[places]),
            }
        )
    level, (low, high) = problem.reward_centre, problem.reward_range
    estimate = math.fsum([level, *(one["estimate"] for one in terms)])
    bound = math.fsum([level, *(one["estimate"] + one["bonus"] for one in terms)])
    cut = [min(max(value, low), high) - value for value in (estimate, bound)]
    return {
        "action": name,
        "estimate": estimate + cut[0],
        "bound": bound + cut[1],
        "level": level,
        "terms": terms,
        "cut_estimate": cut[0],
        "cut_bound": cut[1],
    }


def _gradient(decider: Decider, action: Array) -> Array:
    """(d,), of β√(xᵀV⁻¹x) + b‖V⁻¹x‖ at an action; 0 where both are."""
    belief = decider.belief
    direction = belief.inverse @ action
    root, length = math.sqrt(max(float(direction @ action), 0.0)), math.sqrt(float(direction @ direction))
    made = np.zeros_like(action)
    if root > 0.0:
        made += belief.ellipsoid_width / root * direction
    if length > 0.0:
        made += belief.euclidean_width / length * (belief.inverse @ direction)
    return made

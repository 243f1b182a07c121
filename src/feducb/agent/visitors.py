"""Visitors as an application describes them: vectors of its own, or by the agent's recipe, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from feducb.agent.requests import LONGEST_ID, MOST_NAMED, require_candidates, require_fitting
from feducb.agent.settings import AgentSettings
from feducb.errors import ConfigurationError
from feducb.types import Array
from feducb.worlds.features.encoder import Encoder, Offers
from feducb.worlds.features.season import fixed_part

__all__ = ["Actions", "Shown", "Visitor", "Visitors", "retold"]

Actions = ArrayLike | Sequence[Any]  # vectors; or names, and mappings with an id


class Visitor(NamedTuple):
    """What a decision is about."""

    candidates: Array  # (K, d)
    names: tuple[str, ...] | None = None  # of the candidates, where they have some
    said: str | None = None  # context and actions as JSON, to be kept for export if events are
    rules: tuple[
        tuple[str, str], ...
    ] = ()  # column and rule, wherever a value was missing, unknown or clipped
    ignored: int = 0  # how many columns the recipe does not have
    only: int | None = None  # the one candidate that is still known, the others being zero and nameless

    @property
    def choices(self) -> tuple[str, ...] | int:
        """The candidates' names; where they have none, how many there are."""
        return len(self.candidates) if self.names is None else self.names

    def name(self, index: int) -> str | None:
        """Of a candidate."""
        return None if self.names is None else self.names[index] or None


class Shown(NamedTuple):
    """What is written down of a decision: how many candidates there were, which was shown, its vector.

    And whether it was made before actions were last added or retired, or by a foreign recipe: one that the
    present one does not continue, so that nobody knows its names.
    """

    candidates: int
    place: int
    action: bytes
    before: bool
    foreign: bool = False

    def is_among(self, candidates: Array) -> bool:
        """Whether it was shown of as many candidates as these (K, d), in that place."""
        return len(candidates) == self.candidates and candidates[self.place].tobytes() == self.action


class Visitors:
    """Reads what was asked, by the agent's settings."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._encoder = None if settings.recipe is None else Encoder(settings.recipe)
        # What goes without saying where events are kept: actions as the season's recipe was published.
        self._unsaid = None
        if self._encoder is not None and settings.recipe == fixed_part(self._encoder.recipe):
            self._unsaid = self._encoder.offers_declared

    def read(self, actions: Actions | None, context: Mapping[str, Any] | None) -> Visitor:
        """A visitor's candidates.

        Raises:
            ConfigurationError: it cannot be meant; a column of the context or of an action is named.
        """
        if actions is not None and not _in_words(actions):
            return self._of_vectors(actions, context)
        encoder, context = self._require_words(actions, context)
        offers = encoder.offers(actions)  # type: ignore[arg-type]
        _require_short_ids(actions, offers)
        found = encoder.encode(context, offers)
        said = None
        if self._settings.keep_events:
            declared = None if offers is self._unsaid else _told(offers, encoder)
            said = _as_json({"context": found.context, "actions": declared})
        return Visitor(found.vectors, offers.names, said, found.rules, found.ignored)

    def recall(
        self, actions: Actions | None, context: Mapping[str, Any] | None, shown: Shown
    ) -> Visitor | None:
        """The visitor of a decision that was made, asked about once more; None if it is about another action.

        What was retired since is still what was shown. Where actions are left out, and some were added or
        retired since, only the one that was shown is known of them (`Visitor.only`).
        """
        if actions is not None and not _in_words(actions):
            visitor = self._of_vectors(actions, context)
            return visitor if shown.is_among(visitor.candidates) else None
        encoder, context = self._require_words(actions, context)
        if shown.foreign:
            return None
        if actions is not None or not shown.before:
            offers = encoder.laid_out(actions) if actions is not None else encoder.offers()  # type: ignore[arg-type]
            vectors = encoder.encode(context, offers).vectors
            return Visitor(vectors, offers.names) if shown.is_among(vectors) else None
        offers = encoder.laid_out(encoder.recipe.declared)
        vectors = encoder.encode(context, offers).vectors
        alike = [place for place, vector in enumerate(vectors) if vector.tobytes() == shown.action]
        if len(alike) != 1:  # another visitor; or actions that the recipe's terms do not tell apart
            return None
        candidates, names = np.zeros((shown.candidates, vectors.shape[1])), [""] * shown.candidates
        candidates[shown.place], names[shown.place] = vectors[alike[0]], offers.names[alike[0]]
        return Visitor(candidates, tuple(names), only=shown.place)

    def _of_vectors(self, actions: Any, context: object) -> Visitor:
        if isinstance(actions, str):
            expected = "a list: of names, of objects with an id, or of rows of numbers"
            raise ConfigurationError("actions", "a text", expected)
        if context is not None:
            raise ConfigurationError("context", "given", "nothing beside vectors, which hold it")
        vectors = require_candidates(actions, self._settings.problem)
        require_fitting(vectors, self._settings.terms.model)
        return Visitor(vectors)

    def _require_words(
        self, actions: Actions | None, context: Mapping[str, Any] | None
    ) -> tuple[Encoder, Mapping[str, Any]]:
        """The encoder and the context, if there is one to read what was asked."""
        if self._encoder is None:
            given = ("actions", "left out or named") if context is None else ("context", "given")
            raise ConfigurationError(*given, "vectors alone: this agent has no recipe to make them by")
        if not isinstance(context, Mapping | None):
            raise ConfigurationError("context", type(context).__name__, "an object with a value per column")
        if actions is not None and len(actions) > MOST_NAMED:  # type: ignore[arg-type]
            raise ConfigurationError("actions", "too many", f"at most {MOST_NAMED}")
        return self._encoder, context or {}


def retold(said: str, encoder: Encoder) -> tuple[dict[str, Any], Offers, Array]:
    """What was kept of a visitor: context, actions, and the vectors that they made."""
    plain = json.loads(said)
    offers = encoder.laid_out(plain["actions"])
    return plain["context"], offers, encoder.encode(plain["context"], offers).vectors


def _require_short_ids(actions: Any, offers: Offers) -> None:
    """Raise if an action that is described has a longer id than a name may be."""
    for place, (asked, name) in enumerate(zip(actions or (), offers.names, strict=False)):
        if isinstance(asked, Mapping) and "id" in asked and len(name) > LONGEST_ID:
            raise ConfigurationError(
                f"actions[{place}].id", "too long", f"text of 1 to {LONGEST_ID} characters"
            )


def _in_words(actions: Any) -> bool:
    """Whether actions are names or descriptions, not vectors."""
    if isinstance(actions, np.ndarray) or not isinstance(actions, Sequence) or isinstance(actions, str):
        return False
    return len(actions) > 0 and isinstance(actions[0], str | Mapping)


def _told(offers: Offers, encoder: Encoder) -> list[Any]:
    """Actions as short as can be: a name will do for one that is as it was declared."""
    return [
        name if encoder.is_declared(action) else dict(action)
        for name, action in zip(offers.names, offers.actions, strict=True)
    ]


def _as_json(said: Mapping[str, Any]) -> str:
    try:
        return json.dumps(said, default=_plain)
    except ValueError:  # Python writes no number of thousands of digits
        expected = "numbers that can be written down, where events are kept"
        raise ConfigurationError("context", "a number of thousands of digits", expected) from None


def _plain(value: Any) -> Any:
    """NumPy's numbers, as JSON writes them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not plain data")

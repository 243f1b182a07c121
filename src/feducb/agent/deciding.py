"""One decision: what is asked is checked, one candidate is chosen, written down and answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from sqlite3 import Connection
from typing import Any, NamedTuple

import numpy as np

from feducb.agent.decision import Decision
from feducb.agent.ids import kept_tag, key_of, make_id, new_tag
from feducb.agent.learnt import OWN, RELEASED
from feducb.agent.reasons import Question
from feducb.agent.requests import require_explainable, require_follow, require_id
from feducb.agent.state import State
from feducb.agent.visitors import Actions, Shown, Visitor
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.storage import events
from feducb.types import Array

__all__ = ["Asked", "decide"]


class Asked(NamedTuple):
    """What is asked about a visitor, beside her candidates: `Agent.decide` says what each is."""

    id: str | None
    person: str | None
    follow: int | str | None
    follow_propensity: float | None
    scores: bool
    top: int | None
    explain: bool


def decide(
    state: State, actions: Actions | None, context: Mapping[str, Any] | None, asked: Asked
) -> Decision:
    """Choose for a visitor, on disk when this returns; for an id that is known, the decision of before."""
    own = None if asked.id is None else key_of(state.id_key, require_id(asked.id, new=True))
    if asked.top is not None:
        require_integer("top", asked.top, at_least=1)
    if own is not None and (known := events.find(state.store.database, own)) is not None:
        return _again(state, actions, context, asked, known)
    visitor = state.visitors.read(actions, context)
    follow = require_follow(state.settings, asked.follow, asked.follow_propensity, visitor.choices)
    if asked.explain:
        require_explainable(visitor.names)
    person = state.store.hash_person(asked.person)
    with state.writing() as db:
        state.store.find_person(db, asked.person)
        row, made_up = _write(state, db, visitor, own, person, follow, asked.follow_propensity)
    return _answer(state, visitor, asked, row, asked.id or made_up)


def _again(
    state: State,
    actions: Actions | None,
    context: Mapping[str, Any] | None,
    asked: Asked,
    known: events.Row,
) -> Decision:
    """The decision of before, for an id that is known and asked about the same action of the same visitor.

    What was written down is the vector that was shown, and the reward goes to it: an answer that names
    another action would be untrue.
    """
    shown = events.action_of(state.store.database, known.number)
    if known.chosen is None or known.candidates is None or shown is None:  # content, which goes together
        raise ConfigurationError("id", asked.id, "a new one: that decision is over")
    before, foreign = known.number <= state.other_actions, known.number <= state.other_recipe
    asked_about = Shown(known.candidates, known.chosen, shown, before, foreign)
    visitor = state.visitors.recall(actions, context, asked_about)
    if visitor is not None:
        follow = require_follow(state.settings, asked.follow, asked.follow_propensity, visitor.choices)
    if visitor is None or follow not in (None, known.chosen):
        expected = "a new one, or the same visitor with the same candidates as before"
        if foreign and visitor is None:
            expected = "a new one: that decision was made by the recipe of an earlier season"
        raise ConfigurationError("id", asked.id, expected)
    if asked.explain:
        require_explainable(visitor.names)
    return _answer(state, visitor, asked, known, str(asked.id), repeated=True)


def _write(
    state: State,
    db: Connection,
    visitor: Visitor,
    own: bytes | None,
    person: bytes | None,
    follow: int | None,
    follow_propensity: float | None,
) -> tuple[events.Made, str]:
    """Choose for a visitor that is new, and write it down; the row, and an id that is made up for it."""
    number, group = state.counters.total("decisions") + 1, state.draw_group()
    lane, (preferred, chance, drawn) = _choose(state, group, visitor.candidates)
    shown, propensity = (preferred, chance) if follow is None else (follow, follow_propensity)
    moment, tag = state.now(), new_tag()
    in_numbers = state.settings.keep_events > 0 and visitor.said is None
    row = events.Made(
        number=number,
        tag=kept_tag(state.id_key, tag),
        id=own,
        closes_at=moment + round(1000 * state.settings.window),
        group=group,
        decided_at=moment,
        person=person,
        action=visitor.candidates[shown].tobytes(),
        candidates=len(visitor.candidates),
        features=visitor.candidates.tobytes() if in_numbers else None,
        said=visitor.said,
        chosen=shown,
        preferred=preferred,
        propensity=propensity,
        model=state.inbox.number(group),
        lane=lane,
    )
    events.insert(db, row)
    state.counters.add("decisions")
    state.curve.decided(moment)
    state.counters.add("drawn_uniformly", drawn)
    state.counters.add("agreed", follow is not None and shown == preferred)
    for column, rule in visitor.rules:
        state.counters.add(f"{rule}:{column}")
    state.counters.add("ignored_columns", visitor.ignored)
    return row, make_id(state.id_key, number, tag)


def _choose(state: State, group: int, candidates: Array) -> tuple[int | None, tuple[int, float, bool]]:
    """The visitor's lane (`gain`), None if none counts; index, propensity, whether drawn uniformly.

    Guarantees:
        Who is held out is a coin of the visitor's own. Under own play nobody is before the close.
    """
    settings, knows = state.settings, group in state.chooser.deciders
    open_lanes = settings.play == "released" or state.closed
    if not settings.trust.leaves:
        return events.ALONE, state.chooser.choose(group, candidates, state.coins)
    if settings.holdout and open_lanes and state.coins.random() < settings.holdout:
        return events.ALONE, (*state.chooser.choose_alone(candidates, state.coins), False)
    preferred, chance, drawn = state.chooser.choose(group, candidates, state.coins)
    counted = open_lanes and (knows or settings.holdout > 0.0) and not settings.shadow
    if not counted:
        return None, (preferred, chance, drawn)
    # While nothing was learnt both lanes draw uniformly: a coin says which it was.
    uniform = drawn if knows else state.coins.random() < settings.uniform_share
    return events.UNIFORM if uniform else events.FEDERATED, (preferred, chance, drawn)


def _answer(
    state: State,
    visitor: Visitor,
    asked: Asked,
    row: events.Made | events.Row,
    name: str,
    *,
    repeated: bool = False,
) -> Decision:
    """With what is expected of it, where something was learnt; with all scores and reasons, if asked for."""
    assert row.chosen is not None
    assert row.preferred is not None  # they are content, and go together
    chooser, scores, top = state.chooser, asked.scores, asked.top
    judged = chooser.judge(row.group, visitor.candidates[row.chosen], row.lane)
    by_all = None
    if (scores or top) and visitor.only is None:
        by_all = chooser.scores(row.group, visitor.candidates, row.lane)
    decision = Decision(
        id=name,
        index=row.chosen,
        action=visitor.name(row.chosen),
        propensity=row.propensity,
        estimate=None if judged is None else judged[0],
        bound=None if judged is None else judged[1],
        model=state.name_of(row.model),
        would_choose=row.preferred,
        would_choose_action=visitor.name(row.preferred),
        scores=None if by_all is None or not scores else tuple(by_all.tolist()),
        ranking=None if by_all is None or not top else _best_first(by_all)[:top],
        repeated=repeated,
    )
    return _with_reasons(state, decision, row, visitor) if asked.explain else decision


def _with_reasons(
    state: State, decision: Decision, row: events.Made | events.Row, visitor: Visitor
) -> Decision:
    """With what each term adds, where something was learnt."""
    assert visitor.names is not None  # it was asked for
    candidates, names, index = visitor.candidates, visitor.names, decision.index
    if visitor.only is not None:  # nobody knows what there was to compare it with
        candidates, names, index = candidates[[index]], names[index : index + 1], 0
    asked = Question(
        candidates, names, index, decision.propensity, state.settings.shadow, visitor.only is not None
    )
    source = OWN if state.closed or row.lane == events.ALONE else RELEASED
    return replace(decision, explanation=state.chooser.explain(row.group, asked, source, row.lane))


def _best_first(scores: Array) -> tuple[int, ...]:
    return tuple(np.argsort(-scores, kind="stable").tolist())

"""What the federation is worth to a site: rewards by lane, with intervals that hold at all times.

A private coin with public shares puts each visitor into a lane: *federated* (decided as the agent decides),
*alone* (``holdout``: as an agent would that has its own records and nobody else's) or *uniform*
(``uniform_share``). With chance p of a lane, r the reward and m a guess at it that was made before,

    X = m + [lane] (r − m)/p

has the mean that the reward would have, given all before, were the visitor in that lane: over all visitors
alike, whoever is drawn. The mean over visitors, and the difference of two lanes, have intervals of `anytime`.

Raw numbers, like counts and the learning curve: for the agent's own people. They stay in its file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from feducb.agent.anytime import Interval, interval
from feducb.agent.settings import AgentSettings
from feducb.storage import agent_tables
from feducb.storage.events import ALONE, FEDERATED, UNIFORM, Due

__all__ = ["LANES", "add", "view_gain"]

LANES: Final = {FEDERATED: "federated", ALONE: "alone", UNIFORM: "uniform"}


class _Sums(NamedTuple):
    """Of one lane: visitors, Σ (r − m), Σ (r − m)²."""

    visits: int = 0
    moved: float = 0.0
    square: float = 0.0


class _Gain(NamedTuple):
    """Of all lanes: visitors, Σ m, Σ r; and of each."""

    visits: int
    guessed: float
    rewards: float
    lanes: Mapping[int, _Sums]


def _read(db: sqlite3.Connection) -> _Gain:
    body = agent_tables.read_gain(db)
    if body is None:
        return _Gain(0, 0.0, 0.0, {lane: _Sums() for lane in LANES})
    visits, guessed, rewards, lanes = json.loads(body)
    return _Gain(visits, guessed, rewards, {lane: _Sums(*lanes[lane]) for lane in LANES})


def add(db: sqlite3.Connection, settings: AgentSettings, rows: Iterable[Due]) -> None:
    """Visitors whose windows have closed, in the order in which they came; within `writing`."""
    before = agent_tables.of_other_lanes(db)  # whose chances were others: they would count with wrong ones
    drawn = [row for row in rows if row.lane is not None and row.number > before]
    if not drawn:
        return
    visits, guessed, rewards, kept = _read(db)
    lanes = dict(kept)
    for row in drawn:
        reward = settings.default_reward if row.reward is None else row.reward
        guess = (rewards + settings.problem.reward_centre) / (visits + 1)
        sums, off = lanes[row.lane], reward - guess  # type: ignore[index]
        lanes[row.lane] = _Sums(sums.visits + 1, sums.moved + off, sums.square + off * off)  # type: ignore[index]
        visits, guessed, rewards = visits + 1, guessed + guess, rewards + reward
    agent_tables.write_gain(db, json.dumps([visits, guessed, rewards, [lanes[lane] for lane in LANES]]))


def view_gain(db: sqlite3.Connection, settings: AgentSettings) -> dict[str, Any]:
    """By lane, what its visitors' rewards would be on average; and what the federation adds to alone.

    Returns:
        ``visits``, in all lanes; ``lanes``, by name: its ``share``, ``visits``, and ``mean``, ``low`` and
        ``high``, None before the first visitor; ``difference``, federated less alone, likewise, None where no
        visitor is held out; ``costs``, what holding out costs a visitor on average, from the least to the
        most that the difference allows; ``says``, in words.
    """
    gain, (low, high), shares = _read(db), settings.problem.reward_range, settings.lane_shares
    lanes = {}
    for lane, name in LANES.items():
        if share := shares[lane]:
            sums = gain.lanes[lane]
            total, square = gain.guessed + sums.moved / share, sums.square / share**2
            found = _found(gain.visits, total, square, (high - low) / share)
            inside = None if found is None else found.within(low, high)
            lanes[name] = {"share": share, "visits": sums.visits, **_named(inside)}
    both = shares[FEDERATED] and shares[ALONE]
    difference = _difference(gain, shares, high - low) if both else None
    cost = None
    if difference is not None:
        cost = [max(0.0, shares[ALONE] * end) for end in (difference.low, difference.high)]
    return {
        "visits": gain.visits,
        "lanes": lanes,
        "difference": _named(difference) if both else None,
        "costs": cost,
        "says": _says(lanes, difference),
    }


def _difference(gain: _Gain, shares: Mapping[int, float], span: float) -> Interval | None:
    """Federated less alone: a visitor is in one lane at most, so that squares add up."""
    (federated, p), (alone, q) = ((gain.lanes[lane], shares[lane]) for lane in (FEDERATED, ALONE))
    total = federated.moved / p - alone.moved / q
    square = federated.square / p**2 + alone.square / q**2
    found = _found(gain.visits, total, square, span / min(p, q))
    return None if found is None else found.within(-span, span)


def _found(visits: int, total: float, square: float, reach: float) -> Interval | None:
    return interval(visits, total, square, reach) if visits else None


def _named(found: Interval | None) -> dict[str, float | None]:
    return dict.fromkeys(Interval._fields) if found is None else found._asdict()


def _says(lanes: Mapping[str, Mapping[str, Any]], difference: Interval | None) -> str:
    """Such as: federated 0.512 ± 0.006, alone 0.498 ± 0.011; federated − alone 0.014 ± 0.012."""
    said = [
        f"{name} {_around(Interval(one['mean'], one['low'], one['high']))}"
        for name, one in lanes.items()
        if one["mean"] is not None
    ]
    if not said:
        return "nobody counted yet"
    return ", ".join(said) + ("" if difference is None else f"; federated − alone {_around(difference)}")


def _around(found: Interval) -> str:
    return f"{found.mean:.3f} ± {max(found.high - found.mean, found.mean - found.low):.3f}"

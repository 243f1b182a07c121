"""What the clients ask and how they read the answers, once for both: as flows of `agent.http_exchange`."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypedDict

from feducb.agent import Decision, Outcome
from feducb.agent.http_exchange import Flow, ServiceError, exchange
from feducb.agent.visitors import Actions
from feducb.errors import ConfigurationError
from feducb.service.fallback import Defaults, Fallback, Fallbacks, Kept, fallback_for, fallbacks_for
from feducb.worlds.features.rules import kind_of

__all__ = ["ClientFlows", "VisitorOptions"]

_AWAY_SECONDS = 1.0  # for which a service that did not answer is not asked, where there is a default
_MOST_IDS, _MOST_REQUESTS = 1000, 20  # reported in one request
_MOST_BITS = 10_000  # of a whole number: Python writes none of thousands of digits
_DEEPEST = 100  # lists and mappings within each other: more is one that holds itself
_LOG = logging.getLogger("feducb.client")
_REFUSED = (413, 422)  # for what was sent, and not for who sent it: sending it again does not help


class VisitorOptions(TypedDict, total=False):
    """Arguments of `decide` by name; see `feducb.Agent.decide`."""

    context: Mapping[str, Any] | None
    id: str | None
    person: str | None
    follow: int | str | None
    follow_propensity: float | None
    scores: bool
    top: int | None
    explain: bool


class ClientFlows:
    """One client's: it remembers what was shown while the service was away."""

    def __init__(self, attempts: int) -> None:
        self.fallbacks = Fallbacks()
        self._attempts, self._ask_again_at, self._reporting = attempts, 0.0, False

    def decide(
        self, actions: Actions | None, fallback: int | str | None, options: VisitorOptions
    ) -> Flow[Decision | Fallback]:
        """The service's choice; or the default, where there is one and no answer."""
        asked = _visitor(actions, options)
        if fallback is None:
            answer = yield from self._post("/v1/decisions", asked)
        else:
            default = fallback_for(fallback, asked)
            try:
                answer = yield from self._post_once("/v1/decisions", asked)
            except ServiceError as error:
                if not error.away:
                    raise
                self.fallbacks.keep(asked)
                return replace(default, reason=str(error))
        if self.fallbacks.waiting:
            yield from self._report_some()
        return _decision(answer)

    def decide_many(
        self, visitors: Sequence[Mapping[str, Any]], fallback: Defaults | None
    ) -> Flow[list[Decision | Fallback | None]]:
        """Each by itself; or all by default, where there is one for each and no answer."""
        asked = [_named(one) for one in visitors]
        if fallback is None:
            answer = yield from self._post("/v1/decisions/batch", {"decisions": asked})
        else:
            defaults = fallbacks_for(fallback, asked)
            try:
                answer = yield from self._post_once("/v1/decisions/batch", {"decisions": asked})
            except ServiceError as error:
                if not error.away:
                    raise
                for one in asked:
                    self.fallbacks.keep(one)
                return [replace(default, reason=str(error)) for default in defaults]
        if self.fallbacks.waiting:
            yield from self._report_some()
        _tell_refused("decisions", answer)
        return [None if one is None else _decision(one) for one in answer["decisions"]]

    def reward(self, id: str, value: float) -> Flow[Outcome]:
        """One alone."""
        outcomes = yield from self.rewards({id: value})
        return outcomes[id]

    def rewards(self, values: Mapping[str, float]) -> Flow[dict[str, Outcome]]:
        """Those of decisions are sent; of what was shown without, only in shadow mode, after its report."""
        if any(self.fallbacks.get(id) is not None for id in values):
            yield from self._report_some()
        outcomes: dict[str, Outcome] = {}
        for id, value in values.items():
            kept = self.fallbacks.get(id)
            if kept is not None:
                outcomes[id] = _keep_reward(kept, value)
        rest = {id: float(value) for id, value in values.items() if id not in outcomes}
        if rest:
            outcomes |= yield from self._send_rewards(rest)
        return {id: outcomes[id] for id in values}

    def discard(self, id: str) -> Flow[Outcome]:
        """It was never shown."""
        answer = yield from self._post("/v1/discards", {"id": id})
        return Outcome(answer["outcomes"][0])

    def report(self) -> Flow[Fallbacks]:
        """All that waits; raises if the service is still away."""
        while self.fallbacks.waiting:
            yield from self._report_oldest(self._attempts)
        return self.fallbacks

    def look(self, path: str) -> Flow[dict[str, Any]]:
        """What an operator sees."""
        answer = yield from exchange("GET", path, attempts=self._attempts)
        return dict(answer)

    def _post(self, path: str, asked: dict[str, Any], attempts: int | None = None) -> Flow[Any]:
        return exchange("POST", path, asked, attempts=attempts or self._attempts)

    def _post_once(self, path: str, asked: dict[str, Any]) -> Flow[Any]:
        """While a visitor waits: one attempt, and none for a second after one that failed."""
        if time.monotonic() < self._ask_again_at:
            json.dumps(asked)  # what cannot be sent is raised now, and not when it is reported
            raise ServiceError(
                f"POST {path}: not asked: there was no answer less than {_AWAY_SECONDS:g} s ago"
            )
        try:
            return (yield from self._post(path, asked, attempts=1))
        except ServiceError as error:
            if error.away:
                self._ask_again_at = time.monotonic() + _AWAY_SECONDS
            raise

    def _send_rewards(self, values: Mapping[str, float]) -> Flow[dict[str, Outcome]]:
        asked = {"rewards": [{"id": id, "value": value} for id, value in values.items()]}
        answer = yield from self._post("/v1/rewards", asked)
        _tell_refused("rewards", answer)
        return {id: Outcome(one) for id, one in zip(values, answer["outcomes"], strict=True)}

    def _report_some(self) -> Flow[None]:
        """One request's worth, if nobody else is at it; what fails is tried again another time."""
        if self._reporting or time.monotonic() < self._ask_again_at:
            return
        self._reporting = True
        try:
            yield from self._report_oldest(attempts=1)
        except ServiceError:
            pass
        finally:
            self._reporting = False

    def _report_oldest(self, attempts: int) -> Flow[None]:
        some = self.fallbacks.oldest(_MOST_IDS, _MOST_REQUESTS)
        if some:
            yield from self._report_these(some, attempts)

    def _report_these(self, some: dict[str, Kept], attempts: int) -> Flow[None]:
        """Refused as a whole, half of them at a time: one that cannot be taken holds up no other."""
        followed = any(kept.request is not None for kept in some.values())
        outcomes: list[str | None]
        try:
            outcomes = yield from self._follow(some, attempts) if followed else self._tell(some, attempts)
        except ServiceError as error:
            if error.status not in _REFUSED:
                raise
            if len(some) > 1:
                half = list(some.items())[: len(some) // 2]
                yield from self._report_these(dict(half), attempts)
                return
            outcomes = [None]  # refused by itself
        self.fallbacks.settle(zip(some, outcomes, strict=True))

    def _tell(self, some: dict[str, Kept], attempts: int) -> Flow[list[str | None]]:
        answer = yield from self._post("/v1/fallbacks", {"ids": list(some)}, attempts)
        return list(answer["outcomes"])

    def _follow(self, kept: dict[str, Kept], attempts: int) -> Flow[list[str | None]]:
        """In shadow mode: ask what would have been asked, and send the rewards that came meanwhile."""
        asked = {"decisions": [one.request for one in kept.values()]}
        answer = yield from self._post("/v1/decisions/batch", asked, attempts)
        taken = [id for id, one in zip(kept, answer["decisions"], strict=True) if one is not None]
        values = {id: value for id in taken if (value := kept[id].reward) is not None}
        if values:
            try:
                yield from self._send_rewards(values)
            except ServiceError as error:
                if error.status not in _REFUSED:  # one alone that is out of range: its decision stands
                    raise
        return [Outcome.RECORDED if id in taken else None for id in kept]


def _keep_reward(kept: Kept, value: float) -> Outcome:
    """Of what still waits to be reported: the first value counts, where one does."""
    if kept.request is None:
        return Outcome.DISCARDED
    if kept.reward is not None:
        return Outcome.REPEATED
    kept.reward = float(value)
    return Outcome.WAITING


def _tell_refused(rows: str, answer: Mapping[str, Any]) -> None:
    """Why one of many was refused, for whoever reads logs: the others' answers are there."""
    for place, reason in enumerate(answer.get("reasons") or ()):
        if reason is not None:
            _LOG.warning("%s[%d] was refused: %s", rows, place, reason)


def _visitor(actions: Actions | None, options: VisitorOptions) -> dict[str, Any]:
    unknown = sorted(set(options) - set(VisitorOptions.__annotations__))
    if unknown:
        known = ", ".join(VisitorOptions.__annotations__)
        raise TypeError(f"decide() has no argument {unknown[0]!r}, expected some of {known}")
    context, id = options.get("context"), options.get("id")
    if isinstance(actions, str) or not isinstance(actions, Iterable | None):
        raise ConfigurationError("actions", kind_of(actions), "a list: of names, of objects or of vectors")
    if not isinstance(context, Mapping | None):
        raise ConfigurationError("context", kind_of(context), "a mapping with a value per column")
    return {
        "actions": None if actions is None else [_action(one, place) for place, one in enumerate(actions)],
        "context": None if context is None else _as_plain(context, "context"),
        "id": id if id is not None else uuid.uuid4().hex,  # so that asking again is safe
        "person": options.get("person"),
        "follow": _as_plain(options.get("follow"), "follow"),
        "follow_propensity": _as_plain(options.get("follow_propensity"), "follow_propensity"),
        "scores": options.get("scores", False),
        "top": options.get("top"),
        "explain": options.get("explain", False),
    }


def _named(visitor: Mapping[str, Any]) -> dict[str, Any]:
    """One of many, by the arguments of `decide`."""
    options: Any = {name: value for name, value in visitor.items() if name != "actions"}
    return _visitor(visitor.get("actions"), options)


def _action(action: Any, place: int) -> Any:
    """A name, an object, or a row of numbers, as JSON writes them."""
    if isinstance(action, str | Mapping):
        return _as_plain(action, f"actions[{place}]")
    try:
        return [float(value) for value in action]
    except (TypeError, ValueError):
        expected = "a name, an object with an id, or a row of numbers"
        raise ConfigurationError(f"actions[{place}]", kind_of(action), expected) from None


def _as_plain(value: Any, place: str, depth: int = 0) -> Any:
    """As JSON writes it, numbers and arrays of NumPy and decimals too; an error names the column."""
    if type(value) is int and value.bit_length() > _MOST_BITS:
        raise ConfigurationError(place, "a number of thousands of digits", "one that can be written down")
    if value is None or type(value) in (str, int, float, bool):
        return value
    if depth > _DEEPEST:
        column = ".".join(place.split(".")[:2])
        raise ConfigurationError(column, "nested without end", "a number, a text, or a list of texts")
    if isinstance(value, Mapping):
        return {name: _as_plain(one, f"{place}.{name}", depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(one, place, depth + 1) for one in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return _as_plain(kind(value), place)
    if isinstance(value, Decimal):
        if value.is_snan():
            raise ConfigurationError(place, "no number", "a number")
        return float(value)
    plain = value.tolist() if hasattr(value, "tolist") else value  # NumPy, without importing it
    if type(plain) is type(value):
        raise ConfigurationError(place, kind_of(value), "a number, a text, true, false or nothing")
    return _as_plain(plain, place)


def _decision(answer: dict[str, Any]) -> Decision:
    for name in ("scores", "ranking"):
        answer[name] = None if answer[name] is None else tuple(answer[name])
    known = Decision.__dataclass_fields__  # a later service may say more
    return Decision(**{name: value for name, value in answer.items() if name in known})

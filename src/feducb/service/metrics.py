"""Prometheus metrics: the agent's counters, read when they are asked for, and how long decisions take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from feducb.agent.health import AGENT
from feducb.agent.own_phase import PHASES
from feducb.models.joint import Hearing

__all__ = ["Metrics"]

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_GAUGES = {
    "season": "The open season.",
    "releases_made": "Releases made in this season.",
    "releases_left": "Releases that this season's budget still covers.",
    "outbox": "Messages that wait to be sent.",
    "open_decisions": "Decisions whose reward window is open.",
    "in_batch": "Records that wait for the next release.",
    "epsilon": "The budget's epsilon.",
    "delta": "The budget's delta.",
}


_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]


def _family(kind: _Family, name: str, text: str, rows: Iterable[tuple[Any, ...]], *labels: str) -> Metric:
    """A metric with a value per row, which is the last in it, after those of its labels."""
    made = kind(f"feducb_{name}", text, labels=labels)
    for *names, value in rows:
        made.add_metric(names, value)
    return made


class _AgentCollector(Collector):
    facts: dict[str, Any] | None = None

    def collect(self) -> Iterator[Metric]:
        if self.facts is None:
            return
        for name, text in _GAUGES.items():
            yield _family(GaugeMetricFamily, name, text, [(self.facts[name],)])
        counts, wrong = sorted(self.facts["counts"].items()), {one["kind"] for one in self.facts["trouble"]}
        yield _family(
            CounterMetricFamily, "events", "What happened, since the file was made.", counts, "event"
        )
        if self.facts["recipe"] is not None:
            yield from _of_recipe(self.facts["recipe"])
        kinds = [(one.kind, one.severity, one.kind in wrong) for one in AGENT]
        text = "Whether something is wrong, by kind; the status says it in words."
        yield _family(GaugeMetricFamily, "trouble", text, kinds, "kind", "severity")
        if self.facts["own"] is not None:
            phases = [(one, one == self.facts["own"]["phase"]) for one in PHASES]
            text = "Under own play, where the agent stands."
            yield _family(GaugeMetricFamily, "phase", text, phases, "phase")
            records = [(self.facts["own"]["records"],)]
            yield _family(GaugeMetricFamily, "own_records", "Own records of this season.", records)
            names = [one.name.lower() for one in Hearing]
            hears = [(one, one == self.facts["own"]["hearing"]) for one in names]
            text = "Since the close, whether the others' sum is heard, and if not why."
            yield _family(GaugeMetricFamily, "hearing", text, hears, "hearing")
        yield from _of_gain(self.facts["gain"])
        if self.facts["rows"] is not None:
            yield from _of_rows(self.facts["rows"])
        if self.facts["keeper"] is not None:
            yield from _of_keeper(self.facts["keeper"])
        if self.facts["engine"] is not None:
            yield from _of_engine(self.facts["engine"])


def _of_recipe(recipe: dict[str, Any]) -> Iterator[Metric]:
    """Of visitors whose values took a rule of the recipe; columns are the recipe's, so there are few."""
    text = "Values that were missing, unknown or clipped, by column, since the file was made."
    counts = [
        (column, rule, count) for column, some in recipe["values"].items() for rule, count in some.items()
    ]
    yield _family(CounterMetricFamily, "values", text, counts, "column", "rule")


def _of_gain(gain: dict[str, Any]) -> Iterator[Metric]:
    """What lanes came to, each with the ends of an interval that holds whenever one looks."""
    known = {name: one for name, one in gain["lanes"].items() if one["mean"] is not None}
    ends = [(name, end, one[end]) for name, one in known.items() for end in ("mean", "low", "high")]
    text = "Mean reward that all visitors would have in a lane, and the ends of its interval."
    yield _family(GaugeMetricFamily, "lane_reward", text, ends, "lane", "end")
    visits = [(name, one["visits"]) for name, one in gain["lanes"].items()]
    yield _family(GaugeMetricFamily, "lane_visits", "Visitors of a lane in this season.", visits, "lane")
    found = gain["difference"]
    if found is not None and found["mean"] is not None:
        text = "What the federation adds to the reward of an agent alone, and the ends of its interval."
        yield _family(GaugeMetricFamily, "gain", text, [*found.items()], "end")


def _of_rows(rows: dict[str, Any]) -> Iterator[Metric]:
    """Where rows leave under pads."""
    counts = [(name, rows[name]) for name in ("built", "skipped", "opened", "refused", "closed_empty")]
    yield _family(GaugeMetricFamily, "rows", "Rows of this season, by what became of them.", counts, "state")
    names = [(str(one["group"]), one["row"]) for one in rows["open"]]
    yield _family(GaugeMetricFamily, "open_row", "The row that is not over, by group.", names, "group")
    sent = [(str(one["group"]), one["sent"]) for one in rows["open"]]
    yield _family(
        GaugeMetricFamily, "open_row_sent", "Whether this agent's part of it is sent.", sent, "group"
    )
    cards = [(name, name not in rows["missing_cards"]) for name in rows["keepers"] or ()]
    yield _family(
        GaugeMetricFamily, "keeper_key", "Whether a keeper's key is here, by keeper.", cards, "keeper"
    )


def _of_keeper(facts: dict[str, Any]) -> Iterator[Metric]:
    """Of the keeper in the same process."""
    answered, halted = [(facts["answered"],)], [(facts["halted"] is not None,)]
    yield _family(
        GaugeMetricFamily, "keeper_answered", "Lists that it has answered in this season.", answered
    )
    yield _family(GaugeMetricFamily, "keeper_halted", "Whether it has halted for the season.", halted)
    text = "Rows for which the controller has signed a second list."
    yield _family(GaugeMetricFamily, "keeper_second_lists", text, [(facts["second_lists"],)])


def _of_engine(facts: dict[str, Any]) -> Iterator[Metric]:
    """Reasons are those of `protocol.admission`, so there are few."""
    connected, received = [(facts["connected"],)], [(facts["last_receipt_at"] or 0.0,)]
    yield _family(GaugeMetricFamily, "engine_connected", "Whether the broker is reached.", connected)
    text = "When a message last arrived, in seconds since 1970; 0 if none has since the start."
    yield _family(GaugeMetricFamily, "engine_last_receipt_timestamp_seconds", text, received)
    sessions, sent, refused = [(facts["sessions"],)], [(facts["sent"],)], facts["refused"].items()
    yield _family(CounterMetricFamily, "engine_sessions", "Connections to the broker.", sessions)
    yield _family(CounterMetricFamily, "engine_sent", "Messages that have arrived.", sent)
    text = "Own messages that were refused, by reason."
    yield _family(CounterMetricFamily, "engine_refused", text, refused, "reason")
    waited = [(name, 1) for name in (facts.get("rows") or {}).get("waits_for_keepers", ())]
    text = "Keepers that the open row waits for, as the controller says."
    yield _family(GaugeMetricFamily, "waits_for_keeper", text, waited, "keeper")
    text = "On a graph: others' messages that were refused here, by agent and reason."
    neighbours = [
        (agent, reason, count)
        for agent, reasons in facts["refused_neighbours"].items()
        for reason, count in reasons.items()
    ]
    yield _family(CounterMetricFamily, "engine_neighbour_refused", text, neighbours, "agent", "reason")


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry, self._agent = CollectorRegistry(), _AgentCollector()
        self._registry.register(self._agent)
        self.seconds = Histogram(
            "feducb_decision_seconds",
            "From a decision's request to its answer.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.refused = Counter(
            "feducb_refused_requests", "Requests refused, by status.", ["status"], registry=self._registry
        )

    def page(self, snapshot: dict[str, Any]) -> bytes:
        """In Prometheus' text format."""
        self._agent.facts = snapshot
        return generate_latest(self._registry)

"""Prometheus metrics: the agent's counters, read when they are asked for, and how long decisions take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from feducb.agent.warning import KINDS

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


class _AgentCollector(Collector):
    told: dict[str, Any] | None = None

    def collect(self) -> Iterator[Metric]:
        if self.told is None:
            return
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"feducb_{name}", text, value=self.told[name])
        events = CounterMetricFamily(
            "feducb_events", "What happened, since the file was made.", labels=["event"]
        )
        for name, count in sorted(self.told["counts"].items()):
            events.add_metric([name], count)
        yield events
        warnings = GaugeMetricFamily(
            "feducb_warning", "Whether a setting does not fit what is seen, by setting.", labels=["kind"]
        )
        for kind in KINDS:
            warnings.add_metric([kind], kind in self.told["warnings"])
        yield warnings
        if self.told["engine"] is not None:
            yield from _of_engine(self.told["engine"])


def _of_engine(told: dict[str, Any]) -> Iterator[Metric]:
    """Reasons are those of `protocol.admission`, so there are few."""
    yield GaugeMetricFamily("feducb_engine_connected", "Whether the broker is reached.", told["connected"])
    yield GaugeMetricFamily(
        "feducb_engine_last_receipt_timestamp_seconds",
        "When a message last arrived, in seconds since 1970; 0 if none has since the start.",
        told["last_receipt_at"] or 0.0,
    )
    yield CounterMetricFamily("feducb_engine_sessions", "Connections to the broker.", told["sessions"])
    yield CounterMetricFamily("feducb_engine_sent", "Messages that have arrived.", told["sent"])
    refused = CounterMetricFamily(
        "feducb_engine_refused", "Own messages that were refused, by reason.", labels=["reason"]
    )
    for reason, count in told["refused"].items():
        refused.add_metric([reason], count)
    yield refused
    neighbours = CounterMetricFamily(
        "feducb_engine_neighbour_refused",
        "On a graph: others' messages that were refused here, by agent and reason.",
        labels=["agent", "reason"],
    )
    for agent, reasons in told["refused_neighbours"].items():
        for reason, count in reasons.items():
            neighbours.add_metric([agent, reason], count)
    yield neighbours


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
        self._agent.told = snapshot
        return generate_latest(self._registry)

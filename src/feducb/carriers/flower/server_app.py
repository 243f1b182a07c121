"""The ServerApp: asks every connected site for what is new, adds it up, and sends the sum back.

It runs its own loop on the grid, without a Strategy. Each site is asked by itself, so that one that is slow
or gone holds nobody up. Whatever it knows is in its book: killed and started again, it goes on.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feducb.carriers.flower.exchange import RECORD, Answer, Ask, quoted
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage.flower_book import FlowerBook
from feducb.system import optional

with optional("Flower", "flower"):
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp

__all__ = ["Collector", "app", "open_book"]

_LOG = logging.getLogger("feducb.carriers.flower")
_TICK = 0.5  # seconds between two looks at the grid
_LEAST_PATIENCE = 10.0  # seconds: a SuperNode looks for questions every 3 s, and starts a process for each
_MOST_REPORTS = 16  # of one visit, in the log

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Collect until the run is stopped."""
    if not _LOG.handlers:
        handler = logging.StreamHandler(sys.stdout)  # Flower keeps this as the run's log
        handler.setFormatter(logging.Formatter("feducb %(levelname)s: %(message)s"))
        _LOG.addHandler(handler)
        _LOG.setLevel(logging.INFO)
        _LOG.propagate = False
    poll = _seconds(context.run_config, "poll-seconds")
    patience = max(_LEAST_PATIENCE, _seconds(context.run_config, "patience-seconds"))
    with open_book(context.run_config) as book:
        collector = Collector(grid, book, poll=poll, patience=patience)
        while True:
            collector.step()
            time.sleep(_TICK)


def open_book(run_config: Mapping[str, Any]) -> FlowerBook:
    """The book that the run's settings name."""
    paths = {name: Path(str(run_config.get(name, ""))) for name in ("book", "terms")}
    for name, path in paths.items():
        if not path.is_absolute():
            raise ConfigurationError(name, run_config.get(name), "an absolute path at the SuperLink")
    terms = Terms.from_json(paths["terms"].read_text(encoding="utf-8"))
    return FlowerBook(
        paths["book"],
        terms,
        agents=run_config.get("agents", 0),
        quorum=run_config.get("quorum") or None,
        deadline=_seconds(run_config, "deadline-seconds"),
    )


@dataclass(slots=True)
class _Site:
    """What the loop remembers of a site. All of it may be forgotten: the site is then asked anew."""

    node: int
    agent: str
    message: str | None = None  # id of the question that is out
    asked_at: float = -float("inf")
    total: bytes = b""  # the sum in that question
    has: bytes = b""  # the sum that its agent has on disk
    eager: bool = True  # ask as soon as there is something to tell or to fetch; not after a failure
    more: bool = False
    sent: list[tuple[int, int]] = field(default_factory=list)  # to be acknowledged
    problems: list[str] = field(default_factory=list)


class Collector:
    """Visits sites over a grid and keeps what they release in a book.

    There are ``poll`` seconds between two visits at a site when there is nothing to tell it, and a site has
    ``patience`` seconds to answer; a question that is older is forgotten.
    """

    def __init__(self, grid: Grid, book: FlowerBook, *, poll: float, patience: float) -> None:
        self._grid, self._book = grid, book
        self._poll, self._patience = poll, patience
        self._sites: dict[int, _Site] = {}  # by Flower's node id
        self._published = b""

    def step(self) -> None:
        """Look once: take answers in, publish what is due, ask whom it is time to ask."""
        for site in self._sites.values():
            if site.message is not None:
                self._hear(site, site.message)
        self._book.publish_due(now=time.time())
        named = self._book.newest()
        newest = named.payload if named is not None else b""
        if newest != self._published:
            total = messages.decode(newest)
            _LOG.info("sum %d of season %d: %d agents", total.number, total.season, total.agents)
            self._published = newest
        now = time.monotonic()
        asked = [site for site in self._connected() if self._is_due(site, newest, now)]
        if asked:
            names = self._grid.push_messages([self._question(site, newest, now) for site in asked])
            for site, name in zip(asked, names, strict=False):  # no names at all, if the push was too large
                site.message = name or None

    def _is_due(self, site: _Site, newest: bytes, now: float) -> bool:
        waited = now - site.asked_at
        if site.message is not None:
            if waited <= 2.0 * self._patience:
                return False
            site.message, site.eager = None, False  # Flower reports an expired question long before
        return waited >= self._poll or (site.eager and (site.more or site.has != newest))

    def _connected(self) -> list[_Site]:
        nodes = list(self._grid.get_nodes())
        for node in nodes:
            # The key, not the node's id, is the agent's name: ids are new whenever a SuperLink forgets.
            agent = hashlib.sha256(node.public_key).hexdigest()[:32]
            known = self._sites.get(node.node_id)
            if node.public_key and (known is None or known.agent != agent):
                self._sites[node.node_id] = _Site(node.node_id, agent)
                _LOG.info("agent %s is there, as node %d", agent, node.node_id)
        return [self._sites[node.node_id] for node in nodes if node.node_id in self._sites]

    def _question(self, site: _Site, newest: bytes, now: float) -> Message:
        site.asked_at = now
        site.total = newest if site.has != newest else b""
        ask = Ask(nonce=secrets.token_bytes(16), total=site.total, sent=tuple(site.sent))
        site.sent.clear()  # lost on the way, they are acknowledged again when they come again
        content = RecordDict({RECORD: ConfigRecord(ask.to_plain())})
        return Message(content, site.node, "query.exchange", ttl=self._patience)

    def _answer(self, question: str) -> Answer | None:
        """What a site answers to a question, if it has; a ``ValueError`` for whatever is no answer."""
        try:
            for reply in self._grid.pull_messages([question]):
                if reply.has_error():
                    raise ValueError(f"no answer: {reply.error.reason}")
                return Answer.from_plain(reply.content[RECORD])
        except Exception as error:
            # Whatever it is: a site makes up what Flower has to unpack here, and must not stop the others. If
            # it is the SuperLink that fails, asking it for its nodes fails next.
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return None

    def _hear(self, site: _Site, question: str) -> None:
        try:
            answer = self._answer(question)
        except ValueError as error:
            site.message = None
            self._report(site, [str(error)])
            return
        if answer is None:
            return
        site.message = None
        problems = list(answer.problems)
        if site.total and answer.absorbed:
            site.has = site.total
        batch = [(site.agent, payload) for payload in answer.releases]
        receipts = self._book.receive(batch, now=time.time())
        for receipt, payload in zip(receipts, answer.releases, strict=True):
            if receipt.status == "refused":
                problems.append(f"refused a release: {receipt.reason}: {receipt.text}")
                continue
            release = messages.decode(payload)
            site.sent.append((release.season, release.number))
        site.more = answer.more and bool(site.sent)
        self._report(site, problems)

    def _report(self, site: _Site, problems: list[str]) -> None:
        site.eager = not problems
        del problems[_MOST_REPORTS:]
        if problems != site.problems:  # said once, not at every visit
            for problem in problems:
                _LOG.warning("agent %s: %s", site.agent, quoted(problem))
        site.problems = problems


def _seconds(run_config: Mapping[str, Any], name: str) -> float:
    value = run_config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigurationError(name, value, "seconds, at least 0")
    return float(value)

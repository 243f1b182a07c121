"""The ServerApp: asks every connected site for what is new, adds it up, and sends the sum back.

It runs its own loop on the grid, without a Strategy. Each site is asked by itself, so that one that is slow
or gone holds nobody up. Whatever it knows is in its desk's book: killed and started again, it goes on.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field

from feducb.carriers.flower.desks import Desk, open_desk, seconds
from feducb.carriers.flower.exchange import RECORD, Answer, Ask, digest_of, quoted
from feducb.system import optional

with optional("Flower", "flower"):
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp

__all__ = ["Collector", "app"]

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
    poll = seconds(context.run_config, "poll-seconds")
    patience = max(_LEAST_PATIENCE, seconds(context.run_config, "patience-seconds"))
    with closing(open_desk(context.run_config)) as desk:
        collector = Collector(grid, desk, poll=poll, patience=patience)
        while True:
            collector.step()
            time.sleep(_TICK)


@dataclass(slots=True)
class _Site:
    """What the loop remembers of a site. All of it may be forgotten: the site is then asked anew."""

    node: int
    key: str  # digest of the SuperNode's
    agent: str = ""  # as it calls itself
    place: bytes | None = None  # how far its agent is; None if it has not said
    message: str | None = None  # id of the question that is out
    asked_at: float = -float("inf")
    news: list[bytes] = field(default_factory=list)  # in that question
    has: set[bytes] = field(default_factory=set)  # of what is news now, what its agent has on disk
    eager: bool = True  # ask as soon as there is something to tell or to fetch; not after a failure
    more: bool = False
    sent: list[bytes] = field(default_factory=list)  # to be acknowledged
    problems: list[str] = field(default_factory=list)


class Collector:
    """Visits sites over a grid, and takes what they bring to a desk.

    There are ``poll`` seconds between two visits at a site when there is nothing to tell it, and a site has
    ``patience`` seconds to answer; a question that is older is forgotten.
    """

    def __init__(self, grid: Grid, desk: Desk, *, poll: float, patience: float) -> None:
        self._grid, self._desk = grid, desk
        self._poll, self._patience = poll, patience
        self._sites: dict[int, _Site] = {}  # by Flower's node id

    def step(self) -> None:
        """Look once: take answers in, publish what is due, ask whom it is time to ask."""
        for site in self._sites.values():
            if site.message is not None:
                self._hear(site, site.message)
        for said in self._desk.settle(now=time.time()):
            _LOG.info("%s", said)
        now = time.monotonic()
        asked = [site for site in self._connected() if self._is_due(site, now)]
        if asked:
            names = self._grid.push_messages([self._question(site, now) for site in asked])
            for site, name in zip(asked, names, strict=False):  # no names at all, if the push was too large
                site.message = name or None

    def _is_due(self, site: _Site, now: float) -> bool:
        waited = now - site.asked_at
        if site.message is not None:
            if waited <= 2.0 * self._patience:
                return False
            site.message, site.eager = None, False  # Flower reports an expired question long before
        if waited >= self._poll:
            return True
        return site.eager and (site.more or self._has_news(site))

    def _has_news(self, site: _Site) -> bool:
        """For its agent, or for the keeper beside it."""
        return bool(self._desk.rows_for(site.agent)) or not site.has.issuperset(self._desk.news(site.place))

    def _connected(self) -> list[_Site]:
        nodes = list(self._grid.get_nodes())
        for node in nodes:
            # The key, not the node's id, says who it is: ids are new whenever a SuperLink forgets.
            key = hashlib.sha256(node.public_key).hexdigest()[:32]
            known = self._sites.get(node.node_id)
            if node.public_key and (known is None or known.key != key):
                self._sites[node.node_id] = _Site(node.node_id, key)
                _LOG.info("agent %s is there, as node %d", key, node.node_id)
        return [self._sites[node.node_id] for node in nodes if node.node_id in self._sites]

    def _question(self, site: _Site, now: float) -> Message:
        site.asked_at, site.news = now, self._desk.news(site.place)
        ask = Ask(
            nonce=secrets.token_bytes(16),
            news=tuple(site.news),
            rows=self._desk.rows_for(site.agent),
            sent=tuple(site.sent),
        )
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
        site.message, site.agent, site.place = None, answer.agent, answer.place
        told = site.news[: max(0, answer.heard)]
        site.has = site.has.union(told).intersection(self._desk.news(site.place))
        receipts = self._desk.take(site.key, answer, now=time.time())
        refused = [one for one in receipts if one.status == "refused"]
        taken = zip(answer.parcels, receipts, strict=False)  # a keeper's words come after them
        site.sent += [digest_of(payload) for payload, receipt in taken if receipt.status != "refused"]
        site.more = answer.more and bool(site.sent)
        self._report(site, [*answer.problems, *(f"refused: {one.reason}: {one.text}" for one in refused)])

    def _report(self, site: _Site, problems: list[str]) -> None:
        site.eager = not problems
        del problems[_MOST_REPORTS:]
        if problems != site.problems:  # said once, not at every visit
            for problem in problems:
                _LOG.warning("agent %s: %s", site.agent or site.key, quoted(problem))
        site.problems = problems

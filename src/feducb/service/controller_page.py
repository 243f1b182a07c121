"""The controller's page: released or operational facts only, for whoever runs the federation.

A snapshot of ``kind`` ``controller`` has the following names. All but ``kind``, ``name`` and ``agents`` may
be missing or None; times are seconds since 1970.

    kind            "controller"
    at              when it was taken
    name            of the federation
    season          the open one
    connected       whether the broker is reached
    trust           "nobody", "controller" or "keepers"
    quorum          how many agents a sum needs
    releases        how many sums the season covers
    agents          [{name, last_seen, number, in_sum, refused, last_refusal}]: the number of its newest
                    message, whether it is in the newest sum, refused messages by reason, the last in words
    strangers       refused messages of nobody's, by reason
    newest_sum      {season, number, agents}: how many are in it
    sums            [{season, number, published_at, names, deviation}], newest first: all, up to 1,000;
                    deviation is that of the noise in an off-diagonal entry of the Gram
    rows            under keepers, how the open row stands (`RowBook.facts`)
    graph           {nodes: [name], edges: [[name, name]], cliques: [[name]]} of a decentralised run
    trouble         [{kind, severity, says}], what is wrong (`controller.controller_health`)
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from feducb.agent.service_settings import ServiceSettings
from feducb.controller.controller_file import ControllerSettings, status_path
from feducb.controller.controller_health import judge_controller
from feducb.protocol.engine_table import require_keys
from feducb.service.api_keys import ApiKeys
from feducb.service.dashboard import Snapshot, add_dashboard
from feducb.service.sessions import Sessions
from feducb.version import __version__

__all__ = ["Watcher", "create_controller_page", "read_status_file", "serve_beside"]

_STRANGERS = "(unknown)"


def create_controller_page(snapshot: Snapshot, keys: Path) -> FastAPI:
    """An app that serves the page of a controller.

    Args:
        snapshot: what it shows; see above.
        keys: a file of API keys, as `feducb agent key add` makes them; an operator's key opens the page.
    """
    app = FastAPI(title="feducb controller", version=__version__, docs_url=None, redoc_url=None)
    sessions = Sessions(ApiKeys(keys))

    @app.get("/healthz")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    add_dashboard(app, snapshot, lambda: sessions)
    return app


class Watcher:
    """Turns a controller's status into snapshots; remembers agents whose number rose.

    What was there before the first look is as old as the status says (``last_seen``), or of unknown age.
    """

    def __init__(
        self,
        status: Callable[[], Mapping[str, Any]],
        *,
        name: str,
        agents: Sequence[str],
        quorum: int | None = None,
        releases: int | None = None,
        trust: str | None = None,
        graph: Mapping[str, Any] | None = None,
    ) -> None:
        """What does not change about a federation while its controller runs, beside its status.

        Args:
            status: what the controller says about itself: ``at``, ``connected``, ``season``, ``newest_sum``,
                ``agents_in_it``, ``newest_message``, ``refused``, ``last_refusals``, ``last_error``,
                ``rows``,
                ``sums``, and what its conditions look at.
            name: of the federation.
            agents: all of them, by name.
            quorum: how many a sum needs; all if not given.
            releases: how many sums the season covers.
            trust: where noise is added.
            graph: of a decentralised run.
        """
        self._status, self._agents = status, agents
        quorum = len(agents) if quorum is None else quorum
        self._about = {"name": name, "trust": trust, "quorum": quorum, "releases": releases, "graph": graph}
        self._numbers: dict[str, int] = {}
        self._seen: dict[str, float] = {}
        self._looked = False

    async def __call__(self) -> dict[str, Any]:
        """Look at the status, and return a snapshot."""
        facts, now = self._status(), time.time()
        for name, number in (facts.get("newest_message") or {}).items():
            if self._numbers.get(name) != number:
                self._numbers[name] = number
                if self._looked:
                    self._seen[name] = now
        self._seen |= facts.get("last_seen") or {}
        newest, inside = None, facts.get("agents_in_it") or ()
        if facts.get("newest_sum"):
            newest = dict(zip(("season", "number"), facts["newest_sum"], strict=True), agents=len(inside))
        self._looked = self._looked or "newest_message" in facts
        refused, rows = facts.get("refused") or {}, facts.get("rows")
        known = {"agents": list(self._agents), "quorum": self._about["quorum"], "last_seen": self._seen}
        return self._about | {
            "kind": "controller",
            "at": facts.get("at"),
            "season": facts.get("season"),
            "connected": facts.get("connected"),
            "agents": [self._agent(name, facts, in_sum=name in inside) for name in self._agents],
            "strangers": refused.get(_STRANGERS, {}),
            "newest_sum": newest,
            "sums": facts.get("sums") or [],
            "rows": rows,
            **({"quorum": rows["quorum"]} if rows else {}),
            "trouble": judge_controller({**facts, **known, "at": now, **_age(facts, now)}),
        }

    def _agent(self, name: str, facts: Mapping[str, Any], *, in_sum: bool) -> dict[str, Any]:
        refusal = (facts.get("last_refusals") or {}).get(name) or {}
        return {
            "name": name,
            "last_seen": self._seen.get(name),
            "number": (facts.get("newest_message") or {}).get(name),
            "in_sum": in_sum,
            "refused": (facts.get("refused") or {}).get(name, {}),
            "last_refusal": refusal.get("text"),
        }


def _age(facts: Mapping[str, Any], now: float) -> dict[str, float]:
    """How many seconds ago the controller said so: the page may go on where it hangs."""
    return {} if facts.get("at") is None else {"seconds_ago": now - facts["at"]}


def serve_beside(settings: ControllerSettings, *, base: Path) -> None:
    """Serve the page of a controller that runs in this process, from a thread of its own.

    Args:
        settings: with a ``[page]`` table: ``keys``, and optionally ``host``, ``port``, ``certificate`` and
            ``private_key``.
        base: the folder that its paths are relative to.
    """
    from feducb.service.server import run

    table = dict(settings.page or {})
    require_keys("page", table, needed=("keys",), known=("host", "port", "certificate", "private_key"))
    for name in table.keys() & {"keys", "certificate", "private_key"}:
        table[name] = base / table[name]
    terms = next(iter(settings.terms.values()))
    watcher = Watcher(
        lambda: read_status_file(status_path(settings)),
        name=settings.engine.federation,
        agents=list(settings.terms),
        quorum=settings.quorum,
        releases=terms.releases,
        trust=terms.trust.name,
    )
    app, where = create_controller_page(watcher, table["keys"]), ServiceSettings(**({"port": 8760} | table))
    threading.Thread(target=run, args=(app, where), daemon=True, name="page").start()


def read_status_file(path: Path) -> dict[str, Any]:
    """What a controller last wrote about itself; says so if it was not written yet."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {"connected": False, "last_error": f"No status in {path.name}: {type(error).__name__}."}
    return facts

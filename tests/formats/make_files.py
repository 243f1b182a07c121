"""Made `VERSION.tar.xz`, with feducb of that version: one of every file that a later version must open.

    python tests/formats/make_files.py tests/formats/1.0.0.tar.xz

Run it once for each release, with the code of the release. Federations in the middle of a season are those
that `tests/carriers/earlier/make.py` makes (in `1.0.0.tar.xz`, made by an earlier form of it, `keys` alone);
`secure`, `trusted`, `graph` and `plain` have what they lack.
"""

from __future__ import annotations

import json
import runpy
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np

from feducb.agent import upkeep
from feducb.carriers import nats_keys as keys
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.privacy.terms import Terms
from feducb.protocol.peers import Announcement
from feducb.protocol.roster import Roster, Signer
from feducb.service.api_keys import add_key
from feducb.storage import AgentStore, RowBook
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.peer_book import PeerBook
from feducb.worlds.features import Recipe

EARLIER = Path(__file__).parents[1] / "carriers" / "earlier" / "make.py"
NAMES = ("a", "b", "c")


def _terms(trust: str) -> Terms:
    budget = Budget(epsilon=1.0, delta=1e-6)
    return Terms(problem=Problem(dim=2), budget=budget, releases=4, trust=trust, agents=3)  # type: ignore[arg-type]


def _secure(folder: Path) -> None:
    """A keeper's and a controller's file of secure sums, at the start of a season."""
    keys.init(folder, NAMES, federation="tests", keepers=NAMES[1:], server=keys.Server(days=3650))
    terms, roster = _terms("keepers:0:1"), Roster.read(folder / "federation.json")
    (folder / "terms.json").write_text(terms.to_json())
    signer = Signer(folder / "keepers/b/keeper.seed")
    with KeeperBook(folder / "keeper.db", "b", roster, terms, signer) as kept:
        (folder / "card.bin").write_bytes(kept.card())
    RowBook(folder / "rows.db", roster, terms, Signer(folder / "controller/controller.seed")).close()


def _trusted(folder: Path) -> None:
    """An agent with an upload that was not sent yet, and the trusted controller's file without it."""
    folder.mkdir()
    terms = _terms("controller")
    (folder / "terms.json").write_text(terms.to_json())
    with AgentStore.open(folder / "agent.db", terms) as store:
        store.record(np.eye(2), np.ones(2), ["she", "he"])
        first = store.upload()
        store.acknowledge(1, 1)
        store.record(np.eye(2), np.ones(2), ["they", "you"])
        store.upload()
    collector = open_collector(folder / "controller.db", {"a": terms})
    collector.exchange([("a", first)], now=0.0)
    collector.close()


def _graph(folder: Path) -> None:
    """What a peer heard."""
    folder.mkdir()
    with PeerBook(folder / "peers.db") as book:
        book.keep({(1, 0): [Announcement(1, 0, 1, 4, 0, b"a release", 1)]})


def _plain(folder: Path, agent: Path) -> None:
    """Files of text."""
    folder.mkdir()
    recipe = Recipe.of_actions(["tea", "coffee"], reserve=1)
    (folder / "recipe.json").write_text(recipe.to_json())
    (folder / "export.jsonl").write_text("".join(json.dumps(row) + "\n" for row in upkeep.export(agent)))
    (folder / "secret").write_text(add_key(folder / "keys.json", "shop"))


def make(folder: Path) -> None:
    """Everything, in a folder."""
    earlier = runpy.run_path(str(EARLIER))
    for kind in earlier["KINDS"]:
        earlier["make"](folder / kind, kind)
    _secure(folder / "secure")
    _trusted(folder / "trusted")
    _graph(folder / "graph")
    _plain(folder / "plain", folder / "keys" / "agents" / "north" / "north.db")
    for path in folder.rglob("*.db"):
        with closing(sqlite3.connect(path)) as db:
            db.execute("VACUUM")  # nothing of the folder in which they were made
    for path in folder.rglob("*.lock"):
        path.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        make(Path(where))
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            for part in sorted(Path(where).iterdir()):
                archive.add(part, part.name)

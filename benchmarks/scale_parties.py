"""One secure sum and one plain one in this process, without sockets: what each party does, and its bytes.

`python benchmarks/scale.py --only parties` measures it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.hiding import Cover
from feducb.protocol.keeping import quorum_of
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import KeyCard, Opened, ask_size, row_size
from feducb.storage import ReleaseBook, RowBook
from feducb.storage.keeper_book import KeeperBook

MEASURED = [100, 1_000, 3_000, 10_000]
KEEPERS, DIM = 3, 10


class Party:
    """Processor seconds of one party, added up."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def does(self, work: Callable[[], Any]) -> Any:
        """Do it, and count."""
        began = time.process_time()
        done = work()
        self.seconds += time.process_time() - began
        return done


def secure_sum(agents: int, folder: Path) -> dict[str, float]:
    """One row of all agents through the deployed objects: pads on, listed, answered, opened, read."""
    names = [f"agent-{index:06}" for index in range(agents)]
    signers, controller = {name: Signer.fresh() for name in names}, Signer.fresh()
    holders = {name: Signer.fresh() for name in names[:KEEPERS]}
    roster = Roster(
        federation="scale",
        agents={name: one.nkey for name, one in signers.items()},
        controller=controller.nkey,
        sealing="00" * 32,
        keepers={name: one.nkey for name, one in holders.items()},
    )
    terms = make_terms(agents, "keepers")
    charter, label, coordinates = Charter.of(roster, terms, 1), Label(1, 0, 1), terms.model.coordinates(DIM)
    serves, keeps, plays = Party(), Party(), Party()
    row = np.zeros(coordinates, dtype=np.int64)
    books = [KeeperBook(folder / f"{name}.db", name, roster, terms, one) for name, one in holders.items()]
    with RowBook(folder / "controller.db", roster, terms, controller) as book:
        book.hear(list(zip(holders, [one.card() for one in books], strict=True)), now=0.0)
        cards = {card.keeper: card for card in (KeyCard.read(one, charter, roster) for one in book.cards())}
        sent = []
        for name in names:
            cover = Cover(name, roster, signers[name], SeasonKey(), b"s" * 32, charter)
            sent.append((name, plays.does(partial(cover.hide, label, row, cards)).to_bytes()))
        serves.does(lambda: book.exchange(sent, now=1.0))
        asks = serves.does(book.asks)
        keeper = keeps.does(lambda: books[0].answer(asks[names[0]]))
        rest = [(name, one.answer(asks[name])) for name, one in zip(names[1:KEEPERS], books[1:], strict=True)]
        serves.does(lambda: book.hear([(names[0], keeper), *rest], now=1.0))
        (published,) = serves.does(lambda: book.publish_due(now=1.0))
    reads = Party()
    enough = quorum_of(terms)
    opened = reads.does(
        lambda: Opened.read(published.body, charter, roster, coordinates=coordinates, quorum=enough)
    )
    assert np.array_equal(opened.values, agents * row)
    for one in books:
        one.close()
    sizes = {
        "roster": len(roster.to_json()),
        "row": len(sent[0][1]),
        "ask": len(asks[names[0]]),
        "answer": len(keeper),
        "opened": len(published.body),
    }
    assert (sizes["row"], sizes["ask"]) == (row_size(coordinates), ask_size(agents))
    return {
        "controller": serves.seconds,
        "keeper": keeps.seconds,
        "agent, padding": plays.seconds / agents,
        "agent, reading": reads.seconds,
        **{f"bytes of {name}": size for name, size in sizes.items()},
    }


def plain_sum(agents: int, folder: Path) -> dict[str, float]:
    """One release of all agents, nobody trusted; signatures are checked by the carrier, and not in this."""
    terms, names = make_terms(agents, "nobody"), [f"agent-{index:06}" for index in range(agents)]
    release = messages.encode(DeployedPrivatizer(terms).release(), season=1)
    serves = Party()
    with ReleaseBook(folder / "plain.db", dict.fromkeys(names, terms)) as book:
        _, sums = serves.does(lambda: book.exchange([(name, release) for name in names], now=1.0))
    return {
        "plain controller": serves.seconds,
        "bytes of release": len(release),
        "bytes of plain sum": len(sums[0].body),
    }


def make_terms(agents: int, trust: str) -> Terms:
    """What is promised."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    return Terms(problem=Problem(dim=DIM), budget=budget, releases=16, trust=trust, agents=agents)  # type: ignore[arg-type]


def parties() -> dict[str, Any]:
    """At some numbers of agents."""
    found: dict[str, Any] = {}
    for agents in MEASURED:
        with tempfile.TemporaryDirectory() as scratch:
            each = secure_sum(agents, Path(scratch)) | plain_sum(agents, Path(scratch))
        found[str(agents)] = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in each.items()
        }
        print(agents, found[str(agents)], flush=True)
    return found

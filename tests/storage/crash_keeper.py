"""The keeper that `test_keeper_crash` kills: it answers lists as fast as it can, of a controller that cheats.

    python crash_keeper.py STORE FD PHASE [careless]    # one life for each line on stdin, as in `crash_agent`

For every row the controller signs three lists, and each life asks for them in an order of its own. What
leaves is a frame: row, attempt, which list, size, answer; in one write.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import sys
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from crash_agent import STATEMENT_STEPS, TRACED, Fate

from feducb.config import Budget, Problem
from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import keeping
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Ask, PaddedRow
from feducb.storage.keeper_book import KeeperBook

FRAME = struct.Struct("<IIBH")
PHASES = ("start", "answer", "send", "again")
AGENTS, KEEPER = ("a", "b", "c", "d"), "b"
TRACED |= {__file__, keeping.__file__}
TERMS = Terms(
    problem=Problem(dim=3),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=4096,
    trust="keepers:1:1",  # type: ignore[arg-type]
    agents=len(AGENTS),
)
LISTS = ((0, 1, 2, 3), (0, 1, 2), (1, 2, 3))  # places of a row's three lists

Send = Callable[[Label, int, bytes], None]
Enter = Callable[[str], None]


class Town:
    """Everybody's keys; those who ask sign whatever they like."""

    def __init__(self) -> None:
        self.signers = {name: Signer.fresh() for name in AGENTS}
        self.keepers = {name: Signer.fresh() for name in ("b", "c")}
        self.controller = Signer.fresh()
        self.roster = Roster(
            federation="crash",
            agents={name: one.nkey for name, one in self.signers.items()},
            controller=self.controller.nkey,
            sealing="00" * 32,
            keepers={name: one.nkey for name, one in self.keepers.items()},
        )
        self.charter = Charter.of(self.roster, TERMS, 1)
        self.publics = {name: SeasonKey().public for name in AGENTS}

    def open(self, path: Path) -> KeeperBook:
        return KeeperBook(path, KEEPER, self.roster, TERMS, self.keepers[KEEPER])

    def ask(self, label: Label, which: int) -> bytes:
        """One of the lists of a row; the same bytes each time."""
        entries = []
        for place in LISTS[which]:
            name, body = AGENTS[place], label.to_bytes() * 4 + bytes([place]) * 8
            row = PaddedRow(label, self.publics[name], sha256(body).digest(), body)
            entries.append(row.sign(self.charter, name, self.signers[name]).entry(place))
        return Ask(label, tuple(entries)).to_bytes(self.charter, self.controller)


def live(town: Town, book: KeeperBook, seed: int, send: Send, enter: Enter) -> None:
    """Ask for the next row's lists in some order, and for those of rows before once more; for ever."""
    order = random.Random(seed)
    while True:
        newest = book.newest()
        label = Label(1, 0, 1) if newest is None else newest[0].following(empty=False)
        for which in order.sample(range(3), 3):
            enter("answer")
            _try(town, book, label, which, send, enter)
        if label.row > 1:
            enter("again")
            before = Label(1, 0, order.randint(max(1, label.row - 3), label.row))
            for which in range(3):
                _try(town, book, before, which, send, enter)


def _try(town: Town, book: KeeperBook, label: Label, which: int, send: Send, enter: Enter) -> None:
    try:
        answer = book.answer(town.ask(label, which))
    except RefusedError as error:
        if error.reason != "second list":
            raise
        return
    enter("send")
    send(label, which, answer)


def live_carelessly(town: Town, book: KeeperBook, seed: int, send: Send, enter: Enter) -> None:
    """How not to do it: the answer leaves before it is on disk."""
    order = random.Random(seed)
    while True:
        newest = book.newest()
        label = Label(1, 0, 1) if newest is None else newest[0].following(empty=False)
        which = order.randrange(3)
        ask = town.ask(label, which)
        enter("send")
        send(label, which, book.duty.answer(book.duty.read(ask)).to_bytes(town.roster))
        enter("answer")
        book.answer(ask)


def serve_lives(path: Path, channel: int, phases: Path, *, careless: bool) -> None:
    """Fork a life for each line on stdin; say how it ended on stdout."""
    with phases.open("r+b") as file:
        phase = mmap.mmap(file.fileno(), 1)
    town = Town()
    town.open(path).close()  # imports everything, and draws the key of the season

    def enter(name: str) -> None:
        phase[0] = PHASES.index(name)

    def send(label: Label, which: int, answer: bytes) -> None:
        # Less than PIPE_BUF: whole, or not at all.
        os.write(channel, FRAME.pack(label.row, label.attempt, which, len(answer)) + answer)

    for seed, line in enumerate(sys.stdin):
        enter("start")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # idle BLAS threads do not survive a fork
            child = os.fork()
        if child == 0:
            fate = Fate(int(line))
            sys.settrace(fate.trace)
            try:
                with town.open(path) as book:
                    book.database.set_progress_handler(fate.pass_point, STATEMENT_STEPS)
                    (live_carelessly if careless else live)(town, book, seed, send, enter)
            finally:
                os._exit(1)  # nobody is meant to get here: a life ends by SIGKILL
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve_lives(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), careless=len(sys.argv) > 4)

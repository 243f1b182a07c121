"""Kill -9 at chosen points, and asks that were tampered with: a keeper answers one list a row, for ever."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash_keeper import FRAME, PHASES, Town

from feducb.errors import RefusedError
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import Ask

KEEPER = Path(__file__).with_name("crash_keeper.py")
KILLS, IN_ANSWER = 240, 60  # so many, at least so many of them between being asked and having sent
FEW = 30  # are enough for a careless one to be caught
LONGEST = 900  # points of a life: opening the file takes about 200 of them, an answer about 150
PATIENCE = 120.0  # seconds that nothing here needs: only a hang takes so long
FUZZED = 2_000


@dataclass
class Seen:
    """What an observer on the wire has seen, by row; and where the keeper was when it was killed."""

    answers: dict[tuple[int, int], list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    phases: Counter[str] = field(default_factory=Counter)

    def note(self, label: Label, which: int, answer: bytes) -> None:
        self.answers[label.row, label.attempt].append((which, answer))

    def torn(self) -> list[tuple[int, int]]:
        """Rows answered for two lists, or with two byte strings."""
        return [row for row, answers in list(self.answers.items()) if len(set(answers)) > 1]

    def resent(self) -> int:
        return sum(len(answers) - 1 for answers in list(self.answers.values()))


def _listen(channel: int, seen: Seen) -> None:
    with os.fdopen(channel, "rb") as stream:
        while head := stream.read(FRAME.size):
            row, attempt, which, size = FRAME.unpack(head)
            answer = stream.read(size)
            assert len(answer) == size
            seen.note(Label(1, 0, row, attempt), which, answer)


def _kill_often(store: Path, fates: Sequence[int], *options: str) -> Seen:
    """Let the keeper live and be killed, again and again, each time at the point that its fate says."""
    seen, phase = Seen(), store.with_suffix(".phase")
    phase.write_bytes(b"\0")
    reading, writing = os.pipe()
    listener = threading.Thread(target=_listen, args=(reading, seen))
    listener.start()
    command = [sys.executable, str(KEEPER), str(store), str(writing), str(phase), *options]
    keeper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[writing]
    )
    os.close(writing)
    assert keeper.stdin
    assert keeper.stdout
    with keeper.stdin, keeper.stdout:  # without them the keeper ends: nothing is left running
        for fate in fates:
            keeper.stdin.write(f"{fate}\n")
            keeper.stdin.flush()
            assert int(keeper.stdout.readline()) == -signal.SIGKILL, "the keeper died before it was killed"
            seen.phases[PHASES[phase.read_bytes()[0]]] += 1
    assert keeper.wait(timeout=PATIENCE) == 0
    listener.join(timeout=PATIENCE)
    assert not listener.is_alive()
    return seen


def _fates(count: int) -> list[int]:
    rng = random.Random(20201)
    return [rng.randint(1, LONGEST) for _ in range(count)]


def test_killed_at_any_point_a_keeper_answers_one_list_a_row_with_the_same_bytes(tmp_path: Path) -> None:
    seen = _kill_often(tmp_path / "keeper.db", _fates(KILLS))
    print(f"\n{KILLS} kills in {dict(seen.phases)}; {len(seen.answers)} rows, {seen.resent()} resent")
    assert seen.torn() == []
    assert seen.phases["answer"] + seen.phases["send"] >= IN_ANSWER
    assert seen.resent() > 0
    rows = sorted(row for row, _ in seen.answers)
    # Killed between commit and send, and not asked again: at most a row in four is never seen.
    assert len(rows) > 0.75 * rows[-1]


def test_the_first_of_these_kills_catch_a_keeper_that_stores_after_it_sends(tmp_path: Path) -> None:
    assert _kill_often(tmp_path / "keeper.db", _fates(FEW), "careless").torn() != []


def _tampered(ask: bytes, other: bytes, rng: random.Random) -> bytes:
    """Another byte, a cut, something at the end, or a part of another list."""
    at = rng.randrange(len(ask))
    return rng.choice(
        (
            ask[:at] + bytes([ask[at] ^ (1 << rng.randrange(8))]) + ask[at + 1 :],
            ask[:at],
            ask + rng.randbytes(rng.randint(1, 70)),
            ask[:at] + other[at:],
            ask[: at // 2] + ask[at:],
            rng.randbytes(len(ask)),
        )
    )


def test_2000_fuzzed_asks_get_one_list_a_row_answered_and_nothing_else_breaks(tmp_path: Path) -> None:
    """A third are lists that the controller signed, of rows up to the next; the others are tampered with."""
    rng, town, seen = random.Random(18), Town(), Seen()
    refused: Counter[str] = Counter()
    book = town.open(tmp_path / "keeper.db")
    for number in range(FUZZED):
        newest = book.newest()
        last = 0 if newest is None else newest[0].row
        label = Label(1, 0, rng.randint(max(1, last - 4), last + 1))
        which = rng.randrange(3)
        ask = town.ask(label, which)
        honest = rng.random() < 0.34
        data = ask if honest else _tampered(ask, town.ask(Label(1, 0, last + 1), rng.randrange(3)), rng)
        try:
            answer = book.answer(data)
        except RefusedError as error:
            refused[error.reason] += 1
        else:
            asked = Ask.read(data, town.charter, town.roster)  # a part of another list may be all of it
            lists = [one for one in range(3) if town.ask(asked.label, one) == data]
            seen.note(asked.label, lists[0], answer)
        if number % 200 == 199:
            book.close()
            book = town.open(tmp_path / "keeper.db")
    assert seen.torn() == []
    assert not book.halted
    assert len(seen.answers) > 40
    assert refused["second list"] > 100
    assert refused.keys() <= {"second list", "signature", "size", "malformed", "season", "number", "sender"}
    # A list of a row beyond the next one, which only a store older than the federation is asked for.
    last = max(row for row, _ in seen.answers)
    with pytest.raises(RefusedError, match="order"):
        book.answer(town.ask(Label(1, 0, last + 2), 0))
    with pytest.raises(RefusedError, match="older than the federation"):
        book.answer(town.ask(Label(1, 0, last + 1), 0))
    book.close()

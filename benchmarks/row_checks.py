"""What must hold of everybody's files where rows left under pads, whoever was killed when."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.keeping import quorum_of
from feducb.protocol.opening import RowReader
from feducb.protocol.pads import Charter, Label
from feducb.protocol.roster import Roster
from feducb.protocol.secure_rows import Answer, Opened, PaddedRow, open_sum

__all__ = ["RowFiles", "newest_over", "require_quiet_logs"]

_ATTEMPTS = {"row": 1, "make-up": 2}
_TROUBLE = ("refused", "halted", "failed")  # in the name of what a log says has happened
_SEASON = 1


def newest_over(agent: Path) -> tuple[Label, int] | None:
    """The newest row that an agent knows to be over, and how many are in it; None while another is under way.

    Args:
        agent: its file.
    """
    query = "SELECT row, attempt, agents FROM opened ORDER BY row DESC, attempt DESC LIMIT 1"
    newest = _rows(agent, query)
    ((built,),) = _rows(agent, "SELECT coalesce(max(number), 0) FROM outgoing")
    if not newest:
        return None
    ((row, attempt, agents),) = newest
    label = Label(_SEASON, 0, row, attempt)
    return (label, agents) if label.following(empty=agents == 0).row > max(built, row) else None


def require_quiet_logs(logs: Iterable[Path]) -> None:
    """Raise AssertionError if anybody refused anything: nobody here does wrong."""
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            if not line.startswith("{") or not line.endswith("}"):
                continue  # cut off where its process was
            event = json.loads(line).get("event", "")
            assert not any(word in event for word in _TROUBLE), f"{log.name}: {line}"


class RowFiles:
    """Files of a federation that is over, by which all that was said can be checked."""

    def __init__(
        self,
        roster: Roster,
        terms: Terms,
        *,
        agents: Mapping[str, Path],
        keepers: Mapping[str, Path],
        controller: Path,
    ) -> None:
        self._roster, self._terms, self._charter = roster, terms, Charter.of(roster, terms, _SEASON)
        self._agents, self._keepers, self._controller = agents, keepers, controller
        self._quorum = quorum_of(terms)
        self._count = terms.model.coordinates(terms.problem.dim)
        self._opened = [self._read(body) for (body,) in self._told("body", "opened")]
        self._built = {name: self._built_by(path) for name, path in agents.items()}
        self._answers = {name: self._answers_of(path) for name, path in keepers.items()}

    def check(self) -> dict[str, int]:
        """What there is; raises AssertionError at the first thing that is not as it must be."""
        expected = Label(_SEASON, 0, 1)
        for opened in self._opened:
            assert opened.label == expected, "rows are over one after the other"
            expected = expected.following(empty=opened.empty)
            assert not opened.refused, f"the sum of {opened.label} was refused: {opened.refused}"
            self._check_sum(opened)
        self._check_uploads()
        self._check_lists()
        self._check_keepers(expected)
        for name, path in self._agents.items():
            self._check_agent(name, path)
        there = [one for one in self._opened if not one.empty]
        return {
            "rows opened": len(there),
            "rows opened without somebody": sum(len(one.listed) < len(self._agents) for one in there),
            "rows opened at the second attempt": sum(one.label.attempt == 2 for one in there),
            "attempts closed empty": len(self._opened) - len(there),
            "answers of keepers": sum(map(len, self._answers.values())),
        }

    def _check_sum(self, opened: Opened) -> None:
        """It is what the files of those listed, and of all keepers, add up to."""
        if opened.values is None:
            return
        names = opened.names(self._roster)
        rows = [self._built[name][opened.label] for name in names]
        for name, row, (place, leaf) in zip(names, rows, opened.listed, strict=True):
            assert row.entry(place).listed(name).leaf == leaf, f"{opened.label} has two rows of {name}"
        answers = [answers[opened.label] for answers in self._answers.values()]
        assert np.array_equal(open_sum([row.body for row in rows], answers), opened.values)

    def _check_uploads(self) -> None:
        """An agent's row at the controller is the one in its own file."""
        for row, attempt, agent, digest in self._told("row, attempt, agent, sha256", "rows"):
            built = self._built[agent][Label(_SEASON, 0, row, attempt)]
            assert sha256(built.to_bytes()).digest() == digest, f"row {row} of {agent} has two contents"

    def _check_lists(self) -> None:
        """All who were there are in a list, and it is empty only if they were too few."""
        came = self._told("row, attempt, agent, received_at", "rows")
        for row, attempt, made_at in self._told("row, attempt, made_at", "lists"):
            here = {name for one, again, name, at in came if (one, again) == (row, attempt) and at <= made_at}
            listed = [one for one in self._opened if one.label == Label(_SEASON, 0, row, attempt)]
            for opened in listed:  # the last one may be open still
                found = set(opened.names(self._roster))
                assert found == (here if len(here) >= self._quorum else set()), (
                    f"{opened.label} lists {found}"
                )

    def _check_keepers(self, next_label: Label) -> None:
        """Each has answered for the controller's lists and no others, with what the controller has."""
        lists = {
            Label(_SEASON, 0, row, attempt): digest
            for row, attempt, digest in self._told("row, attempt, digest", "lists")
        }
        for row, attempt, keeper, answer in self._told("row, attempt, keeper, answer", "answers"):
            own = self._answers[keeper][Label(_SEASON, 0, row, attempt)].to_bytes(self._roster)
            assert own == answer, f"keeper {keeper} has answered twice for row {row}"
        for keeper, path in self._keepers.items():
            assert _rows(path, "SELECT halted FROM open_season") == [("",)]
            assert _rows(path, "SELECT proof FROM evidence") == []
            answers = self._answers[keeper]
            assert answers.keys() - {next_label} == {opened.label for opened in self._opened}
            assert all(answer.listed == lists[label] for label, answer in answers.items())

    def _check_agent(self, name: str, path: Path) -> None:
        """It has heard the rows that were told, in order, and acts on what they tell."""
        assert _rows(path, "SELECT halted FROM secrets") == [("",)]
        heard = _rows(path, "SELECT row, attempt, agents, listed FROM opened ORDER BY row, attempt")
        told = [
            (one.label.row, one.label.attempt, len(one.listed), name in one.names(self._roster))
            for one in self._opened[: len(heard)]
        ]
        assert heard == told
        reader, newest = RowReader(self._terms), b""
        for opened in self._opened[: len(heard)]:
            read = reader.take(opened)
            if read is not None and not opened.empty:
                newest = messages.encode(read, season=_SEASON)
        assert _rows(path, "SELECT payload FROM inbox") == [(newest,)], f"{name} has another sum"

    def _read(self, body: bytes) -> Opened:
        known = {"coordinates": self._count, "quorum": self._quorum}
        return Opened.read(body, self._charter, self._roster, **known)

    def _told(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        """Of the controller's file, by row."""
        return _rows(self._controller, f"SELECT {columns} FROM {table} ORDER BY row, attempt")

    def _built_by(self, path: Path) -> dict[Label, PaddedRow]:
        return {
            Label(_SEASON, 0, number, _ATTEMPTS[kind]): PaddedRow.read(payload, coordinates=self._count)
            for kind, number, payload in _rows(path, "SELECT kind, number, payload FROM outgoing")
        }

    def _answers_of(self, path: Path) -> dict[Label, Answer]:
        read = (
            Answer.read(answer, self._charter, self._roster, coordinates=self._count)
            for (answer,) in _rows(path, "SELECT answer FROM answers")
        )
        return {answer.label: answer for answer in read}


def _rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()

"""Who changed what: the log has it all, names no visitor, and shows when a line was taken out or changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feducb.agent import Agent, AgentSettings, upkeep
from feducb.config import Budget, Problem
from feducb.service.api_keys import add_key, key_changes, revoke_key
from feducb.storage import operator_log
from feducb.system import current_user
from typed import typed

SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=8,
    schedule="periodic",
    season=800.0,
    window=10.0,
)
PERSON = "somebody@example.org"


def _lines(agent: Agent) -> list[tuple[str, str]]:
    return [(one["who"], one["what"]) for one in agent.operator_log()["entries"]]


def _opened(path: Path, settings: AgentSettings | None = SETTINGS) -> Agent:
    return Agent.open(path, settings, by="user ada")


def test_what_changes_an_agent_is_noted_with_who_did_it_over_seasons_and_a_restored_backup(
    tmp_path: Path,
) -> None:
    path, keys = tmp_path / "agent.db", tmp_path / "agent.keys"
    secret = add_key(keys, "shop", "application")
    with _opened(path) as agent:
        agent.note_keys(key_changes(keys))
        agent.note_keys(key_changes(keys))  # a second time there is nothing new
        agent.decide([[0.1, 0.2]], person=PERSON)
        upkeep.warm_start(agent, [[0.5, 0.1]], [1.0], policy="fixed")
        upkeep.erase(agent, PERSON, by="key office (0123456789ab)")
    with _opened(path, replace(SETTINGS, keep_events=60.0)) as agent:
        revoke_key(keys, "shop")
        agent.note_keys(key_changes(keys))
        agent.new_season(drop_open=True, by="the clock")
        before = agent.operator_log()
    with _opened(path, None):  # opened with what it has: nothing is new
        pass
    upkeep.backup(path, tmp_path / "copy")
    upkeep.restore(tmp_path / "copy", tmp_path / "again.db", season=9, by="user bob")
    with _opened(tmp_path / "again.db", SETTINGS) as agent:
        log = agent.operator_log()
        assert _lines(agent) == [
            ("user ada", "made"),
            (current_user(), "key added"),
            ("user ada", "warm start"),
            ("key office (0123456789ab)", "erasure"),
            ("user ada", "settings taken"),
            (current_user(), "key revoked"),
            ("the clock", "season opened"),
            ("user bob", "restored"),
            ("user ada", "season opened"),
        ]
    assert log["entries"][: len(before["entries"])] == before["entries"]  # byte for byte
    assert log["broken"] is None
    taken = next(one for one in log["entries"] if one["what"] == "settings taken")
    assert taken["details"]["changed"] == ["keep_events"]
    text = json.dumps(log)
    assert PERSON not in text
    assert secret not in text


def test_a_key_that_was_taken_out_of_its_file_by_hand_is_noted_too(tmp_path: Path) -> None:
    keys = tmp_path / "agent.keys"
    add_key(keys, "shop", "application")
    with _opened(tmp_path / "agent.db") as agent:
        agent.note_keys(key_changes(keys))
        plain = json.loads(keys.read_text())
        keys.write_text(json.dumps(plain | {"keys": []}))
        agent.note_keys(key_changes(keys))
        assert _lines(agent)[-1] == ("whoever edited the keys' file", "key revoked")


def test_a_file_of_keys_from_before_opens(tmp_path: Path) -> None:
    keys = tmp_path / "agent.keys"
    add_key(keys, "shop", "application")
    plain = json.loads(keys.read_text())
    old = {"version": 1, "keys": [{k: v for k, v in plain["keys"][0].items() if k != "made_by"}]}
    keys.write_text(json.dumps(old))
    (change,) = key_changes(keys)
    assert (change.name, change.by) == ("shop", "unknown")


def _made(path: Path) -> None:
    with _opened(path) as agent:
        for number in range(4):
            agent.note("something", number=number)


def _tampered(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for trigger in ("an_entry_stays", "an_entry_is_final"):
            db.execute(f"DROP TRIGGER {trigger}")
        for one in statements:
            db.execute(one)
        db.commit()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM operator_log WHERE number = 1", "entry 1 is missing"),
        ("DELETE FROM operator_log WHERE number = 3", "entry 3 is missing"),
        ("DELETE FROM operator_log WHERE number = 5", "it ends with entry 4, and 5 were written"),
        ("DELETE FROM operator_log", "it ends with entry 0, and 5 were written"),
        ("UPDATE operator_log SET who = 'user eve' WHERE number = 2", "entry 2 is not what was written"),
        ("UPDATE operator_log SET at = '2027' WHERE number = 5", "entry 5 is not what was written"),
        ("UPDATE operator_log SET details = '{}' WHERE number = 4", "entry 4 is not what was written"),
        ("UPDATE operator_log SET number = 9 WHERE number = 5", "entry 5 is missing"),
    ],
)
def test_whatever_is_removed_or_changed_is_noticed(tmp_path: Path, statement: str, said: str) -> None:
    path = tmp_path / "agent.db"
    _made(path)
    _tampered(path, statement)
    with closing(sqlite3.connect(path)) as db:
        assert said in str(operator_log.broken_at(db))


def test_lines_cannot_be_taken_out_by_mistake(tmp_path: Path) -> None:
    _made(tmp_path / "agent.db")
    with closing(sqlite3.connect(tmp_path / "agent.db")) as db:
        for statement in ("DELETE FROM operator_log", "UPDATE operator_log SET who = 'eve'"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                db.execute(statement)


def test_a_line_is_there_with_what_it_tells_of_or_not_at_all(tmp_path: Path) -> None:
    with _opened(tmp_path / "agent.db") as agent:

        def fails() -> None:
            with agent.writing():
                agent.note("something")
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fails()
        assert [what for _, what in _lines(agent)] == ["made"]


def test_the_command_shows_the_log_and_says_whether_it_is_whole(tmp_path: Path) -> None:
    """A chain that was made anew as a whole is told by a hash that was noted before."""
    say: Callable[..., Any] = lambda *words: typed("agent", *words, cwd=tmp_path)  # noqa: E731
    assert say("init", "--dim", "2").returncode == 0
    shown = say("log")
    assert (shown.returncode, "made (season 1, settings" in shown.stdout) == (0, True)
    end = json.loads(say("log", "--json", "-").stdout)["end"]
    assert end in shown.stderr
    assert say("log", "--holds", end).returncode == 0
    path = tmp_path / "agent.db"
    _tampered(path, "DELETE FROM operator_log", "DELETE FROM operator_log_end")
    with closing(sqlite3.connect(path)) as db:
        operator_log.add(db, "user eve", "made")
        db.commit()
    assert say("log").returncode == 0
    other = say("log", "--holds", end)
    assert (other.returncode, "not the one that it was noted from" in other.stderr) == (3, True)
    _tampered_again(path)
    assert say("log").returncode == 3


def _tampered_again(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE operator_log SET who = 'user ada'")
        db.commit()

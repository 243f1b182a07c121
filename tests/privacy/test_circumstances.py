"""Every sentence of the page to sign follows from the store: change the setting, and the sentence changes."""

from __future__ import annotations

import json
import math
import time
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from feducb.agent import Agent, AgentSettings
from feducb.cli.privacy import app
from feducb.cli.privacy_statement import _Stated
from feducb.config import Budget, Problem
from feducb.privacy.circumstances import Kept, in_odds, retention
from feducb.privacy.terms import Terms
from feducb.storage import ControllerStore
from feducb.trust import CONTROLLER

START = 1_800_000_000.0  # 2027-01-15 08:00 UTC
SETTINGS = AgentSettings(
    name="north",
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=4,
    schedule="periodic",
    start=START,
)


def _ask(*options: str) -> Result:
    return CliRunner().invoke(app, ["statement", "--out", "-", *options])


def _row(page: str, name: str) -> str:
    return next((line for line in page.splitlines() if line.startswith(f"| **{name}** |")), "")


def _page(folder: Path, settings: AgentSettings, *options: str) -> str:
    Agent.open(folder / "agent.db", settings).close()
    told = _ask("--store", str(folder / "agent.db"), *options)
    assert told.exit_code == 0, told.output
    return told.stdout


@pytest.mark.parametrize(
    ("change", "row", "said", "unsaid"),
    [
        ({}, "Kept", "Raw events are not kept", "RAW EVENTS ARE KEPT"),
        ({"keep_events": 7 * 86400.0}, "Kept", "RAW EVENTS ARE KEPT (keep_events)", "events are not kept"),
        ({"keep_events": 7 * 86400.0}, "Kept", "for 7 days after the reward window (1 hour)", "delete"),
        (
            {"keep_events": 5400.0, "window": 90.0},
            "Kept",
            "for 1.5 hours after the reward window (1.5 m",
            "7",
        ),
        ({"window": 600.0}, "Kept", "when the reward window (10 minutes) has closed", "1 hour"),
        ({}, "Parties", "agent north, on its own", "one of"),
        ({"name": "south", "agents": 3}, "Parties", "agent south, one of 3 agents", "on its own"),
        ({}, "Dates", "Season 1, from 2027-01-15 08:00 UTC to 2027-02-14 08:00 UTC", "2028"),
        ({"season": 86400.0}, "Dates", "to 2027-01-16 08:00 UTC; the last release is due", "2027-02"),
        ({"start": START + 86400.0}, "Dates", "from 2027-01-16 08:00 UTC", "2027-01-15"),
        ({}, "In odds", "at most e^ε = 2.72 times", "e^ε = 7.39"),
        ({"budget": Budget(epsilon=2.0, delta=1e-6)}, "In odds", "at most e^ε = 7.39 times", "2.72"),
        ({"budget": Budget(epsilon=2.0, delta=1e-6)}, "In odds", "at most 88.08 % likely", "73.11"),
        ({"budget": Budget(epsilon=1.0, delta=1e-7)}, "In odds", "a chance of δ = 1e-07", "1e-06"),
    ],
)
def test_a_setting_of_the_store_is_what_the_page_says(
    tmp_path: Path, change: dict[str, Any], row: str, said: str, unsaid: str
) -> None:
    found = _row(_page(tmp_path, replace(SETTINGS, **change)), row)
    assert said in found
    assert unsaid not in found


@pytest.mark.parametrize("keep", [0.0, 3600.0])
def test_what_is_said_to_be_kept_is_what_the_file_has(tmp_path: Path, keep: float) -> None:
    """The claim against the file itself: after a window has closed its content is there, or it is not."""
    now = [START + 1.0]
    settings = replace(SETTINGS, keep_events=keep, window=60.0)
    with Agent.open(tmp_path / "agent.db", settings, clock=lambda: now[0]) as agent:
        agent.decide(0.5 * np.eye(2))
        now[0] += 61.0
        agent.tick()
        query = "SELECT count(*) FROM decisions WHERE action IS NOT NULL"
        (there,) = agent.store.database.execute(query).fetchone()
        now[0] += keep + 61.0
        agent.tick()
        (later,) = agent.store.database.execute(query).fetchone()
    page = _row(_page(tmp_path, settings), "Kept")
    assert (there, "RAW EVENTS ARE KEPT" in page) == ((1, True) if keep else (0, False))
    assert later == 0  # no longer than it says


def test_without_a_store_nothing_is_claimed_about_one() -> None:
    page = _ask().stdout
    assert "unless keep_events in its file keeps raw events for longer" in _row(page, "Kept")
    assert _row(page, "Dates") == ""
    assert "agent" not in _row(page, "Parties")


def test_a_trusted_controllers_file_speaks_of_the_controller(tmp_path: Path) -> None:
    terms = Terms(
        problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=4, trust=CONTROLLER
    )
    ControllerStore.open(tmp_path / "controller.db", terms).close()
    page = _ask("--store", str(tmp_path / "controller.db")).stdout
    assert "At the controller: each agent's raw sums, until the release that they are in is made" in page
    assert "the controller of a federation, whom its agents trust" in _row(page, "Parties")
    assert "keep_events" not in page


def test_seasons_add_up_for_whoever_stays(tmp_path: Path) -> None:
    """Two seasons in which something left: μ over both is √2 of one's."""
    path = tmp_path / "agent.db"
    settings = replace(SETTINGS, start=None)
    with Agent.open(path, settings, clock=lambda: START) as agent:
        mu = agent.store.terms.certificate().mu
        agent.store.release()
        once = f"has μ = {mu:.6g}"
        agent.new_season(drop_open=True)
        agent.store.release()
    page = _ask("--store", str(path)).stdout
    assert f"has μ = {math.sqrt(2.0) * mu:.6g}, which is ε = " in page
    assert once not in page
    assert "Season 2, from" in _row(page, "Dates")


SIGNED = (
    ("purpose", "Purpose", "which offer a visitor is shown"),
    ("party", "Responsible", "North Shops plc"),
)


def test_what_only_the_signer_knows_is_written_or_left_blank(tmp_path: Path) -> None:
    blank = _page(tmp_path, SETTINGS)
    words = [word for name, _, text in SIGNED for word in (f"--{name}", text)]
    filled = _ask(
        "--store", str(tmp_path / "agent.db"), *words, "--signer", "Officer", "--date", "2027-01-31"
    )
    for _, row, text in SIGNED:
        assert _row(blank, row).endswith("____ |")
        assert _row(filled.stdout, row) == f"| **{row}** | {text} |"
    assert "Signed: ______________________    Date: ______________" in blank
    assert "Signed: ______________________    Officer    Date: 2027-01-31" in filled.stdout


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--date", "31.1.2027", "a day, such as 2027-01-31"),
        ("--date", "", "a day, such as 2027-01-31"),
        ("--purpose", "a | b", "in one line, without |"),
        ("--party", " ", "a few words"),
        ("--signer", "a\nb", "in one line"),
    ],
)
def test_what_cannot_stand_on_the_page_is_refused(option: str, value: str, expected: str) -> None:
    told = _ask(option, value)
    assert (told.exit_code != 0, expected in str(told.exception)) == (True, True)


BESIDE_A_STORE = {"store", "out", "keepers", "purpose", "party", "signer", "date"}


@pytest.mark.parametrize(
    "name", sorted(one.name for one in fields(_Stated) if one.name not in BESIDE_A_STORE)
)
def test_no_option_that_the_store_answers_is_ignored_silently(tmp_path: Path, name: str) -> None:
    """Not even one that has its default's value."""
    Agent.open(tmp_path / "agent.db", SETTINGS).close()
    values = {"trust": "nobody", "contexts": "private", "play": "released", "epsilon": "1", "delta": "1e-6"}
    option = f"--{name.replace('_', '-')}"
    told = _ask("--store", str(tmp_path / "agent.db"), option, values.get(name, "1"))
    assert told.exit_code != 0
    assert f"{option} is" in str(told.exception)
    assert "expected nothing beside --store, which says it" in str(told.exception)


def test_keepers_beside_a_store_without_any_are_refused_too(tmp_path: Path) -> None:
    Agent.open(tmp_path / "agent.db", SETTINGS).close()
    told = _ask("--store", str(tmp_path / "agent.db"), "--keepers", "ana,bo")
    assert "nothing but with --trust keepers" in str(told.exception)


def test_the_data_beside_the_page_says_the_same(tmp_path: Path) -> None:
    Agent.open(tmp_path / "agent.db", replace(SETTINGS, keep_events=60.0)).close()
    given = ["statement", "--store", str(tmp_path / "agent.db"), "--out", str(tmp_path / "page")]
    assert CliRunner().invoke(app, [*given, "--signer", "Officer"]).exit_code == 0
    plain = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert (plain["store"]["keep_events"], plain["store"]["name"]) == (60.0, "north")
    assert plain["signed"] == {"purpose": None, "party": None, "signer": "Officer", "date": None}
    written = datetime.fromisoformat(plain["written"])
    assert abs((datetime.now(UTC) - written).total_seconds()) < 3600.0
    assert time.gmtime(plain["store"]["starts"])[:3] == (2027, 1, 15)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 50.0, 1000.0])
def test_odds_hold_for_every_epsilon(epsilon: float) -> None:
    said = in_odds(Budget(epsilon=epsilon, delta=1e-6))
    assert "nan" not in said
    assert "inf" not in said
    assert ("more than " in said) == (epsilon > 700.0)


def test_padded_rows_and_own_sums_are_kept_only_where_there_are_some() -> None:
    for padded in (False, True):
        for own in (False, True):
            text = retention(Kept(window=60.0), padded=padded, own=own)
            assert ("padded bytes" in text, "Under own play" in text) == (padded, own)


def test_an_agent_alone_has_the_same_rows_and_says_what_it_keeps(tmp_path: Path) -> None:
    alone = AgentSettings(name="north", problem=Problem(dim=2), budget=SETTINGS.budget, trust="self")  # type: ignore[arg-type]
    for keep, said in ((0.0, "Raw events are not kept"), (3600.0, "RAW EVENTS ARE KEPT")):
        page = _page(tmp_path, replace(alone, keep_events=keep, start=START), "--party", "North Shops")
        assert said in _row(page, "Kept")
        assert "not deleted when a season ends" in _row(page, "Kept")
        assert "agent north, on its own" in _row(page, "Parties")
        assert "North Shops" in _row(page, "Responsible")
        assert "last release" not in _row(page, "Dates")
